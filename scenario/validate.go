package scenario

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Validate checks everything that the parts of a scenario must agree on. It returns every breach, joined, each a
// *quell.InvalidError whose path is that of the scenario file: timeline[2].interfere.host.
func (s *Scenario) Validate() error {
	c := &checker{}
	c.need(s.Name != "", "scenario", "must name the scenario")
	c.need(s.Duration > 0, "duration", "must be above zero, is %v", s.Duration)
	c.need(s.Service.SLO.Threshold > 0, "service.slo.threshold", "must be above zero, is %v", s.Service.SLO.Threshold)
	c.need(slices.Contains(quell.Metrics, s.Service.SLO.Metric), "service.slo.metric", "unknown metric %q", s.Service.SLO.Metric)
	c.hosts(s)
	c.instances(s)
	c.workload(s.Workload)
	c.timeline(s)
	c.runs(s)
	c.need(s.Judge.Window > 0, "judge.window", "must be above zero, is %v", s.Judge.Window)
	c.need(s.Judge.Requests >= 1, "judge.requests", "must be at least 1, is %d", s.Judge.Requests)
	return errors.Join(c.errs...)
}

// checker collects breaches.
type checker struct{ errs []error }

func (c *checker) need(ok bool, path, format string, args ...any) {
	if !ok {
		c.errs = append(c.errs, &quell.InvalidError{Path: path, Problem: fmt.Sprintf(format, args...)})
	}
}

func (c *checker) hosts(s *Scenario) {
	c.need(len(s.Hosts) > 0, "hosts", "must define at least one host")
	seen := map[string]bool{}
	for i, h := range s.Hosts {
		path := fmt.Sprintf("hosts[%d]", i)
		c.need(h.ID != "", path+".id", "must name the host")
		c.need(!seen[h.ID], path+".id", "host %q is defined twice", h.ID)
		c.need(positive(h.Network), path+".network", "must be above zero and finite")
		c.need(positive(h.Cores), path+".cores", "must be above zero and finite")
		c.need(positive(h.DiskIOPS), path+".disk_iops", "must be above zero and finite")
		c.need(positive(h.Memory), path+".memory", "must be above zero and finite")
		seen[h.ID] = true
	}
}

// instances holds group sizes against the hosts, as each instance has a host of its own.
func (c *checker) instances(s *Scenario) {
	c.groupSize("instances.start", s.Instances.Start, len(s.Hosts))
	c.groupSize("instances.fixed", s.Instances.Fixed, len(s.Hosts))
	c.need(s.Instances.Startup >= 0, "instances.startup", "must not be negative, is %v", s.Instances.Startup)
	c.need(len(s.Hosts) == 0 || s.Service.Group.Min <= len(s.Hosts), "service.group.min",
		"%d instances need a host each, there are %d", s.Service.Group.Min, len(s.Hosts))
}

func (c *checker) groupSize(path string, size, hosts int) {
	c.need(size >= 1, path, "must be at least 1, is %d", size)
	c.need(hosts == 0 || size <= hosts, path, "%d instances need a host each, there are %d", size, hosts)
}

func (c *checker) workload(w Workload) {
	c.need(slices.Contains(Kinds, w.Kind), "workload.kind", "unknown kind %q", w.Kind)
	c.need(slices.Contains(ArrivalProcesses, w.Arrivals), "workload.arrivals", "unknown arrival process %q", w.Arrivals)
	c.need(w.Size > 0, "workload.size", "must be above zero, is %d", w.Size)
	c.need(notNegative(w.Load), "workload.load", "must be finite and not negative, is %v", w.Load)
}

func (c *checker) timeline(s *Scenario) {
	hosts := map[string]bool{}
	for _, h := range s.Hosts {
		hosts[h.ID] = true
	}
	set := map[setting]bool{}
	for i, e := range s.Timeline {
		path := fmt.Sprintf("timeline[%d]", i)
		c.moment(s, i, path+".at")
		c.need(e.Load != nil || e.Interfere != nil || e.Mark != "", path, "does nothing: give it load, interfere or mark")
		if e.Load != nil {
			c.need(notNegative(*e.Load), path+".load", "must be finite and not negative, is %v", *e.Load)
			c.once(set, setting{at: e.At}, path+".load")
		}
		if e.Interfere != nil {
			c.interference(*e.Interfere, hosts, path+".interfere")
			c.once(set, setting{e.At, e.Interfere.Host, e.Interfere.Resource}, path+".interfere")
		}
	}
}

// setting is what an event sets, and when; load has no host.
type setting struct {
	at       time.Duration
	host     string
	resource quell.Resource
}

// once refuses two values for one thing at one moment.
func (c *checker) once(set map[setting]bool, what setting, path string) {
	c.need(!set[what], path, "is set twice at %v", what.at)
	set[what] = true
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

func (c *checker) interference(n Interference, hosts map[string]bool, path string) {
	c.need(len(hosts) == 0 || hosts[n.Host], path+".host", "unknown host %q", n.Host)
	c.need(slices.Contains(quell.Resources, n.Resource), path+".resource", "unknown resource %q", n.Resource)
	c.need(notNegative(n.Use) && n.Use <= 1, path+".use", "must be between 0 and 1, is %v", n.Use)
}

func (c *checker) runs(s *Scenario) {
	c.need(len(s.Runs) > 0, "runs", "must hold at least one run")
	seen := map[Run]int{}
	for i, r := range s.Runs {
		path := fmt.Sprintf("runs[%d]", i)
		c.need(r.Policy != "", path+".policy", "must name a policy")
		c.need(slices.Contains(quell.Schedulings, r.Scheduling), path+".scheduling", "unknown scheduling %q", r.Scheduling)
		c.need(r.Fixed >= 0, path+".fixed", "must not be negative, is %d", r.Fixed)
		c.need(len(s.Hosts) == 0 || r.Fixed <= len(s.Hosts), path+".fixed",
			"%d instances need a host each, there are %d", r.Fixed, len(s.Hosts))
		first, twice := seen[r]
		c.need(!twice, path, "is the same as runs[%d]", first)
		if !twice {
			seen[r] = i
		}
	}
}

func positive(x float64) bool    { return x > 0 && !math.IsInf(x, 1) }
func notNegative(x float64) bool { return x >= 0 && !math.IsInf(x, 1) }
