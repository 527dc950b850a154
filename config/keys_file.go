package config

import (
	"cmp"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/loadgen"
	"github.com/quellhq/quell/middleware"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/sensor"
	"github.com/quellhq/quell/setting"
)

// fileKeys is the table of a configuration file.
func (t Drivers) fileKeys(f *File) setting.Table {
	return append(serviceKeys(&f.Service),
		setting.Opt("services", setting.ListOf(&f.Services, "", func(s *string) setting.Value { return setting.Text(s) }).AtLeast(1),
			"files of several services with one controller, one bus and one agent on each machine; this file then has only data, listen, bus "+
				"and agent, and those files have everything else").Or("this file is that of one service").ReadBy(atHangUp(AgentProcess)),
		setting.Opt("models", setting.Text(&f.Models),
			"learn: from the service's readings; off: none, weights stay equal; or the path of a models.json, which quell fit writes").
			Or("learn; off with a policy that needs no models or cannot learn them").ReadBy(reads(onlyController)),
		setting.Opt("learn", setting.Bool(&f.Learn),
			"whether a models.json is only the beginning: its rows count as data, and learning from the service's readings goes on").
			ReadBy(reads(onlyController)),
		setting.Opt("data", setting.Text(&f.Data), "folder in which Quell keeps all its files").ReadBy(reads(keepers)),
		setting.Opt("listen", setting.OptionalAddress(&f.Listen), "address of the controller's page, metrics and health; off turns them off").
			ReadBy(atStart(ControllerProcess)),
		setting.Opt("web_config", setting.Text(&f.Web),
			"web configuration file of Prometheus's exporters: TLS and log-ins for listen, balancer.metrics and agent.metrics").
			Or("plain HTTP, without log-ins").
			ReadBy(everybody),
		setting.Opt("page", setting.Table{
			setting.Opt("hosts", setting.ListOf(&f.Page.Hosts, "", func(s *string) setting.Value { return setting.Text(s).Then(bareHost) }),
				"names under which browsers may ask for the page, beside localhost, the machine's name, and addresses"),
		}, "the web page of the controller").ReadBy(atStart(ControllerProcess)),
		setting.Opt("keda", setting.Table{
			setting.Opt("listen", setting.ListenAddress(&f.KEDA.Listen),
				"address at which KEDA's external scaler is answered (gRPC) with the number of instances that Quell wants, as in 0.0.0.0:9470").
				Or("off"),
			setting.Opt("tls", tlsKeys(&f.KEDA.TLS), "certificates, as files in PEM form; with ca only clients that it signed are answered").
				Or("without TLS"),
		}, "advice for KEDA, which then sets the number of pods").ReadBy(atStart(ControllerProcess)),
		setting.Opt("bus", busKeys(&f.Bus), "the message bus that connects the processes").ReadBy(everybody),
		setting.Opt("balancer", t.balancerKeys(&f.Balancer), "what spreads requests over the instances").ReadBy(reads(balancing)),
		setting.Opt("scaler", t.scalerKeys(&f.Scaler), "what starts and stops instances").ReadBy(atStart(ControllerProcess)),
		setting.Opt("probe", probeKeys(&f.Probe), "the measurement that detects interference").ReadBy(prober()),
		setting.Opt("agent", t.agentKeys(&f.Agent), "the agent, which runs on each instance").ReadBy(atStart(AgentProcess)),
		setting.Opt("redline", redlineKeys(&f.Service.Redline), "red-line tests without a person, at night").ReadBy(reads(onlyController)),
		setting.Opt("train", trainKeys(&f.Train), "what quell train measures, and how").ReadBy(reads(onlyController)),
	)
}

// bareHost accepts a name as it stands between https:// and the port.
func bareHost(name string) string {
	if strings.ContainsAny(name, "/:@ *") {
		return "must be a bare name, as in quell.example.org"
	}
	return ""
}

// serviceKeys are the keys of a service. No key is marked as required, because a file may be only for an agent's policy. For other files,
// require reports missing keys.
func serviceKeys(s *quell.Service) setting.Table {
	table := ServiceKeys(s)
	for i, k := range table {
		if k.Required {
			k.Required = false
			table[i] = k.Or("required, unless only `agent.policy` is used, or `services`")
		}
	}
	return table
}

func busKeys(b *Bus) setting.Table {
	return setting.Table{
		setting.Opt("url", natsURL(&b.URL), "a NATS server that already runs, as in nats://10.0.0.1:4222").Or("the controller runs one"),
		setting.Opt("listen", setting.ListenAddress(&b.Listen), "where the controller's own server listens"),
		setting.Opt("credentials", setting.Text(&b.Credentials),
			"file with this process's credential, made by `quell credentials` on the controller's machine; {service} in it stands for the "+
				"service's name").Or("on that machine: found in data"),
		setting.Opt("join", setting.Text(&b.Join),
			"file with a join token, made by `quell join-token create` on the controller's machine: an agent without a credential gets its own "+
				"with it; {service} in it stands for the service's name").ReadBy(atStart(AgentProcess)),
		setting.Opt("proof", setting.OneOf(&b.Proof, []Proof{ProofAWS, ProofKubernetes}),
			"what an agent without a credential shows in place of a join token: aws: its machine's instance identity document; kubernetes: its "+
				"pod's token. The scaler must accept that").Or("none").ReadBy(atStart(AgentProcess)),
		setting.Opt("proof_token", setting.Text(&b.ProofToken), "file with the pod's token, if proof is kubernetes").
			ReadBy(atStart(AgentProcess)),
		setting.Opt("token", setting.Text(&b.Token),
			"secret that every process may show in place of a credential: enough for readings of any instance and the status"),
		setting.Opt("token_file", setting.Text(&b.TokenFile), "file that holds the token"),
		setting.Opt("token_commands", setting.Bool(&b.TokenCommands), "whether a client with the token may also pause, resume and override"),
		setting.Opt("tls", tlsKeys(&b.TLS), "certificates, as files in PEM form"),
		setting.Opt("journal_bytes", setting.Size(&b.JournalBytes).AtLeast(16<<20),
			"largest size of the plans and snapshots on disk; older ones are deleted").ReadBy(atStart(ControllerProcess)),
		setting.Opt("replicas", replicas(&b.Replicas),
			"if url names a cluster of servers: number of copies of lease, state and journal; auto: as many as the cluster can hold, at most 3"),
	}
}

// replicas reads a number of copies, or the word auto, which it stores as 0.
func replicas(dst *int) *setting.Scalar[int] {
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
	return setting.Parsed(dst, fmt.Sprintf("auto, or a number from 1 to %d", most), parse, format)
}

func tlsKeys(t *TLS) setting.Table {
	return setting.Table{
		setting.Opt("ca", setting.Text(&t.CA), "authority that must have signed the other side's certificate; read again when it changes"),
		setting.Opt("cert", setting.Text(&t.Cert), "this process's own certificate; read again when it changes"),
		setting.Opt("key", setting.Text(&t.Key), "private key of this process's certificate"),
	}
}

func (t Drivers) balancerKeys(b *Balancer) setting.Value {
	return setting.ByKind(&b.Kind, &b.Settings, t.Balancers, "envoy", "nginx").Beside(
		setting.Opt("name", setting.Ident(&b.Name), "name of this balancer, different for each if there are several"),
		setting.Opt("drain", setting.Duration(&b.Drain).AtLeast(0),
			"how long open requests may take to finish before their connections are closed"),
		setting.Opt("classes", balancer.ClassKeys(&b.Classes),
			"kinds of requests whose rates and response times are measured apart; the first pattern that matches counts, "+
				"and requests that match none are of class other").Or("all requests together"),
	)
}

func (t Drivers) scalerKeys(s *Scaler) setting.Value {
	return setting.ByKind(&s.Kind, &s.Settings, t.Scalers)
}

func probeKeys(p *Probe) setting.Table {
	return setting.Table{
		setting.Opt("size", setting.Size(&p.Size).Between(1000, 16<<20), "bytes of one download").Or("follows from the budget"),
		setting.Opt("count", setting.Whole(&p.Count).Between(8, 10_000),
			"how many downloads probe an instance in each sampling period").Or("one in 100ms, as far as the budget leaves each 4KB; at least 8"),
		setting.Opt("budget", setting.Share(&p.Budget).Above(0).Between(0, 0.5), "share of an instance's network capacity that probes may use"),
		setting.Opt("token", setting.Text(&p.Token), "secret that the prober sends with each probe").ReadBy(prober(AgentProcess)),
		setting.Opt("token_file", setting.Text(&p.TokenFile), "file that holds the token").ReadBy(prober(AgentProcess)),
		setting.Opt("listen", setting.ListenAddress(&p.Listen),
			"address at which the agent answers probes; other machines can reach it only if a token is set").
			ReadBy(atHangUp(AgentProcess)),
		setting.Opt("from", setting.OneOf(&p.From, []Prober{FromBalancer, FromController}),
			"which process measures probes: balancer or controller").Or("balancer if builtin, else controller").ReadBy(reads(whoProbes)),
		setting.Opt("timeout", setting.Duration(&p.Timeout).Above(0),
			"a download that takes longer counts as if it took this long; at most one sampling period"),
		setting.Opt("capacity", setting.Bandwidth(&p.Capacity).Above(0),
			"network capacity of an instance, of which budget is a share").Or("not known").ReadBy(prober(AgentProcess)),
	}
}

func (t Drivers) agentKeys(a *Agent) setting.Table {
	return setting.Table{
		setting.Opt("instance", setting.Ident(&a.Instance), "id of the instance that the agent runs on"),
		setting.Opt("capacity", capacityKeys(a), "how much of each resource the instance has").Or("detected").
			ReadBy(prober(AgentProcess)),
		setting.Opt("interface", setting.Ident(&a.Interface), "network interface that is watched").
			Or("that of the default route; without one, the only interface that has routes").
			ReadBy(atHangUp(AgentProcess)),
		setting.Opt("root", setting.Text(&a.Root), "folder below which the sensors find proc and sys").ReadBy(atHangUp(AgentProcess)),
		setting.Opt("cgroup", setting.Text(&a.Cgroup),
			"control group whose processor time is the instance's own, over its quota: self, or a path as /system.slice/web.service").
			Or("the whole machine").ReadBy(atHangUp(AgentProcess)),
		setting.Opt("counters", setting.Bool(&a.Counters),
			"whether to count cycles, instructions and cache misses if the processors' counters can be used").
			ReadBy(atHangUp(AgentProcess)),
		setting.Opt("training", setting.Bool(&a.Training),
			"whether `quell train --on` may take this machine out of rotation, load it, and use its resources as a neighbour would").
			ReadBy(atHangUp(AgentProcess)),
		setting.Opt("metrics", setting.OptionalAddress(&a.Metrics), "address of the agent's metrics; off turns them off"),
		setting.Opt("reports", setting.OptionalAddress(&a.Reports),
			"address at which balancers get load reports (ORCA, gRPC), see docs/balancers/reports.md; off: none"),
		setting.Opt("reports_tls", setting.Table{
			setting.Req("cert", setting.Text(&a.Secure.Cert), "certificate in PEM, followed by those of its authorities"),
			setting.Req("key", setting.Text(&a.Secure.Key), "its key"),
			setting.Opt("client_ca", setting.Text(&a.Secure.ClientCA),
				"certificates of those who sign balancers' certificates; balancers then need one").Or("none"),
		}, "TLS of that address; files that change are read again").Or("without TLS"),
		setting.Opt("requests", a.Requests.Keys(),
			"the service's own metrics, if response times are measured there and not by the balancer").Or("not read").
			ReadBy(atHangUp(AgentProcess)),
		a.Probing.ResourcesKey().ReadBy(atHangUp(AgentProcess)),
		setting.Opt("probing", a.Probing.Keys(), "how the agent probes what `probes` names").ReadBy(atHangUp(AgentProcess)),
		setting.Opt("policy", agentPolicyKeys(&a.Policy),
			"a policy that the agent runs itself, for control groups of its machine; it needs neither controller nor bus").Or("none").
			ReadBy(atHangUp(AgentProcess)),
		setting.Opt("middleware",
			setting.ListOf(&a.Servers, middleware.Server{}, func(s *middleware.Server) setting.Value { return s.Value(t.Servers) }),
			"servers on the instance whose parameters plans may change").Or("none"),
		setting.Opt("credits", setting.ByKind(&a.Credits.Kind, &a.Credits.Settings, t.Credits),
			"who shows the balances of credits that a burstable instance has, see docs/credits.md").Or("nobody").
			ReadBy(atHangUp(AgentProcess)),
	}
}

func agentPolicyKeys(p *AgentPolicy) setting.Value {
	return table.All.HostKeys(&p.Chosen).Beside(
		setting.Opt("sampling", setting.Duration(&p.Sampling).Between(100*time.Millisecond, time.Hour),
			"how often the policy looks at all groups and makes one plan"),
		setting.Opt("groups",
			setting.ListOf(&p.Groups, sensor.Group{Share: 1}, func(g *sensor.Group) setting.Value { return controlGroupKeys(g) }).AtLeast(1),
			"the control groups that it decides for").
			Or("what systemd and quell run start: /system.slice/*, /machine.slice/*, /user.slice/* and /quell/*"),
		setting.Opt("progress", progressPath(&p.Progress),
			"path of the socket at which programs report their work, see docs/policies/acs.md; off: none"),
		setting.Opt("port", setting.Whole(&p.Port).Between(1, 65535),
			"TCP port of the service: the connections that its clients have open are the load (mrburst)").Or("none"),
		setting.Opt("records", setting.Text(&p.Records),
			"folder that says what was in force before the policy's limits, so that it is put back; the same for all agents of a machine"),
		setting.Opt("take_over", setting.Bool(&p.TakeOver), "also limit groups that have a limit of somebody else's, and put it back in the end"),
	)
}

// progressPath is the path of a socket, or off, which is stored as "".
func progressPath(dst *string) setting.Value {
	const off = "off"
	const longest = 100 // so that the socket for HTTP fits into a sockaddr_un, too
	parse := func(text string) (string, error) {
		if text == off {
			return "", nil
		}
		if !filepath.IsAbs(text) || len(text) > longest {
			return "", strconv.ErrRange
		}
		return text, nil
	}
	return setting.Parsed(dst, fmt.Sprintf("off, or an absolute path of at most %d bytes", longest), parse,
		func(path string) string { return cmp.Or(path, off) })
}

func controlGroupKeys(g *sensor.Group) setting.Table {
	return setting.Table{
		setting.Req("cgroup", setting.Text(&g.Path).Then(func(path string) string { return sensor.Group{Path: path}.Check() }),
			"path below the hierarchy as /system.slice/web.service, or a pattern as /system.slice/*.service for all that fit, now and later"),
		setting.Opt("name", setting.Ident(&g.Name), "name of the group; not allowed with a pattern").Or("the end of its path"),
		setting.Opt("share", setting.Decimal(&g.Share).Above(0).Between(0, 1e6),
			"importance of each group, relative to the others', for policies that divide a resource"),
		setting.Opt("alone", setting.Decimal(&g.Alone).Between(0, 1e12),
			"units of work per second that each group reports when it has the machine to itself; 0: learned from its reports"),
	}
}

func capacityKeys(a *Agent) setting.Table {
	c := a.Capacity
	var bits, cores, operations float64
	traffic := int64(c[quell.Memory])
	return setting.Table{
		setting.Opt("network", setting.Entry(c, quell.Network, setting.Bandwidth(&bits)).Above(0),
			"bandwidth of the interface").Or("probe.capacity, or what the kernel says"),
		setting.Opt("cpu", setting.Entry(c, quell.CPU, setting.Decimal(&cores)).Above(0), "cores").Or("those that it may use"),
		setting.Opt("disk", setting.Entry(c, quell.Disk, setting.Decimal(&operations)).Above(0),
			"operations per second that its disk can carry out").Or("not known"),
		setting.Opt("disk_bytes", setting.Size(&a.DiskBytes).Above(0), "bytes per second that its disk can read and write").Or("not known"),
		setting.Opt("memory", setting.Size(&traffic).Above(0).Into(func(n int64) { c[quell.Memory] = float64(n) }),
			"bytes per second that its processors and memory can exchange; used if the kernel counts them (resctrl)").Or("not known"),
	}
}

func trainKeys(t *Train) setting.Table {
	return setting.Table{
		setting.Opt("resource", setting.OneOf(&t.Resource, quell.Resources),
			"the resource that training loads, disturbs and probes: the network; with --on also what `agent.probes` names").
			Or("the policy's first"),
		setting.Opt("plan", setting.OneOf(&t.Plan, []TrainPlan{QuickPlan, FullPlan, AdaptivePlan, AlternatingPlan, CustomPlan}),
			"quick: a few levels; full: 10% to 90% in tens; adaptive: the runs that matter most at slo's threshold; "+
				"alternating: the interferer comes and goes, for the detector of ice; custom: as given here"),
		setting.Opt("levels",
			setting.Shares(&t.Levels, func(x *setting.Ordered[float64]) *setting.Ordered[float64] { return x.AtLeast(0).Below(1) }),
			"plan custom: utilisations to train, increasing; at 0% the probe alone is measured"),
		setting.Opt("interference", setting.Shares(&t.Interference,
			func(x *setting.Ordered[float64]) *setting.Ordered[float64] { return x.AtLeast(0).Below(1) }),
			"plan custom: utilisations by the interferer, increasing from 0%"),
		setting.Opt("run", setting.Duration(&t.Run).AtLeast(time.Second), "plan custom: length of one run"),
		setting.Opt("repeat", setting.Whole(&t.Repeat).Between(1, 1000), "plan custom: fewest runs of a level"),
		setting.Opt("max_repeat", setting.Whole(&t.MaxRepeat).Between(1, 1000),
			"plan custom: largest number of runs of a level, at least repeat"),
		setting.Opt("interval", setting.Share(&t.Interval).Above(0).Below(1),
			"plan custom: a level is done when the width of its confidence interval is at most this share of the mean"),
		setting.Opt("confidence", setting.Share(&t.Confidence).Above(0.5).Below(1), "plan custom: confidence of that interval"),
		setting.Opt("budget", setting.Whole(&t.Budget).Between(30, 100_000), "plan adaptive: largest number of runs"),
		setting.Opt("bound", setting.Share(&t.Bound).AtLeast(0).Below(1),
			"plan adaptive: done when the capacity's standard error is at most this utilisation; 0%: only at the budget's end"),
		setting.Opt("testbed", setting.OneOf(&t.Testbed, []Testbed{EmulatedTestbed, KernelTestbed}),
			"what hosts are made of: emulated, in this process; kernel: namespaces with nginx behind shaped links, as root"),
		setting.Opt("hosts", setting.Whole(&t.Hosts).Between(1, 1000), "number of hosts used at once; at most 254 for testbed kernel"),
		setting.Opt("network", setting.Bandwidth(&t.Network).Above(0), "bandwidth of a host's link"),
		setting.Opt("file_size", setting.Size(&t.FileSize).Above(0), "size of the file that clients download"),
		setting.Opt("arrivals", trainArrivals(&t.Arrivals),
			"gaps between requests: poisson (or exponential) for random, deterministic for equal ones"),
		setting.Opt("seed", setting.Seed(&t.Seed), "of everything random"),
	}
}

// trainArrivals is the name of an arrival process; poisson and exponential mean the same.
func trainArrivals(dst *loadgen.Process) setting.Value {
	known := []loadgen.Process{loadgen.Poisson, loadgen.Deterministic, loadgen.Exponential}
	return setting.OneOf(dst, known).Into(func(p loadgen.Process) {
		if p == loadgen.Exponential {
			p = loadgen.Poisson
		}
		*dst = p
	})
}

// natsURL is one or more addresses of a bus, separated by commas.
func natsURL(dst *string) *setting.Scalar[string] {
	return setting.Text(dst).Then(func(s string) string {
		for one := range strings.SplitSeq(s, ",") {
			u, err := url.Parse(strings.TrimSpace(one))
			if err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls" {
				return fmt.Sprintf("must be an address as in nats://10.0.0.1:4222, is %q", setting.Shorten(one))
			}
		}
		return ""
	})
}
