package policy_test

import (
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

func TestGuardOnce(t *testing.T) {
	for _, tc := range []struct {
		why    string
		policy string
		change func(*quell.Service)
		rows   []string
		want   string
	}{
		{"floor: 0.4 of an equal share of 0.5, and the other has the rest", "prima", floor(.4),
			[]string{"i1 weight=0.5 use=0.25 cap=0.05", "i2 weight=0.5 use=0.29 cap=0.5"}, "i1=0.2 i2=0.8 shift"},
		{"floor 0: off", "prima", floor(0), []string{"i1 weight=0.5 use=0.25 cap=0.05", "i2 weight=0.5 use=0.29 cap=0.5"},
			"i1=0.091 i2=0.909 shift"},
		{"the floor: also for one that can carry nothing", "prima", func(s *quell.Service) { floor(.2)(s); s.Group.Min = 2 },
			[]string{"i1 weight=0.5 use=0.25 cap=0", "i2 weight=0.5 use=0.24 cap=0.5"}, "i1=0.1 i2=0.9 shift"},
		{"unless only a weight of 0 keeps requests away", "prima", idleFirst(floor(.2)),
			[]string{"i1 weight=0.5 use=0.25 cap=0", "i2 weight=0.5 use=0.24 cap=0.5"}, "i1=0 i2=1 shift"},
		{"then one that can carry a little keeps the floor", "prima", idleFirst(floor(.2)),
			[]string{"i1 weight=0.5 use=0.25 cap=0.05", "i2 weight=0.5 use=0.24 cap=0.5"}, "i1=0.1 i2=0.9 shift"},
		{"and the step limits only what the others take over", "prima", idleFirst(maxStep(.2)),
			[]string{"i1 weight=0.5 use=0.25 cap=0", "i2 weight=0.5 use=0.24 cap=0.5"}, "i1=0.4 i2=0.6 shift step"},
		{"the floor waits for the first severity", "prima", floor(.2),
			[]string{"i1 weight=1 use=0.4 cap=0.5", "i2 weight=0 silent"}, "i1=1 i2=0"},
		{"step: at most 0.2 of an equal share of 0.5 at once", "prima", maxStep(.2),
			[]string{"i1 weight=0.5 use=0.25 cap=0.1", "i2 weight=0.5 use=0.3 cap=0.5"}, "i1=0.4 i2=0.6 shift step"},
		{"step: a new instance gets an equal share at once", "prima", maxStep(.2),
			[]string{"i1 weight=1 use=0.8 cap=0.5", "i2 weight=0 use=0 cap=0.5"},
			"i1=0.5 i2=0.5 join"},
		{"step: and from there 0.2 of an equal share more", "prima", func(s *quell.Service) { maxStep(.2)(s); s.Group.Min = 2 },
			[]string{"i1 weight=1 use=0.5 cap=0.1", "i2 weight=0 use=0 cap=0.5"},
			"i1=0.4 i2=0.6 join step"},
		{"step: several new ones, and the others make room in proportion", "static", maxStep(.1),
			[]string{"i1 weight=0.8", "i2 weight=0.2", "i3 weight=0", "i4 weight=0"}, "i1=0.375 i2=0.125 i3=0.25 i4=0.25 step"},
		{"step: what one that goes leaves is no move", "static", func(s *quell.Service) { maxStep(.1)(s); groupMax(2)(s) },
			[]string{"i1 weight=0.3 age=9", "i2 weight=0.1 age=8", "i3 weight=0.6 age=1"}, "i1=0.7 i2=0.3 -i3 group_max step"},
		{"the floor holds, and the step yields", "prima", func(s *quell.Service) { s.Guard.Floor, s.Guard.Step = .5, .1 },
			[]string{"i1 weight=0.02 use=0 cap=0.05", "i2 weight=0.98 use=0.51 cap=0.5"}, "i1=0.25 i2=0.75 shift step guard_yields"},
		{"errors: no gain, the others make up for it", "prima", errorRate(.05), []string{
			"i1 weight=0.3 use=0.25 cap=0.5 err=0.5", "i2 weight=0.3 use=0.3 cap=0.2", "i3 weight=0.4 use=0.3 cap=0.2",
		}, "i1=0.3 i2=0.35 i3=0.35 +1 capacity_short errors"},
		{"errors: a loss is all right", "prima", errorRate(.05), []string{
			"i1 weight=0.5 use=0.3 cap=0.2 err=0.5", "i2 weight=0.5 use=0.3 cap=0.5",
		}, "i1=0.286 i2=0.714 shift"},
		{"refusals: a fast no draws more than an even share, so it loses weight", "static", errorRate(.05),
			[]string{"i1 weight=0.5 refused=0.5 got=0.625", "i2 weight=0.5 got=0.375"}, "i1=0.4 i2=0.6 refused"},
		{"refusals: at most half of it at once", "static", errorRate(.05),
			[]string{"i1 weight=0.5 refused=0.9 got=1", "i2 weight=0.5 got=0"}, "i1=0.25 i2=0.75 refused"},
		{"refusals: an even share is all right", "static", errorRate(.05),
			[]string{"i1 weight=0.5 refused=0.5 got=0.5", "i2 weight=0.5 got=0.5"}, "i1=0.5 i2=0.5"},
		{"refusals: a few are explained by clients that ask too often", "static", errorRate(.05),
			[]string{"i1 weight=0.5 refused=0.2 got=0.7", "i2 weight=0.5 got=0.3"}, "i1=0.5 i2=0.5"},
		{"refusals: no gain while there are any", "static", errorRate(.05),
			[]string{"i1 weight=0.2 refused=0.2 got=0.2", "i2 weight=0.8 got=0.8"}, "i1=0.2 i2=0.8 refused"},
		{"errors at the limit are tolerated", "prima", errorRate(.05), []string{
			"i1 weight=0.3 use=0.1 cap=0.4 err=0.05", "i2 weight=0.7 use=0.35 cap=0.1",
		}, "i1=0.8 i2=0.2 shift"},
		{"error_rate 0%: off", "prima", errorRate(0), []string{
			"i1 weight=0.3 use=0.1 cap=0.4 err=0.5", "i2 weight=0.7 use=0.35 cap=0.1",
		}, "i1=0.8 i2=0.2 shift"},
		{"errors: a weight that is not known cannot be held", "static", errorRate(.05), []string{"i1 err=0.5", "i2"}, "i1=0.5 i2=0.5"},
		{"errors: not even the floor raises it", "static", func(s *quell.Service) { s.Guard.ErrorRate, s.Guard.Floor = .05, .5 },
			[]string{"i1 weight=0.1 err=0.5", "i2 weight=0.9"}, "i1=0.1 i2=0.9 errors"},
		{"errors: nor does a ramp of the others", "static", func(s *quell.Service) { errorRate(.05)(s); s.Guard.SlowStart = 100 * time.Second },
			[]string{"i1 weight=0.5 err=0.5 age=900", "i2 weight=0.25 age=50", "i3 weight=0.25 age=900"}, "i1=0.417 i2=0.167 i3=0.417 slow_start"},
		{"errors: wherever it stands", "prima", errorRate(.05),
			[]string{"i1 weight=0.5 use=0.1 cap=0.4", "i2 weight=0.5 use=0.1 cap=0.5 err=0.5"}, "i1=1 -i2 scale_in"},
		{"errors and slow start: the tighter of the two", "static", func(s *quell.Service) { errorRate(.05)(s); slowStart(100)(s) },
			[]string{"i1 weight=0.8 age=900", "i2 weight=0.2 err=0.5 age=50"}, "i1=0.8 i2=0.2 errors slow_start"},
		{"errors everywhere: the weights stay", "static", errorRate(.05), []string{"i1 weight=0.3 err=1", "i2 weight=0.7 err=1"},
			"i1=0.3 i2=0.7 errors"},
		{"errors: those without load take what it may not", "prima", errorRate(.05),
			[]string{"i1 weight=0.3 use=0.1 cap=0.5 err=0.5", "i2 weight=0.7 use=0.3 sf=2"}, "i1=0.3 i2=0.7 +1 capacity_short errors"},
		{"errors: where one can go, it is the one that fails", "prima", errorRate(.05),
			[]string{"i1 weight=0.5 use=0.1 cap=0.5 err=0.5", "i2 weight=0.5 use=0.1 cap=0.4"}, "i2=1 -i1 scale_in"},
		{"slow start: a quarter of its share at a quarter of the time", "static", slowStart(100),
			[]string{"i1 weight=1 age=900", "i2 weight=0 age=25"}, "i1=0.875 i2=0.125 slow_start"},
		{"slow start: at least a tenth", "static", slowStart(100), []string{"i1 weight=1 age=900", "i2 weight=0 age=1"},
			"i1=0.95 i2=0.05 slow_start"},
		{"slow start: over", "static", slowStart(100), []string{"i1 weight=1 age=900", "i2 weight=0 age=100"}, "i1=0.5 i2=0.5"},
		{"slow start: of unknown age is not new", "static", slowStart(100), []string{"i1 weight=1 age=900", "i2 weight=0"}, "i1=0.5 i2=0.5"},
		{"slow start of all is none", "static", slowStart(100), []string{"i1 age=10", "i2 age=10"}, "i1=0.5 i2=0.5 guard_yields"},
		{"slow start, then floor: a tenth of 0.5 is raised to 0.25", "static", func(s *quell.Service) { slowStart(100)(s); floor(.5)(s) },
			[]string{"i1 weight=1 age=900", "i2 weight=0 age=5"}, "i1=0.75 i2=0.25 slow_start"},

		{"min: started although nothing asks", "static", func(s *quell.Service) { s.Group.Min = 3 }, []string{"i1 weight=1", "i2 starting"},
			"i1=1 +1 group_min"},
		{"min: one that was ordered and is not listed yet is not missing", "static", func(s *quell.Service) { s.Group.Min = 2 },
			[]string{"i1 weight=1", "coming=1"}, "i1=1"},
		{"max: those that were ordered take up room", "static", func(s *quell.Service) { s.Group.Min, s.Group.Max = 4, 4 },
			[]string{"i1 weight=1", "coming=2"}, "i1=1 +1 group_min"},
		{"prima waits for those that were ordered", "prima", nil, []string{"i1 weight=1 use=0.8 cap=0.5", "coming=1"}, "i1=1 capacity_short"},
		{"replacement: at max one more may start", "static", func(s *quell.Service) { s.Group.Min, s.Group.Max = 2, 2 },
			[]string{"i1 weight=0.5 age=9", "i2 weight=0.5 age=8", "i3 starting weight=0 age=1 for=i1"}, "i1=0.5 i2=0.5"},
		{"replacement: it stands in for nobody else", "static", func(s *quell.Service) { s.Group.Min = 3 },
			[]string{"i1 weight=0.5", "i2 weight=0.5", "i3 starting weight=0 for=i1"}, "i1=0.5 i2=0.5 +1 group_min"},
		{"replacement: where the group must shrink, another one goes", "static", groupMax(1),
			[]string{"i1 weight=0.5 age=9", "i2 weight=0.5 age=8", "i3 starting weight=0 age=1 for=i1"}, "i1=1 -i2 group_max"},
		{"replacement: prima does not wait for it", "prima", nil, []string{"i1 weight=1 use=0.8 cap=0.5", "i2 starting for=i1"},
			"i1=1 +1 capacity_short"},
		{"max: the youngest goes", "static", groupMax(2), []string{
			"i1 weight=0.3 age=10", "i2 weight=0.3 age=5", "i3 weight=0.4 age=20",
		}, "i1=0.5 i3=0.5 -i2 group_max"},
		{"max: one that is starting goes first", "static", groupMax(2), []string{
			"i1 weight=0.5 age=1", "i2 weight=0.5 age=20", "i3 starting age=2",
		}, "i1=0.5 i2=0.5 -i3 group_max"},
		{"max: protected ones stay even so", "static", func(s *quell.Service) { groupMax(1)(s); protect("i1", "i2")(s) }, []string{
			"i1 weight=0.3 age=1", "i2 weight=0.3 age=2", "i3 weight=0.4 age=20",
		}, "i1=0.5 i2=0.5 -i3 group_max"},
		{"failed once: it may recover, but does not count", "static", nil, []string{"i1 weight=0.5", "i2 weight=0.5 failed"}, "i1=1"},
		{"failed once at min: another one starts", "static", func(s *quell.Service) { s.Group.Min = 2 },
			[]string{"i1 weight=0.5", "i2 weight=0.5 failed"}, "i1=1 +1 group_min"},
		{"failed once at min and max: there is no room before it is given up", "static",
			func(s *quell.Service) { s.Group.Min, s.Group.Max = 2, 2 },
			[]string{"i1 weight=0.5", "i2 weight=0.5 failed"}, "i1=1 group_min group_max"},
		{"fixed: nothing is added for one that failed", "static", fixedFleet(2),
			[]string{"i1 weight=0.5", "i2 weight=0.5 failed"}, "i1=1"},
		{"fixed: nothing is removed", "prima", fixedFleet(2),
			[]string{"i1 weight=0.5 use=0.01 cap=0.5", "i2 weight=0.5 use=0.01 cap=0.4"}, "i1=0.5 i2=0.5"},
		{"draining ones do not count", "static", func(s *quell.Service) { s.Group.Min, s.Group.Max = 2, 2 },
			[]string{"i1 weight=1", "i2 draining"}, "i1=1 +1 group_min"},
	} {
		t.Run(tc.why, func(t *testing.T) {
			play(t, engine(t, guarding(tc.policy, orNothing(tc.change)), goldenModels(t)), at(tc.want, tc.rows...))
		})
	}
}

// fixedFleet is a list of n machines. Other instances may lose load while guard.step limits how much the rest may gain. A new instance that
// has not reported anything yet does not get the difference as its share.
func TestNothingGoesToTheUnknown(t *testing.T) {
	s := golden("prima", 75, 0)
	s.Guard.Floor, s.Guard.Step = .05, .5
	rows := []string{"a weight=0.02 use=0.02 sf=3", "b weight=0.21 use=0.2 sf=3", "c weight=0.77 use=0.4 sf=0", "d", "e"}
	plan, _ := engine(t, s, goldenModels(t)).Decide(snap(t, 0, rows...), policy.State{})
	if plan.Weights["d"] != 0 || plan.Weights["e"] != 0 || plan.Weights["c"] <= .77 {
		t.Errorf("weights %v", plan.Weights)
	}
}

func fixedFleet(n int) func(*quell.Service) {
	return func(s *quell.Service) { s.Group.Min, s.Group.Max, s.Group.Fixed = n, n, true }
}

func idleFirst(change func(*quell.Service)) func(*quell.Service) {
	return func(s *quell.Service) { change(s); s.IdleFirst, s.Group.Min = true, 2 }
}

func floor(v float64) func(*quell.Service)   { return func(s *quell.Service) { s.Guard.Floor = v } }
func maxStep(v float64) func(*quell.Service) { return func(s *quell.Service) { s.Guard.Step = v } }
func errorRate(v float64) func(*quell.Service) {
	return func(s *quell.Service) { s.Guard.ErrorRate = v }
}
func slowStart(seconds int) func(*quell.Service) {
	return func(s *quell.Service) { s.Guard.SlowStart = time.Duration(seconds) * time.Second }
}

func TestFailedIsGivenUpAfterTwoSnapshots(t *testing.T) {
	for _, tc := range []struct {
		why    string
		change func(*quell.Service)
		steps  []step
	}{
		{"given up on the second", func(*quell.Service) {}, []step{
			at("i1=1", "i1 weight=0.5", "i2 weight=0.5 failed"),
			at("i1=1 -i2 failed", "i1 weight=1", "i2 failed"),
		}},
		{"one that recovers begins anew", func(*quell.Service) {}, []step{
			at("i1=1", "i1 weight=0.5", "i2 weight=0.5 failed"),
			at("i1=0.5 i2=0.5", "i1 weight=1", "i2"),
			at("i1=1", "i1 weight=0.5", "i2 weight=0.5 failed"),
		}},
		{"replaced where the group needs it, within max", func(s *quell.Service) { s.Group.Min, s.Group.Max = 2, 2 }, []step{
			at("i1=1 group_min group_max", "i1 weight=0.5", "i2 weight=0.5 failed"),
			at("i1=1 +1 -i2 group_min failed", "i1 weight=1", "i2 failed"),
		}},
		{"a protected one is kept", protect("i2"), []step{
			at("i1=1", "i1 weight=0.5", "i2 weight=0.5 failed"),
			at("i1=1", "i1 weight=1", "i2 failed"),
			at("i1=1", "i1 weight=1", "i2 failed"),
		}},
	} {
		t.Run(tc.why, func(t *testing.T) { play(t, engine(t, guarding("static", tc.change), nil), tc.steps...) })
	}
}

// The guard's rules hold for plans of every policy.
func TestGuardHoldsAnyPolicy(t *testing.T) {
	service := guarding("static", func(s *quell.Service) { s.Group.Min = 2; protect("i1")(s) })
	e := engine(t, service, nil)
	for _, tc := range []struct {
		why    string
		decide policy.Decide
		want   string
	}{
		{"removes all: the protected one and, to the minimum, the last of its list stay",
			func(_ *policy.Input, g *policy.Group, _ *policy.State) quell.Plan {
				g.Equal()
				return quell.Plan{Group: &quell.GroupChange{Remove: []string{"i1", "i2", "i3", "i4"}}}
			}, "i1=0.5 i2=0.5 -i3 -i4 group_min"},
		{"adds without end", func(in *policy.Input, g *policy.Group, _ *policy.State) quell.Plan {
			g.Equal()
			return quell.Plan{Group: &quell.GroupChange{Add: 1000}}
		}, "i1=0.25 i2=0.25 i3=0.25 i4=0.25 +6 group_max"},
		{"gives no weights", func(in *policy.Input, g *policy.Group, _ *policy.State) quell.Plan {
			for _, m := range g.Ready {
				m.Planned = 0
			}
			return quell.Plan{}
		}, "i1=0.25 i2=0.25 i3=0.25 i4=0.25"},
		{"gives half of them", func(in *policy.Input, g *policy.Group, _ *policy.State) quell.Plan {
			for _, m := range g.Ready {
				m.Planned /= 2
			}
			return quell.Plan{}
		}, "i1=0.4 i2=0.2 i3=0.2 i4=0.2"},
	} {
		t.Run(tc.why, func(t *testing.T) {
			e.DecideBy(tc.decide)
			play(t, e, at(tc.want, "i1 weight=0.4", "i2 weight=0.2", "i3 weight=0.2", "i4 weight=0.2"))
		})
	}
}

func stale(after, fade int) func(*quell.Service) {
	return func(s *quell.Service) { s.Guard.StaleAfter, s.Guard.Fade = after, fade }
}

// A stale instance at first keeps its weight. Then its weight moves to an equal share over `fade` periods in equal steps, whether or not
// plans are applied.
func TestStaleFades(t *testing.T) {
	const fresh = "i2 weight=0.2 use=0.05 cap=0.125"
	row := func(seen string) []string { return []string{"i1 weight=0.8 use=0.45 cap=0.5 seen=" + seen, fresh} }
	advise := []step{
		at("i1=0.8 i2=0.2", row("0")...),
		at("i1=0.8 i2=0.2", row("10")...),
		at("i1=0.8 i2=0.2", row("20")...),
		at("i1=0.725 i2=0.275 stale", row("30")...),
		at("i1=0.65 i2=0.35 stale", row("40")...),
		at("i1=0.575 i2=0.425 stale", row("50")...),
		at("i1=0.5 i2=0.5 stale", row("60")...),
		at("i1=0.5 i2=0.5 stale", row("70")...),
		at("i1=0.8 i2=0.2", row("0")...),
	}
	service := guarding("prima", func(s *quell.Service) { stale(2, 4)(s); margin(.1)(s) })
	t.Run("advised", func(t *testing.T) { play(t, engine(t, service, goldenModels(t)), advise...) })

	t.Run("carried out", func(t *testing.T) {
		e := engine(t, service, goldenModels(t))
		var st policy.State
		var last quell.Plan
		for k, s := range advise {
			in := snap(t, k, s.Rows...)
			follow(in, last)
			if last, st = e.Decide(in, st); brief(last) != s.Want {
				t.Errorf("snapshot %d: got %s, want %s", k, brief(last), s.Want)
			}
		}
	})

	t.Run("fade 0: equal at once", func(t *testing.T) {
		play(t, engine(t, guarding("prima", stale(2, 0)), goldenModels(t)), at("i1=0.5 i2=0.5 stale", row("30")...))
	})
	t.Run("stale_after 0: off", func(t *testing.T) {
		play(t, engine(t, guarding("prima", func(s *quell.Service) { margin(.1)(s) }), goldenModels(t)), at("i1=0.8 i2=0.2", row("3000")...))
	})
}

// A stale instance keeps its share, even if the others' shares change or are scaled.
func TestStaleKeepsItsWeightWhileOthersShift(t *testing.T) {
	service := guarding("prima", stale(1, 1000))
	play(t, engine(t, service, goldenModels(t)),
		at("i1=0.4 i2=0.3 i3=0.3", "i1 weight=0.4 use=0.45 cap=0.5", "i2 weight=0.3 use=0.3 cap=0.5", "i3 weight=0.3 use=0.3 cap=0.5"),
		at("i1=0.4 i2=0.171 i3=0.429 shift stale", "i1 weight=0.4 seen=20", "i2 weight=0.3 use=0.3 cap=0.2", "i3 weight=0.3 use=0.3 cap=0.5"),
	)
}

func TestSilentInstanceOfStaticIsStale(t *testing.T) {
	e := engine(t, guarding("static", stale(3, 10)), nil)
	var st policy.State
	for k := range 6 {
		_, st = e.Decide(snap(t, k, "i1 weight=1 silent"), st)
		if got, want := st.Instances["i1"].StaleFor, max(0, k+1-3); got != want {
			t.Errorf("after %d snapshots without an observation: stale for %d, want %d", k+1, got, want)
		}
	}
}

// If plans are applied, a ramp, a step and a hold end at the share that the policy wants, because the policy continues from
// the shares that it wanted and not from the guard's result.
func TestGuardLetsThePolicyArrive(t *testing.T) {
	shift := []string{"i1 weight=0.5 use=0.25 cap=0.1", "i2 weight=0.5 use=0.3 cap=0.5"}
	calm := []string{"i1 weight=0.5 use=0.05 cap=0.1", "i2 weight=0.5 use=0.46 cap=0.5"}
	join := []string{"i1 weight=1 use=0.8 cap=0.5 age=900", "i2 weight=0 use=0 cap=0.5 age=20"}
	aged := func(age string) []string {
		return []string{"i1 use=0.4 cap=0.5 age=900", "i2 use=0.4 cap=0.5 age=" + age}
	}
	for _, tc := range []struct {
		why    string
		change func(*quell.Service)
		steps  []step
	}{
		{"step", maxStep(.4), []step{
			at("i1=0.3 i2=0.7 shift step", shift...), at("i1=0.167 i2=0.833", calm...), at("i1=0.167 i2=0.833", calm...),
		}},
		{"slow start", slowStart(100), []step{
			at("i1=0.9 i2=0.1 join slow_start", join...), at("i1=0.8 i2=0.2 slow_start", aged("40")...),
			at("i1=0.6 i2=0.4 slow_start", aged("80")...), at("i1=0.5 i2=0.5", aged("110")...),
		}},
		{"floor, again and again", floor(.5), []step{
			at("i1=0.25 i2=0.75 shift", shift...), at("i1=0.25 i2=0.75", calm...), at("i1=0.25 i2=0.75", calm...),
		}},
		{"errors that end", errorRate(.05), []step{
			at("i1=0.3 i2=0.35 i3=0.35 +1 capacity_short errors",
				"i1 weight=0.3 use=0.25 cap=0.5 err=0.5", "i2 weight=0.3 use=0.3 cap=0.2", "i3 weight=0.4 use=0.3 cap=0.2"),
			at("i1=0.556 i2=0.222 i3=0.222", "i1 use=0.35 cap=0.5", "i2 use=0.2 cap=0.2", "i3 use=0.2 cap=0.2"),
		}},
	} {
		t.Run(tc.why, func(t *testing.T) {
			e := engine(t, guarding("prima", tc.change), goldenModels(t))
			var st policy.State
			var last quell.Plan
			for k, s := range tc.steps {
				in := snap(t, k, s.Rows...)
				follow(in, last)
				if last, st = e.Decide(in, st); brief(last) != s.Want {
					t.Errorf("snapshot %d:\n got %s\nwant %s", k, brief(last), s.Want)
				}
			}
		})
	}
}

// If somebody else changed weights, the policy continues from the changed weights.
func TestGuardRespectsWeightsOfOthers(t *testing.T) {
	play(t, engine(t, guarding("prima", maxStep(.4)), goldenModels(t)),
		at("i1=0.3 i2=0.7 shift step", "i1 weight=0.5 use=0.25 cap=0.1", "i2 weight=0.5 use=0.3 cap=0.5"),
		at("i1=0.25 i2=0.75", "i1 weight=0.25 use=0.1 cap=0.1", "i2 weight=0.75 use=0.45 cap=0.5"),
	)
}

// TestASeverityAges checks that a machine that reports its use but is no longer probed becomes stale for policies
// that use severity, and only for those.
func TestASeverityAges(t *testing.T) {
	for _, tc := range []struct {
		policy string
		want   []int
	}{{"prima", []int{0, 0, 0, 1, 2}}, {"lsf", []int{0, 0, 0, 1, 2}}, {"lr", []int{0, 0, 0, 0, 0}}} {
		e := engine(t, guarding(tc.policy, stale(2, 10)), goldenModels(t))
		var st policy.State
		rows := []string{"i1 weight=1 use=0.2 sf=0.1", "i1 weight=1 use=0.2", "i1 weight=1 use=0.2", "i1 weight=1 use=0.2", "i1 weight=1 use=0.2"}
		for k, row := range rows {
			_, st = e.Decide(snap(t, k, row), st)
			if got := st.Instances["i1"].StaleFor; got != tc.want[k] {
				t.Errorf("%s, snapshot %d: stale for %d, want %d", tc.policy, k, got, tc.want[k])
			}
		}
	}
}

// The plan mentions a health check only if one failed, because a process may exit before it is checked.
func TestWhyInstancesAreGivenUp(t *testing.T) {
	service := guarding("static", func(*quell.Service) {})
	snapshot := snap(t, 0, "i1 weight=1", "i2 failed", "i3 failed")
	snapshot.Instances[1].Health = "GET /healthz: 500"
	e := engine(t, service, nil)
	var st policy.State
	var plan quell.Plan
	for range policy.FailedFor {
		plan, st = e.Decide(snapshot, st)
	}
	var given []string
	for _, r := range plan.Reasons {
		if r.Code == "failed" {
			given = append(given, r.Text)
		}
	}
	want := []string{"giving up i2 (GET /healthz: 500): health checks fail", "giving up i3: failed"}
	if !slices.Equal(given, want) || !slices.Equal(plan.Group.Remove, []string{"i2", "i3"}) {
		t.Errorf("%q, group %v", given, plan.Group)
	}
}

// For a fixed fleet the plan says what the failed machine answered to health checks, and does not ask for a new machine.
func TestFailedMachineOfAFixedFleet(t *testing.T) {
	service := guarding("static", fixedFleet(2))
	snapshot := snap(t, 0, "i1 weight=0.5", "i2 weight=0.5 failed")
	snapshot.Instances[1].Health = `GET /healthz: 404 Not Found, body "no such file"`
	e := engine(t, service, nil)
	var st policy.State
	var plan quell.Plan
	for range policy.FailedFor {
		plan, st = e.Decide(snapshot, st)
	}
	want := `health checks fail at i2 (GET /healthz: 404 Not Found, body "no such file"): no request goes there, and the fleet is fixed, so nothing is started in its place`
	if len(plan.Reasons) != 1 || plan.Reasons[0].Text != want || plan.Group != nil || st.Instances["i2"].FailedFor < policy.FailedFor {
		t.Errorf("group %v, reasons %q", plan.Group, plan.Reasons)
	}
}
