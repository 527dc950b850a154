package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// fileKeys is the table of a configuration file.
func fileKeys(f *File) section {
	return append(serviceKeys(&f.Service),
		opt("models", text(&f.Models), "models.json, as quell fit writes it"),
		opt("data", text(&f.Data), "folder of everything that Quell keeps"),
		opt("listen", optionalAddress(&f.Listen), "the controller's metrics and health; off turns it off"),
		opt("bus", busKeys(&f.Bus), "how the processes talk"),
		opt("balancer", balancerKeys(&f.Balancer), "what spreads requests over the instances"),
		opt("scaler", scalerKeys(&f.Scaler), "what starts and stops instances"),
		opt("probe", probeKeys(&f.Probe), "the measurement that feels interference"),
		opt("agent", agentKeys(&f.Agent), "what runs on an instance"),
		opt("train", trainKeys(&f.Train), "how quell train measures"),
	)
}

func busKeys(b *Bus) section {
	return section{
		opt("url", natsURL(&b.URL), "a NATS server that already runs, as in nats://10.0.0.1:4222").or("the controller runs one"),
		opt("listen", listenAddress(&b.Listen), "where the controller's own server listens"),
		opt("credentials", text(&b.Credentials), "file with this process's credential, made by `quell credentials` on the controller's machine").or("on that machine: found in data"),
		opt("token", text(&b.Token), "secret that every process may show in place of a credential: enough for readings of any instance and the status"),
		opt("token_file", text(&b.TokenFile), "file that holds the token"),
		opt("token_commands", boolean(&b.TokenCommands), "whoever shows the token may also pause, resume and override"),
		opt("tls", tlsKeys(&b.TLS), "certificates, as files in PEM form"),
		opt("journal_bytes", size(&b.JournalBytes).atLeast(16<<20), "most bytes of plans and snapshots kept on disk"),
		opt("replicas", replicas(&b.Replicas), "with url: copies of lease, state and journal in a cluster of servers; auto: as many as it holds, up to 3"),
	}
}

// replicas is a number of copies, or auto, which is 0.
func replicas(dst *int) *scalar[int] {
	const most = 5
	return &scalar[int]{
		kind: fmt.Sprintf("auto, or a number from 1 to %d", most), accepts: isSingle, start: "auto", set: func(n int) { *dst = n },
		parse: func(text string) (int, error) {
			if text == "auto" {
				return 0, nil
			}
			n, err := strconv.Atoi(text)
			if err == nil && (n < 1 || n > most) {
				err = strconv.ErrRange
			}
			return n, err
		},
	}
}

func tlsKeys(t *TLS) section {
	return section{
		opt("ca", text(&t.CA), "authority that the other side's certificate must come from"),
		opt("cert", text(&t.Cert), "own certificate"),
		opt("key", text(&t.Key), "key of the own certificate"),
	}
}

func balancerKeys(b *Balancer) section {
	return section{
		opt("kind", oneOf(&b.Kind, []BalancerKind{BuiltinBalancer, CommandBalancer, HAProxyBalancer}, "envoy", "nginx", "lvs"), "builtin: quell balancer; haproxy: a HAProxy that runs already; command: your own, through programs"),
		opt("listen", listenAddress(&b.Listen), "where clients connect"),
		opt("admin", text(&b.Admin), "Unix socket that the controller uses").or("`balancer.sock` in data"),
		opt("metrics", optionalAddress(&b.Metrics), "the balancer's metrics and health; off turns it off"),
		opt("scheduling", scheduling(&b.Scheduling), "how the next instance is picked: roundrobin, leastconn, random2, ewma or prequal; weights apply to all but the last"),
		opt("name", ident(&b.Name), "tells several balancers apart"),
		opt("health", healthKeys(&b.Health), "how instances are checked"),
		opt("timeouts", timeoutKeys(&b.Timeouts), "bounds of the phases of a request"),
		opt("max_conns", whole(&b.MaxConns).atLeast(0), "most connections of clients, further ones wait; 0 for as many as the limit of open files leaves room for"),
		opt("max_conns_per_client", whole(new(int)).atLeast(0).into(func(n int) { b.MaxConnsPerClient = &n }), "most connections of one client address (IPv6: of one /64), further ones are closed; 0 for no limit; trusted proxies have none").or("half of max_conns"),
		opt("trusted_proxies", listOf(&b.TrustedProxies, netip.Prefix{}, func(p *netip.Prefix) value { return network(p) }), "networks of proxies in front, as in 10.0.0.0/8: their X-Forwarded-* and Forwarded headers are kept, those of others replaced"),
		opt("drain", duration(&b.Drain).atLeast(0), "how long open requests may take to finish"),
		opt("command", command(&b.Command), "kind command: program that applies the backends it reads as JSON"),
		opt("state_command", command(&b.StateCommand), "kind command: program that prints the backends in force as JSON"),
		opt("haproxy", haproxyKeys(&b.HAProxy), "kind haproxy: where it is and what it calls things"),
	}
}

func haproxyKeys(h *HAProxy) section {
	return section{
		opt("sockets", listOf(&h.Sockets, "", func(s *string) value { return pathOrAddress(s) }).atLeast(1), "runtime API of every HAProxy in front of the service, `level admin`: paths or host:port"),
		opt("backend", ident(&h.Backend), "the backend whose servers are the instances"),
		opt("slots", ident(&h.Slots), "beginning of the names of servers declared with server-template, for instances that come and go").or("servers are added and deleted at run time"),
		opt("server", text(&h.Server).then(oneCommand), "more parameters of servers added at run time, as in maxconn 100").or("health checks by balancer.health"),
		opt("state_file", text(&h.StateFile), "server-state-file of HAProxy, kept up to date for its restarts").or("none"),
		opt("log", pathOrAddress(&h.Log), "where HAProxy sends its log: a path for a Unix datagram socket, or host:port for UDP").or("none: response times are coarse"),
	}
}

func healthKeys(h *Health) section {
	return section{
		opt("path", urlPath(&h.Path), "path that answers 200 while an instance is well"),
		opt("interval", duration(&h.Interval).atLeast(10*time.Millisecond), "time between checks"),
		opt("timeout", duration(&h.Timeout).above(0), "a slower answer is a failed check"),
		opt("fall", whole(&h.Fall).atLeast(1), "failed checks in a row until an instance is unhealthy"),
		opt("rise", whole(&h.Rise).atLeast(1), "passed checks in a row until it is healthy again"),
	}
}

func timeoutKeys(t *Timeouts) section {
	return section{
		opt("connect", duration(&t.Connect).above(0), "to connect to an instance"),
		opt("header", duration(&t.Header).above(0), "until an instance's response begins"),
		opt("idle", duration(&t.Idle).above(0), "of a client's kept-alive connection without a request"),
		opt("upstream_idle", duration(&t.UpstreamIdle).above(0), "of a kept-alive connection to an instance without a request; must be below the instances' own"),
		opt("read_header", duration(&t.ReadHeader).above(0), "until a client's request headers have arrived"),
		opt("body", duration(&t.Body).atLeast(0), "for the next part of a request's body to arrive; 0s for no limit"),
		opt("write", duration(&t.Write).atLeast(0), "for a client to take the next part of a response; 0s for no limit"),
		opt("upgrade", duration(&t.Upgrade).atLeast(0), "of an upgraded connection (WebSocket) on which neither side sends; 0s for no limit"),
	}
}

func scalerKeys(s *Scaler) section {
	return section{
		opt("kind", oneOf(&s.Kind, []ScalerKind{FixedScaler, ProcessScaler, CommandScaler}, "aws", "kubernetes"), "fixed: the instances listed; process: children of the controller; command: your own, through programs"),
		opt("instances", listOf(&s.Instances, quell.Member{}, func(m *quell.Member) value { return memberKeys(m) }).atLeast(1), "kind fixed: the instances; group.min and group.max are their number"),
		opt("command", command(&s.Command), "kind process: the instance's program; {id} {port} {probe_port} {slot} {host} are replaced"),
		opt("address", text(&s.Address), "kind process: where an instance serves; the same are replaced").or("`127.0.0.1:{port}`"),
		opt("probe_address", text(&s.ProbeAddress), "kind process: where its agent answers probes").or("`127.0.0.1:{probe_port}`, if that is used"),
		opt("slots", whole(&s.Slots).atLeast(1), "kind process: most instances at once").or("group.max"),
		opt("ports", ports(&s.Ports), "kind process: ports for instances, as in 9000-9099").or("any free ones"),
		opt("ready", readyKeys(&s.Ready), "how a starting instance shows that it can serve"),
		opt("drain", duration(&s.Drain).atLeast(0), "how long a stopped instance may take to end before it is killed"),
		opt("lifeline", boolean(&s.Lifeline), "kind process: instances end with the controller, at once"),
		opt("linger", duration(&s.Linger).atLeast(0), "kind process: instances end when no controller has run for so long; 0s: never"),
		opt("start", command(&s.Start), "kind command: program that starts instances"),
		opt("stop", command(&s.Stop), "kind command: program that stops instances"),
		opt("list", command(&s.List), "kind command: program that prints the instances as JSON"),
	}
}

func memberKeys(m *quell.Member) section {
	return section{
		req("id", ident(&m.ID), "id of the instance"),
		req("address", remoteAddress(&m.Address), "host:port of the service"),
		opt("probe", remoteAddress(&m.Probe), "host:port of its agent's probe server"),
		opt("type", text(&m.Type), "type of the machine"),
	}
}

func readyKeys(r *Ready) section {
	return section{
		opt("path", urlPath(&r.Path), "path that answers 200 once an instance can serve"),
		opt("timeout", duration(&r.Timeout).above(0), "an instance that takes longer has failed").or("group.startup"),
	}
}

func probeKeys(p *Probe) section {
	return section{
		opt("size", size(&p.Size).between(1000, 16<<20), "bytes of one download").or("follows from the budget"),
		opt("count", whole(&p.Count).between(8, 10_000), "downloads per sampling period and instance"),
		opt("budget", share(&p.Budget).above(0).between(0, 0.5), "share of an instance's network that the probe may use"),
		opt("token", text(&p.Token), "secret that the prober shows"),
		opt("token_file", text(&p.TokenFile), "file that holds the token"),
		opt("listen", listenAddress(&p.Listen), "where the agent answers probes; beyond this machine only with a token"),
		opt("from", oneOf(&p.From, []Prober{FromBalancer, FromController}), "who measures: balancer or controller").or("balancer if builtin, else controller"),
		opt("timeout", duration(&p.Timeout).above(0), "a slower download counts as this long; at most one sampling period"),
		opt("capacity", bandwidth(&p.Capacity).above(0), "network capacity of an instance, for the budget").or("not known"),
	}
}

func agentKeys(a *Agent) section {
	return section{
		opt("instance", ident(&a.Instance), "id of the instance that the agent runs on"),
		opt("capacity", capacityKeys(a.Capacity), "what an instance has of each resource").or("detected"),
		opt("interface", ident(&a.Interface), "network interface that is watched").or("that of the default route"),
		opt("root", text(&a.Root), "root of the file system that sensors read"),
		opt("cgroup", text(&a.Cgroup), "control group whose processor time is the instance's own, over its quota: self, or a path as /system.slice/web.service").or("the whole machine"),
		opt("metrics", optionalAddress(&a.Metrics), "the agent's metrics; off turns it off"),
	}
}

func capacityKeys(c map[quell.Resource]float64) section {
	var bits, cores float64
	return section{
		opt("network", capacity(c, quell.Network, bandwidth(&bits)), "bandwidth of the interface").or("what the kernel says"),
		opt("cpu", capacity(c, quell.CPU, decimal(&cores)), "cores").or("those present"),
	}
}

func trainKeys(t *Train) section {
	return section{
		opt("plan", oneOf(&t.Plan, []TrainPlan{QuickPlan, FullPlan, AdaptivePlan, CustomPlan}), "quick: a few levels; full: 10% to 90% in tens; adaptive: what slo's threshold hangs on; custom: as given here"),
		opt("levels", shares(&t.Levels, func(x *ordered[float64]) *ordered[float64] { return x.atLeast(0).below(1) }), "plan custom: utilisations to train, increasing; at 0% the probe alone is measured"),
		opt("interference", shares(&t.Interference, func(x *ordered[float64]) *ordered[float64] { return x.atLeast(0).below(1) }), "plan custom: use by the interferer, increasing from 0%"),
		opt("run", duration(&t.Run).atLeast(time.Second), "plan custom: length of one run"),
		opt("repeat", whole(&t.Repeat).between(1, 1000), "plan custom: fewest runs of a level"),
		opt("max_repeat", whole(&t.MaxRepeat).between(1, 1000), "plan custom: most runs of a level; at least repeat"),
		opt("interval", share(&t.Interval).above(0).below(1), "plan custom: a level is done when the width of its confidence interval is at most this share of the mean"),
		opt("confidence", share(&t.Confidence).above(0.5).below(1), "plan custom: confidence of that interval"),
		opt("budget", whole(&t.Budget).between(30, 100_000), "plan adaptive: runs at most"),
		opt("bound", share(&t.Bound).atLeast(0).below(1), "plan adaptive: done when the capacity's standard error is at most this utilisation; 0%: only at the budget's end"),
		opt("testbed", oneOf(&t.Testbed, []Testbed{EmulatedTestbed, KernelTestbed}), "what hosts are made of: emulated, in this process; kernel: namespaces with nginx behind shaped links, as root"),
		opt("hosts", whole(&t.Hosts).between(1, 1000), "hosts at once; of testbed kernel at most 254"),
		opt("network", bandwidth(&t.Network).above(0), "link of a host"),
		opt("file_size", size(&t.FileSize).above(0), "size of the file that is served"),
		opt("arrivals", arrivals(&t.Arrivals), "poisson (or exponential) or deterministic"),
		opt("seed", seed(&t.Seed), "of everything random"),
	}
}

// arrivals is the name of an arrival process; exponential gaps are what Poisson arrivals have.
func arrivals(dst *scenario.Arrivals) value {
	known := append(slices.Clone(scenario.ArrivalProcesses), "exponential")
	return oneOf(dst, known).into(func(a scenario.Arrivals) {
		if a == "exponential" {
			a = scenario.Poisson
		}
		*dst = a
	})
}

func urlPath(dst *string) value {
	return text(dst).then(func(s string) string {
		if strings.HasPrefix(s, "/") && !strings.ContainsAny(s, " #") {
			return ""
		}
		return "must be a path as in /healthz"
	})
}
