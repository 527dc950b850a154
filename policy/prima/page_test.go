package prima

import (
	"fmt"
	"testing"

	"github.com/quellhq/quell/budget"
	page "github.com/quellhq/quell/internal/golden"
)

// The pages state prima's constants as they are.
func TestPagesOfPrima(t *testing.T) {
	page.Says(t, "policies/prima.md",
		fmt.Sprintf("After %d snapshots without neighbours", calmFor), fmt.Sprintf("shares are 1 - %g^k of the way", stillAway),
		fmt.Sprintf("takes %d off the count (at most %d)", disturbance, maxCalm), fmt.Sprintf("equal when rounded to %g", alike),
		fmt.Sprintf("more than %g%% of what its neighbours leave", 100*nearlyAll), fmt.Sprintf("fewer than %d requests", minCollected),
		fmt.Sprintf("more than %s standard deviations", page.Word(far)),
		fmt.Sprintf("`auto`: %g%%, or with", 100*defaultHeadroom))
	page.Says(t, "learning.md",
		fmt.Sprintf("by %.4f for each second", budget.SlackStep*(1-budget.SlackMissed)/budget.SlackMissed),
		fmt.Sprintf("at most %d s of one miss", budget.LongestMiss), fmt.Sprintf("it rises by %g a second", budget.SlackStep),
		fmt.Sprintf("about %.0f%% of the requests miss", 100*budget.SlackMissed), fmt.Sprintf("It does not fall below %g.", minHeadroom),
		fmt.Sprintf("A use beyond %g times the largest one", beyondHeld), "watched for "+page.Word(watchedSteps)+" periods",
		fmt.Sprintf("more than %g times the objective, in W + %d readings", farMissed, farMissedFor+1))
	page.Says(t, "credits.md", fmt.Sprintf("younger than %g minutes", young.Minutes()))
}
