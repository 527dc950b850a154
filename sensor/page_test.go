package sensor

import (
	"fmt"
	"testing"

	"github.com/quellhq/quell/internal/golden"
)

// The pages state the constants as they are.
func TestPagesOfSensors(t *testing.T) {
	golden.Says(t, "policies/acs.md", fmt.Sprintf("whose weight falls to 37%% after %g s", demandSpan.Seconds()),
		fmt.Sprintf("in the last %d moments", mostMoments))
	golden.Says(t, "signals.md", fmt.Sprintf("With more than %d tasks, `cpu.iowait` is absent", mostLooked))
}
