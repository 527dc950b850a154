package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// ParseScenario reads a scenario. The name is that of its file and appears in errors, which are as those of Parse.
//
// Each instance has a host of its own, so the number of hosts bounds group.max. Without runs there is one, of the
// service's own policy.
func ParseScenario(name string, data []byte) (*scenario.Scenario, error) {
	f := newScenarioFile()
	d := newDecoder(name)
	if d.decode(data, f.keys()) {
		f.workloadParts(d)
		f.complete(d)
		checkService(d, "service", f.Service)
		f.validate(d)
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	s := f.Scenario
	s.Service.Group.Max = min(s.Service.Group.Max, len(s.Hosts))
	return &s, nil
}

// InScenario puts the place in a scenario's file before a *quell.InvalidError about a part of it, whose path is that of the
// parsed scenario. It returns a *quell.UserError.
func InScenario(name string, data []byte, err error) error {
	var invalid *quell.InvalidError
	if !errors.As(err, &invalid) {
		return &quell.UserError{Err: fmt.Errorf("%s: %w", name, err)}
	}
	f, d := newScenarioFile(), newDecoder(name)
	d.decode(data, f.keys())
	p := d.placeOf(f.written(invalid.Path))
	return &quell.UserError{Err: Problem{File: name, Line: p.line, Column: p.column, Text: err.Error()}}
}

// scenarioFile is a scenario as its file has it.
type scenarioFile struct {
	scenario.Scenario
	groups []hostGroup
}

// hostGroup is count like hosts, id1 to idN, or with a count of 0 the one host id.
type hostGroup struct {
	scenario.Host
	count int
}

func newScenarioFile() *scenarioFile {
	return &scenarioFile{Scenario: scenario.Scenario{
		Seed:      1,
		Service:   quell.DefaultService(),
		Instances: scenario.Instances{Start: 1},
		Workload:  blankWorkload(),
		Judge:     scenario.DefaultJudging(),
	}}
}

func (f *scenarioFile) keys() section {
	return section{
		req("scenario", ident(&f.Name), "name of the scenario"),
		opt("seed", seed(&f.Seed), "of everything random"),
		req("duration", duration(&f.Duration), "how long a run lasts"),
		req("service", scenarioServiceKeys(&f.Service), "a service configuration"),
		req("hosts", listOf(&f.groups, blankHosts(), func(g *hostGroup) value { return hostKeys(g) }).atLeast(1), "the machines; each holds at most one instance"),
		opt("instances", instancesKeys(&f.Instances), "how many instances a run begins with"),
		req("workload", workloadKeys(&f.Workload), "what clients ask for"),
		opt("readings", readingsKeys(&f.Readings), "what goes wrong with them on their way to the controller; simulator only"),
		opt("stations", stationsKeys(&f.Stations), "how machines serve what is open there; simulator only"),
		opt("probing", probingKeys(&f.Probing), "of the instances; simulator only"),
		opt("services", whole(&f.Services).between(1, scenario.MostServices), "this many services like this one, each with hosts, clients, a controller and a seed of its own; `quell sim` only").or("`1`"),
		opt("warm_up", duration(&f.WarmUp), "how long the first load is offered before measuring starts").or("4s in the demo, four sampling periods in the simulator"),
		opt("timeline", listOf(&f.Timeline, scenario.Event{}, func(e *scenario.Event) value { return eventKeys(e) }), "what changes when, in order of time"),
		opt("runs", listOf(&f.Runs, scenario.Run{Scheduling: quell.LeastConn}, func(r *scenario.Run) value { return runKeys(r) }).atLeast(1), "passes through the scenario, to compare").or("one, of the service's policy"),
		opt("judge", judgeKeys(&f.Judge), "how response times are held against the objective"),
	}
}

func scenarioServiceKeys(s *quell.Service) section {
	keys := serviceKeys(s)
	for i := range keys {
		if keys[i].name == "service" {
			keys[i].required = false
			keys[i] = keys[i].or("the scenario's name")
		}
	}
	return keys
}

func blankHosts() hostGroup {
	return hostGroup{Host: scenario.Host{Cores: 1, DiskIOPS: 1000, Memory: 1}}
}

func hostKeys(g *hostGroup) section {
	return section{
		req("id", ident(&g.ID), "name of the host; with a count, what the names begin with"),
		opt("count", whole(&g.count).between(1, 10_000), "this many identical hosts: h1, h2, ...").or("one host, named as the id"),
		req("network", bandwidth(&g.Network), "bandwidth of the host's link"),
		opt("cores", decimal(&g.Cores), "processors"),
		opt("disk_iops", decimal(&g.DiskIOPS), "disk operations per second"),
		opt("memory", decimal(&g.Memory), "memory bandwidth, relative to the reference machine"),
	}
}

func instancesKeys(n *scenario.Instances) section {
	return section{
		opt("start", whole(&n.Start), "of runs whose policy scales the group"),
		opt("fixed", whole(&n.Fixed), "the size of runs whose policy does not scale").or("start"),
		opt("startup", duration(&n.Startup), "emulated boot time of an instance"),
		opt("weights", listOf(&n.Weights, 0, func(w *float64) value { return share(w) }), "the first instances' fixed shares of the traffic until measuring starts").or("as the policy has them"),
	}
}

func runKeys(r *scenario.Run) section {
	return section{
		req("policy", policyName(&r.Policy), "prima, lsf, lr, static, hpa or knapsack"),
		opt("scheduling", scheduling(&r.Scheduling), "of the balancer: roundrobin, leastconn, random2, ewma or prequal"),
		opt("balancer", oneOf(&r.Balancer, []scenario.Balancer{scenario.Envoy, scenario.Builtin}), "lab only: builtin, or envoy with policy static and scheduling random2").or("the rig's own; in a lab HAProxy"),
		opt("fixed", whole(&r.Fixed).atLeast(1), "size of the group in this run").or("instances.fixed where the policy does not scale"),
	}
}

func judgeKeys(j *scenario.Judging) section {
	return section{
		opt("window", duration(&j.Window), "length of the windows that are judged"),
		opt("requests", whole(&j.Requests), "a window counts for an instance with at least this many"),
	}
}

// complete fills in what follows from other parts.
func (f *scenarioFile) complete(d *decoder) {
	if !d.given("service.service") {
		f.Service.Name = f.Name
	}
	if !d.given("instances.fixed") {
		f.Instances.Fixed = f.Instances.Start
	}
	if !d.given("runs") {
		f.Runs = []scenario.Run{{Policy: f.Service.Policy.Name, Scheduling: quell.LeastConn}}
	}
	f.Workload = onlyItsKind(f.Workload)
	for i, g := range f.groups {
		if len(f.Hosts)+max(1, g.count) > scenario.MostHosts {
			d.refuse(fmt.Sprintf("hosts[%d].count", i), "", "makes more than %d hosts", scenario.MostHosts)
			return
		}
		f.Hosts = append(f.Hosts, g.hosts()...)
	}
}

func (g hostGroup) hosts() []scenario.Host {
	if g.count == 0 {
		return []scenario.Host{g.Host}
	}
	g.Group = g.ID
	hosts := make([]scenario.Host, g.count)
	for i := range hosts {
		hosts[i] = g.Host
		hosts[i].ID = fmt.Sprintf("%s%d", g.ID, i+1)
	}
	return hosts
}

// validate reports what the scenario's own rules find, at its place in the file. What has a problem already is left out,
// and with it all that depends on it.
func (f *scenarioFile) validate(d *decoder) {
	checked := f.Scenario
	if !f.hostsKnown(d) {
		checked.Hosts = nil
	}
	if !d.given("instances.fixed") {
		checked.Instances.Fixed = 1 // it follows from start, which is judged by itself
	}
	if !d.sound("duration") {
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
		if path := f.written(invalid.Path); d.sound(path) {
			d.refuse(path, "", "%s", invalid.Problem)
		}
	}
}

// placed returns the timeline without what events whose time cannot be told do.
func (f *scenarioFile) placed(d *decoder) []scenario.Event {
	events := slices.Clone(f.Timeline)
	for i := range events {
		if !d.sound(fmt.Sprintf("timeline[%d].at", i)) {
			events[i] = scenario.Event{At: events[max(0, i-1)].At, Mark: "unknown"}
		}
	}
	return events
}

// hostsKnown says whether it is clear which hosts there are, whatever they are like.
func (f *scenarioFile) hostsKnown(d *decoder) bool {
	for i := range f.groups {
		path := fmt.Sprintf("hosts[%d]", i)
		if !d.sound(path+".id", path+".count") {
			return false
		}
	}
	return len(f.groups) > 0
}

// written turns a path into the expanded hosts into one into the groups that the file has.
func (f *scenarioFile) written(path string) string {
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
