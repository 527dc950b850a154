package controller

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/life"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/rivals"
)

// histogramOf returns a histogram among a controller's metrics.
func (r *rig) histogramOf(name string) *dto.Histogram {
	r.t.Helper()
	families, err := r.c.Metrics().Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetHistogram()
		}
	}
	r.t.Fatalf("no %s", name)
	return nil
}

// Each response time is counted once: over several balancers, when a reading replaces another one in a period, when a reading stays while
// its sender is late, and when its instance leaves. Native and classic buckets say the same.
func TestResponsesAreCountedOnce(t *testing.T) {
	play(t, func(r *rig) { r.opts.Service.Policy.Name = "static" }, func(r *rig) {
		r.run(3500 * time.Millisecond)
		r.c.Observe(balancerReading(t, "i1", "east", 20, 20, 20), time.Now())
		r.c.Observe(balancerReading(t, "i1", "west", 200), time.Now())
		r.pass(100 * time.Millisecond)
		r.c.Observe(balancerReading(t, "i1", "east", 2000), time.Now()) // replaces the first one
		r.pass(3 * time.Second)
		r.c.Observe(balancerReading(t, "i2", "west", 20), time.Now())
		r.scaler.set(func(s *fakeScaler) { s.members = s.members[:1] })
		r.pass(3 * time.Second)
		h := r.histogramOf("quell_request_duration_seconds")
		if h.GetSampleCount() != 6 || math.Abs(h.GetSampleSum()-2.28) > 0.03 {
			t.Errorf("%d responses, %.3f s in all", h.GetSampleCount(), h.GetSampleSum())
		}
		want := map[float64]uint64{.01: 0, .025: 4, .1: 4, .25: 5, 1: 5, 2.5: 6, 30: 6}
		for _, b := range h.GetBucket() {
			if n, ok := want[b.GetUpperBound()]; ok && n != b.GetCumulativeCount() {
				t.Errorf("%d responses to %g s, want %d", b.GetCumulativeCount(), b.GetUpperBound(), n)
			}
		}
		var native, at int64
		for _, delta := range h.GetPositiveDelta() {
			at += delta
			native += at
		}
		if h.GetSchema() != nativeSchema || native != 6 {
			t.Errorf("native buckets: schema %d, %d responses", h.GetSchema(), native)
		}
	})
}

// What misses the objective is summed up without an error budget, too, in time and in requests.
func TestMissesAreSummed(t *testing.T) {
	play(t, func(r *rig) { r.opts.Service.Policy.Name = "static" }, func(r *rig) {
		r.run(0)
		r.pass(500 * time.Millisecond)
		before := r.scrape()
		r.alertTalk(4, slow)
		after := r.scrape()
		for name, want := range map[string]float64{
			"judged_seconds": 4, "missed_seconds": 4, "judged_requests": 80, "missed_requests": 80,
		} {
			series := "quell_objective_" + name + `_total{service="shop"}`
			if got := after[series] - before[series]; got != want {
				t.Errorf("%s rose by %g, want %g", series, got, want)
			}
		}
	})
}

// Predictions are compared with what was measured while plans are carried out, and not while they are not.
func TestPredictionsAreCompared(t *testing.T) {
	play(t, func(r *rig) {
		r.opts.Policies = amended(rivals.Static, func(_ *policy.Group, p *quell.Plan) { p.PredictedMS = map[string]float64{"i1": 80, "i2": 0} })
	}, func(r *rig) {
		r.run(0)
		r.alertTalk(3, slow) // i1 takes 160 ms
		h := r.histogramOf("quell_prediction_ratio")
		if h.GetSampleCount() == 0 || math.Abs(h.GetSampleSum()/float64(h.GetSampleCount())-2) > 0.02 {
			t.Errorf("%d predictions, with ratios of %g in all", h.GetSampleCount(), h.GetSampleSum())
		}
		r.do(bus.Command{Name: bus.Pause})
		r.alertTalk(1, slow)
		was := r.histogramOf("quell_prediction_ratio").GetSampleCount()
		r.alertTalk(3, slow)
		if got := r.histogramOf("quell_prediction_ratio").GetSampleCount(); got != was {
			t.Errorf("%d predictions were compared while paused", got-was)
		}
		if idle := r.scrape()[`quell_idle{service="shop",why="paused"}`]; idle != 1 {
			t.Errorf("paused, and quell_idle says %g", idle)
		}
	})
}

// The wanted size counts each instance that stays once: one that is given up did not count before.
func TestSizeOfAPlan(t *testing.T) {
	s := &quell.Snapshot{Coming: 1, Instances: []quell.Instance{
		{ID: "i1", State: quell.Ready}, {ID: "i2", State: quell.Failed}, {ID: "i3", State: quell.Starting}, {ID: "i4", State: quell.Draining},
	}}
	for name, tc := range map[string]struct {
		change *quell.GroupChange
		want   int
	}{
		"nothing changes":             {nil, 3},
		"a failed one is replaced":    {&quell.GroupChange{Add: 1, Remove: []string{"i2"}}, 4},
		"one that serves is removed":  {&quell.GroupChange{Remove: []string{"i1"}}, 2},
		"one that leaves and another": {&quell.GroupChange{Remove: []string{"i3", "i4"}}, 2},
	} {
		if got := *life.Size(s, &quell.Plan{Group: tc.change}); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

// The journal's entries are counted when they are written, and the time shows when that last was.
func TestJournalIsCounted(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		const entries, last = `quell_journal_entries_total{service="shop"}`, `quell_journal_last_write_timestamp_seconds{service="shop"}`
		r.journal.fault.set(errors.New("disk full"))
		r.pass(time.Second)
		before := r.scrape()
		r.pass(2 * time.Second)
		if after := r.scrape(); after[entries] != before[entries] || after[last] != before[last] {
			t.Error("entries are counted that were not written")
		}
		r.journal.fault.set(nil)
		r.pass(2 * time.Second)
		if after := r.scrape(); after[entries] < before[entries]+2 || after[last] <= before[last] {
			t.Errorf("entries %g, then %g", before[entries], after[entries])
		}
	})
}

// Load over capacity is exported for the group and for each instance, and absent where a capacity is not known or 0.
func TestSaturation(t *testing.T) {
	capacities := map[string]float64{"i1": .5, "i2": .3}
	play(t, func(r *rig) {
		r.opts.Policies = amended(rivals.Static, func(_ *policy.Group, p *quell.Plan) { p.Capacity = capacities })
	}, func(r *rig) {
		talk := func(r *rig, now time.Time) {
			r.c.Observe(agentReading("i1", .4), now)
			r.c.Observe(balancerReading(t, "i1", "east", manyTimes(16)...), now)
		}
		r.run(3500 * time.Millisecond)
		r.alertTalk(2, talk)
		got := r.scrape()
		if s := got[`quell_saturation{service="shop"}`]; math.Abs(s-.5) > 1e-9 {
			t.Errorf("the group's saturation is %g, want 0.5", s)
		}
		if s := got[`quell_instance_saturation{member="i1",service="shop"}`]; math.Abs(s-.8) > 1e-9 {
			t.Errorf("that of i1 is %g, want 0.8", s)
		}
		if _, there := got[`quell_instance_saturation{member="i2",service="shop"}`]; there {
			t.Error("an instance that nothing is known of has a saturation")
		}
		capacities = map[string]float64{"i1": 0, "i2": 0}
		r.alertTalk(2, talk)
		if _, there := r.scrape()[`quell_saturation{service="shop"}`]; there {
			t.Error("without any capacity there is a saturation")
		}
	})
}

// The guide states how many series there are at most: so many for the service, and so many for each instance and each of its resources.
func TestNumberOfSeries(t *testing.T) {
	const instances, ofService, ofInstance, ofResource = 1000, 180, 20, 5
	play(t, budgeted(0.99), func(r *rig) {
		r.run(3 * time.Second)
		now := r.c.shown.read()
		one := at(.5)
		since := time.Now()
		now.status.Instances, now.status.Overrides = nil, map[string]float64{}
		for i := range instances {
			id := fmt.Sprintf("i%d", i)
			now.status.Instances = append(now.status.Instances, InstanceStatus{
				ID: id, State: quell.Ready, Stale: true, Unprobed: true, Weight: one, Share: one, Cut: one, RequestRate: one,
				Utilization: one, Severity: one, Capacity: one, Limiter: "network", CanTakeRate: one, LatencyMS: one, PredictedMS: one,
				Missing: &since, Held: &quell.Held{By: "you", Since: since},
				Interference: map[quell.Resource]policy.Interference{quell.Network: {Severity: one, Hidden: one}},
				Waits:        &quell.Waits{Own: one, Quota: one, Neighbours: one, Hypervisor: one},
				Credits:      quell.Balances{quell.Network: {DepletedS: one}},
				ProbeFailed:  map[quell.Resource]string{quell.Network: "away"},
			})
			now.status.Overrides[id] = 1
		}
		r.c.shown.write(now)
		families, err := r.c.Metrics().Gather()
		if err != nil {
			t.Fatal(err)
		}
		group, each := 0, 0
		for _, f := range families {
			for _, m := range f.GetMetric() {
				n := 1
				if h := m.GetHistogram(); h != nil {
					n = len(h.GetBucket()) + 3
				}
				if slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "member" }) {
					each += n
				} else {
					group += n
				}
			}
		}
		if group > ofService || group < ofService*3/4 || each != instances*(ofInstance+ofResource) {
			t.Errorf("%d series of the service, at most %d are stated; %g of each instance, %d are stated", group, ofService,
				float64(each)/instances, ofInstance+ofResource)
		}
	})
}
