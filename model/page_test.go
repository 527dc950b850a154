package model

import (
	"fmt"
	"math"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/golden"
)

// The page about learning states the constants as they are.
func TestPageOfLearning(t *testing.T) {
	rule := func(s quell.Scheduling) string {
		known := priorOf(s)
		return fmt.Sprintf("%g and %g for", known.pooling.Mean, known.exponent.Mean)
	}
	golden.Says(t, "learning.md",
		fmt.Sprintf("(%.1f for p90, %.1f for p95, %.1f for p99)", minRatio[quell.P90], minRatio[quell.P95], minRatio[quell.P99]),
		"A reading needs "+golden.Word(wholeWindow)+" probes",
		fmt.Sprintf("explains less than %.0f%% of what", 100/manyMore),
		fmt.Sprintf("with an exponent of %g: random arrivals", othersExponent),
		fmt.Sprintf("k is at least %d,", minStated),
		fmt.Sprintf("If %d readings show a larger k", ownFrom),
		fmt.Sprintf("response time of %s periods in a row is %.0f%% longer", golden.Word(driftAfter), 100*math.Expm1(band)),
		"a single instance needs "+golden.Word(driftWindows)+" periods",
		fmt.Sprintf("less than %.0f%% of the resource is free", 100*minFree),
		fmt.Sprintf("Every %s periods the older half", golden.Word(creepEvery)),
		fmt.Sprintf("differ by more than %.0f%%, and by more than chance", 100*math.Expm1(minCreep)),
		fmt.Sprintf("%.0f times as long or as short as usual", math.Exp(wildGap)),
		fmt.Sprintf("They teach nothing for %d periods", wildAfter),
		fmt.Sprintf("until it has %d readings of its own", ownFrom),
		fmt.Sprintf("at most %d readings for each resource and type", maxWindows),
		fmt.Sprintf("at most %s types. A type that has been gone for %d periods", golden.Word(maxTypes), goneAfter),
		fmt.Sprintf("0%% for plus or minus %g", unknownAt),
		"Until at least "+golden.Word(minKnown)+" readings agree",
		rule(quell.LeastConn)+" `leastconn` and `roundrobin`",
		rule(quell.Random2)+" `random2`, `ewma` and `prequal`", rule("")+" others",
		fmt.Sprintf("divided by 1 + %g (margin - 1). The divisor is at most %g.", reservedPart, 1+maxReserved),
		fmt.Sprintf("as soon as %d predictions within a factor of two", minErrors),
		"After "+golden.Word(unlikeAfter)+" periods earlier readings are dropped",
	)
	for _, s := range quell.Schedulings {
		alike := map[quell.Scheduling]quell.Scheduling{quell.RoundRobin: quell.LeastConn, quell.EWMA: quell.Random2, quell.Prequal: quell.Random2}
		if other, told := alike[s]; told && rule(s) != rule(other) || !told && s == quell.LeastTime && rule(s) != rule("") {
			t.Errorf("the page says another prior of %s than %s", s, rule(s))
		}
	}
	if 1.96*narrow < 0.28 || 1.96*narrow > 0.32 {
		t.Errorf("readings agree within %.0f%%, and the page says about 30%%", 196*narrow)
	}
}

// The page of dial says how much higher a bound is for few requests.
func TestPageOfBounds(t *testing.T) {
	golden.Says(t, "policies/dial.md",
		fmt.Sprintf("For 66 requests of exponential length the bound is %.1f times", exponential().scatter(allClasses, 66, detectConfidence)),
		fmt.Sprintf("ask for more than %g of the resource, or in which %g of it is used", settledAsks, settledUse),
		fmt.Sprintf("by at least %g (%.0f%% of the window", minWait, 100*minWait))
}
