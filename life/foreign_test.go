package life

import (
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

func statesOf(weights map[string]float64) (states []quell.BackendState) {
	for _, id := range []string{"i1", "i2", "i3", "i4", "i5"} {
		if w, ok := weights[id]; ok {
			states = append(states, quell.BackendState{Backend: quell.Backend{ID: id, Weight: w}})
		}
	}
	return states
}

func backendsOf(weights map[string]float64) (backends []quell.Backend) {
	for _, b := range statesOf(weights) {
		backends = append(backends, b.Backend)
	}
	return backends
}

func noted(weights map[string]float64) *SetWeights {
	var s SetWeights
	s.Note(backendsOf(weights))
	return &s
}

func TestWeightsThatSomethingElseSet(t *testing.T) {
	set := map[string]float64{"i1": 0.5, "i2": 0.3, "i3": 0.2}
	for name, c := range map[string]struct {
		now  map[string]float64
		held string // a person took it out
		want string
	}{
		"as set":                {now: set},
		"rounded":               {now: map[string]float64{"i1": 0.505, "i2": 0.29, "i3": 0.205}},
		"another unit":          {now: map[string]float64{"i1": 50, "i2": 30, "i3": 20}},
		"one is new":            {now: map[string]float64{"i1": 0.25, "i2": 0.15, "i3": 0.1, "i4": 0.5}},
		"one is gone":           {now: map[string]float64{"i1": 0.5, "i2": 0.3}},
		"one is held":           {now: map[string]float64{"i1": 0.5, "i2": 0.3, "i3": 0}, held: "i3"},
		"all have the weight 0": {now: map[string]float64{"i1": 0, "i2": 0, "i3": 0}},
		"in shares":             {now: map[string]float64{"i1": 0.61, "i2": 0.366, "i3": 0.024}, want: "balancer: i3 has 0.02, not 0.20. They"},
		"one of two":            {now: map[string]float64{"i1": 0.5, "i2": 0.9}, want: "i1 has 0.29, not 0.50, i2 has 0.51, not 0.30. They"},
		"one left":              {now: map[string]float64{"i1": 0.9}},
		"one is out":            {now: map[string]float64{"i1": 0.5, "i2": 0.3, "i3": 0}},
		"one changed":           {now: map[string]float64{"i1": 0.5, "i2": 0.3, "i3": 0.02}, want: "balancer: i3 has 0.02, not 0.20. They"},
	} {
		s := noted(set)
		var told events
		s.look(time.Time{}, statesOf(set), true, &told)
		states := statesOf(c.now)
		for i := range states {
			if states[i].ID == c.held {
				states[i].ByHand = &quell.Held{}
			}
		}
		s.look(time.Time{}, states, true, &told)
		switch {
		case c.want == "" && len(told) > 0:
			t.Errorf("%s: %s", name, told[0].Text)
		case c.want != "" && (len(told) != 1 || !strings.Contains(told[0].Text, c.want)):
			t.Errorf("%s: %+v, want %q", name, told, c.want)
		}
	}
}

// It is said once while the weights change again and again, and again after they were left alone for long. Many are not all named.
func TestAChangeOfWeightsIsSaidOnce(t *testing.T) {
	set := map[string]float64{"i1": 0.2, "i2": 0.2, "i3": 0.2, "i4": 0.2, "i5": 0.2}
	other := map[string]float64{"i1": 0.1, "i2": 0.12, "i3": 0.2, "i4": 0.28, "i5": 0.3}
	s, now := noted(set), time.Time{}
	var told events
	look := func(after time.Duration, weights map[string]float64) {
		now = now.Add(after)
		s.look(now, statesOf(weights), true, &told)
	}
	look(0, other) // what was set is not in force yet
	if len(told) > 0 {
		t.Fatalf("before the weights were in force: %+v", told)
	}
	for range 3 {
		look(undisturbed/3, set)
		look(undisturbed/3, other)
	}
	if len(told) != 1 || !strings.Contains(told[0].Text, "1 more") {
		t.Fatalf("%+v, want one event with three instances by name", told)
	}
	look(time.Second, set)
	look(undisturbed, other)
	if len(told) != 2 {
		t.Errorf("%d events, want a second one after %v in which they were left alone", len(told), undisturbed)
	}
}

// A driver whose balancer rounds weights sets them again after each look. A change is found all the same; one that failed to be set is not
// taken for a change by others.
func TestWeightsThatAreSetAgain(t *testing.T) {
	set := map[string]float64{"i1": 0.5, "i2": 0.3, "i3": 0.2}
	s := noted(set)
	var told events
	for range 2 {
		s.look(time.Time{}, statesOf(map[string]float64{"i1": 0.51, "i2": 0.29, "i3": 0.2}), true, &told)
		s.Note(backendsOf(set))
	}
	s.Note(backendsOf(map[string]float64{"i1": 0.2, "i2": 0.2, "i3": 0.6}))
	s.look(time.Time{}, statesOf(set), true, &told)
	s.Note(backendsOf(set))
	if len(told) > 0 {
		t.Fatalf("%+v", told)
	}
	s.look(time.Time{}, statesOf(set), true, &told)
	s.Note(backendsOf(set))
	s.look(time.Time{}, statesOf(map[string]float64{"i1": 0.5, "i2": 0.3, "i3": 0.9}), true, &told)
	if len(told) != 1 {
		t.Errorf("%+v, want an event", told)
	}
}

// While a controller does not act, what people set at the balancer is theirs; and so is what they set before it acts again.
func TestWeightsAreTheirsWhileNobodyActs(t *testing.T) {
	set, other := map[string]float64{"i1": 0.5, "i2": 0.5}, map[string]float64{"i1": 0.9, "i2": 0.1}
	s := noted(set)
	var told events
	s.look(time.Time{}, statesOf(set), true, &told)
	s.look(time.Time{}, statesOf(other), false, &told)
	s.look(time.Time{}, statesOf(other), true, &told)
	if len(told) > 0 {
		t.Errorf("%+v", told)
	}
}
