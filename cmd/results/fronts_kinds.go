package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/testbed/kernel"
)

// front is a balancer that a stranger's fleet has before Quell comes.
type front struct {
	name  string
	title string
	serve func(f *strangerFleet, servers []frontServer) error // starts it
	quell func(f *strangerFleet) string                       // the section balancer of Quell's configuration
	agent string                                              // more lines of the section agent; %v: the instance's address
	// weights reads from the balancer itself what it gives each server, as parts of the sum; nil: it cannot be asked.
	weights func(ctx context.Context, f *strangerFleet, servers []frontServer) (map[string]float64, error)
}

// frontServer is one that the front knows.
type frontServer struct{ name, address string }

// haproxyFront is the front of the first pages.
var haproxyFront = front{name: "haproxy", title: "HAProxy", serve: serveHAProxy, quell: func(f *strangerFleet) string {
	return fmt.Sprintf("  kind: haproxy\n  haproxy: {sockets: [%s], backend: app, log: %q}\n", f.socket(), f.logs())
}, weights: haproxyWeights}

// fronts are the balancers of the page, in its order.
var fronts = []front{
	haproxyFront,
	{name: "envoy", title: "Envoy", serve: serveEnvoy, quell: func(*strangerFleet) string {
		return "  kind: envoy\n  health: {path: /healthz}\n  envoy: {listen: \"127.0.0.1:18000\", clusters: [app], balance: leastconn}\n"
	}, weights: envoyWeights},
	{name: "nginx", title: "nginx", serve: serveNginx, quell: func(f *strangerFleet) string { return f.nginxSection("") },
		weights: nginxWeights},
	{name: "reports", title: "Envoy by load reports", serve: serveEnvoyByReports, quell: func(*strangerFleet) string {
		return "  kind: reports\n  health: {path: /healthz}\n  log: {listen: \"127.0.0.1:18000\", clusters: [app-or-before]}\n"
	}, agent: "  reports: \"%v:9469\"\n"},
}

func frontOf(name string) (front, error) {
	for _, f := range fronts {
		if f.name == name {
			return f, nil
		}
	}
	return front{}, fmt.Errorf("the page has no balancer %q", name)
}

func serveHAProxy(f *strangerFleet, servers []frontServer) error {
	var lines strings.Builder
	for _, s := range servers {
		fmt.Fprintf(&lines, "  server %s %s check inter 1s\n", s.name, s.address)
	}
	path, err := f.keep("haproxy.cfg", fmt.Sprintf(strangerHAProxy, f.socket(), f.logs(), f.edge.Address(), cmp.Or(f.set.Balance, "leastconn"),
		lines.String()))
	if err != nil {
		return err
	}
	return f.launch(f.edge, frontProgram, "haproxy", "-db", "-f", path)
}

func haproxyWeights(ctx context.Context, f *strangerFleet, servers []frontServer) (map[string]float64, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", f.socket())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "show servers state app\n"); err != nil {
		return nil, err
	}
	said, err := io.ReadAll(conn)
	if err != nil {
		return nil, err
	}
	weights := map[string]float64{}
	for line := range strings.SplitSeq(string(said), "\n") {
		if w := strings.Fields(line); len(w) > 7 && !strings.HasPrefix(line, "#") {
			weights[w[3]], _ = strconv.ParseFloat(w[7], 64)
		}
	}
	return parts(weights, servers)
}

// parts are weights of these servers as parts of their sum.
func parts(weights map[string]float64, servers []frontServer) (map[string]float64, error) {
	var sum float64
	for _, s := range servers {
		if _, known := weights[s.name]; !known {
			return nil, fmt.Errorf("the balancer has no weight of %s", s.name)
		}
		sum += weights[s.name]
	}
	if sum == 0 {
		return nil, errors.New("all weights are 0")
	}
	for name := range weights {
		weights[name] /= sum
	}
	return weights, nil
}

func (f *strangerFleet) include() string { return filepath.Join(f.dir, "app.conf") }

// nginxSection is the section balancer of Quell's configuration, with more keys of nginx.
func (f *strangerFleet) nginxSection(more string) string {
	return fmt.Sprintf("  kind: nginx\n  health: {path: /healthz}\n"+
		"  nginx: {include: %s, log: %s, pid: %s, test: [nginx, -t, -c, %s], balance: leastconn%s}\n",
		f.include(), filepath.Join(f.dir, "quell.sock"), filepath.Join(f.dir, "front.pid"), filepath.Join(f.dir, "front.conf"), more)
}

func serveNginx(f *strangerFleet, servers []frontServer) error {
	return f.serveNginx(servers, frontNginx)
}

// serveNginxBy starts nginx with another rule, and without Quell's log.
func serveNginxBy(rule string) func(*strangerFleet, []frontServer) error {
	text := strings.NewReplacer("least_conn;", rule+";", "access_log syslog:server=unix:DIR/quell.sock,nohostname quell;",
		"access_log off;").Replace(frontNginx)
	return func(f *strangerFleet, servers []frontServer) error { return f.serveNginx(servers, text) }
}

func (f *strangerFleet) serveNginx(servers []frontServer, config string) error {
	var lines strings.Builder
	for _, s := range servers {
		fmt.Fprintf(&lines, "server %s;\n", s.address)
	}
	if _, err := f.keep("app.conf", lines.String()); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(f.dir, "front"), 0o755); err != nil {
		return err
	}
	text := strings.NewReplacer("DIR", f.dir, "EDGE", f.edge.Address().String()).Replace(config)
	path, err := f.keep("front.conf", text)
	if err != nil {
		return err
	}
	return f.launch(f.edge, frontProgram, "nginx", "-c", path)
}

const frontNginx = `daemon off;
user root;
worker_processes 2;
worker_shutdown_timeout 1m;
pid DIR/front.pid;
error_log DIR/front.error.log;
events {}
http {
  log_format quell 'quell1\t$upstream_addr\t$upstream_connect_time\t$upstream_header_time\t$upstream_response_time\t$upstream_status\t$status\t$request_time\t$request_completion\t$sent_http_content_type\t$request_uri';
  client_body_temp_path DIR/front; proxy_temp_path DIR/front; fastcgi_temp_path DIR/front; uwsgi_temp_path DIR/front; scgi_temp_path DIR/front;
  upstream app {
    zone app 64k;
    least_conn;
    include DIR/app.conf;
    keepalive 32;
  }
  server {
    listen EDGE:8080;
    access_log syslog:server=unix:DIR/quell.sock,nohostname quell;
    location / {
      proxy_pass http://app;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
    }
  }
}
`

var nginxServer = regexp.MustCompile(`(?m)^\s*server\s+(\S+?)((?:\s+[^;\s]+)*)\s*;`)

// nginxWeights reads the include file. It counts once a worker is younger than the file.
func nginxWeights(_ context.Context, f *strangerFleet, servers []frontServer) (map[string]float64, error) {
	file, err := os.Stat(f.include())
	if err != nil {
		return nil, err
	}
	master, err := os.ReadFile(filepath.Join(f.dir, "front.pid"))
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(master)))
	if err != nil {
		return nil, err
	}
	younger := func(worker int) bool {
		info, err := os.Stat(fmt.Sprint("/proc/", worker))
		return err == nil && info.ModTime().After(file.ModTime())
	}
	if !slices.ContainsFunc(childrenOf(pid), younger) {
		return nil, errors.New("no worker of nginx has read the file yet")
	}
	return parseNginx(f.include(), servers)
}

// parseNginx reads the weights of the servers in a file.
func parseNginx(path string, servers []frontServer) (map[string]float64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	names, weights := map[string]string{}, map[string]float64{}
	for _, s := range servers {
		names[s.address] = s.name
	}
	for _, found := range nginxServer.FindAllStringSubmatch(string(text), -1) {
		weight := 1.0
		for word := range strings.FieldsSeq(found[2]) {
			if value, is := strings.CutPrefix(word, "weight="); is {
				weight, _ = strconv.ParseFloat(value, 64)
			}
			if word == "down" {
				weight = 0
			}
		}
		weights[names[found[1]]] = weight
	}
	return parts(weights, servers)
}

func serveEnvoy(f *strangerFleet, servers []frontServer) error {
	return f.serveEnvoy(servers, frontEnvoy+frontEnvoyEDS)
}

func serveEnvoyByReports(f *strangerFleet, servers []frontServer) error {
	return f.serveEnvoy(servers, frontEnvoy+frontEnvoyReports)
}

// serveEnvoyAlone starts Envoy without Quell.
func serveEnvoyAlone(config string) func(*strangerFleet, []frontServer) error {
	return func(f *strangerFleet, servers []frontServer) error { return f.serveEnvoy(servers, config) }
}

// serveEnvoyByUse starts Envoy with its own weighted round robin, and on each server what reports its use.
func serveEnvoyByUse(config string) func(*strangerFleet, []frontServer) error {
	return func(f *strangerFleet, servers []frontServer) error {
		for n, s := range servers {
			place, err := f.lab.Place(hostOf(n), kernel.Instance)
			if err != nil {
				return err
			}
			task, err := json.Marshal(clusterTask{Config: net.JoinHostPort(place.Address().String(), frontsUsePort),
				URL: "http://" + s.address + "/status", Bits: f.set.Link})
			if err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			if err := f.launch(place, "use-"+s.name, "env", clusterRole+"=use", self, string(task)); err != nil {
				return err
			}
		}
		return f.serveEnvoy(servers, config)
	}
}

// envoyWithoutQuell lacks the lines that only Quell needs.
var envoyWithoutQuell = regexp.MustCompile(`(?m)^cluster_manager:\n.*\n|^ +access_log:\n(?: {10}[- ] .*\n)+`).ReplaceAllString(frontEnvoy, "")

// Envoy without Quell: by its least requests, and by the use that servers report.
var (
	envoyLeast = envoyWithoutQuell + frontEnvoyLeast
	envoyByUse = envoyWithoutQuell + strings.Replace(frontEnvoyReports, "9469", frontsUsePort, 1)
)

// ejecting is a configuration of Envoy with outlier detection. A slow server's answers count as failed only if the route gives them up.
func ejecting(config string) string {
	const route = "route: {cluster: app-or-before, "
	return strings.Replace(config, route, route+"timeout: 1s, ", 1) + frontEnvoyOutliers
}

func (f *strangerFleet) serveEnvoy(servers []frontServer, config string) error {
	var endpoints []string
	for _, s := range servers {
		host, port, _ := strings.Cut(s.address, ":")
		endpoints = append(endpoints, fmt.Sprintf("{endpoint: {address: {socket_address: {address: %s, port_value: %s}}}}", host, port))
	}
	text := strings.NewReplacer("EDGE", f.edge.Address().String(), "ENDPOINTS", strings.Join(endpoints, ", ")).Replace(config)
	path, err := f.keep("envoy.yaml", text)
	if err != nil {
		return err
	}
	program, err := experiment.FindProgram("envoy")
	if err != nil {
		return err
	}
	return f.launch(f.edge, frontProgram, program, "-c", path, "--concurrency", "2", "--disable-hot-restart", "-l", "warning")
}

const frontEnvoy = `node: {id: front-1, cluster: front}
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 9901}}}
cluster_manager:
  load_stats_config: {api_type: GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: quell}}]}
static_resources:
  listeners:
  - name: front
    address: {socket_address: {address: EDGE, port_value: 8080}}
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
                {log_name: quell, transport_api_version: V3, buffer_flush_interval: 0.5s, grpc_service: {envoy_grpc: {cluster_name: quell}}}
              additional_response_headers_to_log: [content-type]
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
          route_config:
            virtual_hosts:
            - {name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: app-or-before, retry_policy: {retry_on: connect-failure}}}]}
  clusters:
  - name: quell
    type: STATIC
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment: {cluster_name: quell, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 18000}}}}]}]}
`

const frontEnvoyEDS = `  - name: app-or-before
    connect_timeout: 1s
    lb_policy: CLUSTER_PROVIDED
    cluster_type:
      name: envoy.clusters.aggregate
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig
        clusters: [app, app-before]
  - name: app
    type: EDS
    connect_timeout: 1s
    lb_policy: LEAST_REQUEST
    eds_cluster_config:
      eds_config:
        resource_api_version: V3
        initial_fetch_timeout: 1s
        api_config_source: {api_type: GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: quell}}]}
  - name: app-before
    type: STATIC
    connect_timeout: 1s
    lb_policy: LEAST_REQUEST
    load_assignment: {cluster_name: app-before, endpoints: [{lb_endpoints: [ENDPOINTS]}]}
`

const frontEnvoyReports = `  - name: app-or-before
    type: STATIC
    connect_timeout: 1s
    load_balancing_policy:
      policies:
      - typed_extension_config:
          name: envoy.load_balancing_policies.client_side_weighted_round_robin
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin
            enable_oob_load_report: true
            oob_reporting_period: 1s
            oob_reporting_config: {port_value: 9469}
            blackout_period: 1s
            weight_expiration_period: 30s
    load_assignment: {cluster_name: app, endpoints: [{lb_endpoints: [ENDPOINTS]}]}
`

const frontEnvoyLeast = `  - name: app-or-before
    type: STATIC
    connect_timeout: 1s
    lb_policy: LEAST_REQUEST
    load_assignment: {cluster_name: app, endpoints: [{lb_endpoints: [ENDPOINTS]}]}
`

// frontEnvoyOutliers are the settings of docs/results/outlier.md that act early, for three servers: one may be ejected (by default a tenth
// of them), and three are enough to judge one.
const frontEnvoyOutliers = `    outlier_detection:
      consecutive_5xx: 3
      interval: 1s
      base_ejection_time: 10s
      max_ejection_percent: 34
      success_rate_minimum_hosts: 3
      success_rate_request_volume: 20
      enforcing_failure_percentage: 100
      failure_percentage_threshold: 30
      failure_percentage_minimum_hosts: 3
      failure_percentage_request_volume: 20
`

var envoyWeight = regexp.MustCompile(`(?m)^app::([^:]+:\d+)::(weight|health_flags)::(.*)$`)

func envoyWeights(ctx context.Context, f *strangerFleet, servers []frontServer) (map[string]float64, error) {
	client := http.Client{Transport: &http.Transport{DialContext: f.edge.Dial, DisableKeepAlives: true}}
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:9901/clusters", nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(ask)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	found := map[string]float64{}
	for _, m := range envoyWeight.FindAllStringSubmatch(string(text), -1) {
		switch {
		case m[2] == "weight":
			found[m[1]], _ = strconv.ParseFloat(m[3], 64)
		case m[3] != "healthy":
			found[m[1]] = 0
		}
	}
	weights := map[string]float64{}
	for _, s := range servers {
		if w, known := found[s.address]; known {
			weights[s.name] = w
		}
	}
	return parts(weights, servers)
}
