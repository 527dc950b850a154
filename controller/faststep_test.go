package controller

import (
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/policy/ice"
	"github.com/quellhq/quell/policy/table"
)

// withFast is a rig whose service has a sampling period of ten seconds and a fast policy with a period of one second.
func withFast(r *rig) {
	s := &r.opts.Service
	s.Sampling, s.Group.Min = 10*time.Second, 3
	s.Policy.Fast = quell.Fast{Name: "outlier", Sampling: time.Second}
}

// served are the mean response times of i1, i2 and i3, in milliseconds.
type served struct {
	mu sync.Mutex
	ms [3]float64
}

func (s *served) set(i int, ms float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ms[i] = ms
}

func (s *served) now() [3]float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ms
}

// serve makes a balancer report the given mean response times of i1, i2 and i3 at the end of every second.
func (r *rig) serve(ms ...float64) *served {
	s := &served{ms: [3]float64(ms)}
	go func() {
		for tick.Sleep(r.t.Context(), tick.Until(time.Now(), time.Second)) {
			r.reportServed(s.now())
		}
	}()
	return s
}

func (r *rig) reportServed(ms [3]float64) {
	for i, id := range []string{"i1", "i2", "i3"} {
		rate, mean, open := 50.0, ms[i], 1.0
		o := quell.Observation{At: time.Now(), WindowS: 1, RequestRate: &rate, InFlight: &open, LatencyMS: &quell.Latency{Mean: &mean, N: 50}}
		r.c.Observe(quell.Reading{
			Service: "shop", Instance: id, Source: quell.FromBalancer, Sender: "lb", Fast: true, Observation: o, Requests: 50,
		}, time.Now())
	}
}

// An instance that becomes slow loses its share within two seconds, although decisions are made every ten. It gets the share back later.
// The decisions between the cut and the return do not change that.
func TestAFastPolicyCutsBetweenDecisions(t *testing.T) {
	play(t, withFast, func(r *rig) {
		ms := r.serve(20, 20, 20)
		r.run(25 * time.Second)
		equal(t, r, 1./3, 1./3)
		quiet := len(r.journal.plans())
		ms.set(1, 600)
		r.pass(2 * time.Second)
		if w := r.balancer.weights()["i2"]; w > 1./6+1e-9 {
			t.Fatalf("two seconds after it became slow i2 has %.3f of the requests", w)
		}
		r.pass(2 * time.Second)
		status := r.c.Status()
		if in := status.Instances[1]; in.Cut == nil || *in.Cut > 0.11 || in.Weight == nil ||
			math.Abs(*in.Weight-r.balancer.weights()["i2"]) > 1e-9 {
			t.Errorf("the status shows %+v", in)
		}
		if text := status.Instances[1].Reason; !strings.Contains(text, "mean 600 ms where the others have 20") {
			t.Errorf("the status says %q", text)
		}
		if n := len(r.journal.plans()) - quiet; n < 2 || n > 4 {
			t.Errorf("%d plans in the journal for one cut of a few steps", n)
		}
		r.pass(8 * time.Second) // longer than until the next decision
		if w := r.balancer.weights()["i2"]; w > 0.06 {
			t.Errorf("after a decision i2 has %.3f of the requests again", w)
		}
		ms.set(1, 20)
		r.pass(time.Minute)
		equal(t, r, 1./3, 1./3)
		if in := r.c.Status().Instances[1]; in.Cut != nil {
			t.Errorf("the status shows %+v", in)
		}
		before := r.balancer.applies()
		r.pass(30 * time.Second)
		if n := r.balancer.applies() - before; n > 0 {
			t.Errorf("the balancer was told %d times that nothing changes", n)
		}
	})
}

// equal checks that i1 and i2 have these weights.
func equal(t *testing.T, r *rig, first, second float64) {
	t.Helper()
	w := r.balancer.weights()
	if math.Abs(w["i1"]-first) > 1e-6 || math.Abs(w["i2"]-second) > 1e-6 {
		t.Fatalf("weights %v, want %.3f and %.3f", w, first, second)
	}
}

// A restarted controller remembers that a share was cut. If its new configuration has no fast policy, it gives the share back.
func TestCutsOutliveTheController(t *testing.T) {
	play(t, withFast, func(r *rig) {
		r.serve(20, 600, 20)
		r.run(15 * time.Second)
		cut := r.balancer.weights()["i2"]
		if cut > 0.06 {
			t.Fatalf("i2 has %.3f of the requests", cut)
		}
		r.restart()
		r.run(3 * time.Second)
		if w := r.balancer.weights()["i2"]; w > cut+1e-9 {
			t.Errorf("a new controller gives i2 %.3f", w)
		}
		r.opts.Service.Policy.Fast = quell.Fast{}
		r.restart()
		r.run(40 * time.Second)
		equal(t, r, 1./3, 1./3)
	})
}

// In advise mode and during a pause nothing is cut; the journal says what would be cut.
func TestAPauseHoldsCuts(t *testing.T) {
	play(t, withFast, func(r *rig) {
		ms := r.serve(20, 20, 20)
		r.run(25 * time.Second)
		r.do(bus.Command{Name: bus.Pause})
		ms.set(1, 600)
		r.pass(20 * time.Second)
		equal(t, r, 1./3, 1./3)
		plans := r.journal.plans()
		would := false
		for _, p := range plans {
			would = would || !p.Applied && len(p.Would) > 0 && len(p.Plan.Factor) > 0
		}
		if !would {
			t.Error("the journal does not say what would have been cut")
		}
		r.do(bus.Command{Name: bus.Resume})
		r.pass(5 * time.Second)
		if w := r.balancer.weights()["i2"]; w > 0.06 {
			t.Errorf("after the pause i2 has %.3f of the requests", w)
		}
	})
}

// A weight that a person set is never cut.
func TestAnOverrideIsNotCut(t *testing.T) {
	play(t, withFast, func(r *rig) {
		ms := r.serve(20, 20, 20)
		r.run(25 * time.Second)
		r.do(bus.Command{Name: bus.Override, Instance: "i2", Weight: new(0.5)})
		r.pass(15 * time.Second)
		ms.set(1, 600)
		r.pass(10 * time.Second)
		equal(t, r, 0.25, 0.5)
	})
}

// A reading of a fast policy's period is never used as a reading of the sampling period, whether there is a fast policy or not.
func TestFastReadingsAreApart(t *testing.T) {
	play(t, func(r *rig) { r.opts.Service.Guard.StaleAfter = 3 }, func(r *rig) {
		r.run(3 * time.Second)
		rate := 7.0
		r.c.Observe(quell.Reading{
			Service: "shop", Instance: "i1", Source: quell.FromBalancer, Fast: true,
			Observation: quell.Observation{At: time.Now(), RequestRate: &rate},
		}, time.Now())
		r.pass(time.Second)
		if in := r.c.Status().Instances[0]; in.RequestRate != nil {
			t.Errorf("i1 has %g requests a second", *in.RequestRate)
		}
	})
}

// crowd makes the agent of i2 report each second that others use a part of its processor; others is 0 while it is silent.
func (r *rig) crowd(others *atomic.Int64) {
	go func() {
		for tick.Sleep(r.t.Context(), tick.Until(time.Now(), time.Second)) {
			hidden := float64(others.Load()) / 100
			if hidden == 0 {
				continue
			}
			own := 0.3
			wait := own * (own + hidden) / (1 - own - hidden)
			o := quell.Observation{At: time.Now(), WindowS: 1, CPU: &quell.CPUTime{User: own},
				Sched: &quell.Sched{Cores: 1, RunS: own, WaitS: &wait}, Utilization: map[quell.Resource]float64{quell.CPU: own}}
			r.c.Observe(quell.Reading{Service: "shop", Instance: "i2", Source: quell.FromAgent, Sender: "i2", Fast: true, Observation: o,
				Settings: map[string]float64{"apache.MaxRequestWorkers": 200}}, time.Now())
		}
	}()
}

// settled serves for a minute without neighbours. It returns how much of i2's processor others use, in percent.
func (r *rig) settled() *atomic.Int64 {
	others := new(atomic.Int64)
	others.Store(1)
	r.serve(20, 20, 20)
	r.crowd(others)
	r.run(60 * time.Second)
	return others
}

// While nothing is carried out, the journal also says which parameters would have been changed, once.
func TestAPauseNamesParameters(t *testing.T) {
	play(t, tuning, func(r *rig) {
		others := r.settled()
		r.do(bus.Command{Name: bus.Pause})
		others.Store(60)
		before := len(r.journal.plans())
		r.pass(38 * time.Second)
		would := 0
		plans := r.journal.plans()[before:]
		for _, p := range plans {
			if strings.Contains(strings.Join(p.Would, " "), "apache.MaxRequestWorkers of i2") {
				would++
			}
		}
		if would == 0 || would > 4 || len(plans) > 12 {
			t.Errorf("%d of %d plans in the journal name the parameter", would, len(plans))
		}
		if got := r.told("i2 apache.MaxRequestWorkers"); got != 0 {
			t.Errorf("i2's server has %v workers", got)
		}
	})
}

// The memory with the values of before is stored before parameters are ordered: an agent may carry out an order whose answer never comes.
func TestValuesOfBeforeAreStoredFirst(t *testing.T) {
	play(t, tuning, func(r *rig) {
		others := r.settled()
		others.Store(60)
		stored := -1.0 // guarded as the agents are
		r.agents.mu.Lock()
		r.agents.before = func() {
			if stored < 0 { // the first order
				mem := remembered(r.t, r.memory)
				stored = mem.Fast.Changed()["i2"]["apache.MaxRequestWorkers"].Before
			}
		}
		r.agents.mu.Unlock()
		r.pass(25 * time.Second)
		r.agents.mu.Lock()
		defer r.agents.mu.Unlock()
		if stored != 200 {
			t.Errorf("when the order came, %g was stored as the value of before", stored)
		}
	})
}

// told returns the value that an agent was last told; 0: none.
func (r *rig) told(name string) float64 {
	r.agents.mu.Lock()
	defer r.agents.mu.Unlock()
	return r.agents.values[name]
}

// tuning is a rig with ice beside the main policy, which may change a parameter of servers.
func tuning(r *rig) {
	withFast(r)
	withAgents(r)
	settings := table.All.Whole(quell.Policy{Name: "ice"}).Settings.(ice.Settings)
	settings.Parameters = ice.ParametersOf([]ice.Parameter{{Name: "apache.MaxRequestWorkers", Change: ice.Lower, Min: 50, Max: 400}})
	r.opts.Service.Policy.Fast = quell.Fast{Name: "ice", Settings: settings, Sampling: time.Second}
}

// ice beside the main policy uses what agents measure each second, and its settings reach the agents. If an agent falls silent, the
// balancer's counts are used without it, and a slow instance is still noticed.
func TestAFastPolicyUsesAgents(t *testing.T) {
	play(t, tuning, func(r *rig) {
		var others atomic.Int64
		others.Store(1)
		ms := r.serve(20, 20, 20)
		r.crowd(&others)
		r.run(60 * time.Second)
		equal(t, r, 1./3, 1./3)
		others.Store(60)
		r.pass(3 * time.Second)
		if w := r.balancer.weights()["i2"]; w > 0.25 {
			t.Fatalf("three seconds after neighbours came i2 has %.3f of the requests", w)
		}
		if got := r.told("i2 apache.MaxRequestWorkers"); got != 0 {
			t.Errorf("i2's server has %v workers at once", got)
		}
		r.pass(22 * time.Second)
		if got := r.told("i2 apache.MaxRequestWorkers"); got >= 200 || got < 50 {
			t.Errorf("after 25 s i2's server has %v workers", got)
		}
		if s := r.c.Status(); s.Fast != "ice" || !slices.ContainsFunc(s.FastReasons, func(x quell.Reason) bool {
			return x.Code == "interference" && x.Instance == "i2" && strings.Contains(x.Text, "for others")
		}) {
			t.Errorf("the status says of %q: %v", s.Fast, s.FastReasons)
		}
		others.Store(0)
		r.pass(90 * time.Second)
		equal(t, r, 1./3, 1./3)
		ms.set(1, 600)
		r.pass(3 * time.Second)
		if w := r.balancer.weights()["i2"]; w > 0.25 {
			t.Errorf("without its agent, i2 is slow and has %.3f of the requests", w)
		}
	})
}
