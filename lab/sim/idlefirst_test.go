package sim

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// TestAServerBesideANeighbourGetsNothing: HAProxy's leastconn sends requests to idle servers whatever their weights. So PRIMA takes an
// instance that cannot meet the objective out of the rotation, and puts it back when the neighbour has gone.
func TestAServerBesideANeighbourGetsNothing(t *testing.T) {
	sc, err := scenario.Load(filepath.Join("..", "..", "examples", "lab", "twelve-moving.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	sc.Duration, sc.Timeline = 60*time.Second, sc.Timeline[:2] // 0.6 of a link from 15 s on, until 35 s
	sc.Service.Group.Min, sc.Service.Group.Max = 9, 9
	run := scenario.Run{Policy: quell.Policy{Name: "prima"}, Scheduling: quell.LeastConn, Balancer: scenario.HAProxy, Models: scenario.Learn}
	during, after := 0, 0
	o := Options{Scenario: sc, Run: run, Windows: func(w Window) {
		_, used := w.ByMS[0]
		switch {
		case !used:
		case w.Start >= 20*time.Second && w.Start < 35*time.Second:
			during++
		case w.Start >= 45*time.Second:
			after++
		}
	}}
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if during > 0 || after == 0 {
		t.Errorf("beside the neighbour the first instance got requests in %d windows of 5 s, afterwards in %d", during, after)
	}
}
