package controller

import (
	"bytes"
	"context"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
)

func TestFailingPartsAreSurvived(t *testing.T) {
	for _, c := range []struct {
		name, part string
		fault      func(*rig) *fault
		decides    bool // during the fault, decisions are recorded
		acts       bool // during the fault, decisions are applied
	}{
		{"the scaler", "look", func(r *rig) *fault { return &r.scaler.fault }, false, false},
		{"the balancer", "look", func(r *rig) *fault { return &r.balancer.fault }, false, false},
		{"a balancer that refuses", "apply", func(r *rig) *fault { return &r.balancer.refuse }, true, false},
		{"the journal", "journal", func(r *rig) *fault { return &r.journal.fault }, false, true},
		{"the memory", "memory", func(r *rig) *fault { return &r.memory.fault }, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			play(t, func(r *rig) { r.opts.Logger = slog.New(slog.NewTextHandler(&log, nil)) }, func(r *rig) {
				r.run(3 * time.Second)
				c.fault(r).set(errBroken)
				r.scaler.set(func(s *fakeScaler) { s.add() })
				plans := len(r.journal.plans())
				r.pass(5 * time.Second)
				s := r.c.Status()
				if s.Failures[c.part] < 3 || !strings.Contains(s.LastFailure[c.part], errBroken.Error()) {
					t.Errorf("failures %v, %v", s.Failures, s.LastFailure)
				}
				if ago := time.Since(s.LastFailureAt[c.part]); ago > time.Second {
					t.Errorf("last failed %s ago", ago)
				}
				if wrote := len(r.journal.plans()) > plans; wrote != c.decides {
					t.Errorf("plans written meanwhile: %v, want %v", wrote, c.decides)
				}
				if acted := len(r.balancer.weights()) == 3; acted != c.acts {
					t.Errorf("acted meanwhile: %v, want %v", acted, c.acts)
				}
				c.fault(r).set(nil)
				r.pass(3 * time.Second)
				r.wantWeights(map[string]float64{"i1": 1. / 3, "i2": 1. / 3, "i3": 1. / 3})
				r.pass(11 * time.Second)
				if s := r.c.Status(); s.Failures[c.part] < 3 || len(s.LastFailure) > 0 {
					t.Errorf("long after the repair: failures %v, and a problem still: %v", s.Failures, s.LastFailure)
				}
				after := r.journal.plans()[plans:]
				if len(after) == 0 {
					t.Error("no plans were written after the repair")
				}
				tells := func(e bus.Entry) bool {
					return e.Applied && slices.Equal(e.Changes, []string{"weights i1=0.333 i2=0.333 i3=0.333"})
				}
				if !c.acts && !slices.ContainsFunc(after, tells) {
					t.Error("the journal does not tell of the change that was made after the repair")
				}
				r.kill()
				began, ended := strings.Count(log.String(), "part failed"), strings.Count(log.String(), "part works again")
				if began != 1 || ended != 1 {
					t.Errorf("its beginning was logged %d times, its end %d times:\n%s", began, ended, log.String())
				}
			})
		})
	}
}

// The controller waits for a balancer that was never started. That is not a failure, and it is logged once.
func TestABalancerThatIsNotThereYet(t *testing.T) {
	var log bytes.Buffer
	play(t, func(r *rig) {
		r.opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
		r.balancer.fault.set(errBroken)
	}, func(r *rig) {
		r.run(5 * time.Second)
		if s := r.c.Status(); s.LastFailure["look"] == "" {
			t.Errorf("status %+v", s)
		}
		r.kill()
		waiting := `level=WARN msg="nothing is started or changed until scaler and balancer answer"`
		if strings.Count(log.String(), waiting) != 1 || strings.Contains(log.String(), "part failed") {
			t.Errorf("logged:\n%s", log.String())
		}
	})
}

// If the balancer refuses a change, the change is not reported or stored as done, and it is tried again later.
func TestARefusedPlanIsNotInForce(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		r.balancer.refuse.set(errBroken)
		r.do(bus.Command{Name: bus.Override, Instance: "i1", Weight: at(.7)})
		before, plans := r.c.Status(), len(r.journal.plans())
		r.pass(3 * time.Second)
		for _, e := range r.journal.plans()[plans:] {
			if e.Applied || len(e.Changes) > 0 || e.Plan.Weights["i1"] != .7 {
				t.Errorf("%+v", e)
			}
		}
		if w := remembered(t, r.memory).Weights["i1"]; w != .5 || r.c.Status().Decisions != before.Decisions {
			t.Errorf("weight %v, %d decisions", w, r.c.Status().Decisions)
		}
		r.balancer.refuse.set(nil)
		plans = len(r.journal.plans())
		r.pass(3 * time.Second)
		r.wantWeights(map[string]float64{"i1": .7, "i2": .3})
		var told []string
		for _, e := range r.journal.plans()[plans:] {
			told = append(told, e.Changes...)
		}
		if !slices.Equal(told, []string{"weights i1=0.700 i2=0.300"}) {
			t.Errorf("the journal tells of %q", told)
		}
	})
}

// While a driver does not answer, the last status can be read at once, and the loop continues after a time limit.
func TestAHangingPartHidesNothing(t *testing.T) {
	for name, part := range map[string]func(*rig) *fault{
		"the scaler":   func(r *rig) *fault { return &r.scaler.fault },
		"the balancer": func(r *rig) *fault { return &r.balancer.fault },
		"the journal":  func(r *rig) *fault { return &r.journal.fault },
		"the memory":   func(r *rig) *fault { return &r.memory.fault },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, func(r *rig) {
				r.run(3 * time.Second)
				part(r).setHang(true)
				r.pass(1500 * time.Millisecond)
				began := time.Now()
				if s := r.c.Status(); len(s.Instances) != 2 || !s.Leading {
					t.Errorf("status %+v", s)
				}
				if len(r.c.Members()) != 2 {
					t.Errorf("members %v", r.c.Members())
				}
				body := httptest.NewRecorder()
				r.c.Handler().ServeHTTP(body, httptest.NewRequest("GET", "/metrics", nil))
				if body.Code != 200 {
					t.Errorf("metrics: %d", body.Code)
				}
				if waited := time.Since(began); waited > 0 {
					t.Errorf("waited %v", waited)
				}
				r.pass(3 * StepLimit(time.Second))
				s := r.c.Status()
				if len(s.Failures) == 0 {
					t.Error("nothing was counted")
				}
				if why := s.LastFailure["look"]; why != "" && !strings.Contains(why, "no answer within 5s") {
					t.Errorf("status: %s", why)
				}
				part(r).setHang(false)
				r.pass(4 * StepLimit(time.Second))
				if s := r.c.Status(); time.Since(s.At) > 2*time.Second {
					t.Errorf("the last decision is %v old", time.Since(s.At))
				}
			})
		})
	}
}

func TestStepLimit(t *testing.T) {
	for sampling, want := range map[time.Duration]time.Duration{
		500 * time.Millisecond: 5 * time.Second, 10 * time.Second: 10 * time.Second, time.Hour: time.Minute,
	} {
		if got := StepLimit(sampling); got != want {
			t.Errorf("sampled every %v: %v, want %v", sampling, got, want)
		}
	}
}

// A balancer that has just started has not checked any instance yet. While it reports no instance as healthy, the controller keeps the
// weights, because the balancer sends requests to all instances with a weight.
func TestNobodyIsHealthyForAWhile(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		before := r.balancer.weights()
		r.balancer.set(func(b *fakeBalancer) { b.sick = map[string]bool{"i1": true, "i2": true} })
		r.pass(1200 * time.Millisecond)
		r.wantWeights(before)
	})
}

// endingBalancer ends the controller as soon as it has changed something.
type endingBalancer struct {
	*fakeBalancer
	end func()
}

func (b endingBalancer) Apply(ctx context.Context, backends []quell.Backend) error {
	defer b.end()
	return b.fakeBalancer.Apply(ctx, backends)
}

func TestTheLastDecisionIsWrittenDown(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	play(t, func(r *rig) { r.opts.Balancer = endingBalancer{r.balancer, cancel} }, func(r *rig) {
		r.scaler.set(func(s *fakeScaler) { s.add() })
		r.c.Step(ctx)
		if plans := r.journal.plans(); ctx.Err() == nil || len(plans) != 1 || !plans[0].Applied {
			t.Errorf("the journal holds %+v, the end came: %v", plans, ctx.Err())
		}
	})
}

// While the balancer cannot be told, an instance that was removed gets its full share: the time for its open requests has not begun.
func TestTheTimeToDrainBeginsAtTheBalancer(t *testing.T) {
	play(t, three, func(r *rig) {
		r.run(3 * time.Second)
		r.balancer.set(func(b *fakeBalancer) { b.inFlight["i2"] = 5 })
		r.balancer.refuse.set(errBroken)
		r.c.work.Lock()
		r.c.mem.Draining["i2"] = time.Now() // as after a plan
		r.c.work.Unlock()
		applied := r.balancer.applies()
		r.pass(40 * time.Second)
		r.balancer.refuse.set(nil)
		r.pass(8 * time.Second)
		i := slices.IndexFunc(r.balancer.applied[applied], func(b quell.Backend) bool { return b.ID == "i2" })
		if i < 0 || !r.balancer.applied[applied][i].Draining {
			t.Errorf("the first list is %+v", r.balancer.applied[applied])
		}
		if ended := r.scaler.ended(); len(ended) > 0 {
			t.Errorf("stopped %v", ended)
		}
		if m := remembered(t, r.memory); m.Drained["i2"].IsZero() {
			t.Error("the memory does not have since when it drains")
		}
		r.pass(4 * time.Second)
		if ended := r.scaler.ended(); !slices.Equal(ended, []string{"i2"}) {
			t.Errorf("stopped %v", ended)
		}
	})
}
