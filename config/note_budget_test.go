package config

import (
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// A window without a target is noted: nobody counts in it.
func TestNoteOfAWindowWithoutATarget(t *testing.T) {
	const note = "slo.over has no effect without slo.target: no error budget is kept"
	for _, c := range []struct {
		target float64
		want   bool
	}{{0, true}, {0.99, false}} {
		f := File{Service: quell.DefaultService()}
		f.Service.Name = "shop"
		f.Service.SLO.Over, f.Service.SLO.Target = time.Hour, c.target
		if slices.Contains(f.Notes(), note) != c.want {
			t.Errorf("with target %g: %q", c.target, f.Notes())
		}
	}
}
