package sim

import (
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// erringScenario has n machines. From 20.5 s on, one of them answers a share of its requests with errors.
func erringScenario(n int, share float64) *scenario.Scenario {
	sc := plainScenario(n, 0.3, 40e6, 2*time.Minute)
	sc.Workload.Size = 25_000
	sc.Timeline = []scenario.Event{{At: 20500 * time.Millisecond, Errors: &scenario.Errors{Host: "h3", Share: share}, Mark: "errors"}}
	return sc
}

func staticRun(e scenario.Ejection) scenario.Run {
	return scenario.Run{Policy: quell.Policy{Name: "static"}, Scheduling: quell.RoundRobin, Balancer: scenario.Envoy, Ejection: e}
}

var byDefault = staticRun(scenario.EjectionDefaults)

// The configured share of requests is answered with errors, and the other requests do not change.
func TestErrors(t *testing.T) {
	for _, share := range []float64{1, 0.3, 0} {
		sc := erringScenario(5, share)
		r := played(t, Options{Scenario: sc, Run: staticRun("")})
		if !reflect.DeepEqual(r, played(t, Options{Scenario: sc, Run: staticRun("")})) {
			t.Error("the same options give another result")
		}
		want := share * float64(r.Requests) / 5 * (120 - 20.5) / 120
		if off := math.Abs(float64(r.Errors) - want); off > 4*math.Sqrt(want+1) {
			t.Errorf("%d of %d requests failed, want about %.0f", r.Errors, r.Requests, want)
		}
		if r.ReactionS != nil {
			t.Errorf("nobody reacts, and the reaction is %+v", r.ReactionS)
		}
	}
}

// An instance that fails all requests is ejected at the fifth failure, for at least 30 s; then, after five more, for 60 s. It returns at
// the end of an interval of 10 s.
func TestEjectionByConsecutiveFailures(t *testing.T) {
	var changes []float64
	r, err := Run(t.Context(), Options{Scenario: erringScenario(10, 1), Run: byDefault, check: func(s *simulation) error {
		for _, at := range s.changes {
			changes = append(changes, at.Seconds())
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if len(changes) != 3 || r.Errors != 10 || r.ReactionS.Max > 1 {
		t.Fatalf("changes at %v s, %d errors, reaction %+v", changes, r.Errors, r.ReactionS)
	}
	if back, again := changes[1]-changes[0], changes[2]-changes[1]; back < 30 || back > 40 || again > 1 {
		t.Errorf("ejected at %v: back after %g s and out again after %g s", changes, back, again)
	}
}

// Failed responses lead to an ejection, slow responses never do, and at most max_ejection_percent of the hosts are ejected.
func TestEjectionRules(t *testing.T) {
	slow := plainScenario(10, 0.3, 40e6, time.Minute)
	slow.Hosts[2].Network = 16e6
	for name, c := range map[string]struct {
		sc     *scenario.Scenario
		how    scenario.Ejection
		within float64 // seconds from the mark; 0: nothing is ejected
	}{
		"one of ten is slow, by default":              {slow, scenario.EjectionDefaults, 0},
		"one of ten fails, by default":                {erringScenario(10, 1), scenario.EjectionDefaults, 1},
		"one of nine fails: 11% are too many":         {erringScenario(9, 1), scenario.EjectionDefaults, 0},
		"one of nine fails, tuned":                    {erringScenario(9, 1), scenario.EjectionTuned, 1},
		"a third of one's fails: its success rate":    {erringScenario(10, 0.3), scenario.EjectionDefaults, 22},
		"a third of one's fails, tuned":               {erringScenario(10, 0.3), scenario.EjectionTuned, 3},
		"one of three fails, tuned: 33% are too many": {erringScenario(3, 1), scenario.EjectionTuned, 0},
		"nothing fails, by default":                   {erringScenario(10, 0), scenario.EjectionDefaults, 0},
		"nothing fails, tuned":                        {erringScenario(10, 0), scenario.EjectionTuned, 0},
		"one of ten fails, and the detection is off":  {erringScenario(10, 1), "", 0},
	} {
		r := played(t, Options{Scenario: c.sc, Run: staticRun(c.how)})
		if c.within == 0 && r.ReactionS != nil || c.within > 0 && (r.ReactionS == nil || r.ReactionS.Max > c.within) {
			t.Errorf("%s: reaction %+v, want within %g s", name, r.ReactionS, c.within)
		}
	}
}

// Under the tuned settings Envoy gives up requests after a second, so an instance that hangs is ejected. By default clients give up
// first, and Envoy learns nothing.
func TestEjectionOfAnInstanceThatHangs(t *testing.T) {
	sc := plainScenario(10, 0.3, 40e6, time.Minute)
	sc.Workload.Size = 25_000
	sc.Timeline = []scenario.Event{
		{At: 20 * time.Second, Interfere: &scenario.Interference{Host: "h3", Resource: quell.Network, Use: 1}, Mark: "stuck"},
	}
	fluid := func(e scenario.Ejection) scenario.Result {
		return played(t, Options{Scenario: sc, Run: staticRun(e), Fluid: true})
	}
	if r := fluid(scenario.EjectionTuned); r.ReactionS == nil || r.ReactionS.Max < 1 || r.ReactionS.Max > 2 {
		t.Errorf("tuned: %+v", r.ReactionS)
	}
	if r := fluid(scenario.EjectionDefaults); r.ReactionS != nil {
		t.Errorf("by default: %+v", r.ReactionS)
	}
}

// The balancer picks from all instances except the ejected ones.
func TestEjectedInstancesGetNothing(t *testing.T) {
	var weights []bool
	_, err := Run(t.Context(), Options{Scenario: erringScenario(10, 1), Run: byDefault, check: func(s *simulation) error {
		for _, in := range s.instances {
			weights = append(weights, slices.Contains(s.balancer.instances, in))
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i, balanced := range weights {
		if balanced == (i == 2) {
			t.Errorf("instance %d is among those that get requests: %v", i+1, balanced)
		}
	}
}
