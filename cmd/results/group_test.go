package main

import (
	"math"
	"slices"
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

// The sizes next to what PRIMA costs are played, and the page says which of them is missing.
func TestSizesThatTheCostBuys(t *testing.T) {
	for _, c := range []struct {
		mean float64
		most int
		want []int
	}{{9.41, 24, []int{9, 10}}, {11.96, 12, []int{12}}, {11.24, 12, []int{11, 12}}, {9.9, 9, []int{9}}, {24, 24, []int{24}}} {
		if got := bought(c.mean, c.most); !slices.Equal(got, c.want) {
			t.Errorf("a mean size of %v buys %v, want %v", c.mean, got, c.want)
		}
	}
	fleet := contestFleet{Name: "some", Runs: []contestRun{
		{Family: ownSingle, Missed: 1, Cost: 1200}, {Family: ownPooled, Missed: 5, Cost: 940},
		{Title: "static/leastconn x8", Family: fixedSize, Missed: 35, Over: 0.1, Cost: 800},
		{Title: "static/leastconn x10", Family: fixedSize, Cost: 1000},
		{Title: "hpa (utilization 70%)/leastconn", Family: autoscale, Missed: 50, Cost: 900},
	}}
	if got := unbought([]contestFleet{fleet}); got != "`some` x9" {
		t.Errorf("not simulated: %s", got)
	}
	if got := leadIn([]contestFleet{fleet}, "some"); got != (groupLead{5, 35}) {
		t.Errorf("%+v", got)
	}
	fleet.Runs = append(fleet.Runs, contestRun{Title: "static/leastconn x9", Family: fixedSize, Cost: 900})
	if got := unbought([]contestFleet{fleet}); got != "" {
		t.Errorf("not simulated: %s", got)
	}
}
