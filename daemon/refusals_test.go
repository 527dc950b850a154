package daemon_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// occupy listens on an address that a process needs.
func occupy(t *testing.T, address string) {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
}

// wantFree checks that nobody listens on the addresses.
func wantFree(t *testing.T, addresses ...string) {
	t.Helper()
	for _, address := range addresses {
		ln, err := net.Listen("tcp", address)
		if err != nil {
			t.Errorf("something is left behind: %v", err)
			continue
		}
		ln.Close()
	}
}

// wantRefusal checks that a process ended by itself, with one clear message.
func wantRefusal(t *testing.T, p *proc, status int, words ...string) {
	t.Helper()
	got, said := p.ends(t), p.said()
	last := lastLine(said)
	if got != status || !strings.HasPrefix(last, "quell: ") || !has(last, words...) || strings.Contains(said, "goroutine ") {
		t.Errorf("status %d, want %d; want %q in the last line of\n%s", got, status, words, said)
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func TestPortsThatAreTaken(t *testing.T) {
	t.Parallel()
	t.Run("of the bus", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, "")
		r.write(hosts(r))
		occupy(t, r.bus)
		wantRefusal(t, r.start("controller"), 1, "bus.listen "+r.bus, "in use")
		wantFree(t, r.metrics)
	})
	t.Run("of the metrics", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, "")
		r.write(hosts(r))
		occupy(t, r.metrics)
		wantRefusal(t, r.start("controller"), 1, "controller's page and metrics", r.metrics, "in use")
		wantFree(t, r.bus)
		if pids := r.pids(); len(pids) > 0 {
			t.Errorf("instances were started: %v", pids)
		}
	})
	t.Run("of the traffic", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, "")
		r.write(hosts(r))
		occupy(t, r.traffic)
		wantRefusal(t, r.start("balancer"), 1, r.traffic, "in use")
		if _, err := os.Stat(r.admin); err == nil {
			t.Error("the admin socket is left behind")
		}
	})
	t.Run("of the probe server", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, "")
		probe := need.FreeAddress(t)
		r.write(plain("127.0.0.1:9", probe, "static"))
		occupy(t, probe)
		wantRefusal(t, r.start("agent"), 1, "probe.listen", probe, "in use")
	})
	t.Run("of a machine", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, "")
		r.write(hosts(r))
		address := need.FreeAddress(t)
		occupy(t, address)
		wantRefusal(t, r.start("host", "--listen", address, "--probe-listen", need.FreeAddress(t)), 1, address, "in use")
	})
}

func TestOneControllerPerFolder(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	r.write(hosts(r))
	r.start("controller")
	r.awaitStatus("the first one to lead", func(s controller.Status) bool { return s.Leading })
	second := newRig(t, "")
	second.write(hosts(second))
	replaceIn(t, second.config, "data: data", fmt.Sprintf("data: %q", filepath.Join(r.dir, "data")))
	wantRefusal(t, second.start("controller"), 1, filepath.Join(r.dir, "data"), "a controller runs already")
	wantFree(t, second.bus, second.metrics)
	if s, err := r.status(); err != nil || !s.Leading {
		t.Errorf("the first one: %+v, %v", s, err)
	}
}

func replaceIn(t *testing.T, path, old, new string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), old) {
		t.Fatalf("%q is not in %s", old, path)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), old, new, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A folder below a file cannot be made, not even by root.
func TestAFolderThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	r.write(hosts(r))
	if err := os.WriteFile(filepath.Join(r.dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	replaceIn(t, r.config, "data: data", "data: file/data")
	wantRefusal(t, r.start("controller"), 1, "making the data folder", filepath.Join(r.dir, "file"), "not a directory")
	wantFree(t, r.bus, r.metrics)
}

// While the bus refuses connections, only readings are lost: the balancer forwards requests, and all processes keep trying to connect.
// Agent and balancer run as on other machines, without access to the controller's folder.
func TestATokenThatIsWrongForAWhile(t *testing.T) {
	t.Parallel()
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("here")) }))
	defer origin.Close()
	r := newRig(t, "")
	balancerMetrics, agentMetrics := need.FreeAddress(t), need.FreeAddress(t)
	r.write(plain(strings.TrimPrefix(origin.URL, "http://"), need.FreeAddress(t), "static"))
	replaceIn(t, r.config, "  metrics: off", fmt.Sprintf("  metrics: %q", balancerMetrics))
	replaceIn(t, r.config, "agent: {", fmt.Sprintf("agent: {metrics: %q, ", agentMetrics))
	listen := fmt.Sprintf("bus: {listen: %q", r.bus)
	replaceIn(t, r.config, listen, listen+", token_file: token")
	right := func(token string) {
		if err := os.WriteFile(filepath.Join(r.dir, "token"), []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	right("right")
	r.start("controller")
	r.awaitStatus("the controller to lead", func(s controller.Status) bool { return s.Leading })

	right("wrong")
	replaceIn(t, r.config, "data: data", "data: elsewhere")
	agent, balancer := r.start("agent"), r.start("balancer")
	page := func(address, path string) func() (string, error) {
		return func() (string, error) { body, err := get("http://" + address + path); return string(body), err }
	}
	await := func(what string, read func() (string, error), words ...string) {
		t.Helper()
		r.await(what, func() (bool, any) { text, err := read(); return err == nil && has(text, words...), text })
	}
	await("traffic", page(r.traffic, "/"), "here")
	await("the balancer to say so", page(balancerMetrics, "/healthz"), "ok\n", "refused the token")
	await("the balancer to show it", page(balancerMetrics, "/metrics"), "quell_balancer_bus_connected{", "} 0")
	await("the agent to say so", page(agentMetrics, "/readyz"), "refused the token")
	await("the agent to show it", page(agentMetrics, "/metrics"), "quell_agent_bus_connected 0")

	right("right")
	await("the agent to be ready", page(agentMetrics, "/readyz"), "ok")
	await("the agent to show that", page(agentMetrics, "/metrics"), "quell_agent_bus_connected 1")
	r.await("the balancer to be connected", func() (bool, any) {
		text, err := page(balancerMetrics, "/healthz")()
		return err == nil && !has(text, "bus"), text
	})
	r.awaitStatus("a fresh reading of the instance", func(s controller.Status) bool {
		return len(s.Instances) == 1 && !s.Instances[0].Stale && s.Instances[0].RequestRate != nil && s.Instances[0].Utilization != nil
	})
	if n := strings.Count(agent.said()+balancer.said(), "refused the token"); n > 4 {
		t.Errorf("the refusal was logged %d times:\n%s\n%s", n, agent.said(), balancer.said())
	}
}

// TestMistakesInTheFile does not cover emulated machines, because they start in spite of mistakes in sections that they do not
// read.
func TestMistakesInTheFile(t *testing.T) {
	t.Parallel()
	for _, process := range []string{"controller", "balancer", "agent"} {
		t.Run(process, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "")
			r.write(hosts(r) + "guard: {flor: 0.1}\n")
			lines := strings.Split(readFile(t, r.config), "\n")
			at := fmt.Sprintf("%s:%d:", r.config, len(lines)-1)
			p := r.start(process)
			if status, said := p.ends(t), p.said(); status != 2 || !has(said, at, "flor", "floor") {
				t.Errorf("status %d, want 2; want %q and a hint in\n%s", status, at, said)
			}
		})
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
