package daemon_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// TestEnvoy runs the whole loop: machines start and become endpoints of an Envoy, requests in its access log are measured, a killed machine
// is replaced, and Envoy outlives a controller that is killed.
func TestEnvoy(t *testing.T) {
	t.Parallel()
	program := need.Envoy(t)
	r := newRig(t, "")
	file := func(name string) string { return filepath.Join(r.dir, name) }
	xds := need.FreeAddress(t)
	place := func(address string) string { return strings.Replace(address, ":", ", port_value: ", 1) }
	envoy, err := os.ReadFile(filepath.Join("..", "examples", "envoy", "envoy.yaml"))
	service, missing := os.ReadFile(filepath.Join("..", "examples", "haproxy", "quell.yaml"))
	if err != nil || missing != nil {
		t.Fatal(err, missing)
	}
	before, rest, _ := strings.Cut(string(service), "balancer:\n")
	_, after, _ := strings.Cut(rest, "scaler:\n")
	places := strings.NewReplacer(
		"/var/lib/quell", file("data"), "127.0.0.1:9464", r.metrics, "127.0.0.1:4222", r.bus, "service: files", "service: shop",
		"[quell, host, --config, quell.yaml", "["+quellProgram+", host, --config, "+r.config,
		"sampling: 1s", "sampling: "+sampling.String(), "guard: {stale_after: 5}", "guard: {stale_after: 10}",
		"budget: 2%", "timeout: 300ms", "linger: 30s", "lifeline: true", // nothing may outlive this test
	)
	text := places.Replace(before) + fmt.Sprintf(`balancer:
  kind: envoy
  drain: 10s
  health: {path: /healthz, interval: 100ms}
  envoy: {listen: %q, clusters: [shop], balance: leastconn}
scaler:
`, xds) + places.Replace(after)
	front := strings.NewReplacer("127.0.0.1, port_value: 8080", place(r.traffic), "127.0.0.1, port_value: 18000", place(xds),
		"10.0.0.11", "127.0.0.1", "10.0.0.12", "127.0.0.1", "port_value: 80}", "port_value: 9}", "0.5s", "0.1s").Replace(string(envoy))
	for path, text := range map[string]string{file("envoy.yaml"): front, r.config: text} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, status := r.quell("config", "check", r.config); status != 0 {
		t.Fatalf("the configuration: %s", out)
	}
	r.launch("envoy", exec.Command(program, "-c", file("envoy.yaml"), "--concurrency", "1", "--disable-hot-restart", "-l", "warning"))
	first := r.start("controller")
	r.awaitServing("i1", "i2")
	r.await("Envoy to serve", func() (bool, any) {
		_, err := get("http://" + r.traffic + "/file")
		return err == nil, err
	})
	load := flow(r)
	load.more(50)
	r.awaitStatus("response times and probes", func(s controller.Status) bool {
		for _, in := range s.Instances {
			if in.LatencyMS == nil || in.RequestRate == nil || *in.RequestRate == 0 {
				return false
			}
		}
		return len(s.Instances) == 2
	})
	if err := syscall.Kill(r.pids()["i2"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.awaitServing("i1", "i3")
	load.failures() // requests to the killed machine may fail
	flow(r).wantNoFailures()
	first.kill(t)
	r.start("controller")
	r.awaitServing("i1", "i3")
	flow(r).wantNoFailures()
}
