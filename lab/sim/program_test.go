package sim

import (
	"errors"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// A real program is refused, with its place on the timeline.
func TestProgramsAreRefused(t *testing.T) {
	sc := pages(2, 20*time.Second)
	sc.Timeline = []scenario.Event{{Interfere: &scenario.Interference{Host: sc.Hosts[0].ID, Program: "sort", Use: 1}}}
	_, err := Run(t.Context(), Options{Scenario: sc, Run: sc.Runs[0]})
	var invalid *quell.InvalidError
	if !errors.As(err, &invalid) || invalid.Path != "timeline[0].interfere.program" {
		t.Errorf("got %v", err)
	}
}
