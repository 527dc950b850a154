package local

import (
	"fmt"
	"testing"
	"time"

	"github.com/quellhq/quell/internal/golden"
)

// The page states the constants as they are.
func TestPageOfProbes(t *testing.T) {
	golden.Says(t, "probes.md", fmt.Sprintf("The default, %g%%, is also the maximum", 100*MostBudget),
		fmt.Sprintf("(%g ms) of computing", UsualRun.Seconds()*1000), fmt.Sprintf("(%d MiB)", UsualBuffer>>20),
		"probed "+golden.Word(int(time.Second/usualSpacing))+" times a second, or "+fmt.Sprint(perPeriod)+" times in a sampling period if",
		"at most "+golden.Word(int(time.Second/leastSpacing))+" times a second",
		fmt.Sprintf("Every %g s the agent looks up its quota", reckon.Seconds()))
}
