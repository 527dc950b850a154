package sim

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/policy"
)

// A server that is stuck loses its share within two seconds where a fast policy runs beside equal weights, and fewer requests wait for it;
// in calm nothing is cut.
func TestAFastPolicyCutsInTime(t *testing.T) {
	for _, name := range []string{"linkerd-stuck", "envoy-slow"} {
		sc, err := scenario.Load(filepath.Join("..", "..", "examples", "scenarios", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		sc.Service.Sampling, sc.Timeline = 10*time.Second, sc.Timeline[:1]
		run := scenario.Run{Policy: quell.Policy{Name: policy.Plain}, Scheduling: quell.RoundRobin}
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
