package daemon_test

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/haproxy"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// fleet is a service that runs already: HAProxy with a configuration written by hand, and three nginx servers, each in front of an
// application. Nothing of it comes from Quell.
type fleet struct {
	*rig
	logs    string // where HAProxy sends its log
	servers []fleetServer
}

type fleetServer struct{ id, address, probe string }

// newFleet starts HAProxy, nginx and the application.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the agent reads the counters of Linux")
	}
	balancer, server := need.Program(t, "haproxy"), need.Program(t, "nginx")
	f := &fleet{rig: newRig(t, ""), logs: need.FreeAddress(t)}
	application := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(10 * time.Millisecond) // the work of a request; HAProxy's log has whole milliseconds
		_, _ = w.Write(make([]byte, 20000))
	}))
	t.Cleanup(application.Close)
	for i := range 3 {
		s := fleetServer{fmt.Sprintf("web-%d", i+1), need.FreeAddress(t), need.FreeAddress(t)}
		f.servers = append(f.servers, s)
		f.launch("nginx", exec.Command(server, "-c", f.nginxFile(s, application.Listener.Addr())))
	}
	f.launch("haproxy", exec.Command(balancer, "-db", "-f", f.haproxyFile()))
	f.await("HAProxy to serve", func() (bool, any) {
		body, err := get("http://" + f.traffic + "/file")
		return err == nil && len(body) == 20000, err
	})
	return f
}

// nginxFile writes the configuration of a server.
func (f *fleet) nginxFile(s fleetServer, application net.Addr) string {
	dir := filepath.Join(f.dir, s.id)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		f.t.Fatal(err)
	}
	return f.keep(filepath.Join(s.id, "nginx.conf"), strings.ReplaceAll(fmt.Sprintf(`daemon off;
master_process off;
pid DIR/nginx.pid;
error_log DIR/error.log;
events {}
http {
  access_log off;
  client_body_temp_path DIR; proxy_temp_path DIR; fastcgi_temp_path DIR; uwsgi_temp_path DIR; scgi_temp_path DIR;
  server {
    listen %s;
    location = /healthz { return 200; }
    location / { proxy_pass http://%s; }
  }
}
`, s.address, application), "DIR", dir))
}

// haproxyFile writes the configuration of HAProxy.
func (f *fleet) haproxyFile() string {
	var servers strings.Builder
	for _, s := range f.servers {
		fmt.Fprintf(&servers, "  server %s %s check inter 200ms\n", s.id, s.address)
	}
	return f.keep("haproxy.cfg", fmt.Sprintf(`global
  stats socket %s mode 660 level admin expose-fd listeners
  log %s local0
  nbthread 2
  maxconn 1000

defaults
  mode http
  log global
  option httplog
  timeout connect 1s
  timeout client 30s
  timeout server 30s

frontend web
  bind %s
  default_backend app

backend app
  balance leastconn
  option httpchk GET /healthz
%s`, f.admin, f.logs, f.traffic, servers.String()))
}

// configuration writes quell.yaml as it is on the machine of a server; on the controller's machine the server does not matter.
func (f *fleet) configuration(path string, on fleetServer) {
	var instances strings.Builder
	for _, s := range f.servers {
		fmt.Fprintf(&instances, "    - {id: %s, address: %q, probe: %q}\n", s.id, s.address, s.probe)
	}
	f.keep(path, fmt.Sprintf(`service: shop
slo: {metric: mean, threshold: 500ms}
sampling: %s
guard: {stale_after: 10}
data: data
listen: %q
bus: {listen: %q}
balancer:
  kind: haproxy
  haproxy: {sockets: [%s], backend: app, log: %q}
scaler:
  kind: fixed
  instances:
%sprobe: {listen: %q, timeout: 300ms}
agent:
  interface: lo
  capacity: {network: 1Gbps}
`, sampling, f.metrics, f.bus, f.admin, f.logs, instances.String(), on.probe))
}

func (f *fleet) keep(name, text string) (path string) {
	f.t.Helper()
	path = filepath.Join(f.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// inForce waits until HAProxy has these weights.
func (f *fleet) inForce(want map[string]float64) {
	f.t.Helper()
	d, err := haproxy.New(haproxy.Options{Sockets: []string{f.admin}, Backend: "app", Memory: filepath.Join(f.dir, "seen.json")})
	if err != nil {
		f.t.Fatal(err)
	}
	defer d.Close()
	f.await(fmt.Sprintf("weights %v in HAProxy", want), func() (bool, any) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		states, err := d.State(ctx)
		for i := range states {
			if math.Abs(states[i].Weight-want[states[i].ID]) > 0.02 {
				return false, states
			}
		}
		return err == nil && len(states) == len(want), states
	})
}

// mostPeriods is the number of periods within which every instance of the fleet must have a severity: five minutes of periods of 10 s.
const mostPeriods = 30

// TestFleetOfAStranger puts Quell beside a fleet that runs already, without models or a word about them. It must learn within the first
// periods how long probes and requests take, and then act: no request fails, no reading is refused, and nothing is forgotten when the
// controller is killed.
func TestFleetOfAStranger(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	load := flow(f.rig)
	f.configuration("quell.yaml", f.servers[0])
	if out, status := f.quell("config", "check", f.config); status != 0 {
		t.Fatal(out)
	}
	control := f.start("controller")
	f.awaitStatus("the controller", func(s controller.Status) bool { return len(s.Instances) == len(f.servers) })
	for _, s := range f.servers {
		path := s.id + ".yaml"
		f.configuration(path, s)
		f.launch("agent", exec.Command(quellProgram, "agent", "--config", filepath.Join(f.dir, path), "--instance", s.id))
	}
	f.awaitFor(3*patience, "a severity of every instance", f.knowsAll)
	if n := f.blindPeriods(); n > mostPeriods {
		t.Errorf("the first severity of every instance came after %d periods with all readings, want at most %d", n, mostPeriods)
	}
	f.awaitFor(3*patience, "full authority", func() (bool, any) {
		s, err := f.status()
		return err == nil && s.Authority == "full", s
	})
	if out, status := f.quell("override", "web-1", "0.2", "--config", f.config); status != 0 {
		t.Fatal(out)
	}
	f.inForce(map[string]float64{"web-1": 0.2, "web-2": 0.4, "web-3": 0.4})
	control.kill(t)
	f.start("controller")
	s := f.awaitStatus("the next controller", func(s controller.Status) bool { return s.Leading && len(s.Learned) > 0 && s.Authority != "" })
	if s.Authority != "full" {
		t.Errorf("after a restart the policy has authority %q", s.Authority)
	}
	f.inForce(map[string]float64{"web-1": 0.2, "web-2": 0.4, "web-3": 0.4})
	if s.Rejected > 0 || len(s.UnknownSenders) > 0 || s.Lost != "" || s.TakenBack != "" {
		t.Errorf("%d readings refused, unknown senders %v, lost %q, taken back %q", s.Rejected, s.UnknownSenders, s.Lost, s.TakenBack)
	}
	load.wantNoFailures()
	f.fits()
}

// fits makes models from what the journal recorded.
func (f *fleet) fits() {
	f.t.Helper()
	recorded, status := f.quell("journal", "--snapshots", "--config", f.config)
	if status != 0 {
		f.t.Fatal(recorded)
	}
	models := filepath.Join(f.dir, "models.json")
	out, status := f.quell("fit", f.keep("recorded.jsonl", recorded), "--snapshots", "--threshold", "500ms", "--out", models)
	if status != 0 || !has(out, "network, learned in place") {
		f.t.Errorf("quell fit --snapshots: status %d, %s", status, out)
	}
}

// knowsAll returns whether every instance has a severity.
func (f *fleet) knowsAll() (bool, any) {
	s, err := f.status()
	if err != nil {
		return false, err
	}
	known := 0
	for _, in := range s.Instances {
		if in.Severity != nil && in.PredictedMS != nil {
			known++
		}
	}
	return known == len(f.servers), s
}

// blindPeriods counts the periods in which every instance was probed and answered requests, before the first plan with a severity of each.
func (f *fleet) blindPeriods() (n int) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	history := f.connect().History("shop")
	var first time.Time
	err := history.Read(ctx, time.Time{}, func(e bus.Entry) error {
		if first.IsZero() && e.Plan != nil && len(e.Plan.Severity) == len(f.servers) {
			first = e.Plan.At
		}
		return nil
	})
	if err != nil || first.IsZero() {
		f.t.Fatalf("no plan in the journal has all severities: %v", err)
	}
	err = history.ReadSnapshots(ctx, time.Time{}, func(s quell.Snapshot) error {
		silent := func(in quell.Instance) bool {
			return in.Observation == nil || len(in.Observation.Probe) == 0 || in.Observation.LatencyMS == nil
		}
		if s.At.Before(first) && !slices.ContainsFunc(s.Instances, silent) {
			n++
		}
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return n
}
