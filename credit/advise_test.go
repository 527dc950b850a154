package credit

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

const week = 7 * 24 * 3600.0

// offer returns a type of the table in one mode.
func offer(t *testing.T, name string, unlimited bool) Offer {
	t.Helper()
	entry, err := Shipped().Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return Offer{entry, unlimited}
}

// day is a demand of 16 hours at one level and 8 at another.
func day(busy, calm float64) []Step {
	var steps []Step
	for i := range 288 {
		use := busy
		if i >= 192 {
			use = calm
		}
		steps = append(steps, Step{300, use})
	}
	return steps
}

func TestRenting(t *testing.T) {
	for _, tc := range []struct {
		why     string
		offer   Offer
		number  int
		steps   []Step
		full    bool
		missed  float64
		hourly  float64
		surplus float64
		least   float64
	}{
		{why: "not burstable", offer: offer(t, "m7g.large", false), number: 2, steps: day(3, 1), hourly: 2 * 0.0816},
		{why: "not burstable, and too few", offer: offer(t, "m7g.large", false), number: 1, steps: day(3, 1), hourly: 0.0816, missed: 2.0 / 3},
		{why: "below the baseline credits only grow", offer: offer(t, "t4g.small", false), number: 5, steps: day(2, 1), hourly: 5 * 0.0168},
		// A busy day uses 16 h x (0.5 - 0.4), a calm night gives back 8 h x (0.4 - 0.1): a full balance of 576 falls by 96.
		{why: "nights give back more than days take", offer: offer(t, "t4g.small", false), number: 2, steps: day(1, 0.2), full: true,
			hourly: 2 * 0.0168, least: 576 - 96},
		// 0.1 processors above the baseline all week; the full balance lasts 96 h.
		{why: "depleted after 96 h", offer: offer(t, "t4g.small", false), number: 1, steps: day(0.5, 0.5), full: true, hourly: 0.0168,
			missed: 72.0 / 168},
		// The same without credits to begin with, billed: (0.1 x 168 h) x 0.04 $ in a week.
		{why: "beyond the credits is billed", offer: offer(t, "t4g.small", true), number: 1, steps: day(0.5, 0.5), hourly: 0.0168 + 0.004,
			surplus: 0.004, least: -576},
	} {
		a := Advice{Steps: tc.steps, Seconds: week, Utilization: 0.8, Most: 10, Full: tc.full}
		r := a.Rent(tc.offer, tc.number)
		if math.Abs(r.Missed-tc.missed) > 1e-6 || math.Abs(r.Hourly-tc.hourly) > 1e-9 || math.Abs(r.Surplus-tc.surplus) > 1e-9 {
			t.Errorf("%s: missed %v, %v $, of it %v; want %v, %v, %v", tc.why, r.Missed, r.Hourly, r.Surplus, tc.missed, tc.hourly, tc.surplus)
		}
		switch {
		case (r.Least == nil) != (tc.offer.CPU == nil):
			t.Errorf("%s: least %v", tc.why, r.Least)
		case r.Least != nil && tc.least != 0 && math.Abs(r.Least.Credits-tc.least) > 1e-6:
			t.Errorf("%s: least %+v, want %v", tc.why, *r.Least, tc.least)
		}
		if len(r.Course) > coursePoints+1 {
			t.Errorf("%s: %d points", tc.why, len(r.Course))
		}
	}
}

// More instances never miss the objective more often, and the number that is advised is the cheapest of those that hold it.
func TestTheAdviceIsCheapest(t *testing.T) {
	names := []string{"t3.nano", "t3.small", "t4g.xlarge", "t2.micro", "m7g.medium", "c6i.xlarge"}
	rapid.Check(t, func(rt *rapid.T) {
		o := offer(t, rapid.SampledFrom(names).Draw(rt, "type"), false)
		o.UnlimitedMode = o.CPU != nil && rapid.Bool().Draw(rt, "unlimited")
		a := Advice{Seconds: 3 * 24 * 3600, Utilization: rapid.Float64Range(0.2, 0.9).Draw(rt, "utilization"), Most: 40,
			Miss: rapid.SampledFrom([]float64{0, 0.01}).Draw(rt, "miss"), Full: rapid.Bool().Draw(rt, "full")}
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			a.Steps = append(a.Steps, Step{rapid.Float64Range(60, 20000).Draw(rt, "seconds"), rapid.Float64Range(0, 8).Draw(rt, "use")})
		}
		best, ok := a.Cheapest(o)
		before := math.Inf(1)
		for n := 1; n <= a.Most; n++ {
			r := a.Rent(o, n)
			if r.Missed > before+1e-9 {
				rt.Fatalf("%d instances miss %v, one less %v", n, r.Missed, before)
			}
			before = r.Missed
			if holds := r.Missed <= a.Miss; holds && (!ok || r.Hourly < best.Hourly-1e-9) {
				rt.Fatalf("%d for %v $ hold it; advised are %d for %v $ (%v)", n, r.Hourly, best.Number, best.Hourly, ok)
			}
		}
		if ok && best.Missed > a.Miss {
			rt.Fatalf("%d are advised, which miss %v", best.Number, best.Missed)
		}
	})
}

// What was used in advance is repaid before new credits are saved.
func TestCreditsInAdvanceAreRepaid(t *testing.T) {
	a := newAccount(offer(t, "t4g.small", true), false) // earns 0.4 processors
	a.spend(2, 600)                                     // 16 credits in advance
	a.spend(0, 3600)                                    // earns 24
	if math.Abs(a.balance-8) > 1e-9 || a.charged != 0 || a.bill() != 0 {
		t.Errorf("%v credits, %v charged", a.balance, a.charged)
	}
}

func TestOffersAndRanks(t *testing.T) {
	all := func(string) bool { return true }
	for _, o := range Shipped().Offers(all) {
		if o.Price == 0 || strings.HasPrefix(o.Name, "e2-") || o.UnlimitedMode && o.CPU.Surplus == 0 {
			t.Errorf("offers %+v", o)
		}
	}
	two := Shipped().Offers(func(name string) bool { return name == "t3.small" })
	if len(two) != 2 || two[0].Mode() != "standard" || two[1].Mode() != "unlimited" {
		t.Errorf("t3.small is offered as %+v", two)
	}
	a := Advice{Steps: day(3, 0.5), Seconds: week, Utilization: 0.7, Most: 100}
	list := a.Rank(Shipped().Offers(all))
	for i := 1; i < len(list); i++ {
		if list[i].Hourly < list[i-1].Hourly {
			t.Errorf("%s is cheaper than %s and comes later", list[i].Name, list[i-1].Name)
		}
	}
	if len(list) == 0 || list[0].CPU == nil {
		t.Errorf("for a load with calm nights the first is %+v", list[0])
	}
	if a.Most = 1; len(a.Rank(Shipped().Offers(func(name string) bool { return name == "t3.nano" }))) != 0 {
		t.Error("two processors do the work of three")
	}
}

func snapshotOf(at time.Time, arrivals float64, instances ...quell.Instance) *quell.Snapshot {
	s := &quell.Snapshot{At: at, Service: "web", Instances: instances}
	if arrivals > 0 {
		s.ArrivalRate = &arrivals
	}
	return s
}

func instanceOf(id string, use, ms float64) quell.Instance {
	o := &quell.Observation{WindowS: 10, Utilization: map[quell.Resource]float64{quell.CPU: use}, Sched: &quell.Sched{Cores: 2}}
	o.LatencyMS = &quell.Latency{N: 100}
	o.LatencyMS.Set(quell.Mean, ms)
	rate := 50.0
	o.RequestRate = &rate
	return quell.Instance{ID: id, State: quell.Ready, Observation: o}
}

func TestDemandOfSnapshots(t *testing.T) {
	var d Demand
	slo := quell.SLO{Metric: quell.Mean, Threshold: 50 * time.Millisecond}
	silent := quell.Instance{ID: "c", State: quell.Ready}
	gone := instanceOf("d", 1, 10)
	gone.State = quell.Failed
	for _, s := range []*quell.Snapshot{
		snapshotOf(begin, 0, instanceOf("a", 0.5, 40), instanceOf("b", 0.25, 40)),        // 1.5 for its window
		snapshotOf(begin.Add(20*time.Second), 0, instanceOf("a", 0.5, 40), silent, gone), // twice what one of two reports
		snapshotOf(begin.Add(time.Hour), 0, instanceOf("a", 0.5, 60)),                    // after a gap
		snapshotOf(begin.Add(time.Hour+10*time.Second), 150, instanceOf("a", 0.5, 60)),   // a third of the requests are served
		snapshotOf(begin.Add(time.Hour+20*time.Second), 0, silent),
	} {
		if err := d.Add(s, slo, Shipped(), 0); err != nil {
			t.Fatal(err)
		}
	}
	want := []Step{{10, 1.5}, {20, 2}, {10, 1}, {10, 3}}
	if len(d.Steps) != len(want) {
		t.Fatalf("got %v, want %v", d.Steps, want)
	}
	for i := range want {
		if d.Steps[i] != want[i] {
			t.Errorf("step %d is %v, want %v", i, d.Steps[i], want[i])
		}
	}
	if d.Seconds() != 50 || math.Abs(d.Mean()-1.9) > 1e-9 || d.Peak() != 3 {
		t.Errorf("%v s, mean %v, peak %v", d.Seconds(), d.Mean(), d.Peak())
	}
	mute := instanceOf("m", 0.5, 40)
	mute.Observation.Sched = nil
	if err := d.Add(snapshotOf(begin.Add(2*time.Hour), 0, mute), slo, Shipped(), 0); err == nil || !strings.Contains(err.Error(), "--cores") {
		t.Errorf("without a number of processors: %v", err)
	}
	mute.Type = "t3.xlarge"
	if err := d.Add(snapshotOf(begin.Add(2*time.Hour), 0, mute), slo, Shipped(), 0); err != nil || d.Steps[4].Use != 2 {
		t.Errorf("the type has it: %v, %v", err, d.Steps)
	}
}

func TestHeldUpTo(t *testing.T) {
	of := func(kept func(use float64) bool) *Demand {
		d := &Demand{}
		for i := range 200 {
			use := 0.1 + 0.004*float64(i)
			d.windows = append(d.windows, judged{use, kept(use)})
		}
		return d
	}
	for _, tc := range []struct {
		why  string
		kept func(float64) bool
		want float64 // 0: an error
	}{
		{"always", func(float64) bool { return true }, 0.896},
		{"up to 0.6", func(u float64) bool { return u <= 0.6 }, 0.6},
		{"never", func(float64) bool { return false }, 0},
	} {
		got, err := of(tc.kept).HeldUpTo()
		if (err == nil) != (tc.want > 0) || math.Abs(got-tc.want) > binWidth {
			t.Errorf("%s: %v, %v, want %v", tc.why, got, err, tc.want)
		}
	}
	if _, err := (&Demand{}).HeldUpTo(); err == nil {
		t.Error("no windows")
	}
}

// Launch credits exist in standard mode only.
func TestUnlimitedInstancesHaveNoLaunchCredits(t *testing.T) {
	for _, c := range []struct {
		name            string
		unlimited, full bool
		want            float64
	}{{"t2.micro", false, false, 30}, {"t2.micro", true, false, 0}, {"t2.micro", true, true, 144}, {"t3.micro", true, false, 0}} {
		if a := newAccount(offer(t, c.name, c.unlimited), c.full); a.balance != c.want {
			t.Errorf("%+v begins with %v", c, a.balance)
		}
	}
}
