package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
)

// fakeAgents record the orders that they get, by instance and name.
type fakeAgents struct {
	mu     sync.Mutex
	values map[string]float64
	orders int
	fault  map[string]error // by instance
	hang   bool             // these agents do not answer before the caller's time limit
	before func()           // called when an order comes; nil: nothing

	trainings []bus.Training // parts of trainings that were asked for
	refusal   error          // of trainings
	asked     func()         // called once, when the next training has been asked for
}

func (a *fakeAgents) Train(_ context.Context, instance string, t bus.Training) (bus.Trained, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trainings = append(a.trainings, t)
	if asked := a.asked; asked != nil {
		a.asked = nil
		a.mu.Unlock()
		asked()
		a.mu.Lock()
	}
	return bus.Trained{Feels: []quell.Resource{quell.CPU}}, a.refusal
}

func (a *fakeAgents) Order(ctx context.Context, instance string, o bus.Orders) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.orders++
	if a.before != nil {
		a.before()
	}
	if a.hang {
		a.mu.Unlock()
		<-ctx.Done()
		a.mu.Lock()
		return ctx.Err()
	}
	if err := a.fault[instance]; err != nil {
		return err
	}
	if o.Release {
		maps.DeleteFunc(a.values, func(key string, _ float64) bool { return strings.HasPrefix(key, instance+" ") })
	}
	for _, s := range o.Settings {
		a.values[instance+" "+s.Key()] = s.Value
	}
	return nil
}

// report makes an instance's agent report the settings in force.
func (r *rig) report(instance string, settings map[string]float64) {
	reading := quell.Reading{Service: "shop", Instance: instance, Source: quell.FromAgent, Sender: instance, Settings: settings}
	r.c.Observe(reading, time.Now())
}

// follow makes one step of the controller. Before the plan is applied, the test changes it, as if the policy had asked for more.
func (r *rig) follow(change func(*quell.Plan)) bus.Entry {
	r.t.Helper()
	ctx := context.Background()
	func() {
		r.c.work.Lock()
		defer r.c.release()
		_ = r.c.lead(ctx)
		view, err := r.c.look(ctx)
		if err != nil {
			r.t.Fatal(err)
		}
		r.c.judge(ctx, view)
		snapshot := r.c.gather.snapshot(r.c.now(), view)
		view.snapshot = &snapshot
		plan, state := r.c.decide(&snapshot)
		r.c.mem.State = state
		change(&plan)
		r.c.finish(ctx, ctx, &view, &plan)
	}()
	synctest.Wait()
	plans := r.journal.plans()
	return plans[len(plans)-1]
}

func nothing(*quell.Plan) {}

// Each field of a plan either asks for an action or only explains the plan.
func TestEveryFieldOfAPlanIsAPartOrExplains(t *testing.T) {
	explains := []string{"Credits",
		"At", "Service", "Host", "Policy", "Capacity", "Used", "PredictedMS", "PredictedAtCapacityMS", "Severity", "Cause", "Limiter", "Waits",
		"Tenants", "Authority", "Would", "Reasons", "MarginMS", "OwnWork", "Reserve",
	}
	all := reflect.TypeFor[quell.Plan]()
	asks := 0
	for i := range all.NumField() {
		name := all.Field(i).Name
		if slices.Contains(explains, name) {
			continue
		}
		asks++
		var plan quell.Plan
		field := reflect.ValueOf(&plan).Elem().Field(i)
		switch field.Kind() {
		case reflect.Map:
			field.Set(reflect.MakeMap(field.Type()))
			field.SetMapIndex(reflect.ValueOf("i1"), reflect.Zero(field.Type().Elem()))
		case reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), 1, 1))
		case reflect.Pointer:
			field.Set(reflect.ValueOf(&quell.GroupChange{Add: 1}))
		default:
			t.Errorf("%s is of a kind that asks for nothing: list it as one that explains", name)
			continue
		}
		if parts := plan.Asks(); len(parts) != 1 || !strings.EqualFold(string(parts[0]), name) {
			t.Errorf("a plan with %s asks for %q: make it a part with an actuator, or list it as one that explains", name, parts)
		}
	}
	everything := quell.Plan{
		Group: &quell.GroupChange{Add: 1}, Replace: []string{"i1"}, Weights: map[string]float64{"i1": 1},
		Limits: make([]quell.Limit, 1), Settings: make([]quell.Setting, 1), Factor: map[string]quell.Factor{"i1": {}},
	}
	if len(everything.Asks()) != asks {
		t.Errorf("a plan with everything asks for %v", everything.Asks())
	}
}

func TestAPartThatNobodyCarriesOut(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.step()
		r.step()
		e := r.follow(func(p *quell.Plan) {
			p.Settings = []quell.Setting{{Instance: "i1", Target: "apache", Name: "x", Value: 1}}
		})
		const want = "policy static asks for settings, and this controller has nothing that carries that out"
		if e.Applied || e.Why != "failed: "+want {
			t.Errorf("applied %t, why %q", e.Applied, e.Why)
		}
		if s := r.c.Status(); s.LastFailure["apply"] != want {
			t.Errorf("failures %v", s.LastFailure)
		}
		r.wantWeights(map[string]float64{"i1": .5, "i2": .5}) // the plan's other parts are carried out
	})
}

// tuned adds a setting of i1 to a plan.
func tuned(p *quell.Plan) {
	p.Settings = []quell.Setting{{Instance: "i1", Target: "apache", Name: "MaxRequestWorkers", Value: 120}}
}

func withAgents(r *rig) { r.opts.Agents = r.agents }

func TestSettings(t *testing.T) {
	play(t, withAgents, func(r *rig) {
		r.step()
		r.step()
		e := r.follow(tuned)
		if want := []string{"set apache.MaxRequestWorkers of i1 to 120"}; !e.Applied || !slices.Equal(e.Changes, want) {
			t.Errorf("applied %t, changes %q, why %q", e.Applied, e.Changes, e.Why)
		}
		if want := map[string]float64{"i1 apache.MaxRequestWorkers": 120}; !maps.Equal(r.agents.values, want) {
			t.Errorf("the agents have %v", r.agents.values)
		}
		r.follow(nothing)
		if s := r.c.Status(); len(s.Pending) != 1 || !strings.Contains(s.Pending[0],
			"set apache.MaxRequestWorkers of i1 to 120: carried out at 00:00:00, and its agent reports nothing") {
			t.Errorf("pending %q", s.Pending)
		}
		r.report("i1", map[string]float64{"apache.MaxRequestWorkers": 120.00001})
		orders := r.agents.orders
		if e := r.follow(tuned); !e.Applied || len(e.Changes) > 0 || r.agents.orders > orders {
			t.Errorf("what is in force was set again: %q", e.Changes)
		}
		if s := r.c.Status(); len(s.Pending) > 0 || s.Instances[0].Settings["apache.MaxRequestWorkers"] != 120.00001 {
			t.Errorf("pending %q, %+v", s.Pending, s.Instances[0])
		}
		if in := r.journal.newest().Instances[0]; in.Settings["apache.MaxRequestWorkers"] != 120.00001 {
			t.Errorf("the snapshot has %v", in.Settings)
		}
		r.report("i1", nil) // the machine was restarted
		if e := r.follow(tuned); len(e.Changes) != 1 {
			t.Errorf("what is no longer in force is not set again: %q", e.Changes)
		}
	})
}

func TestAdviceAboutSettings(t *testing.T) {
	play(t, withAgents, func(r *rig) {
		r.step()
		r.step()
		r.do(bus.Command{Name: bus.Pause})
		if e := r.follow(tuned); e.Applied || !slices.Equal(e.Would, []string{"set apache.MaxRequestWorkers of i1 to 120"}) ||
			r.agents.orders > 0 {
			t.Errorf("applied %t, would %q", e.Applied, e.Would)
		}
	})
}

func TestAgentsThatDoNotObey(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*fakeAgents)
		plan   func(*quell.Plan)
		want   string
	}{
		"refuses": {func(a *fakeAgents) { a.fault["i1"] = errors.New("no driver") }, tuned,
			"set apache.MaxRequestWorkers of i1 to 120: no driver"},
		"hangs": {func(a *fakeAgents) { a.hang = true }, tuned, "set apache.MaxRequestWorkers of i1 to 120: context deadline exceeded"},
		"is not there": {func(*fakeAgents) {}, func(p *quell.Plan) {
			p.Settings = []quell.Setting{{Instance: "i9", Target: "apache", Name: "x", Value: 1}}
		}, "set apache.x of i9 to 1: there is no such instance"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, withAgents, func(r *rig) {
				r.step()
				r.step()
				tc.change(r.agents)
				began := time.Now()
				e := r.follow(tc.plan)
				if e.Applied || e.Why != "failed: "+tc.want || len(e.Changes) > 0 {
					t.Errorf("applied %t, why %q, changes %q", e.Applied, e.Why, e.Changes)
				}
				if took := time.Since(began); took > agentWait(r.opts.Service.Sampling) {
					t.Errorf("it took %v", took)
				}
				if s := r.c.Status(); s.LastFailure["apply"] != tc.want {
					t.Errorf("failures %v", s.LastFailure)
				}
			})
		})
	}
}

// If one agent fails, the others still get their orders.
func TestAgentsAreToldAtOnce(t *testing.T) {
	play(t, withAgents, func(r *rig) {
		r.step()
		r.step()
		r.agents.fault["i1"] = errBroken
		e := r.follow(func(p *quell.Plan) {
			for i := range 2 {
				p.Settings = append(p.Settings, quell.Setting{Instance: fmt.Sprintf("i%d", i+1), Target: "apache", Name: "x", Value: 2})
			}
		})
		if e.Applied || !slices.Equal(e.Changes, []string{"set apache.x of i2 to 2"}) {
			t.Errorf("applied %t, changes %q", e.Applied, e.Changes)
		}
	})
}

// An order that failed is sent again after one second, then each time after twice as long, and a new value at once. A clock that goes back
// does not delay it.
func TestOrdersThatFailAreSentLessOften(t *testing.T) {
	now := time.Unix(1000, 0)
	agents := &fakeAgents{values: map[string]float64{}, fault: map[string]error{"i1": errBroken}}
	a := &settingsActuator{agents: agents, now: func() time.Time { return now },
		sampling: func() time.Duration { return time.Second }}
	v := &view{snapshot: &quell.Snapshot{Instances: []quell.Instance{{ID: "i1"}}}}
	sent := func(seconds int, value float64) int {
		before := agents.orders
		for range seconds {
			var p quell.Plan
			tuned(&p)
			p.Settings[0].Value = value
			if _, err := a.apply(t.Context(), v, &p); !errors.Is(err, errBroken) {
				t.Errorf("%v", err)
			}
			now = now.Add(time.Second)
		}
		return agents.orders - before
	}
	if n := sent(120, 120); n != 7 { // after 0, 1, 3, 7, 15, 31 and 63 s
		t.Errorf("sent %d times in two minutes", n)
	}
	if n := sent(1, 130); n != 1 {
		t.Error("a new value waits")
	}
	sent(40, 130)
	now = now.Add(-time.Hour)
	if n := sent(1, 130); n != 1 {
		t.Error("it waits for the clock")
	}
	delete(agents.fault, "i1")
	now = now.Add(mostWait)
	var p quell.Plan
	tuned(&p)
	if changes, err := a.apply(t.Context(), v, &p); len(changes) != 1 || err != nil || len(a.refused) > 0 {
		t.Errorf("%v, %v, %v", changes, err, a.refused)
	}
}
