package main

import (
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell/train"
)

// TestProgressWithoutATerminal checks that the end is printed as a line, without a remaining time.
func TestProgressWithoutATerminal(t *testing.T) {
	var out strings.Builder
	bar := newProgressBar(&out)
	bar.show(train.Progress{Cells: 3, CellsDone: 1, Runs: 1, Left: 8600 * time.Millisecond})
	bar.show(train.Progress{Cells: 3, CellsDone: 3, Runs: 4})
	want := "training: 1 of 3 cells, 1 runs, about 9s left\ntraining: 3 of 3 cells, 4 runs\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}
