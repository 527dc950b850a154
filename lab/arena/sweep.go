package arena

import (
	"cmp"
	"math"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// If a rival has a fixed size, the arena also tries other sizes than the scenario's (a size sweep): larger ones until one keeps the
// threshold, smaller ones until one clearly misses it.
const (
	sweepSteps = 6    // at most, in each direction
	sweepRatio = 8    // a step changes the size by the size divided by this
	kept       = 0.01 // a size keeps the threshold if it is missed for no more than this share of the time
	lost       = 0.5  // a size is lost if it is missed for at least this share of the time
)

// sweep is the largest, or the smallest, size of a rival that was tried so far.
type sweep struct {
	Candidate
	up bool
}

// over says whether the sweep may stop: upwards, when its size keeps the threshold; downwards, when its size clearly misses it.
func (c sweep) over(r scenario.Result) bool {
	if c.up {
		return r.SLO.ViolationShare <= kept
	}
	return r.SLO.ViolationShare >= lost
}

// next is the sweep one step further; false if no such size is possible.
func (c sweep) next(sc *scenario.Scenario) (sweep, bool) {
	step := max(1, c.Fixed/sweepRatio)
	if !c.up {
		step = -step
	}
	c.Fixed += step
	return c, c.Fixed >= 1 && c.Fixed <= len(sc.Hosts)
}

// idle says whether the candidate would only repeat another one: in a group of one instance there is nothing to share, so one policy with
// one scheduling is enough.
func (e Candidate) idle() bool {
	return e.Fixed == 1 && (e.Policy != plain || e.Scheduling != quell.LeastConn)
}

// widen takes the rivals of fixed size one step further, and returns their plays with the first seed.
func (h *pool) widen() (round []task) {
	for _, c := range h.contests {
		var further []sweep
		for _, e := range c.sweeps {
			r, ok := h.store.result(play{c.Scenario.Name, e.Candidate, c.Seeds[0]})
			if !ok || e.over(r) {
				continue
			}
			if e, ok = e.next(c.Scenario); !ok || e.idle() {
				continue
			}
			further = append(further, e)
			if !slices.Contains(c.Candidates, e.Candidate) {
				c.Candidates = append(c.Candidates, e.Candidate)
				c.swept[e.Candidate] = true
				round = append(round, task{c, e.Candidate, c.Seeds[0]})
			}
		}
		c.sweeps = further
	}
	return round
}

// prune drops sizes whose results say nothing: widen added them, they miss the threshold for half of the time or more, and so do
// the next smaller and the next larger size.
func (h *pool) prune() {
	for _, c := range h.contests {
		sizes := map[string][]Candidate{}
		for _, e := range c.Candidates {
			if e.Fixed > 0 {
				sizes[e.Series()] = append(sizes[e.Series()], e)
			}
		}
		mute := map[Candidate]bool{}
		isLost := func(e Candidate) bool {
			r, ok := h.store.result(play{c.Scenario.Name, e, c.Seeds[0]})
			return ok && r.SLO.ViolationShare >= lost
		}
		for _, list := range sizes {
			slices.SortFunc(list, func(a, b Candidate) int { return cmp.Compare(a.Fixed, b.Fixed) })
			for i := 1; i+1 < len(list); i++ {
				mute[list[i]] = c.swept[list[i]] && isLost(list[i-1]) && isLost(list[i]) && isLost(list[i+1])
			}
		}
		before := len(c.Candidates)
		c.Candidates = slices.DeleteFunc(c.Candidates, func(e Candidate) bool { return mute[e] })
		h.done -= before - len(c.Candidates)
	}
}

// smaller lists the runs of rivals of fixed size at PRIMA's mean size, rounded down and rounded up, that have not been played yet.
func (h *pool) smaller() (round []task) {
	for _, c := range h.contests {
		size, ok := h.primaSize(c)
		if !ok {
			continue
		}
		for _, e := range slices.Clone(c.Candidates) {
			for _, n := range []float64{math.Floor(size), math.Ceil(size)} {
				e.Fixed = min(max(1, int(n)), len(c.Scenario.Hosts))
				if !e.fixed(c.Scenario) || e.idle() || slices.Contains(c.Candidates, e) {
					continue
				}
				c.Candidates = append(c.Candidates, e)
				for _, seed := range c.Seeds {
					round = append(round, task{c, e, seed})
				}
			}
		}
	}
	return round
}

// primaSize is PRIMA's mean size over all seeds, if it plays.
func (h *pool) primaSize(c *Contest) (float64, bool) {
	var results []scenario.Result
	for _, seed := range c.Seeds {
		if r, ok := h.store.result(play{c.Scenario.Name, primaItself, seed}); ok {
			results = append(results, r)
		}
	}
	return primaSize(results)
}

// primaItself is PRIMA with the settings that the scenario gives it.
var primaItself = Candidate{Policy: subject, Scheduling: quell.LeastConn}

func primaSize(results []scenario.Result) (mean float64, ok bool) {
	for _, r := range results {
		mean += r.MeanInstances / float64(len(results))
	}
	return mean, len(results) > 0
}
