// Package builtin is Quell's own load balancer: a reverse proxy for HTTP/1.1 and HTTP/2 in its own process. It gets its backends
// over an admin socket and measures each backend. The controller uses that socket through Client.
//
// New makes a server, Start starts it and Shutdown ends it. A request passes through handler (proxy.go) -> pool (pool.go, which uses
// package route) -> backend (backend.go) -> meter (meter.go). health.go and reporting.go run next to it.
package builtin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/health"
)

// InstanceHeader is the response header that names the instance that answered.
const InstanceHeader = "X-Quell-Instance"

// Protocol is a protocol that instances speak.
type Protocol string

// The protocols.
const (
	HTTP1 Protocol = "http1"
	H2C   Protocol = "h2c" // HTTP/2 without TLS, by prior knowledge
)

// Options configure a Server. Listen is required; everything else has a default.
type Options struct {
	Name    string // distinguishes several balancers of a service
	Service string // the service to which the requests belong

	Listen  string // host:port for the service's clients
	Admin   string // path of the admin socket, mode 0600; empty: no admin API, and nothing is kept over a restart
	Metrics string // host:port for /metrics and /healthz; empty: neither
	// Process is what /metrics shows of the process beside the balancer; nil: nothing.
	Process prometheus.Gatherer
	// ServeMetrics serves /metrics and /healthz; nil: by plain HTTP.
	ServeMetrics func(*http.Server, net.Listener) error

	// Inherited are open sockets that the previous process passed on. Those whose addresses are not configured any more are closed.
	Inherited Inherited

	Classes balancer.Classes // the classes of requests that are measured apart
	// FirstByte says that the objective is about the time to the first byte of a response.
	FirstByte bool

	TLS      *TLS     // clients connect with TLS; nil: without
	HTTP2    bool     // clients may speak HTTP/2: with TLS if they ask for it (ALPN), without TLS by prior knowledge
	Upstream Protocol // what instances speak; default HTTP1

	NameInstance bool     // responses name their instance in InstanceHeader
	LoadReports  bool     // responses have load reports in LoadHeader, while the controller tells the load
	DefaultHost  string   // Host of requests that have none; empty: an empty Host
	Upgrades     []string // protocols other than HTTP to which a client may change

	Scheduling quell.Scheduling // default leastconn
	Seed       uint64           // seed of the algorithms that choose at random

	// Health configures the checks of instances: by default every 2 s, with a time limit of 1 s, and unhealthy after 3 failures until 2 pass.
	// If a connection for traffic cannot be opened, that counts as a failed check.
	Health   health.Options
	Timeouts Timeouts

	// MaxConns is the limit of clients' connections at a time. For further ones, idle ones are closed; if there are none, they wait to be
	// accepted. 0: as many as the limit of open files allows. That limit also applies if MaxConns is larger.
	MaxConns int
	// MaxConnsSet says that MaxConns is not a default. Then a warning is logged if the limit of open files allows fewer connections.
	MaxConnsSet bool
	// MaxConnsPerClient is the limit of connections from one address, or from one /64 network of IPv6; further connections are closed. nil:
	// half of MaxConns; 0: no limit. It does not apply to trusted proxies.
	MaxConnsPerClient *int
	// TrustedProxies are the networks whose X-Forwarded-* and Forwarded headers are kept. If such headers come from elsewhere, they are
	// replaced.
	TrustedProxies []netip.Prefix

	MaxHeaderBytes int           // limit of a request's header; default 64 KiB
	Drain          time.Duration // how long a backend that is being removed may keep open requests; default 30 s
	Lease          time.Duration // how long a controller that no longer renews its lease still keeps others out; default 15 s
	// Linger is how long Shutdown keeps idle connections open, so that requests that are already on their way are still answered. Default 0.
	Linger time.Duration

	// Period is the sampling period. At the end of each, Publish gets one reading per backend. Default 10 s.
	Period time.Duration
	// Fast is the sampling period of a fast policy. Period is a multiple of it. Readings are also made at the end of each fast period. 0:
	// there is no fast policy.
	Fast    time.Duration
	Publish func(context.Context, []quell.Reading) error // nil: no readings are made
	// Bus returns why the bus cannot be reached, for metrics and /healthz. nil: they do not mention the bus. Traffic never depends on the bus.
	Bus func() error

	Logger *slog.Logger
}

// Timeouts limit how long the balancer waits for clients and instances. A request body may take any time as long as its parts keep coming.
// Response bodies from instances have no time-out.
type Timeouts struct {
	Connect        time.Duration // opening a connection to a backend; default 2 s
	ResponseHeader time.Duration // from the end of the request to the response's header; default 60 s
	Idle           time.Duration // how long an idle connection of a client is kept; default 90 s
	ReadHeader     time.Duration // how long a client may take to send its request header; default 10 s
	// UpstreamIdle is how long an idle connection to a backend is kept. It must be shorter than the backend's own time-out: otherwise requests
	// are sent on connections that the backend is just closing. If the backend announces a shorter time, or is seen to use one, that time is
	// used. Default 1.5 s.
	UpstreamIdle time.Duration
	Body         time.Duration // how long a client may send no part of its request body; 0: no limit
	Write        time.Duration // how long a client may read no part of a response; 0: no limit
	Upgrade      time.Duration // how long an upgraded connection may carry no data; 0: no limit
	// HalfClosed is how long a request may go on after its client has closed its side of the connection. Some clients close only their
	// sending side and wait for the answer; others have left. 0: the request is cancelled at once.
	HalfClosed time.Duration
}

func (o Options) withDefaults() Options {
	o.Name = cmp.Or(o.Name, "balancer")
	o.Upstream = cmp.Or(o.Upstream, HTTP1)
	o.Scheduling = cmp.Or(o.Scheduling, quell.LeastConn)
	o.Health.Interval = cmp.Or(o.Health.Interval, 2*time.Second)
	o.Health.Timeout = cmp.Or(o.Health.Timeout, time.Second)
	o.Health.Fall = cmp.Or(o.Health.Fall, 3)
	o.Health.Rise = cmp.Or(o.Health.Rise, 2)
	o.Timeouts.Connect = cmp.Or(o.Timeouts.Connect, 2*time.Second)
	o.Timeouts.ResponseHeader = cmp.Or(o.Timeouts.ResponseHeader, time.Minute)
	o.Timeouts.Idle = cmp.Or(o.Timeouts.Idle, 90*time.Second)
	o.Timeouts.ReadHeader = cmp.Or(o.Timeouts.ReadHeader, 10*time.Second)
	o.Timeouts.UpstreamIdle = cmp.Or(o.Timeouts.UpstreamIdle, 1500*time.Millisecond)
	o.MaxHeaderBytes = cmp.Or(o.MaxHeaderBytes, 64<<10)
	o.Drain = cmp.Or(o.Drain, 30*time.Second)
	o.Lease = cmp.Or(o.Lease, 15*time.Second)
	o.Period = cmp.Or(o.Period, 10*time.Second)
	if o.Publish == nil {
		o.Publish = func(context.Context, []quell.Reading) error { return nil }
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}

func (o Options) validate() error {
	var errs []error
	if o.Listen == "" {
		errs = append(errs, errors.New("no address to listen on"))
	}
	if o.Health.Path != "" && !strings.HasPrefix(o.Health.Path, "/") {
		errs = append(errs, fmt.Errorf("health check path %q does not begin with a slash", o.Health.Path))
	}
	for name, d := range map[string]time.Duration{
		"health check interval": o.Health.Interval, "health check timeout": o.Health.Timeout,
		"connect timeout": o.Timeouts.Connect, "response header timeout": o.Timeouts.ResponseHeader,
		"idle timeout": o.Timeouts.Idle, "request header timeout": o.Timeouts.ReadHeader,
		"upstream idle timeout": o.Timeouts.UpstreamIdle, "request body timeout": o.Timeouts.Body,
		"write timeout": o.Timeouts.Write, "upgrade timeout": o.Timeouts.Upgrade, "half-closed timeout": o.Timeouts.HalfClosed,
		"drain timeout": o.Drain, "lease": o.Lease, "sampling period": o.Period,
	} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("%s %v is negative", name, d))
		}
	}
	if o.Health.Fall < 0 || o.Health.Rise < 0 || o.MaxConns < 0 || o.MaxConnsPerClient != nil && *o.MaxConnsPerClient < 0 ||
		o.MaxHeaderBytes < 0 {
		errs = append(errs, errors.New("fall, rise, and the limits of connections and header bytes cannot be negative"))
	}
	if t := o.TLS; t != nil && (t.Cert == "" || t.Key == "") {
		errs = append(errs, errors.New("tls needs both cert and key"))
	}
	if err := errors.Join(errs...); err != nil {
		return &quell.UserError{Err: fmt.Errorf("balancer: %w", err)}
	}
	return nil
}
