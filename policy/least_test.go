package policy_test

import (
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// The threshold is 75 ms; "lat" is the measured mean response time.
func TestLeastOnce(t *testing.T) {
	for _, tc := range []struct {
		why    string
		policy string
		change func(*quell.Service)
		rows   []string
		want   string
	}{
		{"lsf: no violation, nothing happens", "lsf", nil, []string{"i1 weight=0.9 sf=3 lat=75", "i2 weight=0.1 sf=0 lat=10"}, "i1=0.9 i2=0.1"},
		{"lsf: shares of 0.75 and 0.25 in reverse", "lsf", nil,
			[]string{"i1 weight=0.5 sf=0.75 lat=90", "i2 weight=0.5 sf=0.25 lat=10"}, "i1=0.25 i2=0.75 violation shift"},
		{"lsf: of three, the middle one keeps its own", "lsf", nil,
			[]string{"i1 weight=0.4 sf=0.5 lat=90", "i2 weight=0.3 sf=0.3 lat=10", "i3 weight=0.3 sf=0.2 lat=10"},
			"i1=0.2 i2=0.3 i3=0.5 violation shift"},
		{"lsf: tied ones share equally", "lsf", nil,
			[]string{"i1 weight=0.4 sf=0.6 lat=90", "i2 weight=0.3 sf=0.2 lat=10", "i3 weight=0.3 sf=0.2 lat=10"},
			"i1=0.2 i2=0.4 i3=0.4 violation shift"},
		{"lsf: tied at the top share equally", "lsf", nil,
			[]string{"i1 weight=0.4 sf=0.4 lat=90", "i2 weight=0.3 sf=0.4 lat=10", "i3 weight=0.3 sf=0.2 lat=10"},
			"i1=0.3 i2=0.3 i3=0.4 violation shift"},
		{"lsf: all zero is equal", "lsf", nil, []string{"i1 weight=0.9 sf=0 lat=90", "i2 weight=0.1 sf=0 lat=10"},
			"i1=0.5 i2=0.5 violation shift"},
		{"lsf: all zero is equal beside what is not known", "lsf", nil,
			[]string{"i1 weight=0.7 sf=0 lat=90", "i2 weight=0.1 sf=0 lat=10", "i3 weight=0.2 lat=10"}, "i1=0.4 i2=0.4 i3=0.2 violation shift"},
		{"lsf: none against some is none of the load against all of it", "lsf", nil,
			[]string{"i1 weight=0.5 sf=0.5 lat=90", "i2 weight=0.5 sf=0 lat=10"}, "i1=0 i2=1 violation shift"},
		{"lsf: without a severity it keeps its share", "lsf", nil, []string{
			"i1 weight=0.4 sf=0.75 lat=90", "i2 weight=0.4 sf=0.25 lat=10", "i3 weight=0.2 lat=10",
		}, "i1=0.2 i2=0.6 i3=0.2 violation shift"},
		{"lsf: no severity at all: nothing can be done", "lsf", nil, []string{"i1 weight=0.9 lat=90", "i2 weight=0.1 lat=10"},
			"i1=0.9 i2=0.1 violation"},
		{"lr: 220 and 105 ms in reverse", "lr", nil,
			[]string{"i1 weight=0.5 lat=220", "i2 weight=0.5 lat=55"}, "i1=0.2 i2=0.8 violation shift"},
		{"lr: a new instance that has answered nothing keeps its first share", "lr", nil,
			[]string{"i1 weight=1 lat=220", "i2 weight=0"}, "i1=0.5 i2=0.5 violation shift"},
		{"lr: one instance gets another", "lr", nil, []string{"i1 weight=1 lat=80"}, "i1=1 +1 violation all_violate"},
		{"lr: all violate: one more, the weights stay", "lr", nil,
			[]string{"i1 weight=0.7 lat=80", "i2 weight=0.3 lat=90"}, "i1=0.7 i2=0.3 +1 violation violation all_violate"},
		{"lr: none while one starts", "lr", nil, []string{"i1 weight=1 lat=80", "i2 starting"}, "i1=1 violation all_violate"},
		{"lr: the group is full", "lr", groupMax(1), []string{"i1 weight=1 lat=80"}, "i1=1 violation overload"},
		{"lr: an old observation is no measurement", "lr", stale(1, 1000), []string{"i1 weight=1 lat=80 seen=30"}, "i1=1 stale"},
		{"lr: the first weights are equal", "lr", nil, []string{"i1", "i2"}, "i1=0.5 i2=0.5"},
		{"lr: a new one is welcomed with an equal share", "lr", nil,
			[]string{"i1 weight=0.8 lat=20", "i2 weight=0.2 lat=20", "i3 weight=0"}, "i1=0.533 i2=0.133 i3=0.333"},
		{"lr: no instances", "lr", nil, nil, "+1 group_min"},
		{"static: equal, whatever is measured", "static", nil, []string{"i1 weight=0.9 sf=3 lat=900", "i2 weight=0.1 sf=0 lat=10"},
			"i1=0.5 i2=0.5"},
		{"static: one instance", "static", nil, []string{"i1"}, "i1=1"},
		{"static: one more above the mean utilisation", "static", usage(.3), []string{"i1 use=0.5", "i2 use=0.2"},
			"i1=0.5 i2=0.5 +1 utilization"},
		{"static: not at it", "static", usage(.3), []string{"i1 use=0.4", "i2 use=0.2"}, "i1=0.5 i2=0.5"},
		{"static: an instance that tells nothing does not lower the mean", "static", usage(.3), []string{"i1 use=0.4", "i2 silent"},
			"i1=0.5 i2=0.5 +1 utilization"},
		{"static: what drains is still load", "static", usage(.3), []string{"i1 use=0.2", "i2 draining use=0.2"}, "i1=1 +1 utilization"},
		{"static: none while one starts", "static", usage(.3), []string{"i1 use=0.5", "i2 starting"}, "i1=1 utilization"},
		{"static: the group is full", "static", func(s *quell.Service) { usage(.3)(s); groupMax(1)(s) }, []string{"i1 use=0.5"}, "i1=1 overload"},
		{"static: no threshold, no scaling", "static", nil, []string{"i1 use=0.9"}, "i1=1"},
		{"static: nothing known", "static", usage(.3), []string{"i1 silent"}, "i1=1"},
	} {
		t.Run(tc.why, func(t *testing.T) {
			play(t, engine(t, guarding(tc.policy, orNothing(tc.change)), goldenModels(t)), at(tc.want, tc.rows...))
		})
	}
}

func usage(v float64) func(*quell.Service) {
	return func(s *quell.Service) { tell(s, "Utilization", v) }
}

func TestLeastSequences(t *testing.T) {
	violated := []string{"i1 weight=0.5 sf=0.75 lat=90", "i2 weight=0.5 sf=0.25 lat=10"}
	fine := []string{"i1 weight=0.5 sf=0.75 lat=70", "i2 weight=0.5 sf=0.25 lat=10"}
	busy := []string{"i1 use=0.5"}
	for _, tc := range []struct {
		why    string
		policy string
		change func(*quell.Service)
		steps  []step
	}{
		{"a violation must be confirmed", "lsf", confirm(2), []step{
			at("i1=0.5 i2=0.5 violation confirming", violated...), at("i1=0.5 i2=0.5 violation confirming", violated...),
			at("i1=0.25 i2=0.75 violation shift", violated...),
		}},
		{"a calm snapshot begins anew", "lsf", confirm(1), []step{
			at("i1=0.5 i2=0.5 violation confirming", violated...), at("i1=0.5 i2=0.5", fine...),
			at("i1=0.5 i2=0.5 violation confirming", violated...),
		}},
		{"weights stay after the violation", "lsf", confirm(0), []step{
			at("i1=0.25 i2=0.75 violation shift", violated...),
			at("i1=0.25 i2=0.75", "i1 weight=0.25 sf=0.5 lat=50", "i2 weight=0.75 sf=0.5 lat=50"),
		}},
		{"a share of 0 that was given stays 0", "lsf", confirm(0), []step{
			at("i1=0 i2=1 violation shift", "i1 weight=0.5 sf=0.5 lat=90", "i2 weight=0.5 sf=0 lat=10"),
			at("i1=0 i2=1", "i1 weight=0 sf=0.5 lat=20", "i2 weight=1 sf=0 lat=20"),
		}},
		{"Figure 3: a new one waits for its first severity, which gives it its share", "lsf", confirm(1), []step{
			at("i1=1 violation confirming", "i1 weight=1 use=0.4 sf=0.75 lat=90"),
			at("i1=1 +1 violation all_violate", "i1 weight=1 use=0.4 sf=0.75 lat=90"),
			at("i1=1 i2=0 violation shift", "i1 weight=1 use=0.4 sf=0.75 lat=90", "i2 weight=0"),
			at("i1=0.25 i2=0.75 violation shift", "i1 weight=1 use=0.4 sf=0.75 lat=90", "i2 weight=0 use=0 sf=0.25"),
		}},
		{"Figure 2: alike in severity, alike in load", "lsf", confirm(0), []step{
			at("i1=0.5 i2=0.5 violation shift", "i1 weight=1 use=0.4 sf=0.75 lat=90", "i2 weight=0 use=0 sf=0.75"),
		}},
		{"one that comes when nothing violates gets an equal share, with its first severity", "lsf", confirm(0), []step{
			at("i1=1 i2=0", "i1 weight=1 sf=0.75 lat=20", "i2 weight=0"),
			at("i1=0.5 i2=0.5", "i1 weight=1 sf=0.75 lat=20", "i2 weight=0 use=0 sf=0.25"),
		}},
		{"it is not waited for for ever, though it reports", "lsf", stale(2, 4), []step{
			at("i1=1 i2=0", "i1 weight=1 use=0.1 sf=0 lat=20", "i2 weight=0 use=0"),
			at("i1=1 i2=0", "i1 weight=1 use=0.1 sf=0 lat=20", "i2 weight=0 use=0"),
			at("i1=0.5 i2=0.5", "i1 weight=1 use=0.1 sf=0 lat=20", "i2 weight=0 use=0"),
			at("i1=0.5 i2=0.5", "i1 weight=0.5 use=0.1 sf=0 lat=20", "i2 weight=0.5 use=0.1"),
		}},
		{"the guard ends the wait for one that never tells a severity", "lsf", stale(2, 4), []step{
			at("i1=1 i2=0", "i1 weight=1 sf=0 lat=20", "i2 weight=0 silent"), at("i1=1 i2=0", "i1 weight=1 sf=0 lat=20", "i2 weight=0 silent"),
			at("i1=0.875 i2=0.125 stale", "i1 weight=1 sf=0 lat=20", "i2 weight=0 silent"),
		}},
		{"the welcome is repeated until it is in force", "lr", confirm(0), []step{
			at("i1=0.5 i2=0.5", "i1 weight=1 lat=20", "i2 weight=0"), at("i1=0.5 i2=0.5", "i1 weight=1 lat=20", "i2 weight=0"),
		}},
		{"one that failed and came back is welcomed again", "lr", confirm(0), []step{
			at("i1=0.5 i2=0.5", "i1 weight=0.5", "i2 weight=0.5"), at("i1=1", "i1 weight=1", "i2 failed"),
			at("i1=0.5 i2=0.5", "i1 weight=1", "i2 weight=0"),
		}},
		{"a floor does not count as a welcome's end", "lsf", floor(.1), []step{
			at("i1=0.05 i2=0.95 violation shift", "i1 weight=0.5 use=0.1 sf=0.5 lat=90", "i2 weight=0.5 use=0.1 sf=0 lat=10"),
			at("i1=0.05 i2=0.95", "i1 weight=0.05 use=0.1 sf=0.5 lat=20", "i2 weight=0.95 use=0.1 sf=0 lat=20"),
		}},
		{"static confirms too", "static", func(s *quell.Service) { usage(.3)(s); confirm(1)(s) }, []step{
			at("i1=1", busy...), at("i1=1 +1 utilization", busy...), at("i1=1", "i1 use=0.1"), at("i1=1", busy...),
		}},
	} {
		t.Run(tc.why, func(t *testing.T) {
			play(t, engine(t, guarding(tc.policy, tc.change), goldenModels(t)), tc.steps...)
		})
	}
}

// LR starts a second instance. The new one must get load although it has no response time yet, while the first one
// still violates the objective.
func TestLRDoesNotStarveANewInstance(t *testing.T) {
	e := engine(t, guarding("lr", confirm(1)), nil)
	var st policy.State
	var last quell.Plan
	for k, rows := range [][]string{
		{"i1 weight=1 lat=200"}, {"i1 weight=1 lat=200"}, {"i1 weight=1 lat=200", "i2 starting"}, {"i1 weight=1 lat=200", "i2 weight=0"},
		{"i1 lat=150", "i2"}, {"i1 lat=150", "i2 lat=50"},
	} {
		in := snap(t, k, rows...)
		follow(in, last)
		last, st = e.Decide(in, st)
		if want := []string{
			"i1=1 violation confirming", "i1=1 +1 violation all_violate", "i1=1 violation all_violate", "i1=0.5 i2=0.5 violation shift",
			"i1=0.5 i2=0.5 violation shift", "i1=0.25 i2=0.75 violation shift",
		}[k]; brief(last) != want {
			t.Errorf("snapshot %d: got %s, want %s", k, brief(last), want)
		}
	}
}
