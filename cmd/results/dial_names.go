package main

import (
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/model/modelfile"
)

// calmLiveFigures count what DIAL made of instances of the lab without neighbours.
type calmLiveFigures struct {
	Runs    int
	Windows int     // of an instance
	Above   float64 // share of them whose response times were above some bound
	Taken   float64 // share of them in which the instance was taken for a disturbed or an overloaded one
	Moved   float64 // share of the periods in which weights moved
	Dial    *model.Dial
	Plot    string // of the training; empty: none
}

// Fits are the mean errors of Eq. 1 in the training of the lab.
func (c calmLiveFigures) Fits() (fits []dialFit) {
	for _, n := range dialNeighbours {
		if e, fitted := c.Dial.Errors[n.resource]; fitted {
			fits = append(fits, dialFit{n.resource, estimate{Mean: e.MeanRelative}, estimate{Mean: e.Linear}})
		}
	}
	return fits
}

// Right is the share of the training runs that are classified right by a tree that was fitted to others, and Rows how many there are.
func (c calmLiveFigures) Right() float64 {
	all, right := c.Dial.Validated.Total()
	return float64(right) / math.Max(1, float64(all))
}

func (c calmLiveFigures) Rows() int { all, _ := c.Dial.Validated.Total(); return all }

// calmLive sums up runs without neighbours.
func calmLive(f *partFigures, plots string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	c := calmLiveFigures{Dial: &model.Dial{}}
	periods := int(sc.Duration / sc.Service.Sampling)
	above, taken, moved := 0, 0, 0
	for _, records := range plays {
		r := records[0]
		if r == nil {
			continue
		}
		c.Runs++
		moved += len(r.Changes)
		for _, cause := range r.Causes {
			if cause.AtS < 0 {
				continue
			}
			for _, code := range cause.Above {
				if above++; code != "confirming" {
					taken++
				}
			}
		}
		if err := c.training(r, plots); err != nil {
			return err
		}
	}
	c.Windows = c.Runs * periods * len(sc.Hosts)
	windows := float64(c.Windows)
	c.Above, c.Taken, c.Moved = float64(above)/windows, float64(taken)/windows, float64(moved)/float64(c.Runs*periods)
	f.CalmLive = &c
	return nil
}

// training reads the models with which a run was played, and draws how well Eq. 1 fits.
func (c *calmLiveFigures) training(r *experiment.Record, plots string) error {
	if r.Models == "" {
		return nil
	}
	path := r.Models
	if !filepath.IsAbs(path) {
		path = filepath.Join(labDir, path)
	}
	models, err := modelfile.Load(path)
	if err != nil || models.Dial() == nil {
		return err
	}
	c.Dial, c.Plot = models.Dial(), "fit.png"
	return plotFits(filepath.Join(plots, c.Plot), filepath.Dir(path), c.Dial)
}

// namedRow is what DIAL named in the episodes of one kind.
type namedRow struct {
	confusionRow
	Neighbour string
	Runs      int
	Use       float64 // strength of the neighbour in the last run
	Elsewhere int     // plans that named a resource of an instance beside which no neighbour had been
}

// named sums up the runs of the live confusion matrix, as detectOnce does in the simulator: one row for each episode.
func named(f *partFigures, _ string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	for i, e := range episodes(sc) {
		row := namedRow{confusionRow: confusionRow{Truth: e.truth, Named: make([]int, len(dialCauses))}, Neighbour: e.neighbour}
		var delays []float64
		for _, records := range plays {
			if records[0] == nil {
				continue
			}
			row.Runs++
			row.Use = strengthAt(records[0], e)
			counts, first, elsewhere := namedIn(records[0], episodes(sc)[:i+1])
			row.Elsewhere += elsewhere
			row.Named[slices.Index(dialCauses, mostNamed(counts))]++
			if !math.IsInf(first, 1) {
				delays = append(delays, math.Ceil((first-e.begin)/sc.Service.Sampling.Seconds()))
			}
		}
		if len(delays) > 0 {
			row.Periods, row.Most = estimateOf(delays), slices.Max(delays)
		}
		f.Named = append(f.Named, row)
	}
	return nil
}

// namedIn counts the plans in the last of these episodes by the resource that they name for its instance. first is the time of the first
// one. elsewhere counts plans that name a resource of an instance beside which none of the episodes has a neighbour.
func namedIn(r *experiment.Record, until []episode) (counts map[string]int, first float64, elsewhere int) {
	counts, first = map[string]int{}, math.Inf(1)
	e := until[len(until)-1]
	for _, c := range r.Causes {
		if c.AtS < e.begin || c.AtS >= e.end {
			continue
		}
		for id, cause := range c.Named {
			switch {
			case e.instance == "" || e.instance == id:
				counts[string(cause)]++
				first = min(first, c.AtS)
			case !slices.ContainsFunc(until, func(e episode) bool { return e.instance == id }):
				elsewhere++
			}
		}
	}
	return counts, first, elsewhere
}

// strengthAt is the strength of the neighbour in the middle of an episode; 0 if it has none.
func strengthAt(r *experiment.Record, e episode) float64 {
	for _, m := range r.Moments {
		if m.AtS >= (e.begin+e.end)/2 {
			return m.Disturbs["h"+strings.TrimPrefix(e.instance, "i")]
		}
	}
	return 0
}

// mostNamed is the class that most plans of a run name, if at least two do.
func mostNamed(counts map[string]int) string {
	class, most := model.NotContended, 1
	for _, c := range dialCauses[:4] {
		if counts[c] > most {
			class, most = c, counts[c]
		}
	}
	return class
}

// RightOfNamed is how many episodes of the live confusion matrix were named rightly, and RunsOfNamed how many there are.
func (f dialFigures) RightOfNamed() (int, error) { return f.overNamed(f.RightOf) }

func (f dialFigures) RunsOfNamed() (int, error) { return f.overNamed(f.RunsOf) }

func (f dialFigures) overNamed(sum func([]confusionRow) int) (int, error) {
	part, err := f.Live.Part("dial-names")
	var rows []confusionRow
	for _, r := range part.Named {
		rows = append(rows, r.confusionRow)
	}
	return sum(rows), err
}
