package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
)

// Agents apply settings inside instances.
type Agents interface {
	// Order sends orders to an instance's agent. The error says which orders are not in force, and why.
	Order(ctx context.Context, instance string, orders bus.Orders) error
	// Train does a part of a training at an instance's agent, which may refuse it.
	Train(ctx context.Context, instance string, t bus.Training) (bus.Trained, error)
}

// agentWait limits how long agents may take to carry out orders, so that an agent that hangs delays only a part of one period.
func agentWait(sampling time.Duration) time.Duration { return min(sampling/2, 2*time.Second) }

// wish is a setting that a plan asks for.
type wish struct {
	quell.Setting
	text string
}

// settingsActuator carries out the part of plans that agents apply.
type settingsActuator struct {
	agents   Agents
	asked    []asked            // applied values that agents do not report yet
	refused  map[string]refusal // orders that failed, by instance and name
	sampling func() time.Duration
	now      func() time.Time
}

// asked is a value that was sent to an agent.
type asked struct {
	wish
	at time.Time
}

// refusal is an order that failed, and when it may be sent again.
type refusal struct {
	value float64
	err   error
	wait  time.Duration
	next  time.Time
}

// An order that failed is sent again after firstWait, then each time after twice as long, at most mostWait: an attempt may make a server
// read its files twice.
const (
	firstWait = time.Second
	mostWait  = time.Minute
)

func (w wish) order() string { return w.Instance + " " + w.Key() }

// waits returns the last error of an order that is not to be sent yet; nil if it is to be sent.
func (a *settingsActuator) waits(w wish) error {
	r, failed := a.refused[w.order()]
	if now := a.now(); failed && r.value == w.Value && now.Before(r.next) && r.next.Sub(now) <= r.wait {
		return r.err
	}
	return nil
}

// failed remembers an order that failed.
func (a *settingsActuator) failed(w wish, err error) {
	wait := firstWait
	if r, again := a.refused[w.order()]; again && r.value == w.Value {
		wait = min(2*r.wait, mostWait)
	}
	quell.Put(&a.refused, w.order(), refusal{w.Value, err, wait, a.now().Add(wait)})
}

// reads returns the value that the last snapshot reports, and whether the instance exists.
func (a *settingsActuator) reads(v *view, w wish) (value float64, known, there bool) {
	i := slices.IndexFunc(v.snapshot.Instances, func(in quell.Instance) bool { return in.ID == w.Instance })
	if i < 0 {
		return 0, false, false
	}
	value, known = v.snapshot.Instances[i].Settings[w.Key()]
	return value, known, true
}

// same compares a requested value with the reported one, which may be rounded.
func same(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Max(math.Abs(a), math.Abs(b)) }

func (a *settingsActuator) missing(v *view, plan *quell.Plan) (list []wish) {
	for _, s := range plan.Settings {
		w := wish{s, fmt.Sprintf("set %s of %s to %g", s.Key(), s.Instance, s.Value)}
		if value, known, _ := a.reads(v, w); !known || !same(value, w.Value) {
			list = append(list, w)
		}
	}
	return list
}

func (a *settingsActuator) differs(v *view, plan *quell.Plan) (words []string) {
	for _, w := range a.missing(v, plan) {
		words = append(words, w.text)
	}
	return words
}

// apply sends orders to all agents at once. It is an error if the plan names an instance that does not exist, and if an order failed lately
// and is not sent again yet.
func (a *settingsActuator) apply(ctx context.Context, v *view, plan *quell.Plan) (changes []string, err error) {
	list := a.missing(v, plan)
	if len(list) == 0 {
		return nil, nil
	}
	maps.DeleteFunc(a.refused, func(_ string, r refusal) bool { return a.now().Sub(r.next) > mostWait }) // not asked for lately
	ctx, cancel := context.WithTimeout(ctx, agentWait(a.sampling()))
	defer cancel()
	failed, tried := make([]error, len(list)), make([]bool, len(list))
	var all sync.WaitGroup
	for i, w := range list {
		if _, _, there := a.reads(v, w); !there {
			failed[i] = fmt.Errorf("%s: there is no such instance", w.text)
			continue
		}
		if failed[i] = a.waits(w); failed[i] != nil {
			continue
		}
		tried[i] = true
		all.Go(func() {
			if err := a.agents.Order(ctx, w.Instance, bus.Orders{Settings: []quell.Setting{w.Setting}}); err != nil {
				failed[i] = fmt.Errorf("%s: %w", w.text, err)
			}
		})
	}
	all.Wait()
	for i, w := range list {
		switch {
		case failed[i] == nil:
			changes = append(changes, w.text)
			a.note(w)
			delete(a.refused, w.order())
		case tried[i]:
			a.failed(w, failed[i])
		}
	}
	return changes, errors.Join(failed...)
}

// note remembers an applied value until the agent reports it.
func (a *settingsActuator) note(w wish) {
	a.asked = slices.DeleteFunc(a.asked, func(x asked) bool { return x.order() == w.order() })
	a.asked = append(a.asked, asked{w, a.now()})
}

// readBack describes values that agents have applied but do not report yet. A value that was reported once is no longer watched: if such a
// value is lost later and a plan still asks for it, it is applied again.
func (a *settingsActuator) readBack(v *view) (words []string) {
	a.asked = slices.DeleteFunc(a.asked, func(x asked) bool {
		value, known, there := a.reads(v, x.wish)
		return !there || known && same(value, x.Value)
	})
	for _, x := range a.asked {
		value, known, _ := a.reads(v, x.wish)
		has := "nothing"
		if known {
			has = fmt.Sprintf("%g", value)
		}
		words = append(words, fmt.Sprintf("%s: carried out at %s, and its agent reports %s", x.text, x.at.UTC().Format(time.TimeOnly), has))
	}
	slices.SortFunc(words, strings.Compare)
	return words
}
