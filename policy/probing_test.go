package policy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// Probes of another size than the models were made with give no severity: the plan says so, and the instance counts as unprobed.
func TestProbesOfAnotherSizeAreNotUsed(t *testing.T) {
	models := goldenModels(t)
	trained := *models.Trained
	trained.By = map[quell.Resource]quell.Probing{quell.Network: {Bytes: 10_000, Count: 89}}
	models.Trained = &trained
	for _, tc := range []struct {
		why string
		by  *quell.Probing
		use bool
	}{
		{"as trained", &quell.Probing{Bytes: 10_000, Count: 8}, true},
		{"nearly", &quell.Probing{Bytes: 10_400}, true},
		{"not told", nil, true},
		{"larger ones", &quell.Probing{Bytes: 125_000, Count: 8}, false},
	} {
		t.Run(tc.why, func(t *testing.T) {
			s := golden("prima", 75, 0)
			s.Guard.StaleAfter = 2
			e := engine(t, s, models)
			var st policy.State
			var plan quell.Plan
			for k := range 5 {
				in := snap(t, k, "i1 weight=1 use=0.3 probe=40")
				probe := in.Instances[0].Observation.Probe[quell.Network]
				probe.By = tc.by
				in.Instances[0].Observation.Probe[quell.Network] = probe
				plan, st = e.Decide(in, st)
			}
			if _, felt := plan.Severity["i1"]; felt != tc.use || hasReason(plan, "probed_otherwise", "") == tc.use ||
				st.Instances["i1"].Unprobed == tc.use {
				t.Fatalf("severity %v, unprobed %v\n%v", plan.Severity, st.Instances["i1"].Unprobed, plan.Reasons)
			}
			if !tc.use && !strings.Contains(plan.Reasons[len(plan.Reasons)-1].Text, "probes of 10000 bytes, and i1: 125000 bytes") {
				t.Error(plan.Reasons)
			}
		})
	}
}

// If several resources are considered, each has its own probes.
func TestProbesOfAnotherSizeAreToldByResource(t *testing.T) {
	models := twins(goldenModels(t))
	models.Trained.By = map[quell.Resource]quell.Probing{quell.Network: {Bytes: 10_000}, quell.CPU: {Bytes: 20_000}}
	in := snap(t, 0, "i1 weight=1 use=0.3 cpu=0.3")
	like := quell.ProbeStats{MeanMS: 40, N: 10, By: &quell.Probing{Bytes: 10_000}}
	in.Instances[0].Observation.Probe = map[quell.Resource]quell.ProbeStats{quell.Network: like, quell.CPU: like}
	plan, st := engine(t, both(0), models).Decide(in, policy.State{})
	if felt := st.Instances["i1"].Of; felt[quell.Network].Severity == nil || felt[quell.CPU].Severity != nil {
		t.Errorf("%+v", felt)
	}
	const want = "the models of the cpu were made with probes of 20000 bytes, and i1: 10000 bytes tell no severity by them"
	if !slices.ContainsFunc(plan.Reasons, func(r quell.Reason) bool { return strings.HasPrefix(r.Text, want) }) {
		t.Error(plan.Reasons)
	}
}
