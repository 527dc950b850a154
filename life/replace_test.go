package life

import (
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

var rules = Replacing{Startup: startup, Patience: 3 * period, Probed: func(id string) bool { return id == "new" }}

// pair is a group of an old instance that gets requests and a new one that is ready and waits for its turn.
func pair() []Instance {
	old, fresh := member(quell.Ready), member(quell.Ready)
	old.Member.ID, fresh.Member.ID = "old", "new"
	fresh.Member.Started, fresh.For, fresh.Backend.Weight = epoch.Add(-20*time.Second), "old", 0
	old.Last, fresh.Last = quell.Ready, quell.Starting
	return []Instance{old, fresh}
}

func TestNextTurn(t *testing.T) {
	ordered := Replacement{Old: "old", New: "new", Tries: 1, Ordered: epoch.Add(-20 * time.Second)}
	unnamed := ordered
	unnamed.New = ""
	last := ordered
	last.Tries = mostTries
	long := ordered
	long.Ordered = epoch.Add(-2*startup - 1)
	waiting := ordered
	waiting.New, waiting.Ready = "unprobed", epoch.Add(-3*period)
	fresh := func(change func(*Instance)) func([]Instance) []Instance {
		return func(g []Instance) []Instance { change(&g[1]); return g }
	}
	old := func(change func(*Instance)) func([]Instance) []Instance {
		return func(g []Instance) []Instance { change(&g[0]); return g }
	}
	unprobed := Replacement{Old: "old", New: "unprobed", Tries: 1, Ordered: epoch}
	named := func(in *Instance) { in.Member.ID = "unprobed" }
	byEve := func(in *Instance) { in.Held = &quell.Held{By: "eve"} }
	as := func(group []Instance) []Instance { return group }
	unready := func(in *Instance) { in.Member.State = quell.Starting }
	for name, tc := range map[string]struct {
		r      Replacement
		group  func([]Instance) []Instance
		coming bool
		want   Turn
		why    string
	}{
		"it begins with an order":          {Replacement{Old: "old"}, as, false, Renew, ""},
		"the scaler has not listed it yet": {unnamed, as, true, Await, "a fresh instance is not listed yet"},
		"it never appeared":                {unnamed, as, false, Renew, "no fresh instance appeared"},
		"it starts":                        {ordered, fresh(unready), false, Await, "new is starting"},
		"the balancer does not have it":    {ordered, fresh(func(in *Instance) { in.Known = false }), false, Await, "new is starting"},
		"no health check has passed":       {ordered, fresh(func(in *Instance) { in.Backend.Healthy = false }), false, Await, "new is starting"},
		"it takes too long":                {long, fresh(unready), false, Renew, "new was not ready within 1m0s"},
		"it exited": {ordered, fresh(func(in *Instance) { in.Member.State = quell.Failed }), false, Renew,
			"new has failed"},
		"its health checks fail": {ordered, fresh(func(in *Instance) { in.Last = quell.Failed }), false, Renew, "new has failed"},
		"it vanished":            {ordered, func(g []Instance) []Instance { return g[:1] }, false, Renew, "new is gone"},
		"it failed, and others before it": {last, fresh(func(in *Instance) { in.Last = quell.Failed }), false, CallOff,
			"new has failed, and 3 were tried"},
		"it is not probed yet": {unprobed, fresh(named), false, Await, "unprobed is not probed yet"},
		"nobody probes it":     {waiting, fresh(named), false, TakeOver, "unprobed is ready"},
		"it is ready":          {ordered, as, false, TakeOver, "new is ready"},
		"the old one fails meanwhile": {ordered, func(g []Instance) []Instance { g[0].Last = quell.Failed; unready(&g[1]); return g }, false,
			Await, "new is starting"},
		"the old one failed and was given up": {ordered, func(g []Instance) []Instance {
			g[0].Last, g[0].Leaving = quell.Failed, true
			unready(&g[1])
			return g
		}, false, Over, "old has failed"},
		"the old one vanished": {ordered, func(g []Instance) []Instance { return g[1:] }, false, Over, "old is gone"},
		"a plan removes the old one": {ordered, old(func(in *Instance) { in.Leaving = true }), false, CallOff,
			"old is removed without a replacement"},
		"the fresh one has the share, after a crash": {ordered,
			func(g []Instance) []Instance { g[0].Leaving, g[1].Backend.Weight = true, .5; return g }, false, Over, "new has its place"},
		"a person holds the old one":                   {ordered, old(byEve), false, CallOff, "old is held by eve"},
		"a person holds it before anything is ordered": {Replacement{Old: "old"}, old(byEve), false, CallOff, "old is held by eve"},
		"a person holds the fresh one":                 {ordered, fresh(byEve), false, CallOff, "new is held by eve"},
	} {
		r := tc.r
		turn, why := r.Next(epoch, tc.group(pair()), tc.coming, &rules)
		if turn != tc.want || why != tc.why {
			t.Errorf("%s: turn %d (%q), want %d (%q)", name, turn, why, tc.want, tc.why)
		}
	}
}

func TestSlowStartDelaysATakeover(t *testing.T) {
	slow := rules
	slow.SlowStart = 30 * time.Second
	r := Replacement{Old: "old", New: "new", Tries: 1, Ordered: epoch.Add(-20 * time.Second)}
	for after, want := range map[time.Duration]Turn{0: Await, 9 * time.Second: Await, 10 * time.Second: TakeOver} {
		if turn, _ := r.Next(epoch.Add(after), pair(), false, &slow); turn != want {
			t.Errorf("after %v: turn %d, want %d", after, turn, want)
		}
	}
}

// An instance that is protected while it is being replaced stays.
func TestAProtectedInstanceIsNotReplaced(t *testing.T) {
	protected := rules
	protected.Protected = []string{"old"}
	for _, r := range []Replacement{{Old: "old"}, {Old: "old", New: "new", Tries: 1, Ordered: epoch.Add(-20 * time.Second)}} {
		if turn, why := r.Next(epoch, pair(), false, &protected); turn != CallOff || why != "old is protected" {
			t.Errorf("%+v: turn %d (%q)", r, turn, why)
		}
	}
}

// If the new instance is not ready for a moment, its waiting time starts again.
func TestReadyWithoutABreak(t *testing.T) {
	never := rules
	never.Probed = func(string) bool { return false }
	r := Replacement{Old: "old", New: "new", Tries: 1, Ordered: epoch}
	at := func(after time.Duration, healthy bool) Turn {
		group := pair()
		group[1].Backend.Healthy = healthy
		turn, _ := r.Next(epoch.Add(after), group, false, &never)
		return turn
	}
	for _, step := range []struct {
		after   time.Duration
		healthy bool
		want    Turn
	}{{0, true, Await}, {2 * period, true, Await}, {3*period - 1, false, Await}, {3 * period, true, Await}, {6*period - 1, true, Await},
		{6 * period, true, TakeOver}} {
		if turn := at(step.after, step.healthy); turn != step.want {
			t.Errorf("after %v: turn %d, want %d", step.after, turn, step.want)
		}
	}
}

func TestAFreshInstanceWaitsOutsideTheGroup(t *testing.T) {
	show := func(change func(g []Instance)) quell.Instance {
		group := pair()
		change(group)
		return Snapshot(epoch, &quell.Service{Group: quell.Group{Startup: startup}}, group).Instances[1]
	}
	if in := show(func([]Instance) {}); in.State != quell.Starting || in.Replaces != "old" {
		t.Errorf("%+v", in)
	}
	if in := show(func(g []Instance) { g[0].Member.State = quell.Failed }); in.State != quell.Ready || in.Replaces != "" {
		t.Errorf("the old one has failed, and the fresh one is not counted: %+v", in)
	}
	group := pair()
	if weights := InForce(group, nil); weights["old"] != 1 || weights["new"] != 0 {
		t.Errorf("shares %v", weights)
	}
	group[0].Leaving = true
	if weights := InForce(group, nil); weights["new"] != 1 {
		t.Errorf("nobody else is left, and shares are %v", weights)
	}
}

func TestOrdersForAPlace(t *testing.T) {
	r := NewInventory()
	r.Look(epoch, []quell.Member{{ID: "old", State: quell.Ready}})
	r.Order(sec(1), 1, "old")
	r.Answer(nil, nil)
	r.Order(sec(2), 1, "")
	r.Answer(nil, nil)
	if r.Coming() != 1 || r.ComingFor("old") != 1 {
		t.Errorf("%d are coming, %d for old", r.Coming(), r.ComingFor("old"))
	}
	came := r.Look(sec(3), []quell.Member{{ID: "old", State: quell.Ready}, {ID: "x", State: quell.Starting}})
	if !slices.Equal(came, []Arrival{{ID: "x", For: "old"}}) || r.ComingFor("old") != 0 || r.Coming() != 1 {
		t.Errorf("came %v; %d for old, %d others", came, r.ComingFor("old"), r.Coming())
	}
	r.Order(sec(4), 1, "old")
	r.Release("old")
	if r.Coming() != 2 {
		t.Errorf("%d are coming", r.Coming())
	}
}

// A moment that is still to come, because the clock was set back, has passed.
func TestLately(t *testing.T) {
	for since, want := range map[time.Duration]bool{0: true, -9 * time.Second: true, -10 * time.Second: false, 2 * time.Hour: false} {
		if got := lately(epoch, epoch.Add(since), 10*time.Second); got != want {
			t.Errorf("since %v: %v", since, got)
		}
	}
}
