package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/train"
)

// labFigures are the figures of a page of the lab.
type labFigures struct {
	place
	parts map[string]partFigures
	Duels []duel // on pages that compare PRIMA with rivals
}

// Measured describes the machine on which the parts were measured.
func (f labFigures) Measured() string {
	for _, part := range f.parts {
		if part.Missing == "" {
			return f.Machine
		}
	}
	return notMeasured
}

// Part returns the figures of the named part.
func (f labFigures) Part(name string) (partFigures, error) {
	part, ok := f.parts[name]
	if !ok {
		return part, fmt.Errorf("the page has no part %q", name)
	}
	return part, nil
}

// Timelines are the parts of a page on which all compare runs, by name.
func (f labFigures) Timelines() (list []partFigures) {
	for _, name := range slices.Sorted(maps.Keys(f.parts)) {
		list = append(list, f.parts[name])
	}
	return list
}

// partFigures are the figures of one experiment. A kind of figures that the experiment lacks is empty.
type partFigures struct {
	Name       string
	Page       string
	Title      string
	Missing    string // the part that must be played first; empty: nothing is missing
	Runs       []runFigures
	Validation *validationFigures
	Replayed   []comparedPlans
	Probed     []probedRow
	Reaction   *reactionFigures
	Quiet      *quietFigures
	Contest    *contest
	Crosstalk  *crosstalkFigures
	Benchmarks string
	Ladder     *ladderFigures
	CalmLive   *calmLiveFigures
	Named      []namedRow
	Tails      []tailTable
	Calm       *calmFigures
	Table      []iceTableRow
	Detector   *detectorFigures
	Learned    *learnedFigures
	Streams    *streamFigures
	Own        *ownFigures
	Budget     *budgetLive
	Plot       string // file names of plots
	OverTime   string
}

// write writes the page.
func (p labPage) write(dir string) error {
	figures, err := p.figures(here(), dir)
	if err != nil {
		return err
	}
	return writePage(dir, p.name, figures)
}

// figures computes the page's figures from the records, and draws the plots into a folder beside the page.
func (p labPage) figures(at place, dir string) (labFigures, error) {
	f := labFigures{place: at, parts: map[string]partFigures{}}
	plots := filepath.Join(dir, p.name)
	if err := os.MkdirAll(plots, 0o755); err != nil {
		return f, err
	}
	for _, part := range p.parts {
		figures, err := part.figures(plots)
		if err != nil {
			return f, fmt.Errorf("%s: %w", part.name, err)
		}
		f.parts[part.name] = figures
		if figures.Contest != nil {
			f.Duels = append(f.Duels, figures.Contest.duels()...)
		}
	}
	return f, nil
}

func (p labPart) figures(plots string) (f partFigures, err error) {
	f.Name, f.Page, f.Title = p.name, filepath.Base(plots), p.title
	switch p.command {
	case "validate":
		return f, p.validation(&f)
	case "probing":
		return f, p.probing(&f)
	case "crosstalk":
		return f, p.crosstalk(&f)
	case "alternate":
		return f, p.detector(&f)
	case "streaming":
		return f, p.streams(&f, plots)
	case "benchmark":
		return f, p.benchmarked(&f)
	case "replay":
		return f, replayed(&f, plots)
	}
	sc, plays, err := p.played()
	if err != nil {
		return f, err
	}
	if !slices.ContainsFunc(plays[0], func(r *experiment.Record) bool { return r != nil }) {
		f.Missing = cmp.Or(p.piece, p.name)
		return f, nil
	}
	if p.sum != nil {
		return f, p.sum(&f, plots, sc, plays)
	}
	return f, p.runs(&f, plots, sc, plays)
}

// measured reads what a command of the lab measured; ok is false if it has not been run.
func (p labPart) measured(file string, into any) (ok bool, err error) {
	return readJSON(filepath.Join(labDir, p.scenario(), file), into)
}

// runFigures are the figures of one run.
type runFigures struct {
	contender
	Plot string // of the first play
	Rows []phaseRow
}

// Result is that of the first play.
func (r runFigures) Result() scenario.Result { return r.plays[0].Result }

// phase is a stretch of a run that becomes one row of a table, with the paper's result beside ours. Times are in seconds.
type phase struct {
	Begin, End   float64
	Label, Paper string
}

func newPhase(begin, end float64, label, paper string) phase { return phase{begin, end, label, paper} }

// phaseRow is the result of a phase.
type phaseRow struct {
	phase
	Size      string // mean number of instances
	Slowest   string // mean response time of the slowest instance, over the threshold
	Instances string // utilisation, severity and mean response time of each instance in the first play
}

func (p labPart) runs(f *partFigures, plots string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	for i := range sc.Runs {
		c := newContender(sc, i, plays)
		if len(c.plays) == 0 {
			continue
		}
		name := fmt.Sprintf("%s-%d.png", p.name, i+1)
		if err := plotRun(filepath.Join(plots, name), p.title+": "+c.Title, sc, c.plays[0]); err != nil {
			return err
		}
		f.Runs = append(f.Runs, runFigures{contender: c, Plot: filepath.Base(plots) + "/" + name})
	}
	return nil
}

// Phases adds to each run one row for each of the phases.
func (f partFigures) Phases(phases ...phase) partFigures {
	f.Runs = slices.Clone(f.Runs)
	for i := range f.Runs {
		for _, ph := range phases {
			f.Runs[i].Rows = append(f.Runs[i].Rows, newPhaseRow(ph, f.Runs[i].plays))
		}
	}
	return f
}

func newPhaseRow(ph phase, plays []*experiment.Record) phaseRow {
	var sizes, slowest []float64
	for _, r := range plays {
		sum := r.Phase(ph.Begin, ph.End)
		sizes = append(sizes, sum.Size)
		if ms, ok := slowestOf(sum); ok {
			slowest = append(slowest, ms/r.Result.SLO.ThresholdMS)
		}
	}
	return phaseRow{ph, medianRange("%.1f", sizes), medianRange("%.2f", slowest), instancesOf(plays[0].Phase(ph.Begin, ph.End))}
}

// slowestOf is the longest mean response time of those instances that answered at least a twentieth of the requests.
func slowestOf(sum experiment.Phase) (ms float64, ok bool) {
	var all float64
	for _, in := range sum.Instances {
		all += in.PerSecond
	}
	for _, in := range sum.Instances {
		if mean := in.LatencyMS.Mean; mean != nil && in.PerSecond >= all/20 {
			ms, ok = max(ms, *mean), true
		}
	}
	return ms, ok
}

// medianRange is the median of values, with the least and the largest of several.
func medianRange(format string, values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	text, least, most := fmt.Sprintf(format, middle(values)), fmt.Sprintf(format, slices.Min(values)), fmt.Sprintf(format, slices.Max(values))
	if least == most {
		return text
	}
	return fmt.Sprintf("%s (%s to %s)", text, least, most)
}

func instancesOf(sum experiment.Phase) string {
	var parts []string
	for _, id := range slices.SortedFunc(maps.Keys(sum.Instances), byNumber) {
		in := sum.Instances[id]
		if in.PerSecond == 0 {
			continue
		}
		parts = append(parts, fmt.Sprintf("%s: %s, %s, %s",
			id, percent(in.Utilization), number(in.Severity, "%.2f"), milliseconds(in.LatencyMS.Mean)))
	}
	return strings.Join(parts, "; ")
}

// byNumber orders names by the numbers in them, so that i2 is before i10.
func byNumber(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

func percent(v float64) string { return number(100*v, "%.0f%%") }

func number(v float64, format string) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf(format, v)
}

func milliseconds(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f ms", *v)
}

// validationFigures are those of the paper's Table II: the models' errors at points on which they were not trained.
type validationFigures struct {
	Rows                    int // number of rows of the training
	Points                  []validatedPoint
	Mean, P95, Joint, Total errorSum
}

// validatedPoint is one of the points, with the relative errors of the models' predictions.
type validatedPoint struct {
	experiment.ValidationPoint
	MeanOff, P95Off, JointOff, TotalOff float64
}

// ProbeTime is the measured probe time, as a multiple of the time without interference; the models' predictions follow.
func (p validatedPoint) ProbeTime() float64      { return 1 + p.Severity }
func (p validatedPoint) ProbeTimeJoint() float64 { return 1 + p.SeverityJoint }
func (p validatedPoint) ProbeTimeTotal() float64 { return 1 + p.SeverityTotal }

// validation reads what `quell lab validate` measured.
func (p labPart) validation(f *partFigures) error {
	var v experiment.Validation
	ok, err := p.measured("validation.json", &v)
	if err != nil {
		return err
	}
	if !ok {
		f.Missing = p.name
		return nil
	}
	f.Validation = &validationFigures{Rows: v.Rows}
	var mean, p95, joint, total []float64
	for _, point := range v.Points {
		at := validatedPoint{ValidationPoint: point}
		at.MeanOff, at.P95Off = off(at.PredictedMeanMS, at.MeanMS), off(at.PredictedP95MS, at.P95MS)
		at.JointOff, at.TotalOff = off(at.ProbeTimeJoint(), at.ProbeTime()), off(at.ProbeTimeTotal(), at.ProbeTime())
		f.Validation.Points = append(f.Validation.Points, at)
		mean, p95 = append(mean, at.MeanOff), append(p95, at.P95Off)
		joint, total = append(joint, at.JointOff), append(total, at.TotalOff)
	}
	f.Validation.Mean, f.Validation.P95 = sumUp(mean), sumUp(p95)
	f.Validation.Joint, f.Validation.Total = sumUp(joint), sumUp(total)
	return nil
}

// probing reads what `quell lab probing` measured.
func (p labPart) probing(f *partFigures) error {
	var scores []train.ProbingScore
	ok, err := p.measured("probing.json", &scores)
	if err != nil {
		return err
	}
	if !ok {
		f.Missing = p.name
		return nil
	}
	const link = 100e6 // the scenario's link in bit/s
	f.Probed = probed(scores, link)
	return nil
}

// reactionFigures are the seconds from onsets of a neighbour to the first change after each, sorted.
type reactionFigures struct {
	Delays              []float64
	Onsets              int
	Least, Median, Most float64
	Failed              int64
}

func reaction(f *partFigures, _ string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	r := plays[0][0]
	const lasts = 7 // seconds that interference lasts: later changes are not reactions to it
	f.Reaction = &reactionFigures{Onsets: len(sc.Marks()), Failed: r.Result.Errors}
	var delays []float64
	for _, mark := range sc.Marks() {
		at := mark.Seconds()
		if i := slices.IndexFunc(r.Changes, func(c float64) bool { return c >= at }); i >= 0 && r.Changes[i] < at+lasts {
			delays = append(delays, r.Changes[i]-at)
		}
	}
	f.Reaction.sum(delays)
	return nil
}

// sum sets the figures of delays, if there are any.
func (f *reactionFigures) sum(delays []float64) {
	if len(delays) == 0 {
		return
	}
	slices.Sort(delays)
	f.Delays, f.Least, f.Median, f.Most = delays, delays[0], delays[len(delays)/2], delays[len(delays)-1]
}

// quietFigures count how often something was changed although nothing had happened.
type quietFigures struct {
	Decisions        int
	Periods, Percent float64 // percent of the periods in which something was changed
}

func quiet(f *partFigures, _ string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	decisions := plays[0][0].Result.Decisions
	periods := sc.Duration.Seconds() / sc.Service.Sampling.Seconds()
	f.Quiet = &quietFigures{Decisions: decisions, Periods: periods, Percent: 100 * float64(decisions) / periods}
	return nil
}
