package policy_test

import (
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// rising is a group of two instances whose probes take a time in ms, and whose requests take another.
func rising(at time.Time, probeMS, responseMS [2]float64) *quell.Snapshot {
	s := &quell.Snapshot{At: at, Service: "shop"}
	for i, id := range []string{"a", "b"} {
		weight, mean := 0.5, responseMS[i]
		o := &quell.Observation{At: at, WindowS: 10, Utilization: map[quell.Resource]float64{quell.Network: 0.3},
			Probe: map[quell.Resource]quell.ProbeStats{quell.Network: {MeanMS: probeMS[i], StddevMS: 1, N: 20}}}
		if mean > 0 {
			o.LatencyMS = &quell.Latency{Mean: &mean, N: 100}
		}
		s.Instances = append(s.Instances, quell.Instance{ID: id, State: quell.Ready, Weight: &weight, Observation: o})
	}
	return s
}

// Severities that rise together count if requests are slower, too; else not, until something else shows neighbours.
func TestWhoseSeveritiesAreDoubted(t *testing.T) {
	service := quell.DefaultService()
	service.Name, service.SLO = "shop", quell.SLO{Metric: quell.Mean, Threshold: 300 * time.Millisecond}
	service.Group.Max = 2
	e, err := all.NewEngine(service, goldenModels(t))
	if err != nil {
		t.Fatal(err)
	}
	alone, _, _ := e.Contended()[0].Baseline.Isolation(0.3)
	slow := 3 * alone
	for why, c := range map[string]struct {
		probes, responses [2]float64
		periods           int
		doubted           []string
	}{
		"both rise, and requests do not":          {[2]float64{slow, slow}, [2]float64{20, 20}, 3, []string{"a", "b"}},
		"they stay for long":                      {[2]float64{slow, slow}, [2]float64{20, 20}, 30, []string{"a", "b"}},
		"requests are as much slower":             {[2]float64{slow, slow}, [2]float64{60, 60}, 3, nil},
		"requests of one are slower":              {[2]float64{slow, slow}, [2]float64{60, 20}, 3, nil},
		"only one rises":                          {[2]float64{slow, alone}, [2]float64{20, 20}, 3, nil},
		"requests miss the objective":             {[2]float64{slow, slow}, [2]float64{301, 301}, 3, nil},
		"no response times, for some periods":     {[2]float64{slow, slow}, [2]float64{}, 3, []string{"a", "b"}},
		"no response times, and it does not pass": {[2]float64{slow, slow}, [2]float64{}, policy.UnmeasuredFor + 2, nil},
	} {
		var st policy.State
		var plan quell.Plan
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for k := range 5 + c.periods {
			at = at.Add(10 * time.Second)
			s := rising(at, [2]float64{alone, alone}, [2]float64{20, 20})
			if k >= 5 {
				s = rising(at, c.probes, c.responses)
			}
			plan, st = e.Decide(s, st)
		}
		var got []string
		for id, p := range st.Probed {
			if p.Doubted {
				got = append(got, id)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, c.doubted) {
			t.Errorf("%s: doubted are %v, want %v", why, got, c.doubted)
		}
		told := slices.ContainsFunc(plan.Reasons, func(r quell.Reason) bool { return r.Code == "prober" })
		if told != (c.doubted != nil) || told && len(plan.Cause) > 0 {
			t.Errorf("%s: the prober is named: %v, accused are %v", why, told, plan.Cause)
		}
	}
}
