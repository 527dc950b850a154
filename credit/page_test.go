package credit

import (
	"fmt"
	"math"
	"testing"

	"github.com/quellhq/quell/internal/golden"
)

// The pages state the constants as they are.
func TestPagesOfCredits(t *testing.T) {
	golden.Says(t, "credits.md",
		fmt.Sprintf("The range grows by %g%% of the use", 100*meterError), "up to "+golden.Word(int(shownLate.Minutes()))+" minutes old",
		fmt.Sprintf("within %g%% of its baseline", 100*atBaseline), fmt.Sprintf("at most %g Gbit/s", fastestLink/1e9),
		fmt.Sprintf("must be known within %g%%", 100*mostDoubt),
		fmt.Sprintf("if %g s to an hour passed", shortestEpisode.Seconds()), fmt.Sprintf("It ends %d windows", settling),
		"slow at its baseline for "+golden.Word(int(shownLate.Minutes()))+" minutes")
	if math.Ceil(leastEpisodes) != 5 || longestEpisode.Hours() != 1 || leastDrop != 0.2 || longest != 24*3600 {
		t.Error("docs/credits.md says five changes, an hour, and a fifth of the speed; docs/policies/prima.md one day")
	}
	golden.Says(t, "policies/mrburst.md",
		fmt.Sprintf("at the %gth percentile of the windows", 100*latencyQuantile), "If there are "+golden.Word(rowsAtEach)+" windows or more",
		fmt.Sprintf("Loads up to %.0f%% above the largest one", 100*(beyondLoad-1)))
}
