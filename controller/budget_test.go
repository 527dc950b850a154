package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/measure"
	"github.com/quellhq/quell/budget"
	"github.com/quellhq/quell/bus"
)

// played is a fixed service of two instances with an error budget.
func played(t *testing.T, script func(*rig)) {
	t.Helper()
	play(t, func(r *rig) {
		r.opts.Service.Policy.Name, r.opts.Models, r.opts.Service.Guard.StaleAfter = "prima", goldenModels(t), 3
		r.opts.Service.Group = quell.Group{Min: 2, Max: 2, Fixed: true}
		budgeted(0.99)(r)
	}, func(r *rig) {
		r.run(0)
		script(r)
	})
}

// What was missed is kept over a restart, and counts for what it was.
func TestTheBudgetOutlivesTheController(t *testing.T) {
	played(t, func(r *rig) {
		r.alertTalk(60, func(r *rig, now time.Time) {
			well(r, now)
			for _, id := range []string{"i1", "i2"} {
				r.c.Observe(balancerReading(r.t, id, "east", manyTimes(16)...), now)
			}
		})
		r.alertTalk(10, slow)
		before := r.c.Status().Budget
		if before == nil || before.Missed < 8 || before.Missed > 10 || before.Judged < 60 || before.Burn["5m"] < 10 {
			t.Fatalf("%+v", before)
		}
		r.restart()
		r.run(0)
		r.alertTalk(2, slow)
		if after := r.c.Status().Budget; after == nil || after.Missed < before.Missed || after.TotalJudged < before.TotalJudged {
			t.Errorf("%+v after the restart, %+v before", after, before)
		}
	})
}

// A reload that changes the threshold and the target begins the budget again, and the journal says so once. One that takes the target away
// ends it, and a pause goes on counting.
func TestReloadsOfABudget(t *testing.T) {
	played(t, func(r *rig) {
		r.alertTalk(10, slow)
		r.do(bus.Command{Name: bus.Pause})
		r.alertTalk(10, slow)
		if b := r.c.Status().Budget; b.Missed < 17 {
			t.Errorf("a pause is not counted: %+v", b)
		}
		service := r.opts.Service
		service.SLO.Threshold, service.SLO.Target = 500*time.Millisecond, 0.95
		if err := r.c.Reload(service, r.opts.Models, false); err != nil {
			t.Fatal(err)
		}
		r.alertTalk(5, slow)
		if b := r.c.Status().Budget; b.Missed != 0 || b.Judged > 6 || b.Target != 0.95 {
			t.Errorf("after two changes at once: %+v", b)
		}
		if n := strings.Count(strings.Join(r.journal.events(), "\n"), "the error budget begins again: it counts"); n != 1 {
			t.Errorf("the journal says it %d times: %q", n, r.journal.events())
		}
		service.SLO.Target = 0
		if err := r.c.Reload(service, r.opts.Models, false); err != nil {
			t.Fatal(err)
		}
		r.alertTalk(2, slow)
		if b := r.c.Status().Budget; b != nil {
			t.Errorf("without a target: %+v", b)
		}
	})
}

// A balancer that does not measure the objective's statistic spends nothing, and the status says that nothing is counted.
func TestNothingMeasuresTheObjective(t *testing.T) {
	play(t, func(r *rig) {
		budgeted(0.99)(r)
		r.opts.Service.SLO.Metric = quell.P99
	}, func(r *rig) {
		r.run(0)
		r.alertTalk(5, func(r *rig, now time.Time) {
			reading := balancerReading(r.t, "i1", "east", manyTimes(160)...)
			mean := 160.0
			reading.LatencyHDR, reading.Observation.LatencyMS = nil, &quell.Latency{Mean: &mean, N: 20}
			r.c.Observe(reading, now)
		})
		if b := r.c.Status().Budget; b.Judged != 0 || b.Missed != 0 || b.Blind < 3 {
			t.Errorf("%+v", b)
		}
		r.alertTalk(2, slow)
		if b := r.c.Status().Budget; b.Missed == 0 || b.Blind != 0 {
			t.Errorf("when it is measured again: %+v", b)
		}
	})
}

// Requests that fail have no response times. They are missed all the same, in the budget and in the totals.
func TestAllRequestsFail(t *testing.T) {
	played(t, func(r *rig) {
		r.alertTalk(3, well)
		before := r.scrape()
		r.alertTalk(10, func(r *rig, now time.Time) {
			reading := balancerReading(r.t, "i1", "east")
			reading.Requests, reading.Errors, reading.LatencyHDR = 20, 20, nil
			reading.Observation.RequestRate, reading.Observation.ErrorRate = at(20), at(1)
			r.c.Observe(reading, now)
		})
		if b := r.c.Status().Budget; b.Missed < 9 || b.By[budget.Failures] != b.Missed {
			t.Errorf("%+v", b)
		}
		after := r.scrape()
		for _, series := range []string{"quell_objective_missed_seconds_total", "quell_objective_missed_requests_total"} {
			if series += `{service="shop"}`; after[series]-before[series] < 9 {
				t.Errorf("%s rose by %g", series, after[series]-before[series])
			}
		}
	})
}

// While the agents are silent, what the balancer measures is counted.
func TestSilentAgentsHideNothing(t *testing.T) {
	played(t, func(r *rig) {
		r.alertTalk(1, well)
		r.alertTalk(10, func(r *rig, now time.Time) { r.c.Observe(balancerReading(r.t, "i1", "east", manyTimes(160)...), now) })
		if b := r.c.Status().Budget; b.Missed < 9 || b.Missed > 10 || b.Blind > 0 {
			t.Errorf("%+v", b)
		}
	})
}

// If no instance is ready and the balancer refuses the requests itself, they are in no instance's figures, and missed. Without requests
// nothing is missed.
func TestTheBalancerRefusesAllRequests(t *testing.T) {
	played(t, func(r *rig) {
		r.alertTalk(3, well)
		r.balancer.set(func(b *fakeBalancer) { b.sick = map[string]bool{"i1": true, "i2": true} })
		refused := func(rate float64) func(*rig, time.Time) {
			return func(r *rig, now time.Time) {
				for _, id := range []string{"i1", "i2"} {
					reading := balancerReading(r.t, id, "east")
					reading.Observation.Counters = map[string]float64{quell.CounterUnserved: rate}
					r.c.Observe(reading, now)
				}
			}
		}
		r.alertTalk(5, refused(0))
		if b := r.c.Status().Budget; b.Missed > 0 {
			t.Errorf("without requests: %+v", b)
		}
		r.alertTalk(10, refused(20))
		if b := r.c.Status().Budget; b.Missed < 9 || b.By[budget.Failures] != b.Missed {
			t.Errorf("%+v", b)
		}
	})
}

// While there is no instance at all, the balancer tells in a reading of none what it refuses: that is missed, and shown. Once it refuses
// nothing more, nothing more is missed.
func TestRefusedWithoutAnyInstance(t *testing.T) {
	play(t, func(r *rig) {
		budgeted(0.99)(r)
		r.scaler.later = true // what is ordered does not come
	}, func(r *rig) {
		r.run(0)
		refused := func(rate float64) func(*rig, time.Time) {
			return func(r *rig, now time.Time) {
				none := measure.None("shop", "east", now, time.Second)
				for _, reading := range measure.Unserved(nil, none, int64(rate)) {
					r.c.Observe(reading, now)
				}
			}
		}
		r.alertTalk(3, refused(0))
		if b := r.c.Status().Budget; b.Missed > 0 {
			t.Errorf("without requests: %+v", b)
		}
		r.alertTalk(10, refused(20))
		if s := r.c.Status(); s.Budget.Missed < 9 || s.Budget.By[budget.Failures] != s.Budget.Missed || s.Unserved != 20 {
			t.Errorf("%+v, %g refused", s.Budget, s.Unserved)
		}
		got := r.scrape()
		for series, least := range map[string]float64{
			"quell_unserved_rate": 20, "quell_objective_missed_requests_total": 180, "quell_objective_missed_seconds_total": 9,
		} {
			if got[series+`{service="shop"}`] < least {
				t.Errorf("%s is %g, want %g", series, got[series+`{service="shop"}`], least)
			}
		}
		missed := r.c.Status().Budget.Missed
		r.alertTalk(5, refused(0))
		if s := r.c.Status(); s.Budget.Missed > missed+1 || s.Unserved != 0 || len(s.UnknownSenders) > 0 || s.Rejected > 0 {
			t.Errorf("%+v, %g refused, unknown %v", s.Budget, s.Unserved, s.UnknownSenders)
		}
	})
}

// Two controllers take turns. What was missed keeps its age when the first one leads again.
func TestTheBudgetIsHandedOverAndBack(t *testing.T) {
	first, second := &lead{held: true}, &lead{}
	play(t, func(r *rig) {
		budgeted(0.99)(r)
		r.opts.Lead = first.ask
	}, func(r *rig) {
		r.run(0)
		r.alertTalk(10, slow)
		before := r.c.Status().Budget
		opts := r.opts
		opts.Lead = second.ask
		other, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		first.set(false, nil)
		second.set(true, nil)
		for range 60 {
			other.Step(context.Background())
			r.pass(time.Second)
		}
		second.set(false, nil)
		first.set(true, nil)
		r.alertTalk(3, slow)
		after := r.c.Status().Budget
		if !after.Since.Equal(before.Since) || after.Missed < before.Missed+2 {
			t.Errorf("%+v after the hand-over, %+v before", after, before)
		}
	})
}
