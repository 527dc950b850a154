package daemon_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	orcaservice "github.com/cncf/xds/go/xds/service/orca/v3"
	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// reporting is a service whose balancers follow the load reports of two agents.
type reporting struct {
	*tuned
	clients map[string]orcaservice.OpenRcaServiceClient // by instance
	agents  map[string]*proc
	metrics string // of the first agent
}

func newReporting(t *testing.T) *reporting {
	t.Helper()
	r := &reporting{tuned: &tuned{rig: newRig(t, "")}, agents: map[string]*proc{}, metrics: need.FreeAddress(t),
		clients: map[string]orcaservice.OpenRcaServiceClient{}}
	common := fmt.Sprintf("service: shop\nslo: {metric: mean, threshold: 500ms}\nsampling: %s\n", sampling)
	var members strings.Builder
	for id, takes := range reportedTimes {
		web := httptest.NewServer(measuring(takes))
		t.Cleanup(web.Close)
		probe, reports, metrics := need.FreeAddress(t), need.FreeAddress(t), "off"
		if id == "i1" {
			metrics = r.metrics
		}
		fmt.Fprintf(&members, "{id: %s, address: %q, probe: %q}, ", id, web.Listener.Addr(), probe)
		r.put(id+".yaml", common+fmt.Sprintf(`data: agent-%s
bus: {url: "nats://%s", credentials: %s.creds}
probe: {listen: %q, timeout: 300ms}
agent:
  {instance: %s, interface: lo, capacity: {network: 1Gbps}, metrics: %q, reports: %q, probes: off,
  requests: {url: "%s/metrics", histogram: request_ms, unit: ms}}
`, id, r.bus, id, probe, id, metrics, reports, web.URL))
		conn, err := grpc.NewClient(reports, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		r.clients[id] = orcaservice.NewOpenRcaServiceClient(conn)
	}
	r.put("quell.yaml", common+fmt.Sprintf(`data: data
listen: %q
bus: {listen: %q}
policy: {name: static}
balancer: {kind: reports}
scaler: {kind: fixed, instances: [%s]}
probe: {from: controller, capacity: 40Mbps, timeout: 300ms}
`, r.rig.metrics, r.bus, members.String()))
	return r
}

// reportedTimes are how long requests take at each instance, in ms.
var reportedTimes = map[string]float64{"i1": 250, "i2": 100}

// measuring is a server that measures its own requests. All take equally long, and each look at its metrics finds some more.
func measuring(takes float64) http.Handler {
	times := client.NewHistogram(client.HistogramOpts{Name: "request_ms", Help: "response times", NativeHistogramBucketFactor: 1.05})
	registry := client.NewRegistry()
	registry.MustRegister(times)
	metrics, mux := promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), http.NewServeMux()
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, q *http.Request) {
		const some = 20
		for range some {
			times.Observe(takes)
		}
		metrics.ServeHTTP(w, q)
	})
	return mux
}

// wantTimes waits until the controller knows the response times that the service measures, which no balancer tells.
func (r *reporting) wantTimes() {
	r.t.Helper()
	r.awaitStatus("the service's own response times", func(s controller.Status) bool {
		known := 0
		for _, in := range s.Instances {
			if in.LatencyMS != nil && math.Abs(*in.LatencyMS-reportedTimes[in.ID]) < 1 {
				known++
			}
		}
		return known == len(reportedTimes)
	})
}

func (r *reporting) agent(id string) {
	r.await("a credential", func() (bool, any) {
		credential, err := r.keyring().Issue(auth.Grant{Role: auth.Sensor, Service: "shop", ID: id}, 0)
		if err == nil {
			r.put(id+".creds", string(credential))
		}
		return err == nil, err
	})
	r.agents[id] = r.launch("agent", exec.Command(quellProgram, "agent", "--config", filepath.Join(r.dir, id+".yaml")))
}

// weight is what a client that asks an agent now computes from its first answer; 0: none.
func (r *reporting) weight(id string) (float64, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	stream, err := r.clients[id].StreamCoreMetrics(ctx, &orcaservice.OrcaLoadReportRequest{})
	if err != nil {
		return 0, err
	}
	load, err := stream.Recv()
	if err != nil || load.ApplicationUtilization == 0 {
		return 0, err
	}
	return load.RpsFractional / load.ApplicationUtilization / 1e6, nil
}

func (r *reporting) wantShares(what string, want map[string]float64) {
	r.t.Helper()
	r.await(what, func() (bool, any) {
		got, all := map[string]any{}, true
		for id, share := range want {
			w, err := r.weight(id)
			got[id] = fmt.Sprint(w, err)
			all = all && err == nil && math.Abs(w-share) < 1e-3
		}
		return all, got
	})
}

// TestReports runs a service without a driver: what agents report follows the plan, ends without a controller, and returns with it.
func TestReports(t *testing.T) {
	t.Parallel()
	r := newReporting(t)
	controller := r.start("controller")
	r.agent("i1")
	r.agent("i2")
	r.wantShares("equal shares", map[string]float64{"i1": .5, "i2": .5})
	if out, status := r.quell("config", "check", r.config); status != 0 || !has(out, "agents read them from the service (agent.requests)") {
		t.Errorf("config check: %d, %s", status, out)
	}
	r.wantTimes()
	if out, status := r.quell("override", "i1", "20%", "--config", r.config); status != 0 {
		t.Fatal(out)
	}
	shares := map[string]float64{"i1": .2, "i2": .8}
	r.wantShares("a person's share", shares)
	controller.kill(t)
	r.wantShares("no shares without a controller", map[string]float64{"i1": 0, "i2": 0})
	r.await("the metric that says so", func() (bool, any) {
		text, err := get("http://" + r.metrics + "/metrics")
		return err == nil && has(string(text), `quell_agent_load_report_valid{service="shop"} 0`), err
	})
	r.start("controller")
	r.wantShares("the same shares with the next controller", shares)
	r.agents["i2"].kill(t)
	r.agent("i2")
	r.wantShares("the same shares with the next agent", shares)
	if out, status := r.quell("pause", "--config", r.config); status != 0 {
		t.Fatal(out)
	}
	r.agents["i2"].kill(t)
	r.agent("i2")
	r.wantShares("the same shares in a pause", shares)
	if out, status := r.quell("release", "--config", r.config); status != 0 {
		t.Fatal(out)
	}
	r.wantShares("no shares after a release", map[string]float64{"i1": 0, "i2": 0})
}
