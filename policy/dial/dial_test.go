package dial

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/gonum/floats"
	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/divide"
)

func dialModels(change func(*model.Dial)) *model.Models {
	d := lawfulDial()
	change(d)
	return &model.Models{Sections: []model.Section{d}}
}

// farm is a group whose instances behave by the law of lawfulDial.
type farm struct {
	t        testing.TB
	engine   *policy.Engine
	st       policy.State
	k        int
	arrivals float64
	hosts    []tenancy
	law      model.Queueing // of the p90
	rng      *rand.Rand     // nil: p90s are those of the law
	change   func(*quell.Snapshot)
}

// tenancy is an instance with its neighbours.
type tenancy struct {
	weight float64
	of     quell.Resource
	hidden float64 // what neighbours use of it
}

func newFarm(t testing.TB, n int, change func(*Settings)) *farm {
	t.Helper()
	f := &farm{t: t, arrivals: 200 * float64(n), law: model.Queueing{0, 3, 0}, hosts: make([]tenancy, n), change: func(*quell.Snapshot) {}}
	for i := range f.hosts {
		f.hosts[i].weight = 1 / float64(n)
	}
	f.engine = engine(t, dialService(n, change), dialModels(func(*model.Dial) {}))
	return f
}

func dialService(most int, change func(*Settings)) quell.Service {
	set := Spec.Defaults
	change(&set)
	return guarding("dial", func(s *quell.Service) {
		s.SLO.Metric, s.Policy.Settings, s.Group.Max = quell.P90, set, most
	})
}

// ms is the p90 of an instance, and how many requests it is of.
func (f *farm) ms(h tenancy) (ms float64, n int) {
	rate := f.arrivals * h.weight
	n = int(rate * period)
	if ms = f.law.MS(rate/peakRate + h.hidden); f.rng == nil || n == 0 {
		return ms, 10_000 * min(n, 1)
	}
	times := make([]float64, n)
	for i := range times {
		times[i] = ms / math.Log(10) * f.rng.ExpFloat64()
	}
	slices.Sort(times)
	return times[int(math.Ceil(0.9*float64(n)))-1], n
}

func (f *farm) snapshot() *quell.Snapshot {
	s := &quell.Snapshot{At: start.Add(time.Duration(f.k+1) * period * time.Second), Service: "video", ArrivalRate: new(f.arrivals)}
	f.k++
	for i, h := range f.hosts {
		rate := f.arrivals * h.weight
		ms, n := f.ms(h)
		o := &quell.Observation{At: s.At, WindowS: period, RequestRate: &rate, CPU: &quell.CPUTime{User: 0.0005 * rate, System: 0.0002 * rate},
			TCP:         map[string]float64{"connect_ms_p90": 0.4},
			Utilization: map[quell.Resource]float64{quell.CPU: rate / peakRate, quell.Network: rate / peakRate}}
		if n > 0 {
			o.LatencyMS = &quell.Latency{P90: &ms, N: n}
		}
		if h.hidden > 0 {
			show(o, h.of)
		}
		s.Instances = append(s.Instances, quell.Instance{ID: fmt.Sprintf("i%d", i+1), State: quell.Ready, Weight: new(h.weight), Observation: o})
	}
	f.change(s)
	if err := s.Validate(); err != nil {
		f.t.Fatal(err)
	}
	return s
}

// period plays a sampling period, and carries out its plan.
func (f *farm) period() quell.Plan {
	f.t.Helper()
	plan, st := f.engine.Decide(f.snapshot(), f.st)
	f.st = st
	for i := range f.hosts {
		if w, ok := plan.Weights[fmt.Sprintf("i%d", i+1)]; ok {
			f.hosts[i].weight = w
		}
	}
	return plan
}

// periods plays several periods, and returns each plan in a line.
func (f *farm) periods(n int) (lines []string) {
	f.t.Helper()
	for range n {
		lines = append(lines, brief(f.period()))
	}
	return lines
}

func (f *farm) disturb(i int, of quell.Resource, hidden float64) {
	f.hosts[i].of, f.hosts[i].hidden = of, hidden
}

func nothing(*Settings) {}

// The example of section II-C: an instance can serve 1000 requests per second. Neighbours use 0.6 of one of three, which leaves it 400.
func TestDialPlaysTheExample(t *testing.T) {
	f := newFarm(t, 3, nothing)
	f.arrivals = 1200
	want := []string{"i1=0.333 i2=0.333 i3=0.333"}
	if got := f.periods(1); !slices.Equal(got, want) {
		t.Errorf("calm:\n got %q\nwant %q", got, want)
	}
	f.disturb(0, quell.Network, 0.5)
	plan := f.period()
	mem := f.st.Instances["i1"].Memory.(*instance)
	if counts := (mem.Hidden.Low + mem.Hidden.Value) / 2; mem.Load != counts || math.Abs(mem.Load-0.5) > 0.01 {
		t.Errorf("of the hidden load %+v counts %v, want %v", *mem.Hidden, mem.Load, counts)
	}
	rates := []float64{1000 * (1 - mem.Load), 1000, 1000}
	for i, share := range bestShares(rates, f.arrivals) {
		if got := plan.Weights[fmt.Sprintf("i%d", i+1)]; math.Abs(got-share) > 1e-6 {
			t.Errorf("instance %d gets %.4f, by Eq. 3 %.4f", i+1, got, share)
		}
	}
	if plan.Cause["i1"] != quell.Network || len(plan.Cause) != 1 {
		t.Errorf("causes %v", plan.Cause)
	}
	i := slices.IndexFunc(plan.Reasons, func(r quell.Reason) bool { return r.Code == "interference" })
	for _, part := range []string{"connect_ms_p90 4 (usually 0.4)", "use about 0.50 (", "of its network",
		fmt.Sprintf("%.1f of 1000.0 requests/s", rates[0]),
		"p90 30.0 ms at 400.0 requests/s, where an instance without neighbours stays below"} {
		if i < 0 || !strings.Contains(plan.Reasons[i].Text, part) {
			t.Errorf("%q is not in %v", part, plan.Reasons)
		}
	}
}

// If most instances become slow in the same window, DIAL waits for the next window before it names a resource.
func TestDialWaitsIfMostBecomeSlowTogether(t *testing.T) {
	for name, tc := range map[string]struct {
		slow, lasting int // instances that become slow, and in how many windows they are
		named         int // instances whose resource is named in the end
		early         int // and in the first of these windows
	}{
		"a moment":         {2, 1, 0, 0},
		"all, for longer":  {3, 2, 3, 0},
		"most, for longer": {2, 2, 2, 0},
		"one":              {1, 1, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFarm(t, 3, nothing)
			f.periods(2)
			for i := range tc.slow {
				f.disturb(i, quell.CPU, 0.5)
			}
			if plan := f.period(); len(plan.Cause) != tc.early {
				t.Errorf("at once: %v", plan.Cause)
			}
			f.periods(tc.lasting - 1)
			for i := range tc.slow {
				f.disturb(i, quell.CPU, 0)
			}
			if plan := f.period(); len(plan.Cause) != tc.named {
				t.Errorf("in the end: %v", plan.Cause)
			}
		})
	}
}

// Two windows above the bound are needed, or one that chance does not explain.
func TestDialDetects(t *testing.T) {
	for name, tc := range map[string]struct {
		hidden float64
		class  float64 // p90 of the class search; 0: it is not reported
		change func(*Settings)
		want   []string // codes of the reasons in each period
	}{
		"none":                     {0, 0, nothing, []string{"", ""}},
		"too little to be noticed": {0.05, 0, nothing, []string{"", ""}},
		"noticeable":               {0.14, 0, nothing, []string{"confirming", "shift interference"}},
		"clear":                    {0.5, 0, nothing, []string{"shift interference", "interference"}},
		"without confirmation":     {0.14, 0, func(s *Settings) { s.Confirm = 0 }, []string{"shift interference"}},
		"a class alone":            {0.05, 20, nothing, []string{"confirming", "shift interference"}},
		"a class within its bound": {0, 7, nothing, []string{"", ""}},
		"more confirmation": {0.14, 0, func(s *Settings) { s.Confirm = 2 },
			[]string{"confirming", "confirming", "shift interference"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFarm(t, 3, tc.change)
			f.periods(2)
			f.disturb(1, quell.CPU, tc.hidden)
			f.change = func(s *quell.Snapshot) {
				if o := s.Instances[1].Observation; tc.class > 0 {
					o.LatencyByClassMS = map[string]quell.Latency{"search": {P90: &tc.class, N: 500}, "new": {P90: &tc.class, N: 500}}
				}
			}
			for k, want := range tc.want {
				plan := f.period()
				var codes []string
				for _, r := range plan.Reasons {
					codes = append(codes, r.Code)
				}
				if got := strings.Join(codes, " "); got != want {
					t.Errorf("period %d: %q, want %q; %v", k, got, want, plan.Reasons)
				}
			}
		})
	}
}

// A single window above the bound is forgotten.
func TestDialForgetsASingleWindow(t *testing.T) {
	f := newFarm(t, 3, nothing)
	for range 10 {
		f.disturb(1, quell.CPU, 0.14)
		f.period()
		f.disturb(1, quell.CPU, 0)
		if plan := f.period(); plan.Weights["i2"] < 0.33 || len(plan.Cause) > 0 {
			t.Fatalf("%v", plan.Reasons)
		}
	}
}

func TestDialNamesTheResource(t *testing.T) {
	for _, of := range []quell.Resource{quell.CPU, quell.Network, quell.Memory} {
		f := newFarm(t, 3, nothing)
		f.disturb(2, of, 0.5)
		if plan := f.period(); plan.Cause["i3"] != of || plan.Weights["i3"] > 0.1 {
			t.Errorf("%s: %v", of, plan.Reasons)
		}
	}
	f := newFarm(t, 3, nothing) // the models have no coefficients for the disk
	f.disturb(2, quell.Disk, 0.5)
	plan := f.period()
	why := plan.Reasons[0].Text
	if plan.Cause["i3"] != quell.Disk || math.Abs(plan.Weights["i3"]-1./3) > 1e-9 || !strings.Contains(why, "dial.queueing.disk") {
		t.Errorf("%v %v", plan.Weights, plan.Reasons)
	}
	f.disturb(2, quell.Disk, 0)
	if f.periods(4); f.period().Cause != nil {
		t.Error("its interference never ends")
	}
}

// What neighbours use is found although the load of their instance changes with each estimate, and with the load of the group.
func TestDialEstimateDoesNotDrift(t *testing.T) {
	for _, hidden := range []float64{0.2, 0.45} {
		f := newFarm(t, 3, nothing)
		f.arrivals, f.law = 1500, model.Queueing{2, 1, 0.5}
		f.engine = engine(t, dialService(3, nothing), dialModels(func(d *model.Dial) {
			d.Calm, d.DetectMS, d.DetectRate = f.law, 1.1*f.law.MS(0.5), 500
			d.Queueing = map[quell.Resource]model.Queueing{quell.CPU: f.law}
		}))
		f.periods(5)
		f.disturb(0, quell.CPU, hidden)
		for k := range 40 {
			if f.period(); k > 20 {
				f.arrivals = 1500 + 300*math.Sin(float64(k))
			}
			if mem := f.st.Instances["i1"].Memory.(*instance); k >= 2 && (mem.Hidden == nil || math.Abs(mem.Hidden.Value-hidden) > 0.03) {
				t.Errorf("period %d: neighbours use %.2f, estimated %+v; its share is %.3f", k+1, hidden, mem.Hidden, f.hosts[0].weight)
			}
		}
	}
}

// An instance's share comes back by halves of what neighbours took, not at once.
func TestDialReturnsGradually(t *testing.T) {
	f := newFarm(t, 3, nothing)
	f.arrivals = 600
	f.periods(5)
	f.disturb(0, quell.CPU, 0.6)
	f.periods(5)
	loads := []float64{f.st.Instances["i1"].Memory.(*instance).Load}
	f.disturb(0, quell.CPU, 0)
	for range 12 {
		f.period()
		loads = append(loads, f.st.Instances["i1"].Memory.(*instance).Load)
	}
	if loads[0] < 0.55 || loads[len(loads)-1] != 0 {
		t.Fatalf("the lost part of its capacity is %.3f", loads)
	}
	for i, load := range loads[1:] {
		if load > 0 && load < loads[i]*minKept-1e-9 || load == 0 && loads[i] > 2*minHidden {
			t.Errorf("the lost part falls from %.3f to %.3f in one period: %.3f", loads[i], load, loads)
		}
	}
}

// Systems.md, D7: with a peak of 1000 and 600 requests per second, neighbours use half of one of three instances. That instance is fast as
// soon as its load is gone, but would be slow with an equal share. So nothing is given back while the neighbours are there, and everything
// soon after they left.
func TestDialDoesNotOscillate(t *testing.T) {
	for seed := range uint64(20) {
		f := newFarm(t, 3, nothing)
		f.rng, f.arrivals = rand.New(rand.NewPCG(seed, 1)), 600
		f.periods(5)
		f.disturb(0, quell.CPU, 0.5)
		f.periods(3)
		moves := 0
		for range 50 {
			before := f.hosts[0].weight
			if f.period(); math.Abs(f.hosts[0].weight-before) > 0.03 {
				moves++
			}
			if f.hosts[0].weight > 0.1 {
				t.Fatalf("seed %d: its share grows to %v beside its neighbours", seed, f.hosts[0].weight)
			}
		}
		if moves > 2 {
			t.Errorf("seed %d: its share moves %d times in 50 periods", seed, moves)
		}
		f.disturb(0, quell.CPU, 0)
		var shares []float64
		for range 15 {
			f.period()
			shares = append(shares, f.hosts[0].weight)
		}
		if last := shares[len(shares)-1]; math.Abs(last-1./3) > 0.05 {
			t.Errorf("seed %d: 15 periods after its neighbours left it has a share of %v", seed, shares)
		}
	}
}

// The load varies threefold without neighbours: in at most 5.7% of the periods weights move, over 100 trials.
func TestDialIsCalmWithoutNeighbours(t *testing.T) {
	moved, periods := 0, 0
	for seed := range uint64(100) {
		f := newFarm(t, 3, nothing)
		f.rng = rand.New(rand.NewPCG(seed, 2))
		for k := range 40 {
			f.arrivals = 600 + 300*math.Sin(float64(k)/5+float64(seed))
			before := f.hosts[0].weight
			f.period()
			if periods++; math.Abs(f.hosts[0].weight-before) > 1e-9 {
				moved++
			}
		}
	}
	if share := float64(moved) / float64(periods); share > 0.057 {
		t.Errorf("in %.1f%% of the periods weights move", 100*share)
	} else {
		t.Logf("in %.2f%% of the periods weights move", 100*share)
	}
}

// The weights of plans meet the conditions of optimality of Eq. 2, and are those of another method, for 2 to 1,000 instances.
func TestDialWeightsAreOptimal(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 3))
		n := rapid.OneOf(rapid.IntRange(2, 10), rapid.IntRange(2, 30), rapid.SampledFrom([]int{2, 3, 100, 300})).Draw(rt, "n")
		f := newFarm(t, n, func(s *Settings) { s.Floor, s.Tolerance = 0, 0 })
		f.arrivals = float64(n) * rapid.Float64Range(150, 400).Draw(rt, "load")
		for i := range f.hosts {
			if rng.IntN(3) == 0 {
				f.disturb(i, quell.CPU, 0.3+0.25*rng.Float64()) // with an equal share at most 0.95: an estimate from a full queue fades slowly
			}
		}
		f.periods(12)
		plan := f.period()
		rates, shares := make([]float64, n), make([]float64, n)
		troubled := false
		for i := range rates {
			load := f.st.Instances[fmt.Sprintf("i%d", i+1)].Memory.(*instance).Load
			rates[i], troubled = peakRate*(1-load), troubled || load > 0
			shares[i] = plan.Weights[fmt.Sprintf("i%d", i+1)]
			if hidden := f.hosts[i].hidden; math.Abs(load-hidden) > 0.02 {
				rt.Fatalf("neighbours use %v, estimated %v", hidden, load)
			}
		}
		if !troubled || f.arrivals >= floats.Sum(rates) {
			return
		}
		for i, want := range bestShares(rates, f.arrivals) {
			if math.Abs(shares[i]-want) > 1e-7 {
				rt.Fatalf("instance %d gets %v, by search %v", i+1, shares[i], want)
			}
		}
	})
}

// bestShares returns the shares of the arrivals by which the tail is shortest, where nothing bounds them.
func bestShares(rates []float64, arrivals float64) []float64 {
	queues := make([]divide.Queue, len(rates))
	for i, r := range rates {
		queues[i] = divide.Queue{Rate: r, High: r}
	}
	shares := divide.Within(queues, arrivals)
	floats.Scale(1/arrivals, shares)
	return shares
}

func TestDialUnderLittleAndTooMuchLoad(t *testing.T) {
	f := newFarm(t, 3, nothing)
	f.disturb(0, quell.CPU, 0.5)
	f.periods(3)
	held := maps.Clone(f.period().Weights)
	f.arrivals = 0
	if plan := f.period(); !maps.Equal(plan.Weights, held) {
		t.Errorf("without requests %v, before %v", plan.Weights, held)
	}
	f.arrivals = 2600 // of at most 2500
	plan := f.period()
	if f.period(); !hasReason(plan, "confirming", "") || math.Abs(plan.Weights["i1"]-500./2500) > 0.02 {
		t.Errorf("too much load: %v %v", plan.Weights, plan.Reasons)
	}
	if plan = f.period(); !hasReason(plan, "overload", "") || plan.Group != nil {
		t.Errorf("too much load for a full group: %v %v", plan.Group, plan.Reasons)
	}

	f = newFarm(t, 2, nothing)
	f.engine = engine(t, dialService(5, nothing), dialModels(func(*model.Dial) {}))
	f.arrivals = 2100
	f.periods(1)
	if plan = f.period(); plan.Group == nil || plan.Group.Add != 1 {
		t.Errorf("too much load, and room: %v %v", plan.Group, plan.Reasons)
	}

	f = newFarm(t, 1, nothing)
	f.disturb(0, quell.CPU, 0.5)
	if plan = f.period(); plan.Weights["i1"] != 1 {
		t.Errorf("one instance: %v", plan.Weights)
	}

	f = newFarm(t, 3, nothing)
	for i := range f.hosts {
		f.disturb(i, quell.CPU, 0.4)
	}
	f.periods(1)
	if plan = f.period(); math.Abs(plan.Weights["i2"]-1./3) > 0.001 || len(plan.Cause) != 3 {
		t.Errorf("all contended alike: %v %v", plan.Weights, plan.Cause)
	}
}

// Absent is absent: without readings of an instance nothing is concluded.
func TestDialWithoutSomeReadings(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*quell.Observation)
		share  float64 // of the disturbed instance; below it
		cause  quell.Resource
	}{
		"all is measured":             {func(*quell.Observation) {}, 0.1, quell.Network},
		"no response time":            {func(o *quell.Observation) { o.LatencyMS = nil }, 0.34, ""},
		"no p90":                      {func(o *quell.Observation) { o.LatencyMS = &quell.Latency{Mean: o.LatencyMS.P90, N: 9} }, 0.34, ""},
		"no number of requests":       {func(o *quell.Observation) { o.LatencyMS.N = 0 }, 0.1, quell.Network},
		"no rate":                     {func(o *quell.Observation) { o.RequestRate = nil }, 0.34, ""},
		"no utilisation":              {func(o *quell.Observation) { o.Utilization = nil }, 0.1, quell.Network},
		"no connect time, so no sign": {func(o *quell.Observation) { o.TCP = nil }, 0.34, ""},
		"no processor times":          {func(o *quell.Observation) { o.CPU = nil }, 0.1, quell.Network},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFarm(t, 3, nothing)
			f.change = func(s *quell.Snapshot) {
				for i := range s.Instances {
					tc.change(s.Instances[i].Observation)
				}
			}
			f.periods(2)
			f.disturb(0, quell.Network, 0.5)
			f.periods(2)
			plan := f.period()
			if plan.Cause["i1"] != tc.cause || plan.Weights["i1"] > tc.share || tc.share > 0.3 && plan.Weights["i1"] < 0.33 {
				t.Errorf("%v, cause %v: %v", plan.Weights, plan.Cause, plan.Reasons)
			}
		})
	}
}

// A slow instance without any sign of neighbours keeps its share: the cause is its load, or the service itself.
func TestDialLeavesAloneWhatNeighboursDoNotExplain(t *testing.T) {
	f := newFarm(t, 3, nothing)
	f.disturb(0, "", 0.5)
	plan := f.period()
	if !hasReason(plan, "own_load", "i1") || math.Abs(plan.Weights["i1"]-1./3) > 1e-9 || len(plan.Cause) > 0 {
		t.Errorf("%v %v", plan.Weights, plan.Reasons)
	}
}

// An instance that leaves and returns begins anew, and a share that a person set stays.
func TestDialForgetsWhoLeft(t *testing.T) {
	f := newFarm(t, 3, nothing)
	f.disturb(0, quell.CPU, 0.5)
	f.periods(3)
	f.change = func(s *quell.Snapshot) { s.Instances[0].State = quell.Draining }
	f.periods(1)
	if mem := f.st.Instances["i1"].Memory.(*instance); mem.Cause != "" || mem.Load != 0 {
		t.Errorf("%+v", mem)
	}
	f = newFarm(t, 3, nothing)
	f.disturb(0, quell.CPU, 0.5)
	f.change = func(s *quell.Snapshot) { s.Instances[1].Override = new(0.2) }
	f.periods(3)
	w := f.period().Weights
	if w["i2"] != 0.2 || math.Abs(w["i1"]+w["i3"]-0.8) > 1e-9 || w["i1"] > 0.2 {
		t.Errorf("%v", w)
	}
}

func TestDialOtherRules(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Settings)
		want   float64
	}{
		"in proportion":        {func(s *Settings) { s.Share = divide.Proportional }, 500. / 2500},
		"at a set point":       {func(s *Settings) { s.Share = divide.AtPoint }, 150. / 900},
		"at a lower set point": {func(s *Settings) { s.Share, s.SetPoint = divide.AtPoint, 0.05 }, 50. / 900},
		"with a higher floor":  {func(s *Settings) { s.Floor = 0.5 }, 0.5 / 3},
	} {
		f := newFarm(t, 3, tc.change)
		f.arrivals = 900
		f.disturb(0, quell.CPU, 0.5)
		if got := f.period().Weights["i1"]; math.Abs(got-tc.want) > 0.001 {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// Over rules that judge response times dial names what disturbs an instance, and leaves the shares equal.
func TestDialOverRulesThatJudgeTime(t *testing.T) {
	for _, rule := range quell.Schedulings {
		f := newFarm(t, 3, nothing)
		f.arrivals = 900
		service := dialService(3, nothing)
		service.Scheduling = rule
		f.engine = engine(t, service, dialModels(func(*model.Dial) {}))
		f.periods(5)
		f.disturb(0, quell.CPU, 0.5)
		f.periods(5)
		plan := f.period()
		equal := math.Abs(plan.Weights["i1"]-1./3) < 1e-9 && math.Abs(plan.Weights["i2"]-1./3) < 1e-9
		if rule.JudgesTime() != equal || f.st.Instances["i1"].Memory.(*instance).Cause != quell.CPU {
			t.Errorf("%s: shares %v, %+v", rule, plan.Weights, f.st.Instances["i1"].Memory)
		}
	}
}

func TestDialNeedsItsSection(t *testing.T) {
	for want, models := range map[string]*model.Models{
		"policy dial needs models: the models lack dial:": {},
		"the models lack dial.classifier:":                dialModels(func(d *model.Dial) { d.Classifier = nil }),
		"the models lack dial.peak_rate:":                 dialModels(func(d *model.Dial) { d.PeakRate = 0 }),
		"the models lack dial.queueing:":                  dialModels(func(d *model.Dial) { d.Queueing = nil }),
	} {
		_, err := all.NewEngine(dialService(3, nothing), models)
		if !errors.Is(err, quell.ErrNoData) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// The mix of classes has changed so that a request needs twice as much: an instance serves half as many.
func TestDialFollowsTheMix(t *testing.T) {
	f := newFarm(t, 3, nothing)
	f.change = func(s *quell.Snapshot) {
		for i := range s.Instances {
			for r := range s.Instances[i].Observation.Utilization {
				s.Instances[i].Observation.Utilization[r] *= 2
			}
		}
	}
	f.periods(5)
	f.disturb(0, quell.CPU, 0.5)
	plan := f.period()
	i := slices.IndexFunc(plan.Reasons, func(r quell.Reason) bool { return r.Code == "shift" })
	if i < 0 || !strings.Contains(plan.Reasons[i].Text, "an instance alone can serve 500.0") {
		t.Errorf("%v", plan.Reasons)
	}
}

func BenchmarkDial(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := newFarm(b, n, nothing)
			for i := range f.hosts {
				if i%10 < 3 {
					f.disturb(i, quell.CPU, 0.5)
				}
			}
			f.periods(3)
			s := f.snapshot()
			for b.Loop() {
				f.engine.Decide(s, f.st)
			}
		})
	}
}
