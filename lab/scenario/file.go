package scenario

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/config/yaml"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/setting"
)

// Parse reads a scenario. The name is that of its file and appears in errors, which have the form of config.Parse's.
//
// Each instance has a host of its own, so the number of hosts limits group.max. If the file names no runs, there is one run, under the
// service's own policy.
func Parse(name string, data []byte) (*Scenario, error) {
	f := newFile()
	d := yaml.NewDecoder(name)
	if d.Decode(data, f.keys()) {
		f.workloadParts(d)
		f.complete(d)
		config.CheckService(d, "service", f.Service)
		f.validate(d)
	}
	if err := d.Err(); err != nil {
		return nil, err
	}
	s := f.Scenario
	s.Service.Group.Max = min(s.Service.Group.Max, len(s.Hosts))
	return &s, nil
}

// InFile makes a *quell.UserError of an error about a scenario. A *quell.InvalidError, whose path is in the parsed scenario, gets the
// file's name and the line and column of that path; another error gets the name only.
func InFile(name string, data []byte, err error) error {
	var invalid *quell.InvalidError
	if !errors.As(err, &invalid) {
		return &quell.UserError{Err: fmt.Errorf("%s: %w", name, err)}
	}
	f, d := newFile(), yaml.NewDecoder(name)
	d.Decode(data, f.keys())
	p := d.PlaceOf(f.written(invalid.Path))
	return &quell.UserError{Err: setting.Problem{File: name, Line: p.Line, Column: p.Column, Text: err.Error()}}
}

// file is a scenario in the form of its file.
type file struct {
	Scenario
	groups []hostGroup
}

// hostGroup is an entry of hosts. With a count it stands for count equal hosts, id1 to idN; with a count of 0 it is the single host id.
type hostGroup struct {
	Host
	count int
}

func newFile() *file {
	return &file{Scenario: Scenario{
		Seed:      1,
		Service:   quell.DefaultService(),
		Instances: Instances{Start: 1},
		Workload:  blankWorkload(),
		Judge:     DefaultJudging(),
	}}
}

func (f *file) keys() setting.Table {
	return setting.Table{
		setting.Req("scenario", setting.Ident(&f.Name), "name of the scenario"),
		setting.Opt("seed", setting.Seed(&f.Seed), "of everything random"),
		setting.Req("duration", setting.Duration(&f.Duration), "how long a run lasts"),
		setting.Req("service", scenarioServiceKeys(&f.Service), "a service configuration"),
		setting.Req("hosts", setting.ListOf(&f.groups, blankHosts(), func(g *hostGroup) setting.Value { return hostKeys(g) }).AtLeast(1),
			"the machines; each holds at most one instance"),
		setting.Opt("instances", instancesKeys(&f.Instances), "how many instances a run begins with"),
		setting.Req("workload", workloadKeys(&f.Workload), "what clients ask for"),
		setting.Opt("readings", readingsKeys(&f.Readings), "what goes wrong with them on their way to the controller; simulator only"),
		setting.Opt("stations", stationsKeys(&f.Stations), "how machines serve what is open there; simulator only"),
		setting.Opt("probing", probingKeys(&f.Probing), "of the instances; simulator only"),
		setting.Opt("services", setting.Whole(&f.Services).Between(1, mostServices),
			"this many services like this one, each with hosts, clients, a controller and a seed of its own; `quell sim` only").Or("`1`"),
		setting.Opt("warm_up", setting.Duration(&f.WarmUp),
			"how long the first load is offered before measuring starts").Or("4s in the demo, four sampling periods in the simulator"),
		setting.Opt("timeline", setting.ListOf(&f.Timeline, Event{}, func(e *Event) setting.Value { return eventKeys(e) }),
			"what changes when, in order of time"),
		setting.Opt("runs",
			setting.ListOf(&f.Runs, Run{Scheduling: quell.LeastConn}, func(r *Run) setting.Value { return runKeys(r) }).AtLeast(1),
			"passes through the scenario, to compare").Or("one, of the service's policy"),
		setting.Opt("judge", judgeKeys(&f.Judge), "how response times are held against the objective"),
	}
}

func scenarioServiceKeys(s *quell.Service) setting.Table {
	table := config.ServiceKeys(s)
	for i := range table {
		if table[i].Name == "service" {
			table[i].Required = false
			table[i] = table[i].Or("the scenario's name")
		}
	}
	return table
}

func blankHosts() hostGroup {
	return hostGroup{Host: Host{Cores: 1, DiskIOPS: 1000, Memory: 1}}
}

func hostKeys(g *hostGroup) setting.Table {
	return setting.Table{
		setting.Req("id", setting.Ident(&g.ID), "name of the host; with a count, what the names begin with"),
		setting.Opt("count", setting.Whole(&g.count).Between(1, 10_000),
			"this many identical hosts: h1, h2, ...").Or("one host, named as the id"),
		setting.Req("network", setting.Bandwidth(&g.Network), "bandwidth of the host's link"),
		setting.Opt("cores", setting.Decimal(&g.Cores), "processors"),
		setting.Opt("disk_iops", setting.Decimal(&g.DiskIOPS), "disk operations per second"),
		setting.Opt("memory", setting.Decimal(&g.Memory), "memory bandwidth, relative to the reference machine"),
	}
}

func instancesKeys(n *Instances) setting.Table {
	return setting.Table{
		setting.Opt("start", setting.Whole(&n.Start), "of runs whose policy scales the group"),
		setting.Opt("fixed", setting.Whole(&n.Fixed), "the size of runs whose policy does not scale").Or("start"),
		setting.Opt("startup", setting.Duration(&n.Startup), "emulated boot time of an instance"),
		setting.Opt("weights", setting.ListOf(&n.Weights, 0, func(w *float64) setting.Value { return setting.Share(w) }),
			"the first instances' fixed shares of the traffic until measuring starts").Or("as the policy has them"),
		setting.Opt("credits", setting.Maybe(&n.Credits, creditsKeys), "makes instances burstable; simulator and lab").
			Or("they are not"),
	}
}

func creditsKeys(c *Credits) setting.Table {
	return setting.Table{
		setting.Req("resource", setting.OneOf(&c.Resource, quell.Resources), "what is slowed down without credits: cpu, network or disk"),
		setting.Req("baseline", setting.Share(&c.Baseline), "the share of it that is always there, and that earns what it spends"),
		setting.Req("cap", setting.Decimal(&c.Cap), "largest balance; a credit is a minute of one core, or of another resource"),
		setting.Opt("launch", setting.Decimal(&c.Launch), "balance of a new instance"),
		setting.Opt("balance", setting.ListOf(&c.Balance, 0, func(b *float64) setting.Value { return setting.Decimal(b) }),
			"of the first instances, in the order of their start").Or("launch"),
		setting.Opt("shown", setting.Duration(&c.Shown), "how often the provider shows the balances; simulator only; 0s: never"),
		setting.Opt("surplus", setting.Decimal(&c.Surplus),
			"price of an hour of one core, or of another resource, beyond the credits; then nothing is slowed down; simulator only; "+
				"0: it is not sold"),
	}
}

func runKeys(r *Run) setting.Table {
	return setting.Table{
		setting.Req("policy", setting.ShortOr(table.All.Name(&r.Policy.Name), table.All.Keys(&r.Policy)),
			"its name, or a map of its name and its own settings"),
		setting.Opt("scheduling", config.Scheduling(&r.Scheduling),
			"of the balancer: roundrobin, leastconn, random2, ewma, leasttime or prequal"),
		setting.Opt("balancer", setting.OneOf(&r.Balancer, []Balancer{HAProxy, Envoy, Builtin}),
			"builtin, haproxy, or envoy with policy static and scheduling random2 or roundrobin; in the simulator haproxy's leastconn sends "+
				"requests to idle instances whatever their weights, envoy has ejection").
			Or("the rig's own; in a lab HAProxy"),
		setting.Opt("ejection", setting.OneOf(&r.Ejection, Ejections),
			"balancer envoy: its outlier detection, as it is by default or tuned to act soon").Or("off"),
		setting.Opt("models", setting.OneOf(&r.Models, []Models{Learn}),
			"learn: nothing was trained, the policy learns its models during the run").
			Or("from training"),
		setting.Opt("fixed", setting.Whole(&r.Fixed).AtLeast(1),
			"size of the group in this run").Or("instances.fixed where the policy does not scale"),
	}
}

func judgeKeys(j *Judging) setting.Table {
	return setting.Table{
		setting.Opt("window", setting.Duration(&j.Window), "length of the windows that are judged"),
		setting.Opt("requests", setting.Whole(&j.Requests), "a window counts for an instance with at least this many"),
	}
}

// complete fills in values that follow from other parts of the file.
func (f *file) complete(d *setting.Decoder) {
	if !d.Given("service.service") {
		f.Service.Name = f.Name
	}
	if !d.Given("instances.fixed") {
		f.Instances.Fixed = f.Instances.Start
	}
	if !d.Given("runs") {
		f.Runs = []Run{{Policy: f.Service.Policy, Scheduling: quell.LeastConn}}
	}
	f.Workload = onlyItsKind(f.Workload)
	f.recorded(d)
	for i, e := range f.Timeline {
		if n := e.Interfere; n != nil && n.Program != "" && !d.Given(fmt.Sprintf("timeline[%d].interfere.use", i)) {
			n.Use = 1
		}
	}
	if named := table.All.ResourcesFor(f.Service.Policy); !d.Given("probing.resources") && !slices.Equal(named, Probing{}.Probed()) {
		f.Probing.Resources = named
	}
	if slices.Contains(f.Probing.Resources, everyResource) {
		f.Probing.Resources = f.contended()
	}
	for i, g := range f.groups {
		if len(f.Hosts)+max(1, g.count) > mostHosts {
			d.Refuse(fmt.Sprintf("hosts[%d].count", i), "", "makes more than %d hosts", mostHosts)
			return
		}
		f.Hosts = append(f.Hosts, g.hosts()...)
	}
}

func (g hostGroup) hosts() []Host {
	if g.count == 0 {
		return []Host{g.Host}
	}
	g.Group = g.ID
	hosts := make([]Host, g.count)
	for i := range hosts {
		hosts[i] = g.Host
		hosts[i].ID = fmt.Sprintf("%s%d", g.ID, i+1)
	}
	return hosts
}

// validate runs Scenario.Validate and reports its errors at their places in the file. Parts that have an error already are left out, and
// so is what depends on them.
func (f *file) validate(d *setting.Decoder) {
	checked := f.Scenario
	if !f.hostsKnown(d) {
		checked.Hosts = nil
	}
	if !d.Given("instances.fixed") {
		checked.Instances.Fixed = 1 // a default that follows from start, which is checked by itself
	}
	if !d.Sound("duration") {
		checked.Duration = math.MaxInt64
	}
	checked.Timeline = f.placed(d)
	breaches, _ := checked.Validate().(interface{ Unwrap() []error })
	if breaches == nil {
		return
	}
	for _, err := range breaches.Unwrap() {
		var invalid *quell.InvalidError
		if !errors.As(err, &invalid) {
			continue
		}
		if path := f.written(invalid.Path); d.Sound(path) {
			d.Refuse(path, "", "%s", invalid.Problem)
		}
	}
}

// placed returns the timeline. Events whose time is unknown, because it was wrong, are emptied.
func (f *file) placed(d *setting.Decoder) []Event {
	events := slices.Clone(f.Timeline)
	for i := range events {
		if !d.Sound(fmt.Sprintf("timeline[%d].at", i)) {
			events[i] = Event{At: events[max(0, i-1)].At, Mark: "unknown"}
		}
	}
	return events
}

// hostsKnown says whether the ids of all hosts are known, even if other things about the hosts are wrong.
func (f *file) hostsKnown(d *setting.Decoder) bool {
	for i := range f.groups {
		path := fmt.Sprintf("hosts[%d]", i)
		if !d.Sound(path+".id", path+".count") {
			return false
		}
	}
	return len(f.groups) > 0
}

// written translates a path: of the hosts in the expanded list into that of the groups in the file.
func (f *file) written(path string) string {
	var host int
	if n, _ := fmt.Sscanf(path, "hosts[%d]", &host); n == 0 {
		return path
	}
	_, rest, _ := strings.Cut(path, "]")
	for i, g := range f.groups {
		host -= max(1, g.count)
		if host < 0 {
			return fmt.Sprintf("hosts[%d]%s", i, rest)
		}
	}
	return path
}
