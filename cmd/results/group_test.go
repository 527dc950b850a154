package main

import (
	"math"
	"testing"

	"github.com/quellhq/quell"
)

// TestGroupFormsAreFitted makes groups that follow a form exactly: the fit finds its parameters and no error.
func TestGroupFormsAreFitted(t *testing.T) {
	for i := range groupForms {
		form := &groupForms[i]
		p := []float64{0.4, 0.8}[:len(form.grid)]
		var cells []groupCell
		for _, n := range poolSizes {
			for _, use := range poolUses {
				mean := 7 * form.slowness(float64(n), use, p)
				cells = append(cells, groupCell{Size: n, Use: use, Answer: quell.Latency{Mean: &mean}})
			}
		}
		got := form.fit(cells)
		if got.Worst > 1e-9 || math.Abs(got.R0MS-7) > 1e-9 || got.Parameters[0] != p[0] {
			t.Errorf("%s: %+v, want %v", form.Name, got, p)
		}
	}
}
