package outlier

import (
	"fmt"
	"testing"

	"github.com/quellhq/quell/internal/golden"
	"github.com/quellhq/quell/policy/bands"
)

// The page states the constants as they are.
func TestPageOfOutlier(t *testing.T) {
	golden.Says(t, "policies/outlier.md",
		"the mean of its ratios plus "+golden.Word(bands.Width)+" deviations", fmt.Sprintf("learned over some %d periods", bands.Longest),
		fmt.Sprintf("before %d periods were measured", bands.Known), "more than "+golden.Word(bands.FarOut)+" deviations above the mean",
		fmt.Sprintf("from %g%% to %g%%", 100*bands.DeepestCut, 100*bands.LargestCut),
		fmt.Sprintf("doubles that time, up to %d times", 1<<(maxRepeats-1)), "for "+golden.Word(failedHold)+" times `hold` if nothing")
}
