package scenario

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy/table"
)

// Validate checks that the parts of a scenario are valid and fit together. It returns all errors, joined. Each is a *quell.InvalidError
// whose path is that of the scenario file, as timeline[2].interfere.host.
func (s *Scenario) Validate() error {
	c := &checker{}
	c.need(s.Name != "", "scenario", "must name the scenario")
	known := s.Duration != unknownDuration
	c.need(s.Duration > 0, "duration", "must be above zero, is %v", s.Duration)
	c.need(s.Duration <= mostDuration || !known, "duration", "must be at most %v, is %v", mostDuration, s.Duration)
	c.need(s.Service.SLO.Threshold > 0, "service.slo.threshold", "must be above zero, is %v", s.Service.SLO.Threshold)
	c.need(slices.Contains(quell.Metrics, s.Service.SLO.Metric), "service.slo.metric", "unknown metric %q", s.Service.SLO.Metric)
	c.hosts(s)
	c.instances(s)
	c.workload(s)
	c.readings(s)
	c.stations(s)
	c.timeline(s)
	c.runs(s)
	c.need(s.Judge.Window > 0, "judge.window", "must be above zero, is %v", s.Judge.Window)
	windows := float64(s.Duration) / float64(max(s.Judge.Window, 1))
	c.need(s.Judge.Window <= 0 || windows <= mostWindows || !known || s.Duration > mostDuration, "judge.window",
		"%v cuts %v into more than %d windows", s.Judge.Window, s.Duration, mostWindows)
	c.need(s.Judge.Requests >= 1, "judge.requests", "must be at least 1, is %d", s.Judge.Requests)
	if len(c.errs) == 0 && known {
		c.requests(s)
	}
	return errors.Join(c.errs...)
}

// unknownDuration replaces a duration that is missing or invalid, so that the rest can be checked.
const unknownDuration = math.MaxInt64

// checker collects errors.
type checker struct{ errs []error }

func (c *checker) need(ok bool, path, format string, args ...any) {
	if !ok {
		c.errs = append(c.errs, &quell.InvalidError{Path: path, Problem: fmt.Sprintf(format, args...)})
	}
}

func (c *checker) hosts(s *Scenario) {
	c.need(len(s.Hosts) > 0, "hosts", "must define at least one host")
	c.need(len(s.Hosts) <= mostHosts, "hosts", "must not be more than %d, are %d", mostHosts, len(s.Hosts))
	seen, groups := map[string]bool{}, map[string]bool{}
	for i, h := range s.Hosts {
		path := fmt.Sprintf("hosts[%d]", i)
		c.need(h.ID != "", path+".id", "must name the host")
		c.need(!seen[h.ID], path+".id", "host %q is defined twice", h.ID)
		c.need(!groups[h.ID] || h.Group == h.ID, path+".id", "%q already names a group of hosts", h.ID)
		c.need(h.Group == "" || groups[h.Group] || !seen[h.Group], path+".id", "%q already names a host", h.Group)
		if h.Group != "" {
			groups[h.Group] = true
		}
		for _, r := range resources(h) {
			c.need(r.least <= r.value && r.value <= r.most, path+r.name, "must be between %g and %g%s, is %g", r.least, r.most, r.unit, r.value)
		}
		c.need(s.Stations.Discipline != FirstCome || h.Cores == math.Trunc(h.Cores), path+".cores",
			"must be a whole number under stations.discipline: fcfs, where a core is a server, is %g", h.Cores)
		seen[h.ID] = true
	}
}

// amount is how much a host has of a resource, and the accepted range.
type amount struct {
	name, unit         string
	value, least, most float64
}

func resources(h Host) []amount {
	return []amount{
		{".network", " bit/s", h.Network, 1e3, 1e13}, {".cores", "", h.Cores, 0.01, 1e4},
		{".disk_iops", "", h.DiskIOPS, 0.1, 1e9}, {".memory", "", h.Memory, 0.001, 1e3},
	}
}

// instances checks that there are enough hosts for the group's sizes, because each instance has a host of its own.
func (c *checker) instances(s *Scenario) {
	c.groupSize("instances.start", s.Instances.Start, len(s.Hosts))
	c.groupSize("instances.fixed", s.Instances.Fixed, len(s.Hosts))
	c.wait(s.Instances.Startup, "instances.startup")
	c.weights(s)
	c.credits(s)
	c.need(len(s.Hosts) == 0 || s.Service.Group.Min <= len(s.Hosts), "service.group.min",
		"%d instances need a host each, there are %d", s.Service.Group.Min, len(s.Hosts))
}

// weights checks the fixed weights of the first instances against the runs in which they hold.
func (c *checker) weights(s *Scenario) {
	weights := s.Instances.Weights
	if len(weights) == 0 {
		return
	}
	var sum float64
	for i, w := range weights {
		c.need(w >= 0 && w <= 1, fmt.Sprintf("instances.weights[%d]", i), "must be a fraction of the traffic, is %g", w)
		sum += w
	}
	c.need(math.Abs(sum-1) < 1e-6, "instances.weights", "must sum to 100%%, sum to %g%%", sum*100)
	for i, r := range s.Runs {
		n := s.Size(r)
		c.need(n > 0, "instances.weights", "are held in groups of fixed size only: give runs[%d] fixed: %d", i, len(weights))
		c.need(n == 0 || n == len(weights), "instances.weights", "has %d weights, and runs[%d] begins with %d instances", len(weights), i, n)
		deaf := r.Balancer == Envoy || r.Scheduling == quell.Prequal
		c.need(!deaf, "instances.weights", "cannot be held by the balancer of runs[%d], which goes by none", i)
	}
	least := 2 * s.Service.Sampling
	c.need(s.WarmUp >= least, "warm_up", "must be at least %v with instances.weights: two sampling periods, in which they come into force",
		least)
}

// mostBalance is the largest number of credits, about 1,900 years of a core.
const mostBalance = 1e9

// credits checks the credits of burstable instances.
func (c *checker) credits(s *Scenario) {
	k, path := s.Instances.Credits, "instances.credits"
	if k == nil {
		return
	}
	credited := slices.Contains([]quell.Resource{quell.CPU, quell.Network, quell.Disk}, k.Resource)
	c.need(credited, path+".resource", "must be cpu, network or disk, is %q", k.Resource)
	c.need(!credited || slices.Contains(s.contended(), k.Resource), path+".resource", "the workload does not use the %s", k.Resource)
	c.need(k.Baseline >= 0.01 && k.Baseline <= 1, path+".baseline", "must be between 1%% and 100%%, is %g%%", k.Baseline*100)
	c.need(k.Cap > 0 && k.Cap <= mostBalance, path+".cap", "must be above 0 and at most %g, is %g", mostBalance, k.Cap)
	c.need(k.Launch >= 0 && k.Launch <= mostBalance, path+".launch", "must be between 0 and %g, is %g", mostBalance, k.Launch)
	c.need(k.Shown == 0 || k.Shown >= time.Second, path+".shown", "must be 0s or at least 1s, is %v", k.Shown)
	c.need(k.Surplus >= 0 && k.Surplus <= 1000, path+".surplus", "must be between 0 and 1000 dollars, is %g", k.Surplus)
	for i, b := range k.Balance {
		c.need(b >= 0 && b <= mostBalance, fmt.Sprintf("%s.balance[%d]", path, i), "must be between 0 and %g, is %g", mostBalance, b)
	}
}

func (c *checker) groupSize(path string, size, hosts int) {
	c.need(size >= 1, path, "must be at least 1, is %d", size)
	c.need(hosts == 0 || size <= hosts, path, "%d instances need a host each, there are %d", size, hosts)
}

func (c *checker) timeline(s *Scenario) {
	sum := 0.0              // expected changes of interference
	var set map[change]bool // what is set at the present moment; a map of all hosts times all events would fill memory
	for i, e := range s.Timeline {
		if i == 0 || e.At != s.Timeline[i-1].At {
			set = map[change]bool{}
		}
		path := fmt.Sprintf("timeline[%d]", i)
		c.moment(s, i, path+".at")
		does := e.Load != nil || e.Users != nil || e.Interfere != nil || e.Fail != nil || e.Errors != nil || e.Release != nil || e.Mark != ""
		c.need(does, path, "does nothing: give it load, users, interfere, fail, errors, release or mark")
		c.demand(s, e, set, path)
		if n := e.Interfere; n != nil {
			hosts := s.hostsNamed(n.Host)
			c.need(len(s.Hosts) == 0 || len(hosts) > 0, path+".interfere.host", "unknown host %q", n.Host)
			c.interference(n, path+".interfere")
			changes := n.changes(s.Duration-e.At) * float64(len(hosts))
			c.need(sum+changes <= mostChanges || s.Duration == unknownDuration, path+".interfere",
				"changes about %.2g times on %d hosts, after %.2g changes of the events before: at most %d are played; lengthen its times",
				changes, len(hosts), sum, mostChanges)
			sum += changes
			c.once(set, e.At, hosts, n.what(), path+".interfere")
		}
		c.release(s, e, set, path+".release")
		if f := e.Fail; f != nil {
			hosts := s.hostsNamed(f.Host)
			c.need(len(s.Hosts) == 0 || len(hosts) > 0, path+".fail.host", "unknown host %q", f.Host)
			c.once(set, e.At, hosts, "fail", path+".fail")
		}
		if f := e.Errors; f != nil {
			hosts := s.hostsNamed(f.Host)
			c.need(len(s.Hosts) == 0 || len(hosts) > 0, path+".errors.host", "unknown host %q", f.Host)
			c.use(f.Share, path+".errors.share")
			c.once(set, e.At, hosts, "errors", path+".errors")
		}
	}
}

// demand checks what an event changes about the load.
func (c *checker) demand(s *Scenario, e Event, set map[change]bool, path string) {
	if e.Load != nil {
		c.load(s, *e.Load, path+".load")
		c.need(s.Workload.Kind != Users, path+".load", "users bring the load: set their number with users")
		c.need(s.Workload.Arrivals != Ramp, path+".load", "arrivals: ramp has its own step; use poisson to set loads here")
		c.need(s.Workload.Recorded == nil, path+".load", "the recorded load has the rates")
		c.once(set, e.At, []string{""}, "load", path+".load")
	}
	if e.Users != nil {
		c.need(s.Workload.Kind == Users, path+".users", "only a workload of kind users has any")
		c.users(*e.Users, path+".users")
		c.once(set, e.At, []string{""}, "users", path+".users")
	}
}

// hostsNamed lists the ids of the hosts that a name in the timeline means.
func (s *Scenario) hostsNamed(name string) []string {
	var ids []string
	for _, h := range s.Hosts {
		if h.named(name) {
			ids = append(ids, h.ID)
		}
	}
	return ids
}

// change identifies what an event sets, and when; load has no host.
type change struct {
	at         time.Duration
	host, what string
}

// once refuses two values for one setting at the same moment.
func (c *checker) once(set map[change]bool, at time.Duration, hosts []string, what, path string) {
	twice := false
	for _, host := range hosts {
		key := change{at, host, what}
		twice = twice || set[key]
		set[key] = true
	}
	c.need(!twice, path, "is set twice at %v", at)
}

func (c *checker) moment(s *Scenario, i int, path string) {
	at := s.Timeline[i].At
	c.need(at >= 0, path, "must not be negative, is %v", at)
	c.need(s.Duration <= 0 || at <= s.Duration, path, "%v is after the end of the scenario (%v)", at, s.Duration)
	if i > 0 {
		before := s.Timeline[i-1].At
		c.need(at >= before, path, "%v comes after %v: events must be in order of time", at, before)
	}
}

// shortest is the shortest accepted time between changes of interference; more frequent changes would have no effect.
const shortest = 10 * time.Millisecond

func (c *checker) interference(n *Interference, path string) {
	if n.Program == "" {
		c.need(slices.Contains(quell.Resources, n.Resource), path+".resource", "unknown resource %q", n.Resource)
	} else {
		c.need(slices.Contains(Programs, n.Program), path+".program", "unknown program %q", n.Program)
		c.need(n.Resource == "", path+".resource", "must not be given with a program, which uses what it gets")
	}
	c.use(n.Use, path+".use")
	forms := 0
	for _, given := range []bool{n.Ramp != 0, n.On != 0 || n.Off != 0, len(n.Trace) > 0, len(n.Markov) > 0} {
		if given {
			forms++
		}
	}
	c.need(forms <= 1, path, "varies in several ways: give it ramp, on and off, trace or markov")
	if n.Ramp != 0 {
		c.length(n.Ramp, path+".ramp")
	}
	if n.On != 0 || n.Off != 0 {
		c.length(n.On, path+".on")
		c.length(n.Off, path+".off")
		c.need(n.Lengths == "" || slices.Contains(Spreads, n.Lengths), path+".lengths", "unknown spread %q", n.Lengths)
	}
	for i, p := range n.Trace {
		at := fmt.Sprintf("%s.trace[%d]", path, i)
		c.use(p.Use, at)
		c.need(p.After >= 0, at, "time must not be negative, is %v", p.After)
		c.need(i == 0 || p.After > n.Trace[i-1].After, at, "time must go on, is %v", p.After)
	}
	for i, state := range n.Markov {
		at := fmt.Sprintf("%s.markov[%d]", path, i)
		c.use(state.Use, at+".use")
		c.length(state.Mean, at+".stay")
	}
}

func (c *checker) use(x float64, path string) {
	c.need(notNegative(x) && x <= 1, path, "must be between 0 and 1, is %v", x)
}

func (c *checker) length(d time.Duration, path string) {
	c.need(d >= shortest, path, "must be at least %v, is %v", shortest, d)
}

func (c *checker) runs(s *Scenario) {
	c.need(len(s.Runs) > 0, "runs", "must hold at least one run")
	seen := map[Run]int{}
	for i, r := range s.Runs {
		path := fmt.Sprintf("runs[%d]", i)
		c.need(r.Policy.Name != "", path+".policy", "must name a policy")
		c.need(slices.Contains(quell.Schedulings, r.Scheduling), path+".scheduling", "unknown scheduling %q", r.Scheduling)
		c.need(r.Fixed >= 0, path+".fixed", "must not be negative, is %d", r.Fixed)
		c.need(len(s.Hosts) == 0 || r.Fixed <= len(s.Hosts), path+".fixed",
			"%d instances need a host each, there are %d", r.Fixed, len(s.Hosts))
		envoys := r.Scheduling == quell.Random2 || r.Scheduling == quell.RoundRobin
		c.need(r.Balancer != Envoy || r.Policy.Name == table.All.Plain() && r.Policy.Fast.Name == "" && envoys, path+".balancer",
			"envoy plays only policy %s with scheduling random2, its least request, or roundrobin", table.All.Plain())
		c.need(r.Ejection == "" || slices.Contains(Ejections, r.Ejection), path+".ejection", "unknown ejection %q", r.Ejection)
		c.need(r.Ejection == "" || r.Balancer == Envoy, path+".ejection", "is Envoy's: give the run balancer: envoy")
		c.need(r.Models == "" || r.Models == Learn, path+".models", "unknown source of models %q", r.Models)
		c.learning(r, path+".models")
		r.Policy = s.PolicyOf(r)
		first, twice := seen[r]
		c.need(!twice, path, "is the same as runs[%d]", first)
		if !twice {
			seen[r] = i
		}
	}
}

// learning checks that a run does not wait for models that are never learned.
func (c *checker) learning(r Run, path string) {
	if name := r.Policy.Name; r.Models == Learn && table.All.Trained(name) {
		c.need(table.All.Learns(name), path, "policy %s cannot learn its models in place: leave models out, and it plays with trained ones", name)
	} else {
		c.need(r.Models != Learn, path, "policy %s needs no models: leave models out", name)
	}
}

func positive(x float64) bool    { return x > 0 && !math.IsInf(x, 1) }
func notNegative(x float64) bool { return x >= 0 && !math.IsInf(x, 1) }
