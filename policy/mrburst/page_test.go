package mrburst

import (
	"fmt"
	"testing"

	"github.com/quellhq/quell/internal/golden"
)

// The page states the constants as they are.
func TestPageOfMRburst(t *testing.T) {
	golden.Says(t, "policies/mrburst.md",
		fmt.Sprintf("37%% still count %g s later", mrburstWindow.Seconds()),
		fmt.Sprintf("at most %g%% looser than the chosen one", 100*mrburstMoves),
		fmt.Sprintf("last at least %g%% longer", 100*mrburstMoves))
}
