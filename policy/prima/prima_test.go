package prima

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/divide"
)

// With the golden models an instance without neighbours carries 0.5 within 75 ms, and one with severity SF carries
// 0.5 - SF/2.
func TestPRIMAOnce(t *testing.T) {
	for _, tc := range []struct {
		why    string
		change func(*quell.Service)
		rows   []string
		want   string
	}{
		{"enough capacity: nothing happens", nil, []string{"i1 weight=1 use=0.4 cap=0.5"}, "i1=1"},
		{"sufficient means >=", nil, []string{"i1 weight=1 use=0.5 cap=0.5"}, "i1=1"},
		{"short by 0.2: one fresh instance covers it", nil, []string{"i1 weight=1 use=0.7 cap=0.5"}, "i1=1 +1 capacity_short"},
		{"short by 1.1: three fresh ones of 0.5", nil, []string{"i1 weight=1 use=1.6 cap=0.5"}, "i1=1 +3 capacity_short"},
		{"short by exactly two fresh ones", nil, []string{"i1 weight=1 use=1.5 cap=0.5"}, "i1=1 +2 capacity_short"},
		{"less those that start", nil, []string{"i1 weight=1 use=1.6 cap=0.5", "i2 starting", "i3 starting"}, "i1=1 +1 capacity_short"},
		{"enough are starting: wait", nil, []string{"i1 weight=1 use=0.7 cap=0.5", "i2 starting"}, "i1=1 capacity_short"},
		{"less one that is ready without a first severity", nil,
			[]string{"i1 weight=1 use=1.6 cap=0.5", "i2 weight=0 use=0"}, "i1=1 i2=0 +2 capacity_short"},
		{"severity without utilisation counts as outstanding too", nil,
			[]string{"i1 weight=1 use=0.7 cap=0.5", "i2 weight=0 cap=0.5"}, "i1=1 i2=0 capacity_short"},
		{"one: a single one however much is short", one, []string{"i1 weight=1 use=1.6 cap=0.5"}, "i1=1 +1 capacity_short"},
		{"one: none while one starts", one, []string{"i1 weight=1 use=1.6 cap=0.5", "i2 starting"}, "i1=1 capacity_short"},
		{"one: none before the first severity", one,
			[]string{"i1 weight=1 use=1.6 cap=0.5", "i2 weight=0 use=0"}, "i1=1 i2=0 capacity_short"},
		{"group.max bounds what is added and says overload", groupMax(3), []string{"i1 weight=1 use=1.6 cap=0.5"},
			"i1=1 +2 capacity_short overload"},
		{"at group.max: overload, half of the way to the shares at which both are as slow", groupMax(2),
			[]string{"i1 weight=0.5 use=0.6 cap=0.5", "i2 weight=0.5 use=0.6 cap=0.25"}, "i1=0.552 i2=0.448 overload"},
		{"the first weights are theirs at once", groupMax(2), []string{"i1 use=0.6 cap=0.5", "i2 use=0.6 cap=0.25"},
			"i1=0.604 i2=0.396 overload"},
		{"while one is still coming, too", groupMax(3),
			[]string{"i1 weight=0.5 use=0.7 cap=0.5", "i2 weight=0.5 use=0.7 cap=0.25", "i3 starting"}, "i1=0.589 i2=0.411 overload"},
		{"overload sends no instance more than its neighbours leave: all of 1.3 to the one with capacity would drown it", groupMax(3),
			[]string{"i1 use=0.5 cap=0.5", "i2 use=0.4 sf=0.95", "i3 use=0.4 sf=0.95"}, "i1=0.577 i2=0.212 i3=0.212 overload"},
		{"one at group.max", func(s *quell.Service) { one(s); groupMax(1)(s) }, []string{"i1 weight=1 use=0.7 cap=0.5"}, "i1=1 overload"},
		{"starting ones fill the group too", groupMax(2), []string{"i1 weight=1 use=1.6 cap=0.5", "i2 starting"}, "i1=1 overload"},
		{"the load of a draining instance counts", nil,
			[]string{"i1 weight=1 use=0.4 cap=0.5", "i2 draining use=0.2 cap=0.5"}, "i1=1 +1 capacity_short"},
		{"its capacity does not, and a failed one's load does not", nil,
			[]string{"i1 weight=1 use=0.4 cap=0.5", "i2 failed use=0.2 cap=0.5"}, "i1=1"},
		{"headroom 0.9: 0.46 of 0.5 is too much", headroom(.9), []string{"i1 weight=1 use=0.46 cap=0.5"}, "i1=1 +1 capacity_short"},
		{"headroom 0.9: 0.45 of 0.5 is not", headroom(.9), []string{"i1 weight=1 use=0.45 cap=0.5"}, "i1=1"},
		{"headroom 0.5 counts for those here and for fresh ones: (1 - 0.25)/0.25 = 3", headroom(.5), []string{"i1 weight=1 use=1 cap=0.5"},
			"i1=1 +3 capacity_short"},
		{"headroom counts for fresh ones: (1.35 - 0.45)/0.45 = 2", headroom(.9), []string{"i1 weight=1 use=1.35 cap=0.5"},
			"i1=1 +2 capacity_short"},
		{"a new instance that itself suffers is told by its own severity: still short", nil,
			[]string{"i1 weight=1 use=0.8 cap=0.5", "i2 weight=0 use=0 cap=0.125"}, "i1=0.8 i2=0.2 +1 capacity_short"},
		{"a new instance completes the scale-out", nil,
			[]string{"i1 weight=1 use=0.7 cap=0.5", "i2 weight=0 use=0 cap=0.25"}, "i1=0.667 i2=0.333 join"},
		{"a new instance without any capacity gets no load", nil,
			[]string{"i1 weight=1 use=0.4 cap=0.5", "i2 weight=0 use=0 sf=0.95"}, "i1=1 -i2 scale_in"},
		{"nor is it joining again and again", func(s *quell.Service) { s.Group.Min = 2 },
			[]string{"i1 weight=1 use=0.4 cap=0.5", "i2 weight=0 use=0 sf=0.95"}, "i1=1 i2=0"},
		{"weights absent on the first snapshot: by capacity", nil,
			[]string{"i1 use=0.45 cap=0.5", "i2 use=0.1 cap=0.125"}, "i1=0.8 i2=0.2 join"},
		{"nothing known on the first snapshot: equal", nil, []string{"i1 silent", "i2 silent"}, "i1=0.5 i2=0.5 unprobed"},
		{"nothing known of the rest: they keep what they have", groupMax(2),
			[]string{"i1 weight=0.6 use=0.7 cap=0.5", "i2 weight=0.4 silent"}, "i1=0.6 i2=0.4 capacity_short"},
		{"no instances: the least group", func(s *quell.Service) { s.Group.Min = 2 }, nil, "+2 group_min"},
		{"all starting: nothing to share", nil, []string{"i1 starting"}, ""},
		{"all capacities zero, no load: equal and overload", nil,
			[]string{"i1 weight=0.9 use=0 sf=0.95", "i2 weight=0.1 use=0 sf=2"}, "i1=0.5 i2=0.5 overload"},
		{"all capacities zero, with load: equal, overload and more instances", nil,
			[]string{"i1 weight=0.9 use=0.2 sf=0.95", "i2 weight=0.1 use=0.1 sf=2"}, "i1=0.5 i2=0.5 +1 overload capacity_short"},
		{"all capacities zero, next to no load: one instance serves that as well as two", nil, []string{"i1 weight=1 use=0.0049 sf=0.95"},
			"i1=1 overload"},
		{"a hundredth of what a fresh instance carries is a load", nil, []string{"i1 weight=1 use=0.0051 sf=0.95"},
			"i1=1 +1 overload capacity_short"},
		{"all capacities zero does not wait for confirmation", confirm(1),
			[]string{"i1 weight=0.9 use=0.2 sf=0.95", "i2 weight=0.1 use=0.1 sf=2"}, "i1=0.5 i2=0.5 overload confirming"},
		{"above its capacity while the sum suffices: shift", nil,
			[]string{"i1 weight=0.5 use=0.3 cap=0.2", "i2 weight=0.5 use=0.3 cap=0.5"}, "i1=0.286 i2=0.714 shift"},
		{"at its capacity: no shift", nil, []string{"i1 weight=0.5 use=0.2 cap=0.2", "i2 weight=0.5 use=0.4 cap=0.5"}, "i1=0.5 i2=0.5"},
		{"scale in: the largest stay", nil,
			[]string{"i1 weight=0.4 use=0.1 cap=0.2", "i2 weight=0.3 use=0.1 cap=0.5", "i3 weight=0.3 use=0.1 cap=0.4"}, "i2=1 -i3 -i1 scale_in"},
		{"of equals the older ones stay", nil, []string{
			"i1 weight=0.4 use=0.3 cap=0.5 age=10", "i2 weight=0.3 use=0.2 cap=0.5 age=30", "i3 weight=0.3 use=0.2 cap=0.5 age=20",
		}, "i2=0.5 i3=0.5 -i1 scale_in"},
		{"of equal age the first in the snapshot stay", nil, []string{
			"i3 weight=0.4 use=0.3 cap=0.5", "i1 weight=0.3 use=0.2 cap=0.5", "i2 weight=0.3 use=0.2 cap=0.5",
		}, "i1=0.5 i3=0.5 -i2 scale_in"},
		{"no scale-in while one starts, whose capacity is not known yet", nil,
			[]string{"i1 weight=0.5 use=0.1 cap=0.5", "i2 weight=0.5 use=0.1 cap=0.5", "i3 starting"}, "i1=0.5 i2=0.5"},
		{"margin: 0.48 of the kept 0.5 leaves less than 5%", margin(.05),
			[]string{"i1 weight=0.5 use=0.24 cap=0.5", "i2 weight=0.5 use=0.24 cap=0.5"}, "i1=0.5 i2=0.5"},
		{"margin: 0.475 leaves 5%", margin(.05),
			[]string{"i1 weight=0.5 use=0.2375 cap=0.5", "i2 weight=0.5 use=0.2375 cap=0.5"}, "i1=1 -i2 scale_in"},
		{"the margin is a share of what headroom leaves: 0.5 x 0.8 x 0.5 carries 0.2", func(s *quell.Service) { headroom(.5)(s); margin(.2)(s) },
			[]string{"i1 weight=0.5 use=0.1 cap=0.5", "i2 weight=0.5 use=0.1 cap=0.5"}, "i1=1 -i2 scale_in"},
		{"and no more", func(s *quell.Service) { headroom(.5)(s); margin(.2)(s) },
			[]string{"i1 weight=0.5 use=0.101 cap=0.5", "i2 weight=0.5 use=0.1 cap=0.5"}, "i1=0.5 i2=0.5"},
		{"group.min stays", func(s *quell.Service) { s.Group.Min = 2 },
			[]string{"i1 weight=0.4 use=0.1 cap=0.5", "i2 weight=0.3 use=0.1 cap=0.4", "i3 weight=0.3 use=0.1 cap=0.3"},
			"i1=0.556 i2=0.444 -i3 scale_in"},
		{"protected ones stay and carry", protect("i3"),
			[]string{"i1 weight=0.4 use=0.1 cap=0.4", "i2 weight=0.3 use=0.1 cap=0.3", "i3 weight=0.3 use=0.1 cap=0.1"},
			"i1=0.8 i3=0.2 -i2 scale_in"},
		{"a protected one suffices alone, and stays in any case", protect("i2"),
			[]string{"i1 weight=0.5 use=0.1 cap=0.5", "i2 weight=0.5 use=0.1 cap=0.5"}, "i2=1 -i1 scale_in"},
		{"what a protected one brings counts first: 0.35 + 0.5 for 0.8", protect("i3"), []string{
			"i1 weight=0.4 use=0.3 cap=0.5", "i2 weight=0.3 use=0.25 cap=0.5", "i3 weight=0.3 use=0.25 cap=0.35",
		}, "i1=0.588 i3=0.412 -i2 scale_in"},
		{"not one that answers with errors", func(s *quell.Service) { protect("i3")(s); s.Guard.ErrorRate = .05 }, []string{
			"i1 weight=0.4 use=0.3 cap=0.5", "i2 weight=0.3 use=0.25 cap=0.5", "i3 weight=0.3 use=0.25 cap=0.35 err=0.5",
		}, "i1=0.4 i2=0.3 i3=0.3"},
		{"all surplus protected: nothing to do", protect("i1", "i2"),
			[]string{"i1 weight=0.5 use=0.1 cap=0.5", "i2 weight=0.5 use=0.1 cap=0.5"}, "i1=0.5 i2=0.5"},
		{"spare 1: one more than suffices is kept", spare(1),
			[]string{"i1 weight=0.4 use=0.1 cap=0.5", "i2 weight=0.3 use=0.1 cap=0.5", "i3 weight=0.3 use=0.1 cap=0.5"},
			"i1=0.5 i2=0.5 -i3 scale_in"},
		{"spare 1: without it the load must still fit", spare(1),
			[]string{"i1 weight=0.5 use=0.3 cap=0.5", "i2 weight=0.5 use=0.3 cap=0.5"}, "i1=0.5 i2=0.5 +1 capacity_short"},
		{"spare 1: even one idle instance gets company", spare(1), []string{"i1 weight=1 use=0 cap=0.5"}, "i1=1 +1 capacity_short"},
		{"spare 3: all that are missing at once", spare(3), []string{"i1 weight=1 use=0.1 cap=0.5"}, "i1=1 +3 capacity_short"},
		{"spare 3: less those that are coming", spare(3), []string{"i1 weight=1 use=0.1 cap=0.5", "i2 starting"}, "i1=1 +2 capacity_short"},
		{"spare 3: waiting for the last", spare(3),
			[]string{"i1 weight=1 use=0.1 cap=0.5", "i2 starting", "i3 starting", "i4 starting"}, "i1=1 capacity_short"},
		{"spare 2 comes on top of what the load asks for: 3 + 2", spare(2), []string{"i1 weight=1 use=1.6 cap=0.5"}, "i1=1 +5 capacity_short"},
		{"spares that group.max has no room for are no overload", func(s *quell.Service) { spare(5)(s); groupMax(4)(s) },
			[]string{"i1 weight=1 use=1.6 cap=0.5"}, "i1=1 +3 capacity_short"},
		{"one: a single spare at once", func(s *quell.Service) { one(s); spare(3)(s) }, []string{"i1 weight=1 use=0.1 cap=0.5"},
			"i1=1 +1 capacity_short"},
		{"spare cannot be had at group.max, which is no overload", func(s *quell.Service) { spare(1)(s); groupMax(2)(s) },
			[]string{"i1 weight=0.5 use=0.3 cap=0.5", "i2 weight=0.5 use=0.3 cap=0.5"}, "i1=0.5 i2=0.5"},
		{"tolerance 5%: a shift of 4% moves nothing", tolerance(.05),
			[]string{"i1 weight=0.52 use=0.36 cap=0.35", "i2 weight=0.48 use=0.33 cap=0.35"}, "i1=0.52 i2=0.48 shift"},
		{"tolerance 3%: it moves all", tolerance(.03),
			[]string{"i1 weight=0.52 use=0.36 cap=0.35", "i2 weight=0.48 use=0.33 cap=0.35"}, "i1=0.5 i2=0.5 shift"},
		{"a weight that is left over by an instance that is gone", nil,
			[]string{"i1 weight=0.2 use=0.1 cap=0.2", "i2 weight=0.6 use=0.45 cap=0.5", "i3 weight=0.2 failed"}, "i1=0.25 i2=0.75"},
		{"arrivals of 70/s at 0.01 are more than what is carried", nil, []string{"arrivals=70", "i1 weight=1 use=0.5 cap=0.5"},
			"i1=1 +1 capacity_short"},
		{"arrivals of 30/s are less", nil, []string{"arrivals=30", "i1 weight=1 use=0.5 cap=0.5"}, "i1=1"},
	} {
		t.Run(tc.why, func(t *testing.T) {
			s := golden("prima", 75, 0)
			if tc.change != nil {
				tc.change(&s)
			}
			play(t, engine(t, s, withPerRequest(t, 0.01)), at(tc.want, tc.rows...))
		})
	}
}

// The same with headroom 0.9 and a margin of 5%.
func TestProtectedInstancesCountFirst(t *testing.T) {
	s := golden("prima", 75, 0)
	tell(&s, "Headroom", 0.9)
	tell(&s, "ScaleInMargin", 0.05)
	protect("p")(&s)
	m := goldenModels(t)
	play(t, engine(t, s, m), at("a=0.511 p=0.489 -b scale_in",
		"a weight=0.4 use=0.3 cap=0.5", "b weight=0.3 use=0.2 cap=0.5", "p weight=0.3 use=0.2 cap=0.479"))
}

// If even an instance without neighbours and load misses the threshold, more instances do not help. Then none is added, however long this
// lasts, and the plan says so.
func TestNothingIsAddedWhereItCannotHelp(t *testing.T) {
	for _, mode := range quell.ScaleOuts {
		s := golden("prima", 7, 1) // with the golden models a response takes 7.5 ms without load
		tell(&s, "ScaleOut", mode)
		tell(&s, "Spare", 2)
		e := engine(t, s, goldenModels(t))
		var st policy.State
		for k := range 5 {
			var plan quell.Plan
			plan, st = e.Decide(snap(t, k, "i1 weight=0.7 use=0.3 cap=0.5", "i2 weight=0.3 use=0.1 cap=0.5"), st)
			if got := brief(plan); got != "i1=0.5 i2=0.5 overload unreachable" {
				t.Errorf("%s, snapshot %d: %s", mode, k, got)
			}
			for _, r := range plan.Reasons {
				if r.Code == "unreachable" && !strings.Contains(r.Text, "predicted to take 7.5 ms: no number of instances keeps 7.0 ms") {
					t.Error(r.Text)
				}
			}
		}
	}
}

// The reasons distinguish spares from what the load needs.
func TestMissingSparesAreTold(t *testing.T) {
	s := golden("prima", 75, 0)
	tell(&s, "Spare", 3)
	plan, _ := engine(t, s, goldenModels(t)).Decide(snap(t, 0, "i1 weight=1 use=0.1 cap=0.5"), policy.State{})
	const want = "load 0.100 needs 1 instance(s), and with 3 spare(s) there should be 4, not 1: adding 3"
	if len(plan.Reasons) != 1 || plan.Reasons[0].Text != want {
		t.Errorf("%v, want %q", plan.Reasons, want)
	}
}

func one(s *quell.Service) { tell(s, "ScaleOut", quell.One) }

func tolerance(v float64) func(*quell.Service) {
	return func(s *quell.Service) { tell(s, "Tolerance", v) }
}

func spare(n int) func(*quell.Service) { return func(s *quell.Service) { tell(s, "Spare", n) } }

// The setting confirm counts consecutive snapshots, separately for adding and for removing instances.
func TestPRIMAConfirm(t *testing.T) {
	var (
		fine     = []string{"i1 weight=0.5 use=0.3 cap=0.5", "i2 weight=0.5 use=0.3 cap=0.5"}
		short    = []string{"i1 weight=0.5 use=0.6 cap=0.5", "i2 weight=0.5 use=0.6 cap=0.3"}
		tooMuch  = []string{"i1 weight=0.5 use=0.2 cap=0.5", "i2 weight=0.5 use=0.2 cap=0.4"}
		overload = []string{"i1 weight=0.5 use=0.3 cap=0.2", "i2 weight=0.5 use=0.3 cap=0.5"}
	)
	const same = "i1=0.5 i2=0.5"
	for _, tc := range []struct {
		why     string
		confirm int
		steps   []step
	}{
		{"W=0 acts at once", 0, []step{at("i1=0.625 i2=0.375 +1 capacity_short", short...)}},
		{"W=1 scales out on the second", 1, []step{at(same+" confirming", short...), at("i1=0.625 i2=0.375 +1 capacity_short", short...)}},
		{"W=2 on the third", 2, []step{
			at(same+" confirming", short...), at(same+" confirming", short...), at("i1=0.625 i2=0.375 +1 capacity_short", short...),
		}},
		{"a calm snapshot begins anew", 1, []step{
			at(same+" confirming", short...), at(same, fine...), at(same+" confirming", short...),
		}},
		{"W=1 scales in on the second", 1, []step{at(same+" confirming", tooMuch...), at("i1=1 -i2 scale_in", tooMuch...)}},
		{"scale-in begins anew", 1, []step{at(same+" confirming", tooMuch...), at(same, fine...), at(same+" confirming", tooMuch...)}},
		{"W=1 shifts on the second", 1, []step{at(same+" confirming", overload...), at("i1=0.286 i2=0.714 shift", overload...)}},
		{"too little does not confirm an instance above its capacity", 1, []step{
			at(same+" confirming", short...), at(same+" confirming", overload...), at("i1=0.286 i2=0.714 shift", overload...),
		}},
		{"nor too much, nor the other way round", 1, []step{
			at(same+" confirming", tooMuch...), at(same+" confirming", overload...), at(same+" confirming", tooMuch...),
			at(same+" confirming", short...), at(same+" confirming", tooMuch...),
		}},
		{"too much with one above its capacity: each has its own count", 1, []step{
			at(same+" confirming", overload...),
			at("i1=0.286 i2=0.714 shift", "i1 weight=0.5 use=0.25 cap=0.2", "i2 weight=0.5 use=0.2 cap=0.5"),
			at("i2=1 -i1 scale_in", "i1 weight=0.286 use=0.2 cap=0.2", "i2 weight=0.714 use=0.25 cap=0.5"),
		}},
		{"in one snapshot they do not add up", 1, []step{
			at(same+" confirming", "i1 weight=0.5 use=0.25 cap=0.2", "i2 weight=0.5 use=0.2 cap=0.5"),
		}},
		{"nothing known is not a confirmation of too little", 1, []step{
			at("i1=1 unprobed", "i1 weight=1 silent"), at("i1=1 unprobed", "i1 weight=1 silent"),
			at("i1=1 confirming", "i1 weight=1 use=0.7 cap=0.5"),
		}},
		{"a new instance joins at once, scale-in waits", 1, []step{
			at("i1=0.5 i2=0.5 join", "i1 weight=1 use=0.4 cap=0.5", "i2 weight=0 use=0 cap=0.5"),
			at("i1=1 -i2 scale_in", "i1 weight=0.5 use=0.2 cap=0.5", "i2 weight=0.5 use=0.2 cap=0.5"),
		}},
		{"a group without capacity breaks off a scale-in", 1, []step{
			at(same+" confirming", tooMuch...),
			at(same+" overload", "i1 weight=0.5 use=0 sf=2", "i2 weight=0.5 use=0 sf=2"),
			at(same+" confirming", tooMuch...),
		}},
	} {
		t.Run(tc.why, func(t *testing.T) { play(t, engine(t, golden("prima", 75, tc.confirm), goldenModels(t)), tc.steps...) })
	}
}

// In an overload that cannot be resolved, differences between capacities near 0 are noise. Here one instance has 49 times the capacity of
// the other, and then the other has 49 times as much. The shares must not follow that.
func TestAnOverloadDoesNotSwing(t *testing.T) {
	s := golden("prima", 75, 0)
	s.Group.Max = 2
	e := engine(t, s, goldenModels(t))
	var st policy.State
	var last quell.Plan
	for k := range 20 {
		caps := []string{"0.049", "0.001"}
		in := snap(t, k, "i1 weight=0.5 use=0.4 cap="+caps[k%2], "i2 weight=0.5 use=0.4 cap="+caps[1-k%2])
		follow(in, last)
		last, st = e.Decide(in, st)
		if w := last.Weights["i1"]; w < 0.3 || w > 0.75 {
			t.Fatalf("snapshot %d gives i1 %.3f of the traffic", k, w)
		}
	}
}

func TestShiftNamesTheInstanceThatIsFurthestAbove(t *testing.T) {
	plan, _ := engine(t, golden("prima", 75, 0), goldenModels(t)).Decide(snap(t, 0,
		"i1 weight=0.3 use=0.3 cap=0.25", "i2 weight=0.3 use=0.3 cap=0.1", "i3 weight=0.3 use=0.3 cap=0.2",
		"i4 weight=0.1 use=0.1 cap=0.5"), policy.State{})
	if !hasReason(plan, "shift", "i2") {
		t.Errorf("reasons %v, want i2 named for the shift", plan.Reasons)
	}
}

// Missing readings are replaced by those of the last snapshot that had them.
func TestPRIMARemembers(t *testing.T) {
	e := engine(t, golden("prima", 75, 0), goldenModels(t))
	known := []string{"i1 weight=0.5 use=0.4 cap=0.5", "i2 weight=0.5 use=0.2 cap=0.25"}
	play(t, e,
		at("i1=0.5 i2=0.5", known...),
		at("i1=0.5 i2=0.5", "i1 weight=0.5 silent", "i2 weight=0.5 use=0.2"),
		at("i1=0.667 i2=0.333 +1 capacity_short", "i1 weight=0.5 silent", "i2 weight=0.5 use=0.4"),
		at("i1=0.667 i2=0.333 shift", "i1 weight=0.5 silent", "i2 weight=0.5 use=0.3"),
	)
}

// The plan says what was measured and predicted; the load is the one after the guard.
func TestPRIMAExplains(t *testing.T) {
	s := golden("prima", 75, 0)
	s.Guard.Floor = 0.5
	e := engine(t, s, goldenModels(t))
	plan, _ := e.Decide(snap(t, 0, "i1 use=0.5 cap=0.5", "i2 use=0.04 cap=0.05", "i3 starting"), policy.State{})
	wantWeights(t, plan, map[string]float64{"i1": .75, "i2": .25})
	for _, tc := range []struct {
		what      string
		got, want float64
	}{
		{"capacity i1", plan.Capacity["i1"], .5},
		{"capacity i2", plan.Capacity["i2"], .05},
		{"severity i2", plan.Severity["i2"], .9},
		{"at capacity i1", plan.PredictedAtCapacityMS["i1"], 75},
		{"at capacity i2", plan.PredictedAtCapacityMS["i2"], 75},
		{"predicted i1: 150 * its part of 0.54", plan.PredictedMS["i1"], 150 * .54 * plan.Weights["i1"]},
		{"predicted i2: 0.9 severity on top", plan.PredictedMS["i2"], 150*.54*plan.Weights["i2"] + 75*.9},
	} {
		if math.Abs(tc.got-tc.want) > 1e-9 {
			t.Errorf("%s is %v, want %v", tc.what, tc.got, tc.want)
		}
	}
	if len(plan.Cause) != 1 || plan.Cause["i2"] != quell.Network || !hasReason(plan, "interference", "i2") {
		t.Errorf("cause %v, want only the network of i2; %v", plan.Cause, plan.Reasons)
	}
	if _, ok := plan.Capacity["i3"]; ok {
		t.Error("a starting instance has a capacity")
	}
}

// Unless the use per request is known, the load cannot be computed from arrivals.
func TestArrivalsWithoutUsePerRequest(t *testing.T) {
	play(t, engine(t, golden("prima", 75, 0), goldenModels(t)), at("i1=1", "arrivals=1e9", "i1 weight=1 use=0.4 cap=0.5"))
}

func TestRemovedInstanceHasNoPrediction(t *testing.T) {
	e := engine(t, golden("prima", 75, 0), goldenModels(t))
	plan, _ := e.Decide(snap(t, 0, "i1 weight=0.5 use=0.1 cap=0.5", "i2 weight=0.5 use=0.1 cap=0.4"), policy.State{})
	if _, ok := plan.PredictedMS["i2"]; ok || len(plan.PredictedMS) != 1 || len(plan.Capacity) != 2 {
		t.Errorf("predicted %v, capacity %v: i2 goes", plan.PredictedMS, plan.Capacity)
	}
}

// A change of policy keeps what was learned of the instances, and restarts the counters.
func TestChangeOfPolicy(t *testing.T) {
	e := engine(t, golden("prima", 75, 3), goldenModels(t))
	_, st := e.Decide(snap(t, 0, "i1 weight=1 use=0.7 cap=0.3"), policy.State{})
	st.Policy = "static"
	plan, st := e.Decide(snap(t, 1, "i1 weight=1 silent"), st)
	if st.Memory.(*memory).ScaleOut != 1 || plan.Capacity["i1"] == 0 || st.Policy != "prima" {
		t.Errorf("scale-out count %d, want 1; capacity %v", st.Memory.(*memory).ScaleOut, plan.Capacity)
	}
}

// With share: tail the instances are within their capacities, and the tail of all response times is shorter than in proportion to capacity.
func TestPRIMADividesByTheTail(t *testing.T) {
	const threshold = 40
	engines := map[divide.Rule]*policy.Engine{}
	for _, share := range []divide.Rule{divide.Proportional, divide.Tail} {
		engines[share] = engine(t, guarding("prima", func(s *quell.Service) {
			s.SLO.Threshold, s.Group.Max, s.Group.Fixed = threshold*time.Millisecond, 20, true
			tell(s, "Share", share)
		}), sharingModels(t))
	}
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(2, 20).Draw(rt, "instances")
		// With more load, queues are so long that the small errors of the models' tables decide.
		load := float64(n) * rapid.Float64Range(0.1, 0.5).Draw(rt, "load")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 7))
		neighbours := make([]float64, n)
		in := &quell.Snapshot{At: start.Add(period * time.Second), Service: "video"}
		for i := range n {
			neighbours[i] = 0.5 * rng.Float64() * float64(rng.IntN(2))
			in.Instances = append(in.Instances, quell.Instance{ID: fmt.Sprintf("i%02d", i), State: quell.Ready, Weight: new(1 / float64(n))})
		}
		feel(in, neighbours, load)
		for i := range in.Instances {
			in.Instances[i].Weight = nil // the first shares
		}
		before, _ := engines[divide.Proportional].Decide(in, policy.State{})
		plan, _ := engines[divide.Tail].Decide(in, policy.State{})
		tails := map[divide.Rule]float64{}
		sum := 0.0
		for i, instance := range in.Instances {
			id, left := instance.ID, 1-neighbours[i]
			sum += plan.Capacity[id]
			for share, x := range map[divide.Rule]float64{divide.Proportional: load * before.Weights[id], divide.Tail: load * plan.Weights[id]} {
				if tails[share] += x / math.Max(left-x, 1e-9); x > left {
					tails[share] = math.Inf(1)
				}
			}
		}
		for i, instance := range in.Instances {
			x, most := load*plan.Weights[instance.ID], plan.Capacity[instance.ID]
			if load > sum { // all are above their capacities, and none is full
				most = 1 - neighbours[i]
			}
			if x > most*(1+1e-6) {
				rt.Fatalf("%s gets %v, and can carry %v", instance.ID, x, most)
			}
		}
		if tails[divide.Tail] > tails[divide.Proportional]*1.03 { // the tables of the models are not exact
			rt.Fatalf("a tail of %v, in proportion %v", tails[divide.Tail], tails[divide.Proportional])
		}
	})
}

// If the models have the section of DIAL, the cause comes from its classifier: here a slow disk, which no probe measures.
func TestPRIMANamesTheCauseByTheClassifier(t *testing.T) {
	s := golden("prima", 75, 0)
	e := engine(t, s, goldenModels(t))
	in := snap(t, 0, "i1 weight=0.5 use=0.2 cap=0.3 lat=50", "i2 weight=0.5 use=0.2 cap=0.5 lat=20")
	for i := range in.Instances {
		o, rate, slow := in.Instances[i].Observation, 200.0, 3.5
		if i == 0 {
			slow = 50
		}
		o.RequestRate, o.LatencyMS.P90, o.CPU = &rate, &slow, &quell.CPUTime{User: 0.1, System: 0.04}
		show(o, map[int]quell.Resource{0: quell.Disk}[i])
	}
	plan, _ := e.Decide(in, policy.State{})
	told := hasReason(plan, "classified", "i1") && hasReason(plan, "interference", "i1")
	if plan.Cause["i1"] != quell.Disk || len(plan.Cause) != 1 || !told {
		t.Errorf("causes %v: %v", plan.Cause, plan.Reasons)
	}
}
