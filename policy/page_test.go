package policy

import (
	"fmt"
	"testing"

	"github.com/quellhq/quell/internal/golden"
	"github.com/quellhq/quell/policy/ownwork"
)

// The pages state the constants of the core as they are.
func TestPagesOfTheCore(t *testing.T) {
	golden.Says(t, "learning.md",
		"After "+golden.Word(adviseFor)+" periods in which response times were no worse",
		"After "+golden.Word(stepFor)+" more it has **full**",
		fmt.Sprintf("at least %d response times in it", MinSample),
		fmt.Sprintf("response times of %s periods are off the group's predictions by more than %.0f%%", golden.Word(doubtWindows),
			100*(doubtful-1)),
		"When it has been so for "+golden.Word(doubtWindows)+" periods, full authority falls")
	golden.Says(t, "signals.md",
		fmt.Sprintf("if it is more than %g and more than %.0f%% of `requests`", ownwork.Least, 100*ownwork.OverRequests),
		fmt.Sprintf("(or %s times their usual deviation", golden.Word(ownwork.OverSpread)),
		fmt.Sprintf("A use of %g and more counts at once", ownwork.Clearly),
		fmt.Sprintf("no other instance of the type has %d requests", ownwork.Fewest),
		fmt.Sprintf("at least %.0f%% of the time in which tasks want to run", 100*longWait),
		fmt.Sprintf("the mean over up to %d windows", LongestMean), fmt.Sprintf("it counts after %d windows", KnownMean),
		fmt.Sprintf("begin within %s periods at more than half", golden.Word(riseWithin)),
		fmt.Sprintf("calm periods before by %.0f%%, or by half", 100*slowerBy), "the others by "+golden.Word(aloneFor)+" periods",
		"for "+golden.Word(unmeasuredFor)+" periods no response times were measured")
	golden.Says(t, "policies/prima.md",
		fmt.Sprintf("when there are more than %d", LongestMean), "fewer than "+golden.Word(KnownMean)+" of its readings are known",
		fmt.Sprintf("at least 1/%g.", 1/minEvidence), fmt.Sprintf("for less than %g s of processor time", enoughWork),
		fmt.Sprintf("has run for %g s in a window", firstWork*enoughWork), fmt.Sprintf("a U_int of %g or more is clear", clearlyTaken),
		fmt.Sprintf("about %d,000 requests", MixRequests/1000), fmt.Sprintf("(%d if that is 0)", DefaultPatience),
		fmt.Sprintf("learned if `group.max` is above %d, else 0", smallGroup))
}
