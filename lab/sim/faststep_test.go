package sim

import (
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/policy/table"
)

// If a fast policy runs beside a policy with equal weights, a stuck server loses its share within two seconds, so fewer requests wait for
// it. Without a fault nothing is cut.
func TestAFastPolicyCutsInTime(t *testing.T) {
	for _, name := range []string{"linkerd-stuck", "envoy-slow"} {
		sc, err := scenario.Load(filepath.Join("..", "..", "examples", "scenarios", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		sc.Service.Sampling, sc.Timeline = 10*time.Second, sc.Timeline[:1]
		run := scenario.Run{Policy: quell.Policy{Name: table.All.Plain()}, Scheduling: quell.RoundRobin}
		alone := played(t, Options{Scenario: sc, Run: run})
		run.Policy.Fast = quell.Fast{Name: "outlier"}
		cut := played(t, Options{Scenario: sc, Run: run})
		if cut.SLO.ViolationS > alone.SLO.ViolationS/4 || cut.Errors > alone.Errors || *cut.LatencyMS.Mean > *alone.LatencyMS.Mean/2 {
			t.Errorf("%s: %+v in violation, mean %g ms; without %+v, %g ms", name, cut.SLO, *cut.LatencyMS.Mean, alone.SLO, *alone.LatencyMS.Mean)
		}
		if cut.ReactionS == nil || cut.ReactionS.Max > 2 {
			t.Errorf("%s: the first cut comes after %+v", name, cut.ReactionS)
		}
		sc.Timeline = nil
		if calm := played(t, Options{Scenario: sc, Run: run}); calm.Decisions > 0 {
			t.Errorf("%s without its neighbour: %d decisions", name, calm.Decisions)
		}
	}
}

// In an hour without faults nothing is cut, although the load rises and falls threefold, under schedulings that spread requests evenly or
// unevenly.
func TestAFastPolicyIsCalmInCalm(t *testing.T) {
	sc, err := scenario.Load(filepath.Join("..", "..", "examples", "scenarios", "linkerd-stuck.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	sc.Service.Sampling, sc.Duration, sc.Timeline = 10*time.Second, time.Hour, nil
	const least, most = 0.8, 2.4 // lowest and highest load: a tenth and a quarter of what 11 machines can carry
	sc.Workload.Load = least
	for at := 5 * time.Minute; at < sc.Duration; at += 5 * time.Minute {
		load := least + (most-least)*(1-math.Cos(at.Minutes()/30*2*math.Pi))/2
		sc.Timeline = append(sc.Timeline, scenario.Event{At: at, Load: &load})
	}
	sc.Service.SLO.Threshold = 6 * time.Millisecond // nearly every window misses it, so only the policy's bands prevent cuts
	for _, scheduling := range []quell.Scheduling{quell.RoundRobin, quell.LeastConn} {
		run := scenario.Run{Policy: quell.Policy{Name: table.All.Plain(), Fast: quell.Fast{Name: "outlier"}}, Scheduling: scheduling}
		if calm := played(t, Options{Scenario: sc, Run: run}); calm.Decisions > 0 || calm.Requests < 500_000 {
			t.Errorf("%s: %d decisions in an hour of calm, of %d requests", scheduling, calm.Decisions, calm.Requests)
		}
	}
}
