package builtin

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/health"
	"github.com/quellhq/quell/internal/webcheck"
	"github.com/quellhq/quell/setting"
)

// Kind is Quell's own balancer, which runs in a process of its own.
var Kind = balancer.Kind{Name: "builtin", About: "quell balancer", Defaults: func() balancer.Settings { return defaults() }}

// Settings are its configuration.
type Settings struct {
	Listen     string // where clients connect
	Admin      string // path of the Unix socket that the controller uses
	Metrics    string // address of the metrics; empty: none
	Scheduling quell.Scheduling
	Health     health.Options
	Timeouts   Timeouts
	MaxConns   int // 0: limited only by the limit of open files
	// MaxConnsSet says that the configuration sets MaxConns.
	MaxConnsSet bool
	// MaxConnsPerClient is the limit for one client address. nil: half of MaxConns; 0: no limit.
	MaxConnsPerClient *int
	TrustedProxies    []netip.Prefix // whose X-Forwarded-* and Forwarded headers are kept
	TLS               *TLS           // clients connect with TLS; nil: without
	HTTP2             bool           // clients may speak HTTP/2
	Upstream          Protocol       // what instances speak
	NameInstance      bool           // responses name their instance
	LoadReports       bool           // responses have load reports for a balancer in front
	DefaultHost       string         // Host of requests that have none
	Upgrades          []string       // protocols other than HTTP to which a client may change
}

func defaults() *Settings {
	return &Settings{
		Listen: "127.0.0.1:8080", Metrics: "127.0.0.1:9465", Scheduling: quell.LeastConn,
		Health: health.Options{Path: "/healthz", Interval: time.Second, Timeout: time.Second, Fall: 2, Rise: 2},
		Timeouts: Timeouts{
			Connect: time.Second, ResponseHeader: 30 * time.Second, Idle: 90 * time.Second, ReadHeader: 10 * time.Second,
			UpstreamIdle: 1500 * time.Millisecond, Body: 30 * time.Second, Write: 30 * time.Second, Upgrade: 10 * time.Minute,
			HalfClosed: 5 * time.Second,
		},
		MaxConns: 10000, HTTP2: true, Upstream: HTTP1, Upgrades: []string{"websocket"},
	}
}

// Keys returns the table of the balancer's keys.
func (s *Settings) Keys() setting.Table {
	return setting.Table{
		setting.Opt("listen", setting.ListenAddress(&s.Listen), "where clients connect"),
		setting.Opt("admin", setting.Text(&s.Admin), "Unix socket through which the controller sets the backends").Or("`balancer.sock` in data"),
		setting.Opt("metrics", setting.OptionalAddress(&s.Metrics), "address of the balancer's metrics and health; off turns them off"),
		setting.Opt("scheduling", setting.OneOf(&s.Scheduling, quell.Schedulings),
			"how the next instance is picked: roundrobin, leastconn, random2, ewma, leasttime or prequal; weights apply to all but the last"),
		setting.Opt("health", s.Health.Keys(), "how instances are checked"),
		setting.Opt("timeouts", timeoutKeys(&s.Timeouts), "time limits of the parts of a request"),
		setting.Opt("max_conns", setting.Whole(&s.MaxConns).AtLeast(0).Into(func(n int) { s.MaxConns, s.MaxConnsSet = n, true }),
			"largest number of client connections: idle ones are closed for further ones, which else wait; "+
				"0 for as many as the limit of open files allows"),
		setting.Opt("max_conns_per_client", setting.Pointer(&s.MaxConnsPerClient, perClient),
			"most connections of one client address (IPv6: of one /64), further ones are closed; 0 for no limit; "+
				"trusted proxies have none").Or("half of max_conns"),
		setting.Opt("trusted_proxies",
			setting.ListOf(&s.TrustedProxies, netip.Prefix{}, func(p *netip.Prefix) setting.Value { return setting.Network(p) }),
			"networks of proxies in front, as in 10.0.0.0/8: their X-Forwarded-* and Forwarded headers are kept, those of others replaced"),
		setting.Opt("tls", setting.Maybe(&s.TLS, tlsKeys), "clients connect with TLS (1.2 or later); without this section, without TLS"),
		setting.Opt("http2", setting.Bool(&s.HTTP2),
			"whether clients may speak HTTP/2: with TLS if they ask for it (ALPN), without TLS by prior knowledge (h2c)"),
		setting.Opt("upstream", setting.OneOf(&s.Upstream, []Protocol{HTTP1, H2C}),
			"what instances speak: http1, or h2c for HTTP/2 without TLS, as gRPC needs; health checks use the same"),
		setting.Opt("name_instance", setting.Bool(&s.NameInstance), "whether responses name the instance that answered, in X-Quell-Instance"),
		setting.Opt("load_reports", setting.Bool(&s.LoadReports),
			"whether responses tell a balancer in front, in endpoint-load-metrics (ORCA), how much of what the group can carry is used"),
		setting.Opt("default_host", setting.Text(&s.DefaultHost).Then(webcheck.HostProblem),
			"Host that instances get with requests that have none, as in HTTP/1.0").Or("an empty Host"),
		setting.Opt("upgrades",
			setting.ListOf(&s.Upgrades, "", func(p *string) setting.Value { return setting.Text(p).Then(tokenProblem) }),
			"protocols to which a client may change with Upgrade; for others the header is removed").Or("[websocket]"),
	}
}

func tlsKeys(t *TLS) setting.Table {
	return setting.Table{
		setting.Req("cert", setting.Text(&t.Cert),
			"file in PEM form: the certificate, then those of its authorities; read again when it changes"),
		setting.Req("key", setting.Text(&t.Key), "file in PEM form: the certificate's private key; read again when it changes"),
	}
}

func perClient(n *int) setting.Value { return setting.Whole(n).AtLeast(0) }

// tokenProblem returns what is wrong with the name of a protocol, which may have a version behind a slash.
func tokenProblem(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !strings.ContainsRune(tokenRunes, r) }) {
		return fmt.Sprintf("%q is no protocol", setting.Shorten(s))
	}
	return ""
}

const tokenRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._/"

func timeoutKeys(t *Timeouts) setting.Table {
	return setting.Table{
		setting.Opt("connect", setting.Duration(&t.Connect).Above(0), "limit of the time to connect to an instance"),
		setting.Opt("header", setting.Duration(&t.ResponseHeader).Above(0), "limit of the time until an instance's response begins"),
		setting.Opt("idle", setting.Duration(&t.Idle).Above(0), "how long a client's kept-alive connection may stay open without a request"),
		setting.Opt("upstream_idle", setting.Duration(&t.UpstreamIdle).Above(0),
			"how long a kept-alive connection to an instance may stay open without a request; must be below the instances' own limit"),
		setting.Opt("read_header", setting.Duration(&t.ReadHeader).Above(0), "limit of the time until a client's request headers have arrived"),
		setting.Opt("body", setting.Duration(&t.Body).AtLeast(0),
			"limit of the time until the next part of a request's body arrives; 0s for no limit"),
		setting.Opt("write", setting.Duration(&t.Write).AtLeast(0),
			"limit of the time until a client takes the next part of a response; 0s for no limit"),
		setting.Opt("upgrade", setting.Duration(&t.Upgrade).AtLeast(0),
			"how long neither side of an upgraded connection (WebSocket) may send nothing; 0s for no limit"),
		setting.Opt("half_closed", setting.Duration(&t.HalfClosed).AtLeast(0),
			"how long a request may go on after its client has closed its side of the connection; 0s cancels it at once"),
	}
}

// Check reports keys that contradict each other.
func (s *Settings) Check(d *setting.Decoder) {
	if d.Sound("balancer.max_conns", "balancer.max_conns_per_client") && s.MaxConnsPerClient != nil && s.MaxConns > 0 &&
		*s.MaxConnsPerClient > s.MaxConns {
		d.Refuse("balancer.max_conns_per_client", "", "must be at most balancer.max_conns, which is %d", s.MaxConns)
	}
	d.Apart("balancer.listen", s.Listen, "balancer.metrics", s.Metrics)
}

// longestAdmin is the longest path of an admin socket, in bytes.
const longestAdmin = 90

// CheckPlaces reports paths that cannot be used.
func (s *Settings) CheckPlaces(d *setting.Decoder) {
	if d.Sound("balancer.admin", "data") && len(s.Admin) > longestAdmin {
		d.Refuse(d.First("balancer.admin", "data"), "set balancer.admin to a shorter path, as in /run/quell/balancer.sock",
			"the admin socket %s has a path of %d bytes; at most %d are possible", s.Admin, len(s.Admin), longestAdmin)
	}
}

// Files returns the paths that are relative to the configuration's folder.
func (s *Settings) Files(data string) []*string {
	if s.Admin == "" {
		s.Admin = filepath.Join(data, "balancer.sock")
	}
	if s.TLS != nil {
		return []*string{&s.Admin, &s.TLS.Cert, &s.TLS.Key}
	}
	return []*string{&s.Admin}
}

// Process returns the keys that the balancer's own process reads again at SIGHUP, the keys that it reads only at its start, and the keys
// that the controller reads as well.
func (s *Settings) Process() (again, once, shared []string) {
	return []string{"scheduling", "health", "max_conns", "max_conns_per_client", "trusted_proxies", "timeouts",
			"name_instance", "default_host", "upgrades"},
		[]string{"timeouts.idle", "timeouts.read_header"}, []string{"admin"}
}

// OwnBackends returns true: only this service's controller can have made the backends.
func (s *Settings) OwnBackends(bool) bool { return true }

// Distributes returns the rule by which requests are distributed.
func (s *Settings) Distributes() quell.Scheduling { return s.Scheduling }

// Clients returns the address where clients connect.
func (s *Settings) Clients() string { return s.Listen }

// Where returns the admin socket.
func (s *Settings) Where() string { return s.Admin }

// Manages names the balancer's sockets. No two services can use the same.
func (s *Settings) Manages() []string {
	names := []string{"socket " + s.Admin, "listener " + s.Listen}
	if s.Metrics != "" {
		names = append(names, "listener "+s.Metrics)
	}
	return names
}

// New makes a driver that uses the admin socket.
func (s *Settings) New(balancer.Service) (balancer.Driver, error) {
	if s.LoadReports {
		return informing{NewClient(s.Admin)}, nil
	}
	return NewClient(s.Admin), nil
}

// Parts returns the balancer itself as its only part.
func (s *Settings) Parts(in balancer.Service) []balancer.Part {
	return []balancer.Part{{About: "balancer at " + s.Admin + ": backends", Open: func() (balancer.Driver, error) { return s.New(in) }}}
}

// CheckHealth makes one health check of an instance in the same way as the balancer.
func (s *Settings) CheckHealth(ctx context.Context, address string) (asked string, err error) {
	return "GET " + s.Health.Path, health.NewChecker(s.Health, s.Upstream.protocols(), make(chan struct{}, 1)).Check(ctx, address)
}

// Options returns the options for the balancer's own process that a configuration sets.
func (s *Settings) Options(in balancer.Service) Options {
	return Options{
		Name: in.Balancer, Service: in.Name, Listen: s.Listen, Admin: s.Admin, Metrics: s.Metrics,
		Scheduling: s.Scheduling, MaxConns: s.MaxConns, MaxConnsSet: s.MaxConnsSet, MaxConnsPerClient: s.MaxConnsPerClient,
		TLS: s.TLS, HTTP2: s.HTTP2, Upstream: s.Upstream,
		TrustedProxies: s.TrustedProxies, NameInstance: s.NameInstance, LoadReports: s.LoadReports,
		DefaultHost: s.DefaultHost, Upgrades: s.Upgrades,
		Classes: in.Classes, FirstByte: in.FirstByte,
		Drain: in.Drain, Period: in.Period, Fast: in.Fast, Health: s.Health, Timeouts: s.Timeouts, Logger: in.Logger,
	}
}
