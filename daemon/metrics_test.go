package daemon_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// Every process says what it was built from, how its last reload went, and what the runtime and the kernel know of it, in the names that
// Prometheus's own tools expect.
func TestMetricsOfEachProcess(t *testing.T) {
	t.Parallel()
	promtool := need.Program(t, "promtool")
	r := newRig(t, "")
	metrics := map[string]string{"controller": r.metrics, "balancer": need.FreeAddress(t), "agent": need.FreeAddress(t)}
	r.write(plain(reader(t), need.FreeAddress(t), "static"))
	r.replace("metrics: off", fmt.Sprintf("metrics: %q", metrics["balancer"]))
	r.replace("agent: {", fmt.Sprintf("agent: {metrics: %q, ", metrics["agent"]))
	procs := map[string]*proc{}
	receiver := newOTLPReceiver(t)
	for name := range metrics {
		cmd := exec.Command(quellProgram, name, "--config", r.config)
		cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+receiver.URL, "OTEL_METRIC_EXPORT_INTERVAL=300")
		procs[name] = r.launch(name, cmd)
	}
	shows := func(name, line string) {
		t.Helper()
		r.await(fmt.Sprintf("%q among the metrics of the %s", line, name), func() (bool, any) {
			body, err := get("http://" + metrics[name] + "/metrics")
			return err == nil && strings.Contains(string(body), line), err
		})
	}
	for name, own := range map[string]string{
		"controller": "quell_leading{", "balancer": "quell_balancer_weight{", "agent": "quell_agent_observations_total",
	} {
		for _, line := range []string{own, `quell_build_info{`, "quell_config_last_reload_successful 1\n", "go_goroutines ",
			"quell_config_last_reload_success_timestamp_seconds "} {
			shows(name, line)
		}
		resp, err := http.Get("http://" + metrics[name] + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		check := exec.Command(promtool, "check", "metrics")
		check.Stdin = resp.Body
		if said, err := check.CombinedOutput(); err != nil || len(said) > 0 {
			t.Errorf("promtool on the metrics of the %s: %v %s", name, err, said)
		}
		resp.Body.Close()
	}
	r.awaitStatus("a decision", func(s controller.Status) bool { return !s.At.IsZero() && len(s.Instances) > 0 })
	r.checkAPI(metrics)
	for name, address := range metrics { // by OTLP, too
		r.await("the metrics of the "+name+" by OTLP", func() (bool, any) {
			body, err := get("http://" + address + "/metrics")
			lacking, fault := receiver.lacking("quell-"+name, body)
			return err == nil && len(body) > 0 && len(lacking) == 0, []any{lacking, fault, err}
		})
	}
	r.replace("data: data", "data: data\nnonsense: 1")
	for name, p := range procs {
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		shows(name, "quell_config_last_reload_successful 0\n")
	}
	r.replace("data: data\nnonsense: 1", "data: data")
	for name, p := range procs {
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		shows(name, "quell_config_last_reload_successful 1\n")
	}
}
