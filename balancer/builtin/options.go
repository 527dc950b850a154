// Package builtin is Quell's own load balancer: an HTTP/1.1 reverse proxy that runs in its own process, is told its
// backends over an admin socket, and measures each of them. Client is the controller's side of that socket.
//
// A server goes from New through Start to Shutdown. One request flows handler (proxy.go) -> pool (pool.go, which asks
// package route) -> backend (backend.go) -> meter (meter.go); health.go and reporting.go work beside it.
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

// InstanceHeader is the response header that names the instance which answered.
const InstanceHeader = "X-Quell-Instance"

// Options configure a Server. Listen is required; everything else has a default.
type Options struct {
	Name    string // tells several balancers of a service apart
	Service string // the service whose traffic this is

	Listen  string // host:port for the service's clients
	Admin   string // path of the admin socket, mode 0600; empty: no admin API, and nothing outlives a restart
	Metrics string // host:port for /metrics and /healthz; empty: neither

	// Inherited are sockets that need not be opened; one for an address that is not configured is closed.
	Inherited Inherited

	Scheduling quell.Scheduling // default leastconn
	Seed       uint64           // of the schedulings that draw at random

	Health   Health
	Timeouts Timeouts

	// MaxConns is how many connections clients may have at a time; further ones wait to be accepted. 0: as many as the
	// limit of open files leaves room for, and never more than that.
	MaxConns int
	// MaxConnsSet says that somebody chose MaxConns, and is to be warned where the open files leave room for fewer.
	MaxConnsSet bool
	// MaxConnsPerClient is how many of them one address may have, or one /64 of IPv6; further ones are closed. nil: half
	// of all; 0: no limit. Trusted proxies have none.
	MaxConnsPerClient *int
	// TrustedProxies are the networks whose X-Forwarded-* and Forwarded headers are kept. Those of others are replaced.
	TrustedProxies []netip.Prefix

	MaxHeaderBytes int           // of a request; default 64 KiB
	Drain          time.Duration // how long a backend on its way out may keep open requests; default 30 s
	Lease          time.Duration // how long a controller that fell silent keeps others out; default 15 s
	// Linger is how long Shutdown leaves kept connections open, so that a request that is on its way is answered, as the last
	// one. Default 0.
	Linger time.Duration

	// Period is the sampling period: one reading per backend is handed to Publish at its end. Default 10 s.
	Period time.Duration
	// Fast is the period of a fast policy, which divides Period: at its end, too, a reading is made. 0: there is none.
	Fast    time.Duration
	Publish func(context.Context, []quell.Reading) error // nil: readings are not wanted
	// Bus says why the bus cannot be reached, for metrics and /healthz; nil tells nothing. Traffic never depends on it.
	Bus func() error

	Logger *slog.Logger
}

// Health says how backends are checked. A backend is unhealthy until its first check succeeds; from then on Fall
// failures in a row make it unhealthy, Rise successes in a row healthy. A connection that traffic cannot open counts
// as a failed check.
type Health struct {
	Path     string        // asked with GET, 2xx and 3xx are good; empty: a connection that opens is good
	Interval time.Duration // default 2 s
	Timeout  time.Duration // default 1 s
	Fall     int           // default 3
	Rise     int           // default 2
}

// Timeouts bound what either side may make the balancer wait for. Bodies may stream for as long as they like, if they
// do not come to a halt; there is none on the bodies of responses.
type Timeouts struct {
	Connect        time.Duration // opening a connection to a backend; default 2 s
	ResponseHeader time.Duration // from the whole request sent to the response's header; default 60 s
	Idle           time.Duration // kept connections of clients; default 90 s
	ReadHeader     time.Duration // a client sending its request's header; default 10 s
	// UpstreamIdle is for kept connections to backends. It must be below the time after which the backends close them, or
	// requests meet the closing. Where a backend tells or shows that time, less is used. Default 1.5 s.
	UpstreamIdle time.Duration
	Body         time.Duration // a client sending nothing of a body that is due; 0: no limit
	Write        time.Duration // a client taking nothing of a response; 0: no limit
	Upgrade      time.Duration // an upgraded connection on which nobody sends; 0: no limit
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
