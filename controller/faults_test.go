package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/life"
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
				if s := r.c.Status(); len(s.Failures) == 0 {
					t.Error("nothing was counted")
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

// lead is a lease that the test grants and revokes.
type lead struct {
	mu   sync.Mutex
	held bool
	err  error
}

func (l *lead) ask(context.Context) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held, l.err
}

func (l *lead) set(held bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held, l.err = held, err
}

func TestWithoutTheLeaseNothingIsDone(t *testing.T) {
	l := &lead{held: true}
	play(t, func(r *rig) { r.opts.Lead = l.ask }, func(r *rig) {
		r.run(3 * time.Second)
		l.set(false, errors.New("held by another"))
		plans := len(r.journal.plans())
		r.untouched(func() {
			r.scaler.set(func(s *fakeScaler) { s.add() })
			r.scaler.state("i1", quell.Failed)
			r.pass(10 * time.Second)
		})
		s := r.c.Status()
		if s.Leading || s.LastFailure["lease"] != "held by another" {
			t.Errorf("status %+v", s)
		}
		if n := len(r.journal.plans()); n != plans {
			t.Errorf("%d plans were written by a controller that stands by", n-plans)
		}
		l.set(true, nil)
		r.pass(5 * time.Second)
		r.wantIDs("i2", "i3")
		r.wantWeights(map[string]float64{"i2": .5, "i3": .5})
	})
}

// The lease is also checked between periods: a controller that lost it stops before the next decision.
func TestALostLeaseIsNoticedBetweenPeriods(t *testing.T) {
	l := &lead{held: true}
	play(t, func(r *rig) {
		r.opts.Lead = l.ask
		r.opts.Service.Sampling = time.Minute
	}, func(r *rig) {
		r.run(5 * time.Second)
		l.set(false, nil)
		r.pass(600 * time.Millisecond)
		r.untouched(func() {
			r.scaler.set(func(s *fakeScaler) { s.add() })
			r.pass(10 * time.Second)
		})
		if r.c.Status().Leading {
			t.Error("it still says that it leads")
		}
	})
}

func TestALeaseThatCannotBeRenewedIsKeptWhileItLasts(t *testing.T) {
	l := &lead{held: true}
	play(t, func(r *rig) { r.opts.Lead = l.ask }, func(r *rig) {
		r.run(3 * time.Second)
		l.set(true, errBroken)
		r.scaler.set(func(s *fakeScaler) { s.add() })
		r.pass(3 * time.Second)
		r.wantWeights(map[string]float64{"i1": 1. / 3, "i2": 1. / 3, "i3": 1. / 3})
		if s := r.c.Status(); !s.Leading || s.Failures["lease"] == 0 {
			t.Errorf("status %+v", s)
		}
	})
}

// A process that was frozen for longer than its lease may get a command before its loop runs again. It refuses it: what it remembers is
// old.
func TestACommandAsksForTheLease(t *testing.T) {
	l := &lead{held: true}
	play(t, func(r *rig) { r.opts.Lead, r.opts.Agents = l.ask, r.agents }, func(r *rig) {
		r.step()
		r.step()
		for _, cmd := range []bus.Command{
			{Name: bus.Drain, Instance: "i1"}, {Name: bus.Pause}, {Name: bus.Release}, {Name: bus.Train, Instance: "i1", ForS: 60},
		} {
			l.set(true, nil)
			r.step()
			stored, events := r.memory.values[memoryKey], len(r.journal.events())
			l.set(false, nil)
			r.untouched(func() {
				if reply := r.ask(cmd); !strings.Contains(reply.Error, "does not hold the lease") {
					t.Errorf("%s: %+v", cmd.Name, reply)
				}
			})
			if !slices.Equal(stored, r.memory.values[memoryKey]) || len(r.journal.events()) > events {
				t.Errorf("%s: something was written down", cmd.Name)
			}
		}
		if trained := r.trainings(); len(trained) > 0 {
			t.Errorf("an agent was asked to train: %+v", trained)
		}
		l.set(true, nil)
		r.step()
		reply := r.c.enforced(context.Background(), bus.Command{Name: bus.Undrain}, bus.Reply{})
		if reply.Error != "" {
			t.Errorf("while it leads: %+v", reply)
		}
		l.set(false, nil)
		r.balancer.set(func(b *fakeBalancer) { b.backends[0].Weight = .9 })
		r.untouched(func() { reply = r.c.enforced(context.Background(), bus.Command{Name: bus.Undrain}, bus.Reply{}) })
		if !strings.Contains(reply.Error, "this is written down") {
			t.Errorf("the lease was lost in between: %+v", reply)
		}
	})
}

// A controller that takes over continues from the memory that the previous leader stored, not from the memory that it read at its own
// start.
func TestTakingOver(t *testing.T) {
	l := &lead{held: false, err: fmt.Errorf("%w: held by another", ErrStandby)}
	play(t, func(r *rig) { r.opts.Lead = l.ask }, func(r *rig) {
		r.scaler.set(func(s *fakeScaler) { s.add(); s.add() })
		r.untouched(func() { r.run(5 * time.Second) })
		began := time.Now()
		if reply := r.ask(bus.Command{Name: bus.Pause}); !strings.Contains(reply.Error, "another one leads") || !reply.Standby {
			t.Errorf("a pause: %+v", reply)
		}
		if waited := time.Since(began); waited < standbyPause {
			t.Errorf("answered after %v: before the leader might", waited)
		}

		other := r.opts
		other.Lead = nil
		leader, err := New(other)
		if err != nil {
			t.Fatal(err)
		}
		leader.Step(context.Background())
		if reply := leader.Command(context.Background(), bus.Command{Name: bus.Pause, By: "bob"}); reply.Error != "" {
			t.Fatal(reply.Error)
		}
		l.set(true, nil)
		r.untouched(func() { r.pass(5 * time.Second) })
		if s := r.c.Status(); !s.Leading || !s.Paused || s.PausedBy != "bob" {
			t.Errorf("status %+v", s)
		}
	})
}

// A controller that leads again does not take an instance whose id is used again for the one that it stopped when it led before.
func TestLeadingAgain(t *testing.T) {
	l := &lead{held: true}
	play(t, func(r *rig) { three(r); r.opts.Lead = l.ask }, func(r *rig) {
		r.run(3 * time.Second)
		r.scaler.set(func(s *fakeScaler) { s.stopTake = 2 * time.Second })
		again := r.scaler.members[2]
		r.c.work.Lock()
		r.c.mem.Draining["i3"] = time.Now() // as after a plan
		r.c.work.Unlock()
		r.pass(time.Second)
		l.set(false, errors.New("held by another"))
		r.pass(5 * time.Second)
		if ended := r.scaler.ended(); !slices.Equal(ended, []string{"i3"}) {
			t.Fatalf("stopped %v", ended)
		}
		other := r.opts
		other.Lead = nil
		leader, err := New(other)
		if err != nil {
			t.Fatal(err)
		}
		leader.Step(context.Background())
		r.pass(life.MissingWait(r.opts.Service.Sampling))
		leader.Step(context.Background())
		r.scaler.set(func(s *fakeScaler) { s.members = append(s.members, again) })
		leader.Step(context.Background())
		r.pass(life.EndWait)
		l.set(true, nil)
		r.pass(3 * time.Second)
		if row := r.row("i3"); row.State != quell.Ready || row.Weight == nil || *row.Weight == 0 {
			t.Errorf("the status shows %+v", row)
		}
		if in := r.journal.newest().Instances; slices.ContainsFunc(in, func(in quell.Instance) bool { return in.Stuck }) {
			t.Errorf("one is stuck: %+v", in)
		}
	})
}

func TestAMemoryThatCannotBeReached(t *testing.T) {
	play(t, func(r *rig) { r.memory.fault.err = bus.ErrNotConnected }, func(r *rig) {
		r.untouched(func() { r.run(5 * time.Second) })
		if s := r.c.Status(); s.Leading || s.Failures["memory"] == 0 {
			t.Errorf("status %+v", s)
		}
		r.memory.fault.set(nil)
		r.pass(3 * time.Second)
		r.wantIDs("i1", "i2")
	})
}

func TestADamagedMemoryIsFinal(t *testing.T) {
	play(t, func(r *rig) { r.memory.values[memoryKey] = []byte(`{"paused":tru`) }, func(r *rig) {
		r.untouched(func() {
			err := r.c.Run(context.Background())
			if err == nil || !strings.Contains(err.Error(), "the stored memory of the controller is damaged") {
				t.Errorf("got %v", err)
			}
		})
	})
}

// fakeMarker keeps a mark.
type fakeMarker struct {
	fault
	mark   *Mark
	stores bool // also if it fails
}

func (m *fakeMarker) Read() (Mark, error) {
	if m.mark == nil {
		return Mark{}, quell.ErrNoData
	}
	return *m.mark, nil
}

func (m *fakeMarker) Write(mark Mark) error {
	err := m.strike(context.Background())
	if err == nil || m.stores {
		m.mark = &mark
	}
	return err
}

// If only the mark cannot be stored, orders are in force and survive a restart, whether or not the mark was stored all the same.
func TestOrdersWhileTheMarkCannotBeStored(t *testing.T) {
	for _, stores := range []bool{false, true} {
		marker := &fakeMarker{stores: stores}
		play(t, func(r *rig) { r.opts.Marker = marker }, func(r *rig) {
			r.run(3 * time.Second)
			marker.set(errBroken)
			r.do(bus.Command{Name: bus.Override, Instance: "i1", Weight: at(.7)})
			reply := r.ask(bus.Command{Name: bus.Pause})
			if s := r.c.Status(); reply.Error != "" || !strings.Contains(string(reply.Body), "would not be noticed") || !s.Paused || s.Store == "" {
				t.Errorf("the reply is %q %s, the status says %+v", reply.Error, reply.Body, s)
			}
			r.pass(3 * time.Second)
			r.restart()
			r.run(3 * time.Second)
			if s := r.c.Status(); s.Lost != "" || !s.Paused || s.Overrides["i1"] != .7 {
				t.Errorf("after a restart the status says %+v", s)
			}
			marker.set(nil)
			r.pass(2 * time.Second)
			if s := r.c.Status(); s.Store != "" || marker.mark.Orders != s.Orders {
				t.Errorf("the mark has %+v, the status says %+v", marker.mark, s)
			}
		})
	}
}

func TestWhatIsRemembered(t *testing.T) {
	shrunk(t, func(r *rig) {
		r.do(bus.Command{Name: bus.Override, Instance: "i1", Weight: at(.7)})
		r.pass(2 * time.Second)
		m := remembered(t, r.memory)
		if m.State.Policy != "static" || len(m.State.Instances) != 3 {
			t.Errorf("state %+v", m.State)
		}
		if !maps.Equal(m.Overrides, map[string]float64{"i1": .7}) || m.Draining["i3"].IsZero() || m.Paused {
			t.Errorf("memory %+v", m)
		}
		if w := m.Weights; len(w) != 2 || w["i1"] != .7 {
			t.Errorf("weights %v", w)
		}
	})
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

// If the data folder was emptied, the store is opened again, also if that fails at first and if an order has written the mark meanwhile.
func TestTheStoreIsReopenedUntilThatWorks(t *testing.T) {
	marker, tries := &fakeMarker{}, 0
	play(t, func(r *rig) {
		r.opts.Marker = marker
		r.opts.Reopen = func() error {
			if tries++; tries == 1 {
				return errBroken
			}
			r.memory.fault.set(nil)
			return nil
		}
	}, func(r *rig) {
		r.run(3 * time.Second)
		r.memory.fault.set(bus.ErrStoreClosed)
		marker.mark, r.memory.values = nil, map[string][]byte{}
		r.pass(3 * time.Second)
		if tries != 2 || len(r.memory.values) == 0 || marker.mark == nil {
			t.Errorf("opened %d times, stored %v, the mark is %v", tries, r.memory.values, marker.mark)
		}
	})
}

// A controller that leads again, and after which nobody has stored anything, still has the orders that could not be stored.
func TestOrdersOutliveALeaseOnAFullDisk(t *testing.T) {
	l := &lead{held: true}
	play(t, func(r *rig) { r.opts.Lead = l.ask }, func(r *rig) {
		r.run(3 * time.Second)
		r.memory.fault.set(bus.ErrStoreClosed)
		r.do(bus.Command{Name: bus.Pause})
		l.set(false, nil)
		r.pass(3 * time.Second)
		l.set(true, nil)
		r.pass(3 * time.Second)
		r.memory.fault.set(nil)
		r.pass(3 * time.Second)
		if s := r.c.Status(); !s.Leading || !s.Paused {
			t.Errorf("leads %t, paused %t", s.Leading, s.Paused)
		}
		if !remembered(t, r.memory).Paused {
			t.Error("the pause is not stored")
		}
	})
}

// leased is a balancer that obeys one controller at a time.
type leased struct {
	*fakeBalancer
	owned bool
	ended int // how often Disown was called
}

func (b *leased) Own(context.Context, quell.Owner) error {
	b.owned = true
	return nil
}

func (b *leased) Disown(context.Context) error {
	b.owned = false
	b.ended++
	return nil
}

// mute is a balancer that takes connections and does not answer who owns it.
type mute struct{ *fakeBalancer }

func (mute) Own(ctx context.Context, _ quell.Owner) error { <-ctx.Done(); return ctx.Err() }

func (mute) Disown(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// A balancer that does not answer keeps nobody from pausing.
func TestAMuteBalancerDelaysNoOrder(t *testing.T) {
	play(t, func(r *rig) { r.opts.Balancer = mute{r.balancer} }, func(r *rig) {
		r.step()
		before := time.Now()
		r.do(bus.Command{Name: bus.Pause})
		if waited := time.Since(before); !r.c.mem.Paused || waited > 0 {
			t.Errorf("after %v, paused %t", waited, r.c.mem.Paused)
		}
	})
}

// A controller that was reloaded to advise gives up the balancer's lease, once, so that another one may drive it.
func TestAdviseGivesUpTheBalancer(t *testing.T) {
	b, l := new(leased), &lead{held: true}
	play(t, func(r *rig) {
		b.fakeBalancer = r.balancer
		r.opts.Balancer, r.opts.Lead = b, l.ask
	}, func(r *rig) {
		r.step()
		r.step()
		mode := func(m quell.Mode) {
			service := r.opts.Service
			service.Mode = m
			if err := r.c.Reload(service, nil, false); err != nil {
				t.Fatal(err)
			}
			r.step()
			r.step()
		}
		mode(quell.Advise)
		if b.owned || b.ended != 1 {
			t.Errorf("advising, it owns the balancer: %t; ended %d times", b.owned, b.ended)
		}
		mode(quell.Act)
		if !b.owned {
			t.Error("acting again, it does not own the balancer")
		}
		l.set(false, nil) // another controller on the same bus has the same id
		mode(quell.Advise)
		if b.ended != 1 {
			t.Error("it ended the lease of the one that leads")
		}
	})
}
