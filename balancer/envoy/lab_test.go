package envoy

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/envoylog"
	"github.com/quellhq/quell/balancer/health"
	"github.com/quellhq/quell/internal/need"
)

const patience = 20 * time.Second

// lab is a real Envoy in front of web servers of this process. It is stopped through its own handle.
type lab struct {
	t                     testing.TB
	program, dir          string
	traffic, admin, quell string
	cluster               string   // where requests go
	more                  string   // clusters more
	hot                   []string // arguments of an Envoy that can be replaced while it runs; empty: it cannot
	running               *exec.Cmd
	ended                 chan struct{}
}

const (
	source = "transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: quell}}]}"
	sotw   = "{resource_api_version: V3, api_config_source: {api_type: GRPC, " + source + "}"
	delta  = "{resource_api_version: V3, api_config_source: {api_type: DELTA_GRPC, " + source + "}"
	ads    = "{resource_api_version: V3, ads: {}}"
)

// aggregate is a cluster app that tries web, and then an endpoint of its own configuration.
const aggregate = `  - name: app
    lb_policy: CLUSTER_PROVIDED
    connect_timeout: 1s
    cluster_type:
      name: envoy.clusters.aggregate
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig
        clusters: [web, web-before]
  - name: web-before
    type: STATIC
    load_assignment: {cluster_name: web-before, endpoints: [{lb_endpoints: [{endpoint: {address: ADDRESS}}]}]}
`

func newLab(t testing.TB) *lab {
	t.Helper()
	l := &lab{t: t, program: need.Envoy(t), dir: t.TempDir(), cluster: "web",
		traffic: need.FreeAddress(t), admin: need.FreeAddress(t), quell: need.FreeAddress(t)}
	t.Cleanup(l.stop)
	return l
}

func socketOf(address string) string {
	host, port, _ := net.SplitHostPort(address)
	return fmt.Sprintf("{socket_address: {address: %q, port_value: %s}}", host, port)
}

// start runs an Envoy whose cluster web gets its endpoints in this way. tls is added to the cluster of the controller.
func (l *lab) start(eds, policy, tls string) {
	l.t.Helper()
	aggregated := ""
	if eds == ads {
		aggregated = "dynamic_resources: {ads_config: {api_type: GRPC, " + source + "}\n"
	}
	config := filepath.Join(l.dir, "envoy.yaml")
	text := fmt.Sprintf(`node: {id: front-1, cluster: front}
admin: {address: %s}
%scluster_manager:
  load_stats_config: {api_type: GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: quell}}]}
static_resources:
  listeners:
  - name: front
    address: %s
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          access_log:
          - name: quell
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig
              common_config:
                log_name: quell
                transport_api_version: V3
                buffer_flush_interval: 0.1s
                grpc_service: {envoy_grpc: {cluster_name: quell}}
              additional_response_headers_to_log: [content-type]
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [{match: {prefix: /}, route: {cluster: %s, retry_policy: {retry_on: connect-failure, num_retries: 2}}}]
  clusters:
%s  - name: web
    type: EDS
    lb_policy: %s
    connect_timeout: 1s
    common_lb_config: {healthy_panic_threshold: {value: 1}}
    eds_cluster_config: {eds_config: %s}
  - name: quell
    type: STATIC
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment: {cluster_name: quell, endpoints: [{lb_endpoints: [{endpoint: {address: %s}}]}]}
%s`, socketOf(l.admin), aggregated, socketOf(l.traffic), l.cluster, l.more, policy, eds, socketOf(l.quell), tls)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(l.dir, "out"))
	if err != nil {
		l.t.Fatal(err)
	}
	defer out.Close()
	restarts := l.hot
	if restarts == nil {
		restarts = []string{"--disable-hot-restart"}
	}
	l.run(append([]string{"-c", config, "--concurrency", "1", "-l", "warning"}, restarts...), out)
}

func (l *lab) run(args []string, out *os.File) {
	l.t.Helper()
	cmd := exec.Command(l.program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	ended := make(chan struct{})
	l.running, l.ended = cmd, ended
	go func() { _ = cmd.Wait(); close(ended) }()
	l.t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
}

func (l *lab) stop() {
	if l.running == nil {
		return
	}
	_ = l.running.Process.Kill()
	<-l.ended
	l.running = nil
	if l.t.Failed() {
		said, _ := os.ReadFile(filepath.Join(l.dir, "out"))
		l.t.Logf("Envoy said: %s", said)
	}
}

// serves waits until Envoy answers.
func (l *lab) serves() {
	l.t.Helper()
	eventually(l.t, "Envoy answers", func() bool { return l.get(1, "/") == 0 })
}

// get sends requests one after another, each on a connection of its own, and returns how many failed.
func (l *lab) get(n int, path string) (failed int) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	for range n {
		resp, err := client.Get("http://" + l.traffic + path)
		if err != nil || resp.StatusCode != http.StatusOK {
			failed++
		}
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}
	return failed
}

// site is a controller's side: a driver and its server.
type site struct {
	*Driver
	*server
	got chan []quell.Reading
}

func (l *lab) options() Options {
	return Options{Clusters: []string{"web"}, Memory: filepath.Join(l.dir, "envoy.json"), Drain: 500 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler)}
}

// settings of a controller whose checks only connect.
func (l *lab) settings() Settings {
	return Settings{Settings: envoylog.Settings{Listen: l.quell, Clusters: []string{"web"}},
		Health: health.Options{Interval: 20 * time.Millisecond, Timeout: time.Second, Fall: 2, Rise: 1}}
}

func (l *lab) control(change func(*Options, *Settings)) *site {
	l.t.Helper()
	o, s := l.options(), l.settings()
	if change != nil {
		change(&o, &s)
	}
	d, err := New(o)
	if err != nil {
		l.t.Fatal(err)
	}
	in := balancer.Service{Name: "shop", Balancer: "envoy", Period: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
	c := &site{Driver: d, got: make(chan []quell.Reading, 10000)}
	if c.server, err = serve(d, &s, in, func(list []quell.Reading) { c.got <- list }); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(c.server.Stop)
	return c
}

// instance is a web server that counts its requests.
type instance struct {
	*httptest.Server
	served  atomic.Int64
	traffic atomic.Int64 // without health checks
}

func newInstance(t testing.TB, answer http.HandlerFunc) *instance {
	i := &instance{}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.served.Add(1)
		if r.URL.Path != "/well" {
			i.traffic.Add(1)
		}
		if answer != nil {
			answer(w, r)
		}
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *instance) address() string { return i.Listener.Addr().String() }

func backend(id string, i *instance, weight float64) quell.Backend {
	return quell.Backend{ID: id, Address: i.address(), Weight: weight}
}

// settle applies backends and waits until Envoy has accepted them.
func settle(t testing.TB, c *site, backends ...quell.Backend) {
	t.Helper()
	if err := c.Apply(t.Context(), backends); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the backends are in force", func() bool {
		for _, b := range backends {
			if s := stateOf(t, c.Driver, b.ID); s.Address != b.Address || s.Weight != b.Weight {
				return false
			}
		}
		return c.fleet.err("") == nil && c.fleet.accepted()
	})
}

func stateOf(t testing.TB, d *Driver, id string) quell.BackendState {
	t.Helper()
	states, err := d.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range states {
		if s.ID == id {
			return s
		}
	}
	return quell.BackendState{}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", patience, what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }
