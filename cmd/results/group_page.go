package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// groupPage compares laws of a group with simulated groups.
func groupPage(ctx context.Context, dir string) error {
	for _, part := range []string{"cells", "fleets", "rivals"} {
		if err := groupPagePart(ctx, dir, part); err != nil {
			return err
		}
	}
	return nil
}

// groupPagePart plays a part of the page again. With "page" it plays none.
func groupPagePart(ctx context.Context, dir, part string) (err error) {
	var d groupData
	path := filepath.Join(dir, "group.json")
	if _, err := readJSON(path, &d); err != nil {
		return err
	}
	if part == "cells" {
		if d.Cells, err = playGroups(ctx); err != nil {
			return err
		}
	}
	if part == "fleets" {
		fleets, err := playFleets(ctx)
		if err != nil {
			return err
		}
		d.put(fleets)
	}
	if part == "rivals" {
		if d.Rivals, err = playContests(ctx); err != nil {
			return err
		}
	}
	if err := writeJSON(path, d); err != nil {
		return err
	}
	return writePage(dir, "group", newGroupFigures(d))
}

// groupData has all measured figures, as they are in group.json.
type groupData struct {
	Cells  []groupCell    `json:"cells"`
	Fleets []calmFleet    `json:"fleets"`
	Rivals []contestFleet `json:"rivals"`
}

// groupFigures are the figures of the page.
type groupFigures struct {
	Forms  []groupForm
	Rows   []groupLawRow
	Ratios []groupRatio
	Fleets []calmFleet
	Rivals []contestFleet
	Seeds  int

	Ahead    []groupLead // fleets in which PRIMA is ahead
	Unbought string      // fleets, each with the size that PRIMA's cost buys, of which that size was not simulated
}

// groupLead is how long the objective is missed under PRIMA, and at least under the rivals of the same cost, in seconds.
type groupLead struct{ It, Least float64 }

// leadIn is PRIMA's lead in a fleet.
func leadIn(all []contestFleet, name string) (lead groupLead) {
	lead.Least = math.Inf(1)
	for _, f := range all {
		for _, r := range f.Shown() {
			switch {
			case f.Name != name:
			case r.Family == ownPooled:
				lead.It = r.Missed
			case r.Family != ownSingle:
				lead.Least = min(lead.Least, r.Missed)
			}
		}
	}
	return lead
}

// unbought lists the fleets of which the largest size that costs no more than PRIMA was not simulated. A fixed size costs the same all the
// time, so that one of them tells the length.
func unbought(all []contestFleet) string {
	var list []string
	for _, f := range all {
		sizes, lasts, mean := map[int]bool{}, 0.0, 0.0
		for _, r := range f.Runs {
			_, size, _ := strings.Cut(r.Title, " x")
			if n, err := strconv.Atoi(size); err == nil && r.Family == fixedSize {
				sizes[n], lasts = true, r.Cost/float64(n)
			}
			if r.Family == ownPooled {
				mean = r.Cost
			}
		}
		if lasts == 0 {
			continue
		}
		if n := bought(mean/lasts, math.MaxInt)[0]; !sizes[n] {
			list = append(list, fmt.Sprintf("`%s` x%d", f.Name, n))
		}
	}
	return strings.Join(list, ", ")
}

// Times is how many times the smallest group a mean size is.
func (f calmFleet) Times(run fleetRun) float64 { return run.Size / float64(f.Smallest) }

// groupLawRow has the fits of all forms to the groups of one kind behind one rule.
type groupLawRow struct {
	Rule, Kind string
	Fits       []groupFit
}

// groupRatio is how well the curve of a percentile's ratio to the mean fits the groups of one kind behind one rule.
type groupRatio struct {
	Rule, Kind  string
	Metric      quell.Metric
	Start       float64 // ratio without load
	Mean, Worst float64 // error of the percentile, as a fraction, if the mean is known
}

func newGroupFigures(d groupData) groupFigures {
	f := groupFigures{Forms: groupForms, Fleets: d.Fleets, Rivals: d.Rivals, Seeds: len(fleetSeeds)}
	f.Unbought = unbought(d.Rivals)
	for _, name := range []string{"twelve-moving", "fleet-mixed", "twelve-weak"} {
		f.Ahead = append(f.Ahead, leadIn(d.Rivals, name))
	}
	rules := map[string]bool{}
	for _, c := range d.Cells {
		if rules[c.Rule] {
			continue
		}
		rules[c.Rule] = true
		for _, kind := range poolKinds {
			cells := alikeCells(d.Cells, c.Rule, kind)
			if len(cells) == 0 {
				continue
			}
			row := groupLawRow{Rule: c.Rule, Kind: kind}
			for i := range groupForms {
				row.Fits = append(row.Fits, groupForms[i].fit(cells))
			}
			f.Rows = append(f.Rows, row)
			for _, metric := range []quell.Metric{quell.P90, quell.P95, quell.P99} {
				f.Ratios = append(f.Ratios, ratioOf(cells, metric))
			}
		}
	}
	return f
}

// alikeCells are the groups of a kind behind a rule.
func alikeCells(all []groupCell, rule, kind string) (cells []groupCell) {
	for _, c := range all {
		if c.Rule == rule && c.Kind == kind {
			cells = append(cells, c)
		}
	}
	return cells
}

// ratioOf fits the start of the curve of a percentile's ratio. Slowness is the mean over the least mean of all groups.
func ratioOf(cells []groupCell, metric quell.Metric) groupRatio {
	r := groupRatio{Rule: cells[0].Rule, Kind: cells[0].Kind, Metric: metric}
	r0 := math.Inf(1)
	for i := range cells {
		r0 = math.Min(r0, *cells[i].Answer.Mean)
	}
	least := math.Inf(1)
	for start := 0.8; start < 6; start += 0.02 {
		curve, sum, worst := model.RatioOf(metric, start), 0.0, 0.0
		for i := range cells {
			a := &cells[i].Answer
			ms, _ := a.Of(metric)
			e := math.Abs(*a.Mean*curve.At(*a.Mean/r0)/ms - 1)
			sum, worst = sum+e, math.Max(worst, e)
		}
		if sum < least {
			least, r.Start, r.Mean, r.Worst = sum, start, sum/float64(len(cells)), worst
		}
	}
	return r
}
