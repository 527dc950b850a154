package daemon_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell/balancer/haproxy"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// haproxyService starts examples/haproxy with its own addresses: HAProxy, the controller, two machines.
func haproxyService(t *testing.T) *rig {
	t.Helper()
	program := need.Program(t, "haproxy")
	r := newRig(t, "")
	places := strings.NewReplacer(
		"/run/haproxy/quell.sock", r.admin, "/var/lib/quell", filepath.Join(r.dir, "data"), "127.0.0.1:5514", need.FreeAddress(t),
		"127.0.0.1:8080", r.traffic, "127.0.0.1:9464", r.metrics, "127.0.0.1:4222", r.bus,
		"[quell, host, --config, quell.yaml", "["+quellProgram+", host, --config, "+r.config, "service: files", "service: shop",
		"sampling: 1s", "sampling: "+sampling.String(), "guard: {stale_after: 5}", "guard: {stale_after: 10}",
		// nothing may outlive this test
		"inter 1s", "inter 100ms", "hard-stop-after 30s", "hard-stop-after 30s\n  nbthread 2\n  maxconn 1000", "budget: 2%", "timeout: 300ms",
		"linger: 30s", "lifeline: true",
	)
	for from, to := range map[string]string{"quell.yaml": r.config, "haproxy.cfg": filepath.Join(r.dir, "haproxy.cfg")} {
		text, err := os.ReadFile(filepath.Join("..", "examples", "haproxy", from))
		if err == nil {
			err = os.WriteFile(to, []byte(places.Replace(string(text))), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if out, status := r.quell("config", "check", r.config); status != 0 {
		t.Fatalf("the example's configuration: %s", out)
	}
	r.launch("haproxy", exec.Command(program, "-db", "-f", filepath.Join(r.dir, "haproxy.cfg")))
	r.start("controller")
	r.awaitServing("i1", "i2")
	return r
}

// TestHAProxy runs the whole loop: machines start behind HAProxy and serve, requests in HAProxy's log are measured, a
// killed machine is replaced, and a HAProxy that is killed and started again continues as before.
func TestHAProxy(t *testing.T) {
	t.Parallel()
	r := haproxyService(t)
	load := flow(r)
	r.awaitStatus("response times and probes", func(s controller.Status) bool {
		for _, in := range s.Instances {
			if in.LatencyMS == nil || in.RequestRate == nil || *in.RequestRate == 0 {
				return false
			}
		}
		return len(s.Instances) == 2
	})
	r.await("a histogram of the response times", func() (bool, any) {
		body, err := get("http://" + r.metrics + "/metrics")
		const none = `quell_request_duration_seconds_count{service="shop"} 0` + "\n"
		return err == nil && has(string(body), "quell_request_duration_seconds_count{") && !has(string(body), none), err
	})
	pid := r.pids()["i2"]
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.awaitServing("i1", "i3")
	load.more(50)
	load.failures() // requests to the killed machine fail until HAProxy's checks notice

	steady := flow(r)
	steady.more(50)
	steady.wantNoFailures()

	r.procs[0].kill(t)
	r.awaitStatus("the controller to notice", func(s controller.Status) bool { return s.Failures["look"] > 0 })
	r.launch("haproxy", exec.Command("haproxy", "-db", "-f", filepath.Join(r.dir, "haproxy.cfg")))
	r.await("HAProxy to serve again", func() (bool, any) {
		_, err := get("http://" + r.traffic + "/file")
		return err == nil, err
	})
	flow(r).wantNoFailures()
	r.awaitServing("i1", "i3")
	r.inHAProxy("i1", "i3")
}

// inHAProxy waits until a new driver finds these instances, with equal shares.
func (r *rig) inHAProxy(ids ...string) {
	r.t.Helper()
	d, err := haproxy.New(haproxy.Options{Sockets: []string{r.admin}, Backend: "files", Slots: "slot",
		Memory: filepath.Join(r.dir, "data", "haproxy.json")})
	if err != nil {
		r.t.Fatal(err)
	}
	defer d.Close()
	r.await("equal shares in HAProxy", func() (bool, any) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		states, err := d.State(ctx)
		equal := err == nil && len(states) == len(ids)
		for i := range states {
			equal = equal && states[i].ID == ids[i] && states[i].Weight == 1/float64(len(ids))
		}
		return equal, states
	})
}
