// Package builtin is Quell's own load balancer: an HTTP/1.1 reverse proxy in its own process. It gets its backends
// over an admin socket and measures each of them. Client is the controller's side of that socket.
//
// A server goes from New through Start to Shutdown. A request passes handler (proxy.go) -> pool (pool.go, which uses
// package route) -> backend (backend.go) -> meter (meter.go). health.go and reporting.go run next to it.
package builtin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/quellhq/quell"
)

// InstanceHeader is the response header that names the instance that answered.
const InstanceHeader = "X-Quell-Instance"

// Options configure a Server. Listen is required; everything else has a default.
type Options struct {
	Name    string // distinguishes several balancers of a service
	Service string // the service whose requests these are

	Listen  string // host:port for the service's clients
	Admin   string // path of the admin socket, mode 0600; empty: no admin API, and nothing is kept over a restart
	Metrics string // host:port for /metrics and /healthz; empty: neither

	// Inherited are open sockets from the previous process. Those for addresses that are not configured are closed.
	Inherited Inherited

	Scheduling quell.Scheduling // default leastconn
	Seed       uint64           // of the algorithms that draw at random

	Health   Health
	Timeouts Timeouts

	// MaxConns is the limit of clients' connections at a time; further ones wait to be accepted. 0: as many as the limit
	// of open files allows. The limit of open files applies in any case.
	MaxConns int
	// MaxConnsSet says that somebody chose MaxConns. Then a warning is logged if the limit of open files allows fewer.
	MaxConnsSet bool
	// MaxConnsPerClient is the limit of connections of one address, or of one /64 of IPv6; further ones are closed. nil:
	// half of MaxConns; 0: no limit. Trusted proxies have no limit.
	MaxConnsPerClient *int
	// TrustedProxies are the networks whose X-Forwarded-* and Forwarded headers are kept. Those from others are replaced.
	TrustedProxies []netip.Prefix

	MaxHeaderBytes int           // of a request; default 64 KiB
	Drain          time.Duration // how long a backend that is being removed may keep open requests; default 30 s
	Lease          time.Duration // how long a controller that no longer renews keeps others out; default 15 s
	// Linger is how long Shutdown keeps idle connections open, so that a request already on its way is still answered.
	// Default 0.
	Linger time.Duration

	// Period is the sampling period. At its end Publish gets one reading per backend. Default 10 s.
	Period time.Duration
	// Fast is the period of a fast policy and divides Period. Readings are also made at its end. 0: there is none.
	Fast    time.Duration
	Publish func(context.Context, []quell.Reading) error // nil: no readings are made
	// Bus returns why the bus cannot be reached, for metrics and /healthz. nil: they say nothing about it. Traffic never
	// depends on the bus.
	Bus func() error

	Logger *slog.Logger
}

// Health configures health checks. A backend is unhealthy until its first check succeeds. After that, Fall failures
// in a row make it unhealthy and Rise successes in a row healthy. A failure to open a connection for traffic counts
// as a failed check.
type Health struct {
	Path     string        // requested with GET, 2xx and 3xx are good; empty: it is enough that a connection opens
	Interval time.Duration // default 2 s
	Timeout  time.Duration // default 1 s
	Fall     int           // default 3
	Rise     int           // default 2
}

// Timeouts limit how long the balancer waits for clients and instances. Bodies may take any time as long as they do
// not stall. There is no time-out on response bodies from instances.
type Timeouts struct {
	Connect        time.Duration // opening a connection to a backend; default 2 s
	ResponseHeader time.Duration // from the end of the request to the response's header; default 60 s
	Idle           time.Duration // idle connections of clients; default 90 s
	ReadHeader     time.Duration // a client sending its request header; default 10 s
	// UpstreamIdle is how long an idle connection to a backend is kept. It must be shorter than the backend's own
	// time-out, or requests are sent on connections that are just being closed. If a backend announces or shows a shorter
	// time, that is used. Default 1.5 s.
	UpstreamIdle time.Duration
	Body         time.Duration // a client sending no part of its request body; 0: no limit
	Write        time.Duration // a client reading no part of a response; 0: no limit
	Upgrade      time.Duration // an upgraded connection on which neither side sends; 0: no limit
}

func (o Options) withDefaults() Options {
	setDefault(&o.Name, "balancer")
	setDefault(&o.Scheduling, quell.LeastConn)
	setDefault(&o.Health.Interval, 2*time.Second)
	setDefault(&o.Health.Timeout, time.Second)
	setDefault(&o.Health.Fall, 3)
	setDefault(&o.Health.Rise, 2)
	setDefault(&o.Timeouts.Connect, 2*time.Second)
	setDefault(&o.Timeouts.ResponseHeader, time.Minute)
	setDefault(&o.Timeouts.Idle, 90*time.Second)
	setDefault(&o.Timeouts.ReadHeader, 10*time.Second)
	setDefault(&o.Timeouts.UpstreamIdle, 1500*time.Millisecond)
	setDefault(&o.MaxHeaderBytes, 64<<10)
	setDefault(&o.Drain, 30*time.Second)
	setDefault(&o.Lease, 15*time.Second)
	setDefault(&o.Period, 10*time.Second)
	if o.Publish == nil {
		o.Publish = func(context.Context, []quell.Reading) error { return nil }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
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
		"write timeout": o.Timeouts.Write, "upgrade timeout": o.Timeouts.Upgrade,
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
	if err := errors.Join(errs...); err != nil {
		return &quell.UserError{Err: fmt.Errorf("balancer: %w", err)}
	}
	return nil
}
