package progress

import (
	"fmt"
	"testing"

	"github.com/quellhq/quell/internal/golden"
)

// The page states the constants as they are.
func TestPageOfProgress(t *testing.T) {
	golden.Says(t, "policies/acs.md", fmt.Sprintf("Messages beyond %d,000 in one period are dropped", mostEach/1000),
		"The rate is that of at least "+golden.Word(enough)+" units", "for "+golden.Word(stopped)+" times its usual time between reports")
}
