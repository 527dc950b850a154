package arena

import (
	"cmp"
	"math"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// A ladder tries a rival of fixed size at other sizes than the scenario's: larger ones until one keeps the threshold,
// smaller ones until one clearly misses it.
const (
	ladderSteps = 6    // in each direction, at most
	ladderRatio = 8    // a step adds this part of the size, or takes it away
	kept        = 0.01 // a size keeps the threshold if it is missed for no more than this share of the time
	lost        = 0.5  // a size is lost if it is missed for at least this share of the time
)

// climber is the outermost size so far of a rival, on its way up or down.
type climber struct {
	Entrant
	up bool
}

// over says whether the climber need not go on after a result.
func (c climber) over(r quell.Result) bool {
	if c.up {
		return r.SLO.ViolationShare <= kept
	}
	return r.SLO.ViolationShare >= lost
}

// next is the size beyond this one; false if there is none.
func (c climber) next(sc *scenario.Scenario) (climber, bool) {
	step := max(1, c.Fixed/ladderRatio)
	if !c.up {
		step = -step
	}
	c.Fixed += step
	return c, c.Fixed >= 1 && c.Fixed <= len(sc.Hosts)
}

// idle says whether the entrant only repeats another one: in a group of one there is nothing to share out, so one of its kind is
// enough.
func (e Entrant) idle() bool {
	return e.Fixed == 1 && (e.Policy != plain || e.Scheduling != quell.LeastConn)
}

// climb takes the rivals of fixed size one step further, and returns their plays with the first seed.
func (h *hall) climb() (round []task) {
	for _, c := range h.contests {
		var further []climber
		for _, e := range c.climbers {
			r, ok := h.store.result(play{c.Scenario.Name, e.Entrant, c.Seeds[0]})
			if !ok || e.over(r) {
				continue
			}
			if e, ok = e.next(c.Scenario); !ok || e.idle() {
				continue
			}
			further = append(further, e)
			if !slices.Contains(c.Entrants, e.Entrant) {
				c.Entrants = append(c.Entrants, e.Entrant)
				c.climbed[e.Entrant] = true
				round = append(round, task{c, e.Entrant, c.Seeds[0]})
			}
		}
		c.climbers = further
	}
	return round
}

// prune drops sizes that were tried on the way and say nothing: those that are lost, as are the next smaller and the next
// larger one.
func (h *hall) prune() {
	for _, c := range h.contests {
		sizes := map[string][]Entrant{}
		for _, e := range c.Entrants {
			if e.Fixed > 0 {
				sizes[e.Series()] = append(sizes[e.Series()], e)
			}
		}
		mute := map[Entrant]bool{}
		isLost := func(e Entrant) bool {
			r, ok := h.store.result(play{c.Scenario.Name, e, c.Seeds[0]})
			return ok && r.SLO.ViolationShare >= lost
		}
		for _, list := range sizes {
			slices.SortFunc(list, func(a, b Entrant) int { return cmp.Compare(a.Fixed, b.Fixed) })
			for i := 1; i+1 < len(list); i++ {
				mute[list[i]] = c.climbed[list[i]] && isLost(list[i-1]) && isLost(list[i]) && isLost(list[i+1])
			}
		}
		before := len(c.Entrants)
		c.Entrants = slices.DeleteFunc(c.Entrants, func(e Entrant) bool { return mute[e] })
		h.done -= before - len(c.Entrants)
	}
}

// besides are all plays of the rivals of fixed size at PRIMA's mean size, rounded up and down, that have not been played.
func (h *hall) besides() (round []task) {
	for _, c := range h.contests {
		size, ok := h.primaSize(c)
		if !ok {
			continue
		}
		for _, e := range slices.Clone(c.Entrants) {
			for _, n := range []float64{math.Floor(size), math.Ceil(size)} {
				e.Fixed = min(max(1, int(n)), len(c.Scenario.Hosts))
				if !e.fixed(c.Scenario) || e.idle() || slices.Contains(c.Entrants, e) {
					continue
				}
				c.Entrants = append(c.Entrants, e)
				for _, seed := range c.Seeds {
					round = append(round, task{c, e, seed})
				}
			}
		}
	}
	return round
}

// primaSize is PRIMA's mean size over all seeds, if it plays.
func (h *hall) primaSize(c *Contest) (float64, bool) {
	var results []quell.Result
	for _, seed := range c.Seeds {
		if r, ok := h.store.result(play{c.Scenario.Name, primaItself, seed}); ok {
			results = append(results, r)
		}
	}
	return primaSize(results)
}

// primaItself is PRIMA as the scenario has it.
var primaItself = Entrant{Policy: subject, Scheduling: quell.LeastConn}

func primaSize(results []quell.Result) (mean float64, ok bool) {
	for _, r := range results {
		mean += r.MeanInstances / float64(len(results))
	}
	return mean, len(results) > 0
}
