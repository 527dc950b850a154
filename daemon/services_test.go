package daemon_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/haproxy"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// severalPatience is the longest waiting time of tests with many processes, on a busy machine.
const severalPatience = 60 * time.Second

var fleetServices = []string{"shop", "api", "files"}

// fleetRig is examples/services with its own addresses: a HAProxy with three backends over the same four machines, one controller, and one
// agent for each machine.
type fleetRig struct {
	*rig
	frontends map[string]string // address for clients, by service
	own       map[string]string // text of each service's file
	agents    []*proc
	machines  []string // folder of each machine's configuration
	probes    []string // address of each machine's probe server
	program   string
}

const fleetMachines = 4

func newFleetRig(t *testing.T) *fleetRig {
	t.Helper()
	f := &fleetRig{program: need.Program(t, "haproxy"), rig: newRig(t, ""), frontends: map[string]string{}, own: map[string]string{}}
	pairs := []string{"/run/haproxy/quell.sock", f.admin, "/var/lib/quell", filepath.Join(f.dir, "data"), "127.0.0.1:9464", f.metrics,
		`"10.0.0.2:4222", credentials: "/etc/quell/{service}.creds"`, `"` + f.bus + `"`, "sampling: 10s", "sampling: 500ms",
		"mode: advise", "mode: act\ngroup: {startup: 30s}\nguard: {stale_after: 0}", "policy: {name: prima}", "policy: {name: static}",
		", token_file: probe.token", ", timeout: 400ms", "inter 1s", "inter 200ms",
		"hard-stop-after 30s", "hard-stop-after 30s\n  nbthread 2\n  maxconn 1000",
		"capacity: {network: 1Gbps}", "capacity: {network: 1Gbps}\n  interface: lo"}
	for k, service := range fleetServices {
		f.frontends[service] = need.FreeAddress(t)
		pairs = append(pairs, fmt.Sprintf("127.0.0.1:%d", 8001+k), f.frontends[service], fmt.Sprintf("127.0.0.1:%d", 5514+k), need.FreeAddress(t))
	}
	for m := range fleetMachines {
		f.probes = append(f.probes, need.FreeAddress(t))
		pairs = append(pairs, fmt.Sprintf("10.0.0.%d:9466", 11+m), f.probes[m])
		for k := range fleetServices {
			pairs = append(pairs, fmt.Sprintf("10.0.0.%d:%d", 11+m, 8001+k), serveText(t, 20000))
		}
	}
	places := strings.NewReplacer(pairs...)
	for _, name := range []string{"quell.yaml", "shop.yaml", "api.yaml", "files.yaml", "haproxy.cfg"} {
		text, err := os.ReadFile(filepath.Join("..", "examples", "services", name))
		if err != nil {
			t.Fatal(err)
		}
		f.own[name] = places.Replace(string(text))
	}
	for m := range fleetMachines {
		f.machines = append(f.machines, filepath.Join(f.dir, fmt.Sprintf("m%d", m+1)))
	}
	for name, text := range f.own {
		f.put(name, text)
	}
	return f
}

// serveText runs a web server until the test ends.
func serveText(t *testing.T, size int) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	body := strings.Repeat("x", size)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	return listener.Addr().String()
}

// put writes a file for the controller and for every machine's agent, which differ in the address of the probe server only.
func (f *fleetRig) put(name, text string) {
	f.t.Helper()
	for m, folder := range append(slices.Clone(f.machines), f.dir) {
		own := text
		if m < len(f.machines) {
			own = strings.Replace(text, "0.0.0.0:9466", f.probes[m], 1)
		} else {
			own = strings.Replace(text, "0.0.0.0:9466", "127.0.0.1:9466", 1)
		}
		if err := os.MkdirAll(folder, 0o700); err != nil {
			f.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(own), 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
}

// names replaces the list of services.
func (f *fleetRig) names(services ...string) {
	f.t.Helper()
	list := "services: [" + strings.Join(services, ".yaml, ") + ".yaml]"
	f.put("quell.yaml", strings.Replace(f.own["quell.yaml"], "services: [shop.yaml, api.yaml, files.yaml]", list, 1))
}

func (f *fleetRig) startAgents() {
	for m, folder := range f.machines {
		f.agents = append(f.agents, f.launch("agent", exec.Command(quellProgram, "agent", "--config", filepath.Join(folder, "quell.yaml"),
			"--instance", fmt.Sprintf("m%d", m+1))))
	}
}

func (f *fleetRig) hangUp(list ...*proc) {
	f.t.Helper()
	for _, p := range list {
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			f.t.Fatal(err)
		}
	}
}

// of gets the status of one service.
func (r *rig) of(service string) (s controller.Status, err error) {
	body, err := get("http://" + r.metrics + "/status?service=" + service)
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	return s, err
}

// awaitOf waits until a service's status is as wanted.
func (r *rig) awaitOf(what, service string, is func(controller.Status) bool) (s controller.Status) {
	r.t.Helper()
	r.awaitFor(severalPatience, service+": "+what, func() (bool, any) {
		now, err := r.of(service)
		if err != nil {
			return false, err
		}
		s = now
		return is(now), now
	})
	return s
}

// awaitShared waits until services lead, have all machines, and get the readings of their agents.
func (f *fleetRig) awaitShared(services ...string) {
	f.t.Helper()
	for _, service := range services {
		f.awaitOf("four machines with agents", service, func(s controller.Status) bool {
			n := 0
			for _, in := range s.Instances {
				if in.State == quell.Ready && in.Utilization != nil && in.Weight != nil {
					n++
				}
			}
			return n == fleetMachines && s.Leading && s.Service == service
		})
	}
}

// shareAt reads a machine's share of a service from HAProxy, not from the controller.
func (f *fleetRig) shareAt(service, machine string) (float64, error) {
	d, err := haproxy.New(haproxy.Options{Sockets: []string{f.admin}, Backend: service, Memory: filepath.Join(f.t.TempDir(), "memory.json")})
	if err != nil {
		return 0, err
	}
	defer d.Close()
	states, err := d.State(f.t.Context())
	if err != nil {
		return 0, err
	}
	for _, s := range states {
		if s.ID == machine {
			return s.Weight, nil
		}
	}
	return 0, fmt.Errorf("no server %s", machine)
}

func (f *fleetRig) awaitShare(service, machine string, want float64) {
	f.t.Helper()
	f.awaitFor(severalPatience, fmt.Sprintf("share %.2f of %s in %s", want, machine, service), func() (bool, any) {
		got, err := f.shareAt(service, machine)
		return err == nil && got > want-0.02 && got < want+0.02, fmt.Sprint(got, err)
	})
}

// run runs a command with the configuration, and checks its status and what it says.
func (f *fleetRig) run(command string, wantStatus int, want ...string) {
	f.t.Helper()
	out, status := f.quell(append(strings.Fields(command), "--config", f.config)...)
	if status != wantStatus || !has(out, want...) {
		f.t.Errorf("quell %s: status %d, want %d and %q:\n%s", command, status, wantStatus, want, out)
	}
}

// TestSeveralServices runs three services over the same four machines with one controller and one agent for each machine, and kills and
// reloads it as one service: orders stay, shares stay, a service comes and goes, and a bad file changes nothing for anybody.
func TestSeveralServices(t *testing.T) {
	t.Parallel()
	f := newFleetRig(t)
	f.names("shop", "api")
	f.launch("haproxy", exec.Command(f.program, "-db", "-f", filepath.Join(f.dir, "haproxy.cfg")))
	f.run("config check", 0, "shop.yaml: ok: service shop", "api.yaml: ok: service api")
	c := f.start("controller")
	f.startAgents()
	f.awaitShared("shop", "api")

	f.names(fleetServices...)
	f.hangUp(append(slices.Clone(f.agents), c)...)
	f.awaitShared(fleetServices...)
	for _, service := range fleetServices {
		flowTo(t, f.frontends[service])
	}
	f.awaitOthers()

	f.run("override m1 0.55", 2, "say which with --service (there are: shop, api, files)")
	f.run("override m1 0.55 --service shop", 0)
	f.awaitShare("shop", "m1", 0.55)
	f.run("drain m4 --no-wait", 0, "shop: ", "api: ", "files: ")
	f.run("pause", 0, "shop: paused", "api: paused", "files: paused")
	f.run("status", 0, "shop", "api", "files", "changes nothing until quell resume", "--service NAME")
	f.run("status --service api", 0, "policy static: changes nothing until quell resume", "INSTANCE")
	f.run("explain m2", 0, "m2 of service shop", "m2 of service api", "m2 of service files")
	f.run("journal --brief", 0, "service shop", "service api", "service files")

	c.kill(t)
	c = f.start("controller")
	for _, service := range fleetServices {
		f.awaitOf("the pause and the drain of before", service, func(s controller.Status) bool {
			return s.Paused && s.Leading && len(s.Instances) == fleetMachines && s.Instances[3].Held != nil
		})
	}
	if got, err := f.shareAt("shop", "m1"); err != nil || got < 0.53 {
		t.Errorf("after a kill m1 has %.2f of shop, %v", got, err)
	}
	f.run("resume --service api", 0)
	f.awaitOf("to act again", "api", func(s controller.Status) bool { return !s.Paused })
	if s, err := f.of("shop"); err != nil || !s.Paused {
		t.Errorf("shop is resumed with api: %v", err)
	}
	f.run("resume", 0)
	f.run("undrain m4", 0)
	f.awaitShared(fleetServices...)

	f.put("api.yaml", strings.Replace(f.own["api.yaml"], "metric: mean", "metric: median", 1))
	f.put("shop.yaml", strings.Replace(f.own["shop.yaml"], "threshold: 150ms", "threshold: 170ms", 1))
	f.hangUp(append(slices.Clone(f.agents), c)...)
	f.awaitFor(severalPatience, "the refusal", func() (bool, any) {
		out, _ := f.quell("journal", "--service", "files", "--config", f.config)
		return has(out, "not reloaded for any service", "api.yaml:", "slo.metric"), out
	})
	if s, err := f.of("shop"); err != nil || s.ThresholdMS != 150 {
		t.Errorf("the threshold of shop is %v, %v", s.ThresholdMS, err)
	}

	f.put("api.yaml", "service: [torn")
	f.run("pause", 1, "shop: paused", "files: paused", "api.yaml")
	f.run("resume --service shop", 0)
	c.kill(t)
	c = f.start("controller")
	f.awaitShared("shop", "files")
	f.run("status", 1, "shop", "files", "api.yaml")
	f.put("api.yaml", f.own["api.yaml"])
	f.names("shop", "api")
	f.hangUp(append(slices.Clone(f.agents), c)...)
	f.awaitShared("shop", "api")
	f.awaitFor(severalPatience, "files to be removed", func() (bool, any) {
		_, err := f.of("files")
		return err != nil, err
	})
	if s, err := f.of("shop"); err != nil || s.ThresholdMS != 170 || s.Paused {
		t.Errorf("shop: %+v, %v", s, err)
	}
	f.run("status", 0, "shop", "api")
	body, err := get("http://" + f.metrics + "/metrics")
	if err != nil || !has(string(body), `quell_service_running{service="api"} 1`, `quell_leading{service="shop"} 1`) {
		t.Errorf("metrics: %v\n%s", err, body)
	}
	for path, want := range map[string][]string{"/": {`<a href="/services/api/">api</a>`, "shop"}, "/services/api/": {"page/static/app.js"},
		"/services/api/page/now?limit=10": {`"service":"api"`}} {
		if body, err := get("http://" + f.metrics + path); err != nil || !has(string(body), want...) {
			t.Errorf("%s: %v, no %q in %.2000s", path, err, want, body)
		}
	}
	if out, status := f.quell("page", "--config", f.config, "--service", "api"); status != 0 || !has(out, f.metrics+"/services/api/#ticket=") {
		t.Errorf("quell page: %d %s", status, out)
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := c.ends(t); status != 0 {
		t.Errorf("the controller ended with %d", status)
	}
	f.run("release", 0, "of service shop is released", "of service api is released")
	f.awaitShare("shop", "m1", 0.25)
}

// awaitOthers waits until recorded snapshots say what other services use of the machines.
func (f *fleetRig) awaitOthers() {
	f.t.Helper()
	f.awaitFor(severalPatience, "the use by other services", func() (bool, any) {
		out, _ := f.quell("journal", "--service", "api", "--snapshots", "--config", f.config)
		return strings.Contains(out, `"others":{`), len(out)
	})
}

// flowTo sends requests to an address, one after the other, until the test ends.
func flowTo(t *testing.T, address string) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-done })
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			_, _ = get("http://" + address + "/file") // HAProxy's checks may not have passed yet
		}
	}()
}

// TestOneServiceDoesNotHoldUpTheOthers runs three services of which one has a balancer's program that never ends, and one a damaged memory.
// The third decides as if it were alone, and both others are named.
func TestOneServiceDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	service := func(name, command string) {
		text := fmt.Sprintf(`service: %s
slo: {metric: mean, threshold: 500ms}
sampling: %s
policy: {name: static}
balancer: {kind: command, command: %s, state_command: %s}
scaler: {instances: [{id: m1, address: %q}, {id: m2, address: %q}]}
`, name, sampling, command, command, need.FreeAddress(t), need.FreeAddress(t))
		if err := os.WriteFile(filepath.Join(r.dir, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	service("well", `[sh, -c, 'cat > /dev/null; echo "[]"']`)
	service("stuck", `[sh, -c, 'sleep 300']`)
	service("failing", `[sh, -c, 'echo no such thing >&2; exit 1']`)
	text := fmt.Sprintf("services: [stuck.yaml, failing.yaml, well.yaml]\nlisten: %q\nbus: {listen: %q}\ndata: data\n", r.metrics, r.bus)
	if err := os.WriteFile(r.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	lock := filepath.Join(r.dir, "data", "services", "failing")
	if err := os.MkdirAll(filepath.Dir(lock), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lock, []byte("a file where a folder belongs"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.start("controller")
	first := r.awaitOf("a decision", "well", func(s controller.Status) bool { return !s.At.IsZero() }).At
	r.awaitOf("many decisions", "well", func(s controller.Status) bool { return s.At.Sub(first) > 10*sampling })
	ready := func() string { text, _ := get("http://" + r.metrics + "/readyz"); return string(text) }
	r.awaitFor(severalPatience, "the others to be named", func() (bool, any) {
		text := ready()
		return has(text, "stuck: no decision within three sampling periods", "failing: making the data folder"), text
	})
	out, status := r.quell("pause", "--config", r.config)
	if status != 1 || !has(out, "well: paused", "service failing: ") {
		t.Errorf("pause: status %d\n%s", status, out)
	}
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	r.awaitOf("to be started again by itself", "failing", func(s controller.Status) bool { return s.Failures["look"] > 0 })
}
