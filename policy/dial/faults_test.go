package dial

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/divide"
)

func reasonOf(plan quell.Plan, code, instance string) string {
	i := slices.IndexFunc(plan.Reasons, func(r quell.Reason) bool { return r.Code == code && r.Instance == instance })
	if i < 0 {
		return ""
	}
	return plan.Reasons[i].Text
}

// last plays several periods and returns the last plan.
func (f *farm) last(periods int) quell.Plan {
	f.periods(periods - 1)
	return f.period()
}

// Requests stop using the disk, such as after a release with a cache. What they used of it before does not limit an instance for ever.
func TestDialForgetsAnUnusedResource(t *testing.T) {
	f := newFarm(t, 3, nothing)
	factor := 2.0
	f.change = func(s *quell.Snapshot) {
		for _, in := range s.Instances {
			in.Observation.Utilization[quell.Disk] = factor * *in.Observation.RequestRate / peakRate
		}
	}
	f.periods(10)
	factor, f.arrivals = 0.05, 1800
	plan := f.last(60)
	if text := reasonOf(plan, "overload", ""); text != "" {
		t.Errorf("60 periods after the last use of the disk: %s", text)
	}
	if dial := policy.Remembered[memory](&f.st); math.Abs(dial.Mix[quell.CPU].Use/dial.Mix[quell.CPU].Rate-1./peakRate) > 1e-4 {
		t.Errorf("a request uses %v of the processor", dial.Mix[quell.CPU])
	}
}

// What other services use of a machine is no part of what a request uses.
func TestDialLeavesOutWhatOthersUse(t *testing.T) {
	f := newFarm(t, 3, nothing)
	f.change = func(s *quell.Snapshot) {
		for _, in := range s.Instances {
			in.Observation.Utilization[quell.CPU] += 0.3
			in.Observation.Others = map[quell.Resource]float64{quell.CPU: 0.3}
		}
	}
	f.periods(20)
	if cpu := policy.Remembered[memory](&f.st).Mix[quell.CPU]; cpu.Rate == 0 || math.Abs(cpu.Use/cpu.Rate-1./peakRate) > 1e-4 {
		t.Errorf("a request uses %v of the processor, want 1 of %d", cpu, peakRate)
	}
}

// Interference is not over while response times are above a bound, although Eq. 1 finds no neighbours in the p90 of all requests.
func TestDialIsNotCalmAboveABound(t *testing.T) {
	f := newFarm(t, 3, nothing)
	f.change = func(s *quell.Snapshot) {
		ms := 60.0
		o := s.Instances[0].Observation
		o.RequestRates = map[string]float64{"search": *o.RequestRate / 2, "other": *o.RequestRate / 2}
		o.LatencyByClassMS = map[string]quell.Latency{"search": {P90: &ms, N: 500}}
		o.TCP["connect_ms_p90"] = 4
	}
	named := 0
	for range 20 {
		plan := f.period()
		if text := reasonOf(plan, "calm", "i1"); text != "" {
			t.Fatalf("above the bound of a class: %s", text)
		}
		if plan.Cause["i1"] == quell.Network {
			named++
			if text := reasonOf(plan, "interference", "i1"); !strings.Contains(text, "its own load explains the time") {
				t.Errorf("without neighbours in the p90 of all requests: %s", text)
			}
		}
	}
	if named < 18 {
		t.Errorf("the network is named in %d of 20 plans", named)
	}
}

// Neighbours go from the network to the disk, for which the models have no Eq. 1. The instance then counts as one without neighbours.
func TestDialWithoutEq1ForTheNextCause(t *testing.T) {
	f := newFarm(t, 3, nothing)
	f.disturb(0, quell.Network, 0.5)
	f.periods(4)
	if f.hosts[0].weight > 0.25 {
		t.Fatalf("beside neighbours on the network it has a share of %v", f.hosts[0].weight)
	}
	f.disturb(0, quell.Disk, 0.6)
	if plan := f.last(12); plan.Cause["i1"] != quell.Disk || math.Abs(f.hosts[0].weight-1./3) > 0.01 {
		t.Errorf("cause %v, share %v", plan.Cause, f.hosts[0].weight)
	}
}

// If the instances without neighbours cannot serve the rest, those with neighbours get more than the set point, but no more than they can
// serve.
func TestDialSetPointUnderMuchLoad(t *testing.T) {
	f := newFarm(t, 3, func(s *Settings) { s.Share, s.Tolerance = divide.AtPoint, 0 })
	f.arrivals = 1500
	f.disturb(0, quell.Network, 0.8)
	f.disturb(1, quell.Network, 0.1)
	plan := f.last(15)
	// 1000 requests per second for i3. i1 and i2 get 150 each, have 50 and 750 left, and share the missing 200.
	for id, rate := range map[string]float64{"i1": 150 + 200*50./800, "i2": 150 + 200*750./800, "i3": 1000} {
		if math.Abs(1500*plan.Weights[id]-rate) > 15 {
			t.Errorf("%s gets %.0f requests/s, want %.0f", id, 1500*plan.Weights[id], rate)
		}
	}
}

// While nobody counts requests, an instance that has had no share yet gets an equal one, and the others keep theirs.
func TestDialGivesANewInstanceAShareWithoutCounts(t *testing.T) {
	f := newFarm(t, 3, nothing)
	f.hosts[0].weight, f.hosts[1].weight, f.hosts[2].weight = 0.5, 0.5, 0
	f.change = func(s *quell.Snapshot) {
		s.ArrivalRate = nil
		for _, in := range s.Instances {
			in.Observation.RequestRate, in.Observation.LatencyMS = nil, nil
		}
	}
	if plan := f.last(5); plan.Weights["i3"] < 0.2 || math.Abs(plan.Weights["i1"]-plan.Weights["i2"]) > 1e-9 {
		t.Errorf("weights %v", plan.Weights)
	}
}

// The clock was set back, or another controller had another clock: windows are judged again at once.
func TestDialAfterAClockThatWasSetBack(t *testing.T) {
	f := newFarm(t, 3, nothing)
	f.k = 1000
	f.disturb(0, quell.Network, 0.5)
	f.periods(4)
	f.k = 0
	f.disturb(0, quell.Network, 0)
	if plan := f.last(15); plan.Cause["i1"] != "" || math.Abs(f.hosts[0].weight-1./3) > 0.05 {
		t.Errorf("cause %v, share %v", plan.Cause, f.hosts[0].weight)
	}
}

// After the neighbours have left, plans do not tell the slow window of before as one of now.
func TestDialSaysWhenItWasSlow(t *testing.T) {
	f := newFarm(t, 3, nothing)
	f.disturb(0, quell.Network, 0.5)
	if text := reasonOf(f.last(3), "interference", "i1"); strings.Contains(text, "was slow") {
		t.Errorf("beside neighbours: %s", text)
	}
	f.disturb(0, quell.Network, 0)
	if text := reasonOf(f.period(), "interference", "i1"); !strings.HasPrefix(text, "within its bounds now; when it was slow, p90 ") {
		t.Errorf("after they left: %s", text)
	}
}

// Weak neighbours on the memory that take much of the capacity are not weak: their part of the memory is not what counts.
func TestDialKeepsWhatMemoryNeighboursTake(t *testing.T) {
	d := &plan{in: &policy.Input{}, model: lawfulDial(), group: &policy.Group{}, peak: peakRate, arrivals: 600}
	d.model.Stretch = 20
	d.group.Members = make([]policy.Member, 1)
	policy.RememberedOf[instance](d.group)
	m := &d.group.Members[0]
	memoryOf(m).Cause = quell.Memory
	d.group.Ready = []*policy.Member{m, m, m}
	if d.model.Lost(quell.Memory, 0.019) < 0.2 {
		t.Fatalf("the model says that %v is lost", d.model.Lost(quell.Memory, 0.019))
	}
	if d.unnoticed(m, 0.019, 0.001) && d.model.Predict(quell.Memory, d.trained(200), 0.2, 0.019) > d.model.Bounds(d.trained(200)).All {
		t.Error("neighbours that make requests too slow are not noticed")
	}
}
