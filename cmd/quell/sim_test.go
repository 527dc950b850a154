package main

import (
	"slices"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// --learn adds runs only of policies that can learn their models. The scenario would refuse other ones.
func TestWithLearning(t *testing.T) {
	run := func(policy string, models scenario.Models) scenario.Run {
		return scenario.Run{Policy: quell.Policy{Name: policy}, Scheduling: quell.LeastConn, Models: models}
	}
	runs := []scenario.Run{run("static", ""), run("prima", ""), run("dial", ""), run("lsf", scenario.Learn), run("lsf", "")}
	if got, want := withLearning(slices.Clone(runs)), append(runs, run("prima", scenario.Learn)); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
