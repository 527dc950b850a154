package tenants

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/table"
)

// Options describe a run.
type Options struct {
	Tenants  []Tenant
	Cores    float64
	Policy   quell.Policy  // a policy for hosts; without a name, the kernel's own sharing
	Period   time.Duration // of the policy; 0: 1 s
	Duration time.Duration
	Settle   time.Duration // not part of the results; 0: 10 periods
	Around   int           // how many groups the tenants' groups lie in, which lie beside each other; 0: one
	Noise    float64       // standard deviation of measured waiting and of reported progress, as a fraction
	Delay    int           // periods until a plan takes effect
	Seed     uint64
}

func (o Options) filled() Options {
	if o.Period == 0 {
		o.Period = time.Second
	}
	if o.Settle == 0 {
		o.Settle = 10 * o.Period
	}
	o.Around = max(1, o.Around)
	return o
}

// Outcome is the result of a run. Its slowdowns come from the work that was done, never from what the policy estimates.
type Outcome struct {
	Slowdown   []float64 // of each tenant: its work alone over its work in the run; 0: alone it would have done none
	Waiting    []float64 // of each tenant: the part of the time in which its tasks were ready that they waited
	Unfairness float64   // largest slowdown times share over the smallest
	Work       float64   // of all tenants, in processor seconds as alone, per second
	Rates      float64   // sum of the tenants' rates of work, each over its rate alone
	Used       float64   // of the processors, a fraction
	Periods    []Period
}

// Period is a sampling period of a run.
type Period struct {
	Slowdown []float64          // as in Outcome, of this period only
	Limits   map[string]float64 // in force after it, by tenant: processors or weights
	Run      []float64          // processors of each tenant
	Wait     []float64          // tasks of each tenant that waited for a processor, on average
}

// Play simulates a run, and each tenant alone.
func Play(o Options) (Outcome, error) {
	o = o.filled()
	if o.Cores <= 0 || o.Duration <= o.Settle || len(o.Tenants) == 0 {
		return Outcome{}, fmt.Errorf("a run needs tenants, processors, and a duration of more than %v", o.Settle)
	}
	p, err := newPlayer(o)
	if err != nil {
		return Outcome{}, err
	}
	periods := int(o.Duration / o.Period)
	for i := range periods {
		p.step(i)
	}
	return p.outcome(alone(o, periods)), nil
}

// alone returns the work of each tenant in each period if it has the machine to itself.
func alone(o Options, periods int) [][]float64 {
	work := make([][]float64, len(o.Tenants))
	for i := range o.Tenants {
		m := newMachine(o.Cores, o.Tenants, o.Seed)
		m.groups = m.groups[i : i+1]
		for period := range periods {
			m.until(float64(period+1) * o.Period.Seconds())
			work[i] = append(work[i], m.groups[0].work)
			m.groups[0].sums = sums{}
		}
	}
	return work
}

// player is a run that goes on.
type player struct {
	Options
	machine *machine
	engine  *policy.HostEngine // nil: none
	state   policy.State
	rng     *rand.Rand // of the noise
	coming  []quell.Plan
	asked   map[string]float64 // caps of the last plan
	done    []Period
	work    [][]float64 // by period and tenant
}

func newPlayer(o Options) (*player, error) {
	p := &player{Options: o, machine: newMachine(o.Cores, o.Tenants, o.Seed), rng: rand.New(rand.NewPCG(o.Seed, math.MaxUint64))}
	p.machine.lie(o.Around)
	if o.Policy.Name == "" {
		return p, nil
	}
	var err error
	p.engine, err = table.All.NewHostEngine(o.Policy)
	return p, err
}

// began is when every run begins.
var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (p *player) step(period int) {
	p.machine.until(float64(period+1) * p.Period.Seconds())
	snapshot := p.read(began.Add(time.Duration(period+1) * p.Period))
	one, work := Period{Limits: map[string]float64{}}, []float64(nil)
	for _, g := range p.machine.groups {
		one.Run = append(one.Run, g.run/p.Period.Seconds())
		one.Wait = append(one.Wait, g.wait/p.Period.Seconds())
		work = append(work, g.work)
		g.begin()
	}
	if p.engine != nil {
		var plan quell.Plan
		plan, p.state = p.engine.Decide(snapshot, p.state)
		p.asked = map[string]float64{}
		for _, l := range plan.Limits {
			one.Limits[l.Instance] = l.Value
			if l.Unit != quell.WeightUnit {
				p.asked[l.Instance] = l.Value
			}
		}
		p.coming = append(p.coming, plan)
		if len(p.coming) > p.Delay {
			p.apply(p.coming[0])
			p.coming = p.coming[1:]
		}
	}
	p.done, p.work = append(p.done, one), append(p.work, work)
}

// read returns what an agent measures of the period that ends.
func (p *player) read(at time.Time) *quell.Snapshot {
	window := p.Period.Seconds()
	s := &quell.Snapshot{At: at, Host: "simulated"}
	sum := 0.0
	for _, g := range p.machine.groups {
		wrong := p.wrong()
		wait, throttled := g.wait*wrong, g.throttled
		sum += g.run
		in := quell.Instance{ID: g.Name, State: quell.Ready, Observation: &quell.Observation{At: at, WindowS: window,
			Sched: &quell.Sched{RunS: g.run, WaitS: &wait, ThrottledS: &throttled}}}
		if w, ok := g.demand.Add(p.Period, g.run, g.times(window, wrong)); ok {
			sched := in.Observation.Sched
			sched.FreeS, sched.Chains, sched.Lost = &w.FreeS, &w.Chains, &w.Lost
		}
		in.Within = groupAround(g.within)
		if g.Share > 0 {
			in.Share = &g.Share
		}
		if g.Reports && g.work > 0 {
			in.Observation.Counters = map[string]float64{quell.CounterProgress: g.work / window * p.wrong()}
		}
		if quota, ok := p.asked[g.Name]; ok {
			in.Limits = map[quell.Resource]float64{quell.CPU: quota}
		}
		s.Instances = append(s.Instances, in)
	}
	s.Machine = &quell.Observation{At: at, WindowS: window, CPU: &quell.CPUTime{User: sum / window / p.Cores},
		Sched: &quell.Sched{Cores: p.Cores, RunS: sum}}
	return s
}

// groupAround is the path of a group that groups lie in.
func groupAround(i int) string { return fmt.Sprintf("/%d", i) }

func (p *player) wrong() float64 {
	if p.Noise == 0 {
		return 1
	}
	return math.Exp(p.Noise * p.rng.NormFloat64())
}

// apply puts a plan in force.
func (p *player) apply(plan quell.Plan) {
	for i := range p.machine.around {
		p.machine.around[i].weight = 1
		for _, l := range plan.Limits {
			if l.Instance == groupAround(i) {
				p.machine.around[i].weight = l.Value
			}
		}
	}
	for _, g := range p.machine.groups {
		g.weight = usual(g.Weight)
		before := g.cap
		g.cap = 0
		for _, l := range plan.Limits {
			switch {
			case l.Instance != g.Name:
			case l.Unit == quell.WeightUnit:
				g.weight = l.Value
			default:
				g.cap = l.Value
			}
		}
		if before == 0 {
			g.quota = g.cap * quotaPeriod
		}
	}
}

// outcome compares the run with what each tenant does alone.
func (p *player) outcome(alone [][]float64) Outcome {
	settle := int(p.Settle / p.Period)
	out := Outcome{Periods: p.done}
	for period := range p.done {
		for i := range p.Tenants {
			p.done[period].Slowdown = append(p.done[period].Slowdown, slowdown(alone[i][period], p.work[period][i]))
		}
	}
	least, most, span := math.Inf(1), 0.0, float64(len(p.done)-settle)*p.Period.Seconds()
	for i, t := range p.Tenants {
		own, shared, run, wait := 0.0, 0.0, 0.0, 0.0
		for period := settle; period < len(p.done); period++ {
			own, shared, run = own+alone[i][period], shared+p.work[period][i], run+p.done[period].Run[i]*p.Period.Seconds()
			wait += p.done[period].Wait[i] * p.Period.Seconds()
		}
		out.Waiting = append(out.Waiting, wait/max(run+wait, math.SmallestNonzeroFloat64))
		s := slowdown(own, shared)
		out.Slowdown = append(out.Slowdown, s)
		out.Work += shared / span
		out.Used += run / span / p.Cores
		if s > 0 {
			out.Rates += 1 / s
			level := s * usual(t.Share)
			least, most = min(least, level), max(most, level)
		}
	}
	out.Unfairness = most / least
	return out
}

// slowdown returns how much longer the same work takes; 0 if there is none to do.
func slowdown(alone, shared float64) float64 {
	const most = 1000
	if alone <= 0 {
		return 0
	}
	return min(alone/max(shared, alone/most), most)
}
