package daemon_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// The command shows the answers of the parts that run; for the other parts it shows the request and the error.
func TestConfigCheckOnline(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	service, probe := need.FreeAddress(t), need.FreeAddress(t)
	r.write(strings.Replace(plain(service, probe, "static"), "instances: [{id: i1,", fmt.Sprintf("instances: [{id: i1, probe: %q,", probe), 1))
	out, status := r.quell("config", "check", "--online", "--config", r.config)
	if status != 1 || strings.Contains(out, "ok    ") || !has(out, "quell.yaml: ok: service shop",
		"FAILED  bus nats://"+r.bus+": connect: no credential for the bus: on the controller's machine start the controller first",
		"FAILED  balancer at "+r.admin+": backends: ",
		"FAILED  instance i1 at "+service+": GET /healthz: GET /healthz: dial tcp", "FAILED  probe server of i1 at "+probe+": 8 probes: ",
		"connection refused", "4 of 4 questions failed") {
		t.Errorf("status %d with nothing running:\n%s", status, out)
	}

	r.launch("host", exec.Command(quellProgram, "host", "--listen", service, "--file-size", "20000"))
	r.start("controller")
	r.start("balancer")
	r.start("agent")
	r.awaitServing("i1")
	r.awaitStatus("a decision", func(s controller.Status) bool { return !s.At.IsZero() })
	out, status = r.quell("config", "check", "--online", "--config", r.config)
	if status != 0 || strings.Contains(out, "FAILED") || !has(out,
		"ok      bus nats://"+r.bus+": connect: connected", "ok      controller of shop: status: 1 instance(s), last decision at ",
		"ok      balancer at "+r.admin+": backends: i1 healthy", "ok      instance i1 at "+service+": GET /healthz: well",
		"ok      probe server of i1 at "+probe+": 8 probes: answered, mean ") {
		t.Errorf("status %d with everything running:\n%s", status, out)
	}
}
