package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// probing is a service that waits for readings of its instances as long as guard.stale_after says.
func probing(staleAfter int) quell.Service {
	s := golden("prima", 75, 1)
	s.Guard.StaleAfter, s.Guard.Fade, s.Guard.Floor = staleAfter, 10, 0.05
	tell(&s, "Headroom", 1)
	return s
}

func added(p quell.Plan) int {
	if p.Group == nil {
		return 0
	}
	return p.Group.Add
}

// The policy waits for an instance that reports but is never probed, but only for a limited time. After that the group grows without it,
// and the plan says so.
func TestAnUnprobedInstanceDoesNotStopScaleOut(t *testing.T) {
	for _, tc := range []struct{ staleAfter, waits int }{{3, 3}, {1, 1}, {8, 8}, {0, policy.DefaultPatience}} {
		t.Run(fmt.Sprintf("stale_after %d", tc.staleAfter), func(t *testing.T) {
			e := engine(t, probing(tc.staleAfter), withPerRequest(t, 0.01))
			var st policy.State
			first := -1
			for k := range 40 {
				var plan quell.Plan
				plan, st = e.Decide(snap(t, k, "arrivals=100", "b weight=1 use=0.9 sf=0", "n weight=0 use=0"), st)
				if first < 0 && added(plan) > 0 {
					first = k
				}
				if said, want := hasReason(plan, "unprobed", "n"), k >= tc.waits; said != want || st.Instances["n"].Unprobed != want {
					t.Errorf("snapshot %d: told: %v, remembered: %v, want %v", k, said, st.Instances["n"].Unprobed, want)
				}
			}
			if want := max(tc.waits, 1); first != want {
				t.Errorf("the first addition is in snapshot %d, want %d", first, want)
			}
		})
	}
}

// If the agent reports why its probes fail, the plan says it, in place of the guess that the port is closed.
func TestTheReasonOfFailedProbesIsTold(t *testing.T) {
	e := engine(t, probing(1), withPerRequest(t, 0.01))
	var st policy.State
	var plan quell.Plan
	for k := range 4 {
		s := snap(t, k, "arrivals=100", "b weight=1 use=0.1 sf=0", "n weight=0 use=0")
		s.Instances[1].Observation.ProbeFailed = map[quell.Resource]string{quell.CPU: "its clock is too coarse"}
		plan, st = e.Decide(s, st)
	}
	i := slices.IndexFunc(plan.Reasons, func(r quell.Reason) bool { return r.Code == "unprobed" })
	if i < 0 || !strings.Contains(plan.Reasons[i].Text, "Its agent reports: cpu: its clock is too coarse") {
		t.Errorf("%+v", plan.Reasons)
	}
}

func TestAnUnprobedInstanceDoesNotStopScaleIn(t *testing.T) {
	e := engine(t, probing(3), goldenModels(t))
	rows := []string{"a weight=0.5 use=0.1 cap=0.5", "b weight=0.5 use=0.1 cap=0.5", "n weight=0 use=0"}
	var st policy.State
	var removed []int
	for k := range 8 {
		var plan quell.Plan
		if plan, st = e.Decide(snap(t, k, rows...), st); plan.Group != nil && slices.Equal(plan.Group.Remove, []string{"b"}) {
			removed = append(removed, k)
		}
	}
	if !slices.Equal(removed, []int{4, 5, 6, 7}) {
		t.Errorf("b may go in snapshots %v, want it from the second after the wait", removed)
	}
}

// If no instance was ever probed, capacities are unknown: nothing is done, and the plan says so.
func TestNobodyIsProbed(t *testing.T) {
	e := engine(t, probing(3), withPerRequest(t, 0.01))
	var st policy.State
	for k := range 20 {
		var plan quell.Plan
		plan, st = e.Decide(snap(t, k, "arrivals=100", "a weight=0.5 use=0.5", "b weight=0.5 use=0.5"), st)
		if plan.Group != nil || !hasReason(plan, "unprobed", "") {
			t.Errorf("snapshot %d: %s", k, brief(plan))
		}
		if told := hasReason(plan, "unprobed", "a") && hasReason(plan, "unprobed", "b"); told != (k >= 3) {
			t.Errorf("snapshot %d: %v", k, plan.Reasons)
		}
	}
}

// If none of the new instances is probed, they get an equal share and carry it: the group does not grow to its maximum.
func TestUnprobedInstancesCarryTheirShare(t *testing.T) {
	s := probing(3)
	s.Group.Max = 50
	e := engine(t, s, withPerRequest(t, 0.01))
	ids, weights := []string{"b"}, map[string]float64{"b": 1}
	var st policy.State
	grown := 0 // the last snapshot that added one
	for k := range 120 {
		rows := []string{"arrivals=100"}
		for _, id := range ids {
			row := fmt.Sprintf("%s weight=%v use=%v", id, weights[id], min(weights[id], .95))
			if id == "b" {
				row += " sf=0"
			}
			rows = append(rows, row)
		}
		var plan quell.Plan
		plan, st = e.Decide(snap(t, k, rows...), st)
		weights = plan.Weights
		for range added(plan) {
			ids, grown = append(ids, fmt.Sprintf("n%d", len(ids))), k
		}
	}
	if len(ids) > 8 || grown > 60 {
		t.Errorf("%d instances for a load of 1, the last one asked for in snapshot %d", len(ids), grown)
	}
	if w := weights["n1"]; w < 0.9/float64(len(ids)) {
		t.Errorf("an unprobed instance ends with %.3f of the traffic", w)
	}
}

// The first measured severity of an instance ends this state.
func TestAnUnprobedInstanceIsProbedAtLast(t *testing.T) {
	e := engine(t, probing(3), goldenModels(t))
	var st policy.State
	for k := range 10 {
		_, st = e.Decide(snap(t, k, "b weight=1 use=0.4 sf=0", "n weight=0 use=0"), st)
	}
	plan, st := e.Decide(snap(t, 10, "b weight=1 use=0.4 sf=0", "n weight=0 use=0 sf=0"), st)
	n := st.Instances["n"]
	if n.Unprobed || n.UnratedFor != 0 || n.StaleFor != 0 || hasReason(plan, "unprobed", "n") || plan.Capacity["n"] != .5 {
		t.Errorf("%+v, %s", n, brief(plan))
	}
}

// The plan names the missing readings.
func TestWhatIsMissingIsNamed(t *testing.T) {
	for _, tc := range []struct{ row, code, want string }{
		{"n weight=0 use=0", "unprobed", "no severity of n for 4 period(s)"},
		{"n weight=0 cap=0.5", "stale", "no utilisation of n for 4 period(s)"},
		{"n weight=0 silent", "stale", "no reading of n for 4 period(s)"},
	} {
		e := engine(t, probing(3), goldenModels(t))
		var plan quell.Plan
		var st policy.State
		for k := range 4 {
			plan, st = e.Decide(snap(t, k, "b weight=1 use=0.4 sf=0", tc.row), st)
		}
		if !slices.ContainsFunc(plan.Reasons, func(r quell.Reason) bool { return r.Code == tc.code && strings.HasPrefix(r.Text, tc.want) }) {
			t.Errorf("%q: %v, want %s: %s", tc.row, plan.Reasons, tc.code, tc.want)
		}
	}
}
