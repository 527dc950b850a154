package policy_test

import (
	"math"
	"slices"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// waitingModels are the golden models of the processor, whose training showed that waiting tells the neighbours' use.
func waitingModels(t *testing.T) *model.Models {
	m := twins(goldenModels(t))
	m.Prima().Isolation[quell.CPU] = slices.Clone(m.Prima().Isolation[quell.CPU])
	for i := range m.Prima().Isolation[quell.CPU] {
		m.Prima().Isolation[quell.CPU][i].Waits = new(0.)
	}
	return m
}

// besideOthers is an instance of one processor that uses own of it, while its tasks wait as long as beside neighbours that use others. Its
// probes take that long.
func besideOthers(own, others, probeMS float64) *quell.Observation {
	busy := own + others
	wait := 10 * own * busy / (1 - busy)
	return &quell.Observation{WindowS: 10, Utilization: map[quell.Resource]float64{quell.CPU: own},
		Probe: map[quell.Resource]quell.ProbeStats{quell.CPU: {MeanMS: probeMS, N: 10}},
		Sched: &quell.Sched{Cores: 1, Group: true, RunS: 10 * own, WaitS: &wait}}
}

func TestTheOwnWaitingTellsTheNeighboursUse(t *testing.T) {
	const calm, slow = 10, 40 // probe times
	type reading struct{ own, others, probeMS float64 }
	for _, tc := range []struct {
		why      string
		readings []reading
		confirm  int
		want     float64 // U_int
		byWaits  bool
	}{
		{"neighbours", []reading{{.3, .4, calm}}, 0, .4, true},
		{"none, whatever the probes say", []reading{{.3, 0, slow}}, 0, 0, true},
		{"too little to count", []reading{{.3, .08, slow}}, 0, 0, true},
		{"tasks that have just started", []reading{{.004, .4, calm}}, 0, 0, false},
		{"little work later counts little", []reading{{.3, .4, calm}, {.002, .9, calm}}, 0, .5, true},
		{"and enough work counts wholly", []reading{{.3, .4, calm}, {.01, .9, calm}}, 0, .9, true},
		{"gone", []reading{{.3, .4, calm}, {.3, 0, calm}}, 0, 0, true},
		{"one period without them is not the end", []reading{{.3, .4, calm}, {.3, .4, calm}, {.3, 0, calm}}, 1, .4, true},
		{"two are", []reading{{.3, .4, calm}, {.3, .4, calm}, {.3, 0, calm}, {.3, 0, calm}}, 1, 0, true},
	} {
		s := golden("prima", 75, tc.confirm)
		tell(&s, "Resources", policy.ResourcesOf(quell.CPU))
		e, st := engine(t, s, waitingModels(t)), policy.State{}
		for k, r := range tc.readings {
			in := snap(t, k, "i1 weight=1")
			at := in.Instances[0].Observation.At
			in.Instances[0].Observation = besideOthers(r.own, r.others, r.probeMS)
			in.Instances[0].Observation.At = at
			_, st = e.Decide(in, st)
		}
		felt := st.Instances["i1"].Felt
		if (felt.Taken != nil) != tc.byWaits || felt.Severity == nil {
			t.Errorf("%s: %+v", tc.why, felt)
			continue
		}
		if x := e.Interference(&st, "i1", nil)[quell.CPU]; x.Hidden == nil || math.Abs(*x.Hidden-tc.want) > 1e-6 {
			t.Errorf("%s: neighbours' use %v, want %v", tc.why, x.Hidden, tc.want)
		}
		if significant := tc.want > 0; felt.Significant != significant || (*felt.Severity > 0) != significant {
			t.Errorf("%s: severity %v, significant %t", tc.why, *felt.Severity, felt.Significant)
		}
	}
}

// The capacity follows from the use that the waiting tells, and a correction of severity can only lower it.
func TestCapacityByTheOwnWaiting(t *testing.T) {
	p, err := model.Compile(waitingModels(t), model.Spec{
		Resource: quell.CPU, Metric: quell.Mean, InterferenceModel: quell.Joint, Confidence: .95,
	})
	if err != nil {
		t.Fatal(err)
	}
	sf := p.SeverityAt(.3, .4)
	told := policy.Sense{Use: .3, Severity: sf, Measured: sf, Taken: new(.4)}
	if got := told.Neighbours(p); got != .4 {
		t.Errorf("%v", got)
	}
	told.Severity = 2 * sf
	if got := told.Neighbours(p); got <= .4 {
		t.Errorf("a correction to twice the severity gives %v", got)
	}
	told.Severity = sf / 2
	if got := told.Neighbours(p); got != .4 {
		t.Errorf("a lower severity gives %v", got)
	}
}
