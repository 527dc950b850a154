package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
)

// In Figure 7 the p90 of round robin beside a neighbour is 4 to 6 times the calm one.
const (
	leastGrowth  = 4.0
	wantedGrowth = 5.0
	mostGrowth   = 6.0
)

// ladderSettles is how long the begin of a step of a calibration does not count, in seconds.
const ladderSettles = 4

// usesFile has the uses that the calibration found, by program.
var usesFile = filepath.Join(labDir, "dial-uses.json")

// ladderFigures are a calibration: the p90 of round robin beside a neighbour that grows stronger.
type ladderFigures struct {
	Resource  quell.Resource
	Neighbour string
	CalmMS    float64
	Own       map[quell.Resource]float64 // use of an instance in calm
	Steps     []ladderStep
	Use       float64 // the chosen one
	Growth    float64 // of the p90 there, as the steps tell
}

// ladderStep is a strength of the neighbour, and how many times the calm p90 the p90 then is.
type ladderStep struct{ Use, Growth float64 }

// Contended says whether the neighbour can be made as strong as in Figure 7.
func (l ladderFigures) Contended() bool { return l.Growth >= leastGrowth && l.Growth <= mostGrowth }

// OwnUse and Climb are the cells of the table.
func (l ladderFigures) OwnUse() string {
	var parts []string
	for _, r := range quell.Resources {
		if use, known := l.Own[r]; known && r != quell.Memory { // nothing measures an instance's use of the memory
			parts = append(parts, fmt.Sprintf("%s %.2f", r, use))
		}
	}
	return strings.Join(parts, ", ")
}

func (l ladderFigures) Climb() string {
	var parts []string
	for _, s := range l.Steps {
		parts = append(parts, fmt.Sprintf("%s: %.1f", percent(s.Use), s.Growth))
	}
	return strings.Join(parts, ", ")
}

// ladder sums up a calibration.
func ladder(f *partFigures, _ string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	record, steps := plays[0][0], episodes(sc)
	calm := record.Phase(0, steps[0].begin)
	known := neighbourOf(sc.Timeline[0].Interfere)
	l := ladderFigures{Resource: known.resource, Neighbour: known.about, CalmMS: p90Of(calm.LatencyMS), Own: ownUse(record, steps[0].begin)}
	for i, s := range steps {
		l.Steps = append(l.Steps, ladderStep{sc.Timeline[i].Interfere.Use,
			p90Of(record.Phase(s.begin+ladderSettles, s.end).LatencyMS) / l.CalmMS})
	}
	l.Use, l.Growth = chosenStep(l.Steps)
	f.Ladder = &l
	return nil
}

// clearOf is how many times the last strength that slows less than leastGrowth times the chosen one is at least. Programs do not use
// exactly what they are given: close to that edge, one compiler slowed round robin 5 times in one run and 1.2 times in the next.
const clearOf = 1.25

// chosenStep returns the use at which the p90 is wantedGrowth times the calm one, in whole percent, or the one that is just clear of the
// edge if that is larger, and the growth there. Between two steps the logarithm of the growth is linear. If no step slows that much, it is
// the step that slows most; if all slow more, it is the first one.
func chosenStep(steps []ladderStep) (use, growth float64) {
	most, edge := steps[0], 0.0
	for i, s := range steps {
		if s.Growth > most.Growth {
			most = s
		}
		if s.Growth < leastGrowth {
			edge = s.Use
		}
		if s.Growth < wantedGrowth {
			continue
		}
		if i == 0 {
			return s.Use, s.Growth
		}
		low := steps[i-1]
		part := math.Log(wantedGrowth/low.Growth) / math.Log(s.Growth/low.Growth)
		use := math.Round(100*max(low.Use+part*(s.Use-low.Use), clearOf*edge)) / 100
		return use, growthAt(steps, use)
	}
	return most.Use, most.Growth
}

// growthAt returns the growth at a use, between the steps around it; beyond the last step it is that of the last.
func growthAt(steps []ladderStep, use float64) float64 {
	for i, s := range steps {
		if s.Use < use || i == 0 {
			continue
		}
		low := steps[i-1]
		return low.Growth * math.Pow(s.Growth/low.Growth, (use-low.Use)/(s.Use-low.Use))
	}
	return steps[len(steps)-1].Growth
}

// ownUse is the mean use of an instance's resources from the begin of a run on.
func ownUse(r *experiment.Record, until float64) map[quell.Resource]float64 {
	sums, counts := map[quell.Resource]float64{}, map[quell.Resource]float64{}
	for _, u := range r.Uses {
		if u.AtS < 0 || u.AtS >= until {
			continue
		}
		for resource, use := range u.Use {
			sums[resource], counts[resource] = sums[resource]+use, counts[resource]+1
		}
	}
	for resource := range sums {
		sums[resource] /= counts[resource]
	}
	return sums
}

// calibrate chooses the uses of the programs, prints them, and keeps them for the other pieces.
func calibrate() error {
	uses := map[string]float64{}
	for _, n := range dialNeighbours {
		part := labPart{name: n.ladder(), sum: ladder}
		figures, err := part.figures("")
		if err != nil {
			return err
		}
		l := figures.Ladder
		if l == nil {
			return fmt.Errorf("%s has no record", part.name)
		}
		fmt.Fprintf(os.Stderr, "%s: calm p90 %.1f ms, own use %.2f; %s slows it %.1f times at a use of %.0f%%\n", n.resource, l.CalmMS,
			l.Own[n.resource], n.about, l.Growth, 100*l.Use)
		if n.what != string(n.resource) {
			uses[n.what] = l.Use
		}
	}
	return writeJSON(usesFile, uses)
}

// readUses reads the uses that the calibration found.
func readUses() (uses map[string]float64, err error) {
	found, err := readJSON(usesFile, &uses)
	if err == nil && !found {
		err = fmt.Errorf("%s is missing: play dial:%s first", usesFile, calibratePiece)
	}
	return uses, err
}
