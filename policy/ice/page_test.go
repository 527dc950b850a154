package ice

import (
	"fmt"
	"testing"

	"github.com/quellhq/quell/internal/golden"
	"github.com/quellhq/quell/policy/bands"
)

// The page states the constants as they are.
func TestPageOfICE(t *testing.T) {
	golden.Says(t, "policies/ice.md",
		fmt.Sprintf("%g / sqrt(requests) / (1 - own use) of the waiting", chancePerRoot),
		fmt.Sprintf("its usual value by %g and by %s deviations", minHiddenSign, golden.Word(bands.Width)),
		"at least "+golden.Word(bands.FarOut)+" deviations or, trained", fmt.Sprintf("if the use is off the limit by %g or more", offPoint),
		fmt.Sprintf("twice as long, up to %d times", 1<<maxRepeats), fmt.Sprintf("at most %d times `after`", 1<<maxRepeats),
		"Both count as at most "+golden.Word(maxRise)+" times", fmt.Sprintf("a change that made the median %.0f%% longer", 100*(muchWorse-1)),
		fmt.Sprintf("not at least %g times the median now", muchWorse), "after "+golden.Word(foreign)+" windows in a row with a value")
}
