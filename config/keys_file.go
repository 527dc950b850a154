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
	"github.com/quellhq/quell/config/keys"
	"github.com/quellhq/quell/loadgen"
	"github.com/quellhq/quell/middleware"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/probe/local"
	"github.com/quellhq/quell/sensor"
)

// fileKeys is the table of a configuration file.
func (t Drivers) fileKeys(f *File) keys.Table {
	return append(serviceKeys(&f.Service),
		keys.Opt("services", keys.ListOf(&f.Services, "", func(s *string) keys.Value { return keys.Text(s) }).AtLeast(1),
			"files of several services with one controller, one bus and one agent on each machine; this file then has only data, listen, bus "+
				"and agent, and those files have everything else").Or("this file is that of one service"),
		keys.Opt("models", keys.Text(&f.Models),
			"learn: from the service's readings; off: none, weights stay equal; or the path of a models.json, which quell fit writes").
			Or("learn; off with a policy that needs no models or cannot learn them"),
		keys.Opt("learn", keys.Bool(&f.Learn),
			"whether a models.json is only the beginning: its rows count as data, and learning from the service's readings goes on"),
		keys.Opt("data", keys.Text(&f.Data), "folder in which Quell keeps all its files"),
		keys.Opt("listen", keys.OptionalAddress(&f.Listen), "address of the controller's page, metrics and health; off turns them off"),
		keys.Opt("page", keys.Table{
			keys.Opt("hosts", keys.ListOf(&f.Page.Hosts, "", func(s *string) keys.Value { return keys.Text(s).Then(bareHost) }),
				"names under which browsers may ask for the page, beside localhost, the machine's name, and addresses"),
		}, "the web page of the controller"),
		keys.Opt("bus", busKeys(&f.Bus), "the message bus that connects the processes"),
		keys.Opt("balancer", t.balancerKeys(&f.Balancer), "what spreads requests over the instances"),
		keys.Opt("scaler", t.scalerKeys(&f.Scaler), "what starts and stops instances"),
		keys.Opt("probe", probeKeys(&f.Probe), "the measurement that detects interference"),
		keys.Opt("agent", t.agentKeys(&f.Agent), "the agent, which runs on each instance"),
		keys.Opt("train", trainKeys(&f.Train), "what quell train measures, and how"),
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
func serviceKeys(s *quell.Service) keys.Table {
	table := ServiceKeys(s)
	for i, k := range table {
		if k.Required {
			table[i] = keys.Opt(k.Name, k.Value, k.Meaning()).Or("required, unless only `agent.policy` is used, or `services`")
		}
	}
	return table
}

func busKeys(b *Bus) keys.Table {
	return keys.Table{
		keys.Opt("url", natsURL(&b.URL), "a NATS server that already runs, as in nats://10.0.0.1:4222").Or("the controller runs one"),
		keys.Opt("listen", keys.ListenAddress(&b.Listen), "where the controller's own server listens"),
		keys.Opt("credentials", keys.Text(&b.Credentials),
			"file with this process's credential, made by `quell credentials` on the controller's machine; {service} in it stands for the "+
				"service's name").Or("on that machine: found in data"),
		keys.Opt("token", keys.Text(&b.Token),
			"secret that every process may show in place of a credential: enough for readings of any instance and the status"),
		keys.Opt("token_file", keys.Text(&b.TokenFile), "file that holds the token"),
		keys.Opt("token_commands", keys.Bool(&b.TokenCommands), "whether a client with the token may also pause, resume and override"),
		keys.Opt("tls", tlsKeys(&b.TLS), "certificates, as files in PEM form"),
		keys.Opt("journal_bytes", keys.Size(&b.JournalBytes).AtLeast(16<<20),
			"largest size of the plans and snapshots on disk; older ones are deleted"),
		keys.Opt("replicas", replicas(&b.Replicas),
			"if url names a cluster of servers: number of copies of lease, state and journal; auto: as many as the cluster can hold, at most 3"),
	}
}

// replicas reads a number of copies, or the word auto, which it stores as 0.
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
		keys.Opt("ca", keys.Text(&t.CA), "authority that must have signed the other side's certificate"),
		keys.Opt("cert", keys.Text(&t.Cert), "this process's own certificate"),
		keys.Opt("key", keys.Text(&t.Key), "private key of this process's certificate"),
	}
}

func (t Drivers) balancerKeys(b *Balancer) keys.Value {
	return keys.ByKind(&b.Kind, &b.Settings, t.Balancers, "envoy", "nginx").Beside(
		keys.Opt("name", keys.Ident(&b.Name), "name of this balancer, different for each if there are several"),
		keys.Opt("drain", keys.Duration(&b.Drain).AtLeast(0), "how long open requests may take to finish before their connections are closed"),
		keys.Opt("classes", balancer.ClassKeys(&b.Classes),
			"kinds of requests whose rates and response times are measured apart; the first pattern that matches counts, "+
				"and requests that match none are of class other").Or("all requests together"),
	)
}

func (t Drivers) scalerKeys(s *Scaler) keys.Value {
	return keys.ByKind(&s.Kind, &s.Settings, t.Scalers, "aws", "kubernetes")
}

func probeKeys(p *Probe) keys.Table {
	return keys.Table{
		keys.Opt("size", keys.Size(&p.Size).Between(1000, 16<<20), "bytes of one download").Or("follows from the budget"),
		keys.Opt("count", keys.Whole(&p.Count).Between(8, 10_000),
			"how many downloads probe an instance in each sampling period").Or("one in 100ms, as far as the budget leaves each 4KB; at least 8"),
		keys.Opt("budget", keys.Share(&p.Budget).Above(0).Between(0, 0.5), "share of an instance's network capacity that probes may use"),
		keys.Opt("token", keys.Text(&p.Token), "secret that the prober sends with each probe"),
		keys.Opt("token_file", keys.Text(&p.TokenFile), "file that holds the token"),
		keys.Opt("listen", keys.ListenAddress(&p.Listen),
			"address at which the agent answers probes; other machines can reach it only if a token is set"),
		keys.Opt("from", keys.OneOf(&p.From, []Prober{FromBalancer, FromController}),
			"which process measures probes: balancer or controller").Or("balancer if builtin, else controller"),
		keys.Opt("timeout", keys.Duration(&p.Timeout).Above(0),
			"a download that takes longer counts as if it took this long; at most one sampling period"),
		keys.Opt("capacity", keys.Bandwidth(&p.Capacity).Above(0), "network capacity of an instance, of which budget is a share").Or("not known"),
	}
}

func (t Drivers) agentKeys(a *Agent) keys.Table {
	return keys.Table{
		keys.Opt("instance", keys.Ident(&a.Instance), "id of the instance that the agent runs on"),
		keys.Opt("capacity", capacityKeys(a), "how much of each resource the instance has").Or("detected"),
		keys.Opt("interface", keys.Ident(&a.Interface), "network interface that is watched").Or("that of the default route"),
		keys.Opt("root", keys.Text(&a.Root), "folder below which the sensors find proc and sys"),
		keys.Opt("cgroup", keys.Text(&a.Cgroup),
			"control group whose processor time is the instance's own, over its quota: self, or a path as /system.slice/web.service").
			Or("the whole machine"),
		keys.Opt("counters", keys.Bool(&a.Counters),
			"whether to count cycles, instructions and cache misses if the processors' counters can be used"),
		keys.Opt("metrics", keys.OptionalAddress(&a.Metrics), "address of the agent's metrics; off turns them off"),
		probesKey(&a.Probing),
		keys.Opt("probing", probingKeys(&a.Probing), "how the agent probes what `probes` names"),
		keys.Opt("policy", agentPolicyKeys(&a.Policy),
			"a policy that the agent runs itself, for control groups of its machine; it needs neither controller nor bus").Or("none"),
		keys.Opt("middleware", keys.ListOf(&a.Servers, middleware.Server{}, func(s *middleware.Server) keys.Value { return s.Value(t.Servers) }),
			"servers on the instance whose parameters plans may change").Or("none"),
		keys.Opt("credits", keys.ByKind(&a.Credits.Kind, &a.Credits.Settings, t.Credits),
			"who shows the balances of credits that a burstable instance has, see docs/credits.md").Or("nobody"),
	}
}

func agentPolicyKeys(p *AgentPolicy) keys.Value {
	return policy.HostKeys(&p.Chosen).Beside(
		keys.Opt("sampling", keys.Duration(&p.Sampling).Between(100*time.Millisecond, time.Hour),
			"how often the policy looks at all groups and makes one plan"),
		keys.Opt("groups",
			keys.ListOf(&p.Groups, sensor.Group{Share: 1}, func(g *sensor.Group) keys.Value { return controlGroupKeys(g) }).AtLeast(1),
			"the control groups that it decides for").
			Or("what systemd and quell run start: /system.slice/*, /machine.slice/*, /user.slice/* and /quell/*"),
		keys.Opt("progress", progressPath(&p.Progress),
			"path of the socket at which programs report their work, see docs/policies/acs.md; off: none"),
		keys.Opt("port", keys.Whole(&p.Port).Between(1, 65535),
			"TCP port of the service: the connections that its clients have open are the load (mrburst)").Or("none"),
		keys.Opt("records", keys.Text(&p.Records),
			"folder that says what was in force before the policy's limits, so that it is put back; the same for all agents of a machine"),
		keys.Opt("take_over", keys.Bool(&p.TakeOver), "also limit groups that have a limit of somebody else's, and put it back in the end"),
	)
}

// progressPath is the path of a socket, or off, which is stored as "".
func progressPath(dst *string) keys.Value {
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
	return keys.Parsed(dst, fmt.Sprintf("off, or an absolute path of at most %d bytes", longest), parse,
		func(path string) string { return cmp.Or(path, off) })
}

func controlGroupKeys(g *sensor.Group) keys.Table {
	return keys.Table{
		keys.Req("cgroup", keys.Text(&g.Path).Then(func(path string) string { return sensor.Group{Path: path}.Check() }),
			"path below the hierarchy as /system.slice/web.service, or a pattern as /system.slice/*.service for all that fit, now and later"),
		keys.Opt("name", keys.Ident(&g.Name), "name of the group; not allowed with a pattern").Or("the end of its path"),
		keys.Opt("share", keys.Decimal(&g.Share).Above(0).Between(0, 1e6),
			"importance of each group, relative to the others', for policies that divide a resource"),
		keys.Opt("alone", keys.Decimal(&g.Alone).Between(0, 1e12),
			"units of work per second that each group reports when it has the machine to itself; 0: learned from its reports"),
	}
}

// probesKey names what the agent probes.
func probesKey(p *Probing) keys.Key {
	const off, auto quell.Resource = "off", "auto"
	known := local.Resources()
	written := p.Resources
	switch {
	case len(written) == 0:
		written = []quell.Resource{off}
	case len(written) == len(known):
		written = []quell.Resource{auto}
	}
	read := func(words []quell.Resource) {
		switch words[0] {
		case off:
			p.Resources = nil
		case auto:
			p.Resources = known
		default:
			p.Resources = words
		}
	}
	return keys.Opt("probes", keys.Words(written, read, known, off, auto),
		"what the agent probes on its own machine: cpu, memory or disk, a list such as [cpu, disk], auto: all of them, or off")
}

func probingKeys(p *Probing) keys.Table {
	return keys.Table{
		keys.Opt("budget", keys.Share(&p.Budget).Above(0).Between(0, local.MostBudget),
			"largest share of each resource (the processors' time, the disk's operations) that its probes may take"),
		keys.Opt("run", keys.Duration(&p.Run).Between(50*time.Microsecond, 10*time.Millisecond), "processor time of one processor probe"),
		keys.Opt("buffer", keys.Size(&p.Buffer).Between(64<<10, 1<<30),
			"what memory probes walk through: more than a processor's private caches, less than what it shares"),
		keys.Opt("folder", keys.Text(&p.Folder), "where the disk probe has its file of 4 MiB: on the disk that the service uses").
			Or("the agent's part of data"),
		keys.Opt("writes", keys.Bool(&p.Writes), "whether the disk probe writes and syncs instead of reading"),
	}
}

func capacityKeys(a *Agent) keys.Table {
	c := a.Capacity
	var bits, cores, operations float64
	traffic := int64(c[quell.Memory])
	return keys.Table{
		keys.Opt("network", keys.Entry(c, quell.Network, keys.Bandwidth(&bits)).Above(0),
			"bandwidth of the interface").Or("probe.capacity, or what the kernel says"),
		keys.Opt("cpu", keys.Entry(c, quell.CPU, keys.Decimal(&cores)).Above(0), "cores").Or("those that it may use"),
		keys.Opt("disk", keys.Entry(c, quell.Disk, keys.Decimal(&operations)).Above(0),
			"operations per second that its disk can carry out").Or("not known"),
		keys.Opt("disk_bytes", keys.Size(&a.DiskBytes).Above(0), "bytes per second that its disk can read and write").Or("not known"),
		keys.Opt("memory", keys.Size(&traffic).Above(0).Into(func(n int64) { c[quell.Memory] = float64(n) }),
			"bytes per second that its processors and memory can exchange; used if the kernel counts them (resctrl)").Or("not known"),
	}
}

func trainKeys(t *Train) keys.Table {
	return keys.Table{
		keys.Opt("resource", keys.OneOf(&t.Resource, quell.Resources),
			"the resource that training loads, disturbs and probes; probes must measure it, so only the network").Or("the policy's first"),
		keys.Opt("plan", keys.OneOf(&t.Plan, []TrainPlan{QuickPlan, FullPlan, AdaptivePlan, AlternatingPlan, CustomPlan}),
			"quick: a few levels; full: 10% to 90% in tens; adaptive: the runs that matter most at slo's threshold; "+
				"alternating: the interferer comes and goes, for the detector of ice; custom: as given here"),
		keys.Opt("levels", keys.Shares(&t.Levels, func(x *keys.Ordered[float64]) *keys.Ordered[float64] { return x.AtLeast(0).Below(1) }),
			"plan custom: utilisations to train, increasing; at 0% the probe alone is measured"),
		keys.Opt("interference", keys.Shares(&t.Interference,
			func(x *keys.Ordered[float64]) *keys.Ordered[float64] { return x.AtLeast(0).Below(1) }),
			"plan custom: utilisations by the interferer, increasing from 0%"),
		keys.Opt("run", keys.Duration(&t.Run).AtLeast(time.Second), "plan custom: length of one run"),
		keys.Opt("repeat", keys.Whole(&t.Repeat).Between(1, 1000), "plan custom: fewest runs of a level"),
		keys.Opt("max_repeat", keys.Whole(&t.MaxRepeat).Between(1, 1000), "plan custom: largest number of runs of a level, at least repeat"),
		keys.Opt("interval", keys.Share(&t.Interval).Above(0).Below(1),
			"plan custom: a level is done when the width of its confidence interval is at most this share of the mean"),
		keys.Opt("confidence", keys.Share(&t.Confidence).Above(0.5).Below(1), "plan custom: confidence of that interval"),
		keys.Opt("budget", keys.Whole(&t.Budget).Between(30, 100_000), "plan adaptive: largest number of runs"),
		keys.Opt("bound", keys.Share(&t.Bound).AtLeast(0).Below(1),
			"plan adaptive: done when the capacity's standard error is at most this utilisation; 0%: only at the budget's end"),
		keys.Opt("testbed", keys.OneOf(&t.Testbed, []Testbed{EmulatedTestbed, KernelTestbed}),
			"what hosts are made of: emulated, in this process; kernel: namespaces with nginx behind shaped links, as root"),
		keys.Opt("hosts", keys.Whole(&t.Hosts).Between(1, 1000), "number of hosts used at once; at most 254 for testbed kernel"),
		keys.Opt("network", keys.Bandwidth(&t.Network).Above(0), "bandwidth of a host's link"),
		keys.Opt("file_size", keys.Size(&t.FileSize).Above(0), "size of the file that clients download"),
		keys.Opt("arrivals", trainArrivals(&t.Arrivals),
			"gaps between requests: poisson (or exponential) for random, deterministic for equal ones"),
		keys.Opt("seed", keys.Seed(&t.Seed), "of everything random"),
	}
}

// trainArrivals is the name of an arrival process; poisson and exponential mean the same.
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
