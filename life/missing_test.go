package life

import (
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// duo is a fleet of two instances, a and b, with equal shares.
type duo struct {
	*Fleet
	a, b quell.BackendState
}

func newDuo() *duo {
	memory := NewMemory()
	state := func(id string) quell.BackendState {
		return quell.BackendState{Backend: quell.Backend{ID: id, Address: id + ":1", Weight: .5}, Healthy: true}
	}
	return &duo{NewFleet(&memory), state("a"), state("b")}
}

// at looks at the fleet, of which the scaler lists some instances, and returns the ids and weights that the balancer is to have, -1 for one
// that drains.
func (g *duo) at(now time.Time, listed ...string) map[string]float64 {
	var members []quell.Member
	for _, id := range listed {
		members = append(members, quell.Member{ID: id, Address: id + ":1", State: quell.Ready})
	}
	v, _ := g.Look(now, members, []quell.BackendState{g.a, g.b}, Looking{Sampling: period})
	var steps Steps
	g.Follow(now, &v, v.Group(), map[string]float64{"a": .5, "b": .5}, 0, &steps)
	backends := map[string]float64{}
	for _, b := range steps.Backends {
		if backends[b.ID] = b.Weight; b.Draining {
			backends[b.ID] = -1
		}
	}
	return backends
}

// An instance that an earlier process began to drain goes on draining. One that drains because the list lacked it does not, when the list
// has it again.
func TestAnInstanceThatComesBackServesAgain(t *testing.T) {
	g := newDuo()
	g.b.Draining, g.b.InFlight = true, 1
	if got := g.at(epoch, "a", "b"); got["b"] != -1 {
		t.Errorf("an earlier drain: the balancer is to have %v", got)
	}
	g = newDuo()
	g.at(epoch, "a", "b")
	g.b.Healthy = false
	if got := g.at(sec(1), "a"); len(got) != 1 {
		t.Errorf("not listed and not healthy: the balancer is to have %v", got)
	}
	g.b.Draining, g.b.InFlight = true, 1 // a balancer that lets requests finish
	for second := range 3 {
		if got := g.at(sec(float64(2+second)), "a", "b"); got["b"] != .5 || len(g.Draining) > 0 {
			t.Errorf("listed again: the balancer is to have %v", got)
		}
	}
	g.b.Draining = false
	g.at(sec(5), "a", "b")
	g.b.Draining = true
	if got := g.at(sec(6), "a", "b"); got["b"] != -1 {
		t.Errorf("it drains for another reason later: the balancer is to have %v", got)
	}
}

// What is being stopped gets no share again because the list lacks it once. What was stopped is forgotten as soon as the list lacks it,
// since scalers may use its id again.
func TestAnInstanceThatIsBeingStopped(t *testing.T) {
	g := newDuo()
	g.at(epoch, "a", "b")
	g.Remove(sec(1), "b")
	g.Ending["b"] = time.Time{}
	g.at(sec(1), "a", "b")
	g.at(sec(2), "a")
	if got := g.at(sec(3), "a", "b"); len(got) != 1 {
		t.Errorf("while it is being stopped, the balancer is to have %v", got)
	}
	g.at(sec(60), "a")
	g.at(sec(120), "a")
	if _, ending := g.Ending["b"]; !ending {
		t.Error("that it is being stopped is forgotten")
	}
	g.Ending["b"] = sec(121)
	g.at(sec(122), "a")
	g.b.Draining = false
	if got := g.at(sec(123), "a", "b"); got["b"] != .5 {
		t.Errorf("another instance with its id: the balancer is to have %v", got)
	}
}

// A scaler stops an id. Another instance that gets the id meanwhile may be stopped, too, so it gets requests when that is over.
func TestAnIDThatIsUsedAgainWhileItIsStopped(t *testing.T) {
	for name, c := range map[string]struct{ before, after quell.Member }{
		"another pod":     {quell.Member{UID: "1"}, quell.Member{UID: "2"}},
		"another address": {quell.Member{Address: "b:1"}, quell.Member{Address: "b:2"}},
	} {
		g, a := newDuo(), quell.Member{ID: "a", Address: "a:1", State: quell.Ready}
		c.before.ID, c.after.ID, c.before.State, c.after.State = "b", "b", quell.Ready, quell.Ready
		look := func(second float64, members ...quell.Member) (backends int) {
			v, _ := g.Look(sec(second), members, []quell.BackendState{g.a, g.b}, Looking{Sampling: period})
			var steps Steps
			g.Follow(sec(second), &v, v.Group(), map[string]float64{"a": .5, "b": .5}, 0, &steps)
			return len(steps.Backends)
		}
		look(0, a, c.before)
		g.Remove(sec(0), "b")
		g.Ending["b"] = time.Time{}
		look(1, a)
		for second := range 3 {
			if got := look(float64(2+second), a, c.after); got != 1 || g.Leavers["b"] != identity(&c.before) {
				t.Errorf("%s, while it is being stopped: the balancer is to have %d instances, %v leaves", name, got, g.Leavers["b"])
			}
		}
		g.Ending["b"] = sec(5)
		if got := look(5, a, c.after); got != 2 || len(g.Draining) > 0 {
			t.Errorf("%s, after that: the balancer is to have %d instances, %v drain", name, got, g.Draining)
		}
	}
}

// A StatefulSet gives an ordered pod the name of one that was stopped: it is the ordered one. One that it replaces by itself is not.
func TestAnOrderIsFilledByAnIDThatIsUsedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		stopped, uid string
		coming       int
	}{
		"another pod after the stop": {"b", "2", 0},
		"the same pod again":         {"b", "1", 1},
		"another pod without a stop": {"", "2", 1},
	} {
		g, a := newDuo(), quell.Member{ID: "a", UID: "0", Address: "a:1", State: quell.Ready}
		b := quell.Member{ID: "b", UID: "1", Address: "b:1", State: quell.Ready}
		look := func(second float64, members ...quell.Member) View {
			v, _ := g.Look(sec(second), members, []quell.BackendState{g.a}, Looking{Sampling: period})
			g.Follow(sec(second), &v, v.Group(), map[string]float64{"a": .5, "b": .5}, 0, &Steps{})
			return v
		}
		look(0, a, b)
		if c.stopped != "" {
			g.Remove(sec(1), c.stopped)
			g.Ending[c.stopped] = sec(1)
		}
		look(2, a)
		g.Inventory.Order(sec(60), 1, "")
		g.Inventory.Answer(nil, nil)
		b.UID = c.uid
		if v := look(70, a, b); v.Coming != c.coming {
			t.Errorf("%s: %d instances are still to come, want %d", name, v.Coming, c.coming)
		}
		if n := g.Inventory.Cost(sec(80)).Running; n != 2 {
			t.Errorf("%s: %d instances cost", name, n)
		}
	}
}

// A plan's drain goes on if the list lacks the instance for a moment. It is forgotten when the instance has been gone for a while.
func TestADrainOutlivesAGapInTheList(t *testing.T) {
	wait := MissingWait(period).Seconds()
	for gap, want := range map[float64]float64{1: -1, wait - 1: -1, wait + 1: .5} {
		g := newDuo()
		g.at(epoch, "a", "b")
		g.Remove(sec(0), "b")
		g.b.Draining, g.b.InFlight = true, 1
		g.at(sec(1), "a", "b")
		g.at(sec(2), "a")
		g.at(sec(2+gap), "a")
		if got := g.at(sec(3+gap), "a", "b"); got["b"] != want {
			t.Errorf("after %v s the balancer is to have %v, want %v for b", gap, got, want)
		}
	}
}

// Giving an instance up leaves the list of the last look as it was.
func TestGivingUpLeavesTheList(t *testing.T) {
	g := newDuo()
	g.at(epoch, "a", "b")
	g.at(sec(1), "a")
	wait := MissingWait(period)
	v, _ := g.Look(sec(1).Add(wait), []quell.Member{{ID: "a", Address: "a:1", State: quell.Ready}}, []quell.BackendState{g.a, g.b},
		Looking{Sampling: period})
	g.JudgeMissing(sec(1).Add(wait), &v, period, true)
	ids := func(members []quell.Member) (ids []string) {
		for _, m := range members {
			ids = append(ids, m.ID)
		}
		return ids
	}
	if now, last := ids(v.Members), ids(g.Members); !slices.Equal(now, []string{"a"}) || !slices.Equal(last, []string{"a", "b"}) {
		t.Errorf("members %q, and %q as of the last look", now, last)
	}
}

// A plan's drain is of an instance. Another one that gets its id soon after it was gone, even unseen, serves at once; the same one drains
// on.
func TestAnIDThatIsUsedAgainAfterADrain(t *testing.T) {
	member := func(uid, address string) quell.Member {
		return quell.Member{ID: "b", UID: uid, Address: address, State: quell.Ready}
	}
	pod, other := member("1", "b:1"), member("2", "b:1")
	const removed, replaced, adopted = 0, 1, 2 // adopted: an earlier controller could not store the drain
	for name, c := range map[string]struct {
		before, after quell.Member
		gap, restart  bool
		atOnce        bool // it is restarted before the next look
		how           int
		serves        bool
	}{
		"the same pod":                           {before: member("1", "b:1"), after: member("1", "b:1"), gap: true},
		"another pod":                            {before: member("1", "b:1"), after: member("2", "b:1"), gap: true, serves: true},
		"another pod, and nobody saw the gap":    {before: member("1", "b:1"), after: member("2", "b:1"), serves: true},
		"another pod, after a restart":           {before: member("1", "b:1"), after: member("2", "b:1"), restart: true, serves: true},
		"the same pod, after a restart":          {before: member("1", "b:1"), after: member("1", "b:2"), restart: true},
		"another address of the same name":       {before: member("", "b:1"), after: member("", "b:2"), gap: true, serves: true},
		"the same address":                       {before: member("", "b:1"), after: member("", "b:1"), gap: true},
		"it moved, and was listed all the time":  {before: member("", "b:1"), after: member("", "b:2")},
		"its address is not known yet":           {before: member("", "b:1"), after: member("", ""), gap: true},
		"the pod moved, and was gone for a time": {before: member("1", "b:1"), after: member("1", "b:2"), gap: true},
		"another pod, after a restart at once":   {before: member("1", "b:1"), after: member("2", "b:1"), atOnce: true, serves: true},
		"the same pod, after a restart at once":  {before: member("1", "b:1"), after: member("1", "b:1"), atOnce: true},
		"another pod, of one that was replaced":  {before: pod, after: other, atOnce: true, how: replaced, serves: true},
		"another pod, of one that was adopted":   {before: pod, after: other, atOnce: true, how: adopted, serves: true},
	} {
		g, a := newDuo(), quell.Member{ID: "a", Address: "a:1", State: quell.Ready}
		look := func(second float64, members ...quell.Member) (b quell.Backend) {
			v, _ := g.Look(sec(second), members, []quell.BackendState{g.a, g.b}, Looking{Sampling: period})
			var steps Steps
			g.Follow(sec(second), &v, v.Group(), map[string]float64{"a": .5, "b": .5}, 0, &steps)
			if i := slices.IndexFunc(steps.Backends, func(b quell.Backend) bool { return b.ID == "b" }); i >= 0 {
				return steps.Backends[i]
			}
			return quell.Backend{}
		}
		g.b.Draining = c.how == adopted
		look(0, a, c.before)
		switch c.how {
		case removed:
			g.Remove(sec(0), "b")
		case replaced:
			g.takeOver(sec(0), &Replacement{Old: "b", New: "a"})
		}
		g.b.Draining, g.b.InFlight = true, 1
		if c.atOnce {
			g.Fleet = NewFleet(g.Memory)
		} else {
			look(1, a, c.before)
		}
		if c.gap {
			look(2, a)
		}
		if c.restart {
			g.Fleet = NewFleet(g.Memory)
			look(2, a)
		}
		for second := range 3 {
			if b := look(float64(3+second), a, c.after); b.Draining == c.serves || c.serves && b.Weight != .5 {
				t.Errorf("%s, look %d: %+v, drains %v", name, second, b, g.Draining)
			}
		}
		if _, kept := g.Leavers["b"]; kept == c.serves {
			t.Errorf("%s: remembered are %v", name, g.Leavers)
		}
	}
}
