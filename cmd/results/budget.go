package main

import (
	"context"
	"sync"

	"github.com/quellhq/quell/lab/fluid"
)

const (
	budgetSeconds, budgetSeeds = 7200, 10
	foundRule                  = "quantile and trim"
)

// budgetAllowed are the parts of the time that may be missed: targets of 95%, 99% and 99.8%.
var budgetAllowed = []float64{0.05, 0.01, 0.002}

// budgetData are the figures of docs/results/budget.md.
type budgetData struct {
	Hours, Seeds int
	Rules        []string
	Rows         []budgetRow
	Kept, Dear   int // rows in which Quell's rule missed at most 1.3 times what is allowed; cost more than 1.05 times the best headroom
	Above        int // rows whose first hour missed more than twice what is allowed
	Cheaper      int // rows at most 0.85 times as dear as the best autoscaler
}

// budgetRow is a world under a target.
type budgetRow struct {
	fluid.Comparison
	Found            fluid.Outcome
	Cost             float64 // of Quell's rule over the best fixed headroom; 0: none keeps the target
	OverAutoscaler   float64
	HeldOne, HeldTwo float64 // cost if surplus is kept, over the cost without
}

// budgetPage compares rules for the reserve of an error budget in the fluid model.
func budgetPage(_ context.Context, dir string) error {
	worlds := fluid.Worlds()
	lists := make([][]fluid.Comparison, len(worlds))
	var all sync.WaitGroup
	for i, w := range worlds {
		all.Go(func() { lists[i] = fluid.Compare(w, budgetAllowed, budgetSeconds, budgetSeeds) })
	}
	all.Wait()
	d := budgetData{Hours: budgetSeconds / 3600, Seeds: budgetSeeds}
	for _, r := range fluid.Rules() {
		d.Rules = append(d.Rules, r.Name)
	}
	for _, list := range lists {
		for _, c := range list {
			d.add(c)
		}
	}
	return writePage(dir, "budget", d)
}

func (d *budgetData) add(c fluid.Comparison) {
	r := budgetRow{Comparison: c, Found: c.Rules[foundRule]}
	r.HeldOne, r.HeldTwo = c.Held["one"].Size/r.Found.Size, c.Held["two"].Size/r.Found.Size
	if c.Fixed != nil {
		r.Cost = r.Found.Size / c.Fixed.Size
	}
	if c.Autoscaler != nil {
		r.OverAutoscaler = r.Found.Size / c.Autoscaler.Size
	}
	d.Rows = append(d.Rows, r)
	count := func(n *int, holds bool) {
		if holds {
			*n++
		}
	}
	count(&d.Kept, r.Found.Missed <= 1.3*c.Allowed)
	count(&d.Dear, r.Cost > 1.05)
	count(&d.Above, r.Found.First > 2*c.Allowed)
	count(&d.Cheaper, r.OverAutoscaler > 0 && r.OverAutoscaler <= 0.85)
}

// Times returns how much of what is allowed a rule missed.
func (r budgetRow) Times(rule string) float64 { return r.Rules[rule].Missed / r.Allowed }

// Size returns a rule's mean number of instances.
func (r budgetRow) Size(rule string) float64 { return r.Rules[rule].Size }

// FirstHour is like Times, for the first hour of Quell's rule.
func (r budgetRow) FirstHour() float64 { return r.Found.First / r.Allowed }

// TargetPercent is the target in percent.
func (r budgetRow) TargetPercent() float64 { return 100 * (1 - r.Allowed) }
