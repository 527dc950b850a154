package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config/keys"
	"github.com/quellhq/quell/loadgen"
)

// fileKeys is the table of a configuration file.
func fileKeys(f *File) keys.Table {
	return append(ServiceKeys(&f.Service),
		keys.Opt("models", keys.Text(&f.Models), "models.json, as quell fit writes it"),
		keys.Opt("data", keys.Text(&f.Data), "folder of everything that Quell keeps"),
		keys.Opt("listen", keys.OptionalAddress(&f.Listen), "the controller's metrics and health; off turns it off"),
		keys.Opt("bus", busKeys(&f.Bus), "how the processes talk"),
		keys.Opt("balancer", balancerKeys(&f.Balancer), "what spreads requests over the instances"),
		keys.Opt("scaler", scalerKeys(&f.Scaler), "what starts and stops instances"),
		keys.Opt("probe", probeKeys(&f.Probe), "the measurement that feels interference"),
		keys.Opt("agent", agentKeys(&f.Agent), "what runs on an instance"),
		keys.Opt("train", trainKeys(&f.Train), "how quell train measures"),
	)
}

func busKeys(b *Bus) keys.Table {
	return keys.Table{
		keys.Opt("url", natsURL(&b.URL), "a NATS server that already runs, as in nats://10.0.0.1:4222").Or("the controller runs one"),
		keys.Opt("listen", keys.ListenAddress(&b.Listen), "where the controller's own server listens"),
		keys.Opt("credentials", keys.Text(&b.Credentials), "file with this process's credential, made by `quell credentials` on the controller's machine").Or("on that machine: found in data"),
		keys.Opt("token", keys.Text(&b.Token), "secret that every process may show in place of a credential: enough for readings of any instance and the status"),
		keys.Opt("token_file", keys.Text(&b.TokenFile), "file that holds the token"),
		keys.Opt("token_commands", keys.Bool(&b.TokenCommands), "whoever shows the token may also pause, resume and override"),
		keys.Opt("tls", tlsKeys(&b.TLS), "certificates, as files in PEM form"),
		keys.Opt("journal_bytes", keys.Size(&b.JournalBytes).AtLeast(16<<20), "most bytes of plans and snapshots kept on disk"),
		keys.Opt("replicas", replicas(&b.Replicas), "with url: copies of lease, state and journal in a cluster of servers; auto: as many as it holds, up to 3"),
	}
}

// replicas is a number of copies, or auto, which is 0.
func replicas(dst *int) *keys.Scalar[int] {
	const most = 5
	parse := func(text string) (int, error) {
		if text == "auto" {
			return 0, nil
		}
		n, err := strconv.Atoi(text)
		if err == nil && (n < 1 || n > most) {
			err = strconv.ErrRange
		}
		return n, err
	}
	format := func(n int) string {
		if n == 0 {
			return "auto"
		}
		return strconv.Itoa(n)
	}
	return keys.Parsed(dst, fmt.Sprintf("auto, or a number from 1 to %d", most), parse, format)
}

func tlsKeys(t *TLS) keys.Table {
	return keys.Table{
		keys.Opt("ca", keys.Text(&t.CA), "authority that the other side's certificate must come from"),
		keys.Opt("cert", keys.Text(&t.Cert), "own certificate"),
		keys.Opt("key", keys.Text(&t.Key), "key of the own certificate"),
	}
}

func balancerKeys(b *Balancer) keys.Table {
	return keys.Table{
		keys.Opt("kind", keys.OneOf(&b.Kind, []BalancerKind{BuiltinBalancer, CommandBalancer, HAProxyBalancer}, "envoy", "nginx", "lvs"), "builtin: quell balancer; haproxy: a HAProxy that runs already; command: your own, through programs"),
		keys.Opt("listen", keys.ListenAddress(&b.Listen), "where clients connect"),
		keys.Opt("admin", keys.Text(&b.Admin), "Unix socket that the controller uses").Or("`balancer.sock` in data"),
		keys.Opt("metrics", keys.OptionalAddress(&b.Metrics), "the balancer's metrics and health; off turns it off"),
		keys.Opt("scheduling", Scheduling(&b.Scheduling), "how the next instance is picked: roundrobin, leastconn, random2, ewma or prequal; weights apply to all but the last"),
		keys.Opt("name", keys.Ident(&b.Name), "tells several balancers apart"),
		keys.Opt("health", healthKeys(&b.Health), "how instances are checked"),
		keys.Opt("timeouts", timeoutKeys(&b.Timeouts), "bounds of the phases of a request"),
		keys.Opt("max_conns", keys.Whole(&b.MaxConns).AtLeast(0).Into(func(n int) { b.MaxConns, b.MaxConnsSet = n, true }), "most connections of clients, further ones wait; 0 for as many as the limit of open files leaves room for"),
		keys.Opt("max_conns_per_client", keys.Whole(new(int)).AtLeast(0).Into(func(n int) { b.MaxConnsPerClient = &n }), "most connections of one client address (IPv6: of one /64), further ones are closed; 0 for no limit; trusted proxies have none").Or("half of max_conns"),
		keys.Opt("trusted_proxies", keys.ListOf(&b.TrustedProxies, netip.Prefix{}, func(p *netip.Prefix) keys.Value { return keys.Network(p) }), "networks of proxies in front, as in 10.0.0.0/8: their X-Forwarded-* and Forwarded headers are kept, those of others replaced"),
		keys.Opt("drain", keys.Duration(&b.Drain).AtLeast(0), "how long open requests may take to finish"),
		keys.Opt("command", keys.Command(&b.Command), "kind command: program that applies the backends it reads as JSON"),
		keys.Opt("state_command", keys.Command(&b.StateCommand), "kind command: program that prints the backends in force as JSON"),
		keys.Opt("haproxy", haproxyKeys(&b.HAProxy), "kind haproxy: where it is and what it calls things"),
	}
}

func haproxyKeys(h *HAProxy) keys.Table {
	return keys.Table{
		keys.Opt("sockets", keys.ListOf(&h.Sockets, "", func(s *string) keys.Value { return keys.PathOrAddress(s) }).AtLeast(1), "runtime API of every HAProxy in front of the service, `level admin`: paths or host:port"),
		keys.Opt("backend", keys.Ident(&h.Backend), "the backend whose servers are the instances"),
		keys.Opt("slots", keys.Ident(&h.Slots), "beginning of the names of servers declared with server-template, for instances that come and go").Or("servers are added and deleted at run time"),
		keys.Opt("server", keys.Text(&h.Server).Then(oneCommand), "more parameters of servers added at run time, as in maxconn 100").Or("health checks by balancer.health"),
		keys.Opt("state_file", keys.Text(&h.StateFile), "server-state-file of HAProxy, kept up to date for its restarts").Or("none"),
		keys.Opt("log", keys.PathOrAddress(&h.Log), "where HAProxy sends its log: a path for a Unix datagram socket, or host:port for UDP").Or("none: response times are coarse"),
	}
}

func healthKeys(h *Health) keys.Table {
	return keys.Table{
		keys.Opt("path", keys.URLPath(&h.Path), "path that answers 200 while an instance is well"),
		keys.Opt("interval", keys.Duration(&h.Interval).AtLeast(10*time.Millisecond), "time between checks"),
		keys.Opt("timeout", keys.Duration(&h.Timeout).Above(0), "a slower answer is a failed check"),
		keys.Opt("fall", keys.Whole(&h.Fall).AtLeast(1), "failed checks in a row until an instance is unhealthy"),
		keys.Opt("rise", keys.Whole(&h.Rise).AtLeast(1), "passed checks in a row until it is healthy again"),
	}
}

func timeoutKeys(t *Timeouts) keys.Table {
	return keys.Table{
		keys.Opt("connect", keys.Duration(&t.Connect).Above(0), "to connect to an instance"),
		keys.Opt("header", keys.Duration(&t.Header).Above(0), "until an instance's response begins"),
		keys.Opt("idle", keys.Duration(&t.Idle).Above(0), "of a client's kept-alive connection without a request"),
		keys.Opt("upstream_idle", keys.Duration(&t.UpstreamIdle).Above(0), "of a kept-alive connection to an instance without a request; must be below the instances' own"),
		keys.Opt("read_header", keys.Duration(&t.ReadHeader).Above(0), "until a client's request headers have arrived"),
		keys.Opt("body", keys.Duration(&t.Body).AtLeast(0), "for the next part of a request's body to arrive; 0s for no limit"),
		keys.Opt("write", keys.Duration(&t.Write).AtLeast(0), "for a client to take the next part of a response; 0s for no limit"),
		keys.Opt("upgrade", keys.Duration(&t.Upgrade).AtLeast(0), "of an upgraded connection (WebSocket) on which neither side sends; 0s for no limit"),
	}
}

func scalerKeys(s *Scaler) keys.Table {
	return keys.Table{
		keys.Opt("kind", keys.OneOf(&s.Kind, []ScalerKind{FixedScaler, ProcessScaler, CommandScaler}, "aws", "kubernetes"), "fixed: the instances listed; process: children of the controller; command: your own, through programs"),
		keys.Opt("instances", keys.ListOf(&s.Instances, quell.Member{}, func(m *quell.Member) keys.Value { return memberKeys(m) }).AtLeast(1), "kind fixed: the instances; group.min and group.max are their number"),
		keys.Opt("command", keys.Command(&s.Command), "kind process: the instance's program; {id} {port} {probe_port} {slot} {host} are replaced"),
		keys.Opt("address", keys.Text(&s.Address), "kind process: where an instance serves; the same are replaced").Or("`127.0.0.1:{port}`"),
		keys.Opt("probe_address", keys.Text(&s.ProbeAddress), "kind process: where its agent answers probes").Or("`127.0.0.1:{probe_port}`, if that is used"),
		keys.Opt("slots", keys.Whole(&s.Slots).AtLeast(1), "kind process: most instances at once").Or("group.max"),
		keys.Opt("ports", keys.PortRange(&s.Ports), "kind process: ports for instances, as in 9000-9099").Or("any free ones"),
		keys.Opt("ready", readyKeys(&s.Ready), "how a starting instance shows that it can serve"),
		keys.Opt("drain", keys.Duration(&s.Drain).AtLeast(0), "how long a stopped instance may take to end before it is killed"),
		keys.Opt("lifeline", keys.Bool(&s.Lifeline), "kind process: instances end with the controller, at once"),
		keys.Opt("linger", keys.Duration(&s.Linger).AtLeast(0), "kind process: instances end when no controller has run for so long; 0s: never"),
		keys.Opt("start", keys.Command(&s.Start), "kind command: program that starts instances"),
		keys.Opt("stop", keys.Command(&s.Stop), "kind command: program that stops instances"),
		keys.Opt("list", keys.Command(&s.List), "kind command: program that prints the instances as JSON"),
	}
}

func memberKeys(m *quell.Member) keys.Table {
	return keys.Table{
		keys.Req("id", keys.Ident(&m.ID), "id of the instance"),
		keys.Req("address", keys.RemoteAddress(&m.Address), "host:port of the service"),
		keys.Opt("probe", keys.RemoteAddress(&m.Probe), "host:port of its agent's probe server"),
		keys.Opt("type", keys.Text(&m.Type), "type of the machine"),
	}
}

func readyKeys(r *Ready) keys.Table {
	return keys.Table{
		keys.Opt("path", keys.URLPath(&r.Path), "path that answers 200 once an instance can serve"),
		keys.Opt("timeout", keys.Duration(&r.Timeout).Above(0), "an instance that takes longer has failed").Or("group.startup"),
	}
}

func probeKeys(p *Probe) keys.Table {
	return keys.Table{
		keys.Opt("size", keys.Size(&p.Size).Between(1000, 16<<20), "bytes of one download").Or("follows from the budget"),
		keys.Opt("count", keys.Whole(&p.Count).Between(8, 10_000), "downloads per sampling period and instance").Or("one in 100ms, as far as the budget leaves each 4KB; at least 8"),
		keys.Opt("budget", keys.Share(&p.Budget).Above(0).Between(0, 0.5), "share of an instance's network that the probe may use"),
		keys.Opt("token", keys.Text(&p.Token), "secret that the prober shows"),
		keys.Opt("token_file", keys.Text(&p.TokenFile), "file that holds the token"),
		keys.Opt("listen", keys.ListenAddress(&p.Listen), "where the agent answers probes; beyond this machine only with a token"),
		keys.Opt("from", keys.OneOf(&p.From, []Prober{FromBalancer, FromController}), "who measures: balancer or controller").Or("balancer if builtin, else controller"),
		keys.Opt("timeout", keys.Duration(&p.Timeout).Above(0), "a slower download counts as this long; at most one sampling period"),
		keys.Opt("capacity", keys.Bandwidth(&p.Capacity).Above(0), "network capacity of an instance, for the budget").Or("not known"),
	}
}

func agentKeys(a *Agent) keys.Table {
	return keys.Table{
		keys.Opt("instance", keys.Ident(&a.Instance), "id of the instance that the agent runs on"),
		keys.Opt("capacity", capacityKeys(a.Capacity), "what an instance has of each resource").Or("detected"),
		keys.Opt("interface", keys.Ident(&a.Interface), "network interface that is watched").Or("that of the default route"),
		keys.Opt("root", keys.Text(&a.Root), "root of the file system that sensors read"),
		keys.Opt("cgroup", keys.Text(&a.Cgroup), "control group whose processor time is the instance's own, over its quota: self, or a path as /system.slice/web.service").Or("the whole machine"),
		keys.Opt("metrics", keys.OptionalAddress(&a.Metrics), "the agent's metrics; off turns it off"),
	}
}

func capacityKeys(c map[quell.Resource]float64) keys.Table {
	var bits, cores float64
	return keys.Table{
		keys.Opt("network", keys.Entry(c, quell.Network, keys.Bandwidth(&bits)).Above(0), "bandwidth of the interface").Or("what the kernel says"),
		keys.Opt("cpu", keys.Entry(c, quell.CPU, keys.Decimal(&cores)).Above(0), "cores").Or("those present"),
	}
}

func trainKeys(t *Train) keys.Table {
	return keys.Table{
		keys.Opt("plan", keys.OneOf(&t.Plan, []TrainPlan{QuickPlan, FullPlan, AdaptivePlan, CustomPlan}), "quick: a few levels; full: 10% to 90% in tens; adaptive: what slo's threshold hangs on; custom: as given here"),
		keys.Opt("levels", keys.Shares(&t.Levels, func(x *keys.Ordered[float64]) *keys.Ordered[float64] { return x.AtLeast(0).Below(1) }), "plan custom: utilisations to train, increasing; at 0% the probe alone is measured"),
		keys.Opt("interference", keys.Shares(&t.Interference, func(x *keys.Ordered[float64]) *keys.Ordered[float64] { return x.AtLeast(0).Below(1) }), "plan custom: use by the interferer, increasing from 0%"),
		keys.Opt("run", keys.Duration(&t.Run).AtLeast(time.Second), "plan custom: length of one run"),
		keys.Opt("repeat", keys.Whole(&t.Repeat).Between(1, 1000), "plan custom: fewest runs of a level"),
		keys.Opt("max_repeat", keys.Whole(&t.MaxRepeat).Between(1, 1000), "plan custom: most runs of a level; at least repeat"),
		keys.Opt("interval", keys.Share(&t.Interval).Above(0).Below(1), "plan custom: a level is done when the width of its confidence interval is at most this share of the mean"),
		keys.Opt("confidence", keys.Share(&t.Confidence).Above(0.5).Below(1), "plan custom: confidence of that interval"),
		keys.Opt("budget", keys.Whole(&t.Budget).Between(30, 100_000), "plan adaptive: runs at most"),
		keys.Opt("bound", keys.Share(&t.Bound).AtLeast(0).Below(1), "plan adaptive: done when the capacity's standard error is at most this utilisation; 0%: only at the budget's end"),
		keys.Opt("testbed", keys.OneOf(&t.Testbed, []Testbed{EmulatedTestbed, KernelTestbed}), "what hosts are made of: emulated, in this process; kernel: namespaces with nginx behind shaped links, as root"),
		keys.Opt("hosts", keys.Whole(&t.Hosts).Between(1, 1000), "hosts at once; of testbed kernel at most 254"),
		keys.Opt("network", keys.Bandwidth(&t.Network).Above(0), "link of a host"),
		keys.Opt("file_size", keys.Size(&t.FileSize).Above(0), "size of the file that is served"),
		keys.Opt("arrivals", trainArrivals(&t.Arrivals), "poisson (or exponential) or deterministic"),
		keys.Opt("seed", keys.Seed(&t.Seed), "of everything random"),
	}
}

// trainArrivals is the name of an arrival process; exponential gaps are what Poisson arrivals have.
func trainArrivals(dst *loadgen.Process) keys.Value {
	known := []loadgen.Process{loadgen.Poisson, loadgen.Deterministic, loadgen.Exponential}
	return keys.OneOf(dst, known).Into(func(p loadgen.Process) {
		if p == loadgen.Exponential {
			p = loadgen.Poisson
		}
		*dst = p
	})
}

// natsURL is one or more addresses of a bus, separated by commas.
func natsURL(dst *string) *keys.Scalar[string] {
	return keys.Text(dst).Then(func(s string) string {
		for one := range strings.SplitSeq(s, ",") {
			u, err := url.Parse(strings.TrimSpace(one))
			if err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls" {
				return fmt.Sprintf("must be an address as in nats://10.0.0.1:4222, is %q", keys.Shorten(one))
			}
		}
		return ""
	})
}

// oneCommand is text that becomes part of a line.
func oneCommand(s string) string {
	if strings.ContainsAny(s, ";\\\n\r") {
		return "must be one line without ; or \\"
	}
	return ""
}
