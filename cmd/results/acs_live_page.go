package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"
)

// slowdowns are those of a run's tenants, and the work of all tenants in processor seconds as alone, per second.
func (l *acsLiveData) slowdowns(run acsLiveRun) (list []float64, work float64) {
	for i, w := range run.Tenants {
		rate, processors := l.alone(w)
		if rate == 0 {
			continue
		}
		list = append(list, rate/run.Rates[i])
		work += run.Rates[i] / rate * processors
	}
	return list, work
}

// acsLiveRow is a mix with the unfairness of each mode.
type acsLiveRow struct {
	Mix    string
	Cells  []string
	Chance float64 // unfairness that even slowdowns would show
}

func acsModeTitles() (list []string) {
	for _, m := range acsModes {
		list = append(list, m.title)
	}
	return list
}

// acsRepeats has the figures of a mix under a mode, repeat by repeat.
type acsRepeats struct{ unfairness, mean, worst, work, rates []float64 }

func (l *acsLiveData) of(mix acsLiveSize, title string) (r acsRepeats) {
	for _, run := range mix.Runs {
		if run.Title != title {
			continue
		}
		list, work := l.slowdowns(run)
		sum, most, rate := 0.0, 0.0, 0.0
		for _, s := range list {
			sum, most, rate = sum+s, max(most, s), rate+1/s
		}
		r.unfairness, r.mean, r.worst = append(r.unfairness, unfair(list)), append(r.mean, sum/float64(len(list))), append(r.worst, most)
		r.work, r.rates = append(r.work, work), append(r.rates, rate)
	}
	return r
}

// rows lists the mixes.
func (l *acsLiveData) rows() (rows []acsLiveRow) {
	for _, mix := range l.Mixes {
		row := acsLiveRow{Mix: mix.Tenants.String(), Chance: l.chance(mix.Tenants)}
		for _, title := range acsModeTitles() {
			row.Cells = append(row.Cells, cell(l.of(mix, title).unfairness))
		}
		rows = append(rows, row)
	}
	return rows
}

// chance is the mean unfairness that even slowdowns would show in a mix, because the runs alone vary, on whose means slowdowns rest. The
// error of a mean of n values is drawn: the deviation of one of them from the mean, over the root of n - 1.
func (l *acsLiveData) chance(mix acsMix) float64 {
	const draws = 2000
	off := make([][]float64, len(mix)) // logarithms of the errors that may be
	for i, w := range mix {
		var rates []float64
		for _, r := range l.runsAlone(w) {
			rates = append(rates, math.Log(r.Rates[0]))
		}
		if len(rates) < 2 {
			return 1
		}
		mean := stat.Mean(rates, nil)
		for _, rate := range rates {
			off[i] = append(off[i], (rate-mean)/math.Sqrt(float64(len(rates)-1)))
		}
	}
	random, sum := rand.New(rand.NewPCG(1, 1)), 0.0
	for range draws {
		least, most := math.Inf(1), math.Inf(-1)
		for _, errors := range off {
			e := errors[random.IntN(len(errors))]
			least, most = min(least, e), max(most, e)
		}
		sum += math.Exp(most - least)
	}
	return sum / draws
}

// cell shows the mean of values, with its confidence interval if there are several.
func cell(values []float64) string {
	switch len(values) {
	case 0:
		return "not measured"
	case 1:
		return fmt.Sprintf("%.2f", values[0])
	}
	return estimateOf(values).Text(2)
}

// tables sums the mixes up by the number of tenants.
func (l *acsLiveData) tables() (tables []acsTable) {
	sizes, all := map[int][]acsLiveSize{}, map[int]int{}
	for _, mix := range l.Mixes {
		sizes[len(mix.Tenants)] = append(sizes[len(mix.Tenants)], mix)
	}
	for _, mix := range acsLiveMixes {
		all[len(mix)]++
	}
	for n, mixes := range sizes {
		size := acsSize{Tenants: n, Mixes: len(mixes)}
		for _, title := range acsModeTitles() {
			if run := l.sum(mixes, title); len(run.Unfairness) > 0 {
				size.Runs = append(size.Runs, run)
			}
		}
		table := newACSTable(size)
		table.All = all[n]
		for _, mix := range mixes {
			table.Chance += l.chance(mix.Tenants) / float64(len(mixes))
		}
		tables = append(tables, table)
	}
	slices.SortFunc(tables, func(a, b acsTable) int { return cmp.Compare(a.Tenants, b.Tenants) })
	return tables
}

// sum sums up the mixes that were measured under a mode. A mix is worse than the kernel's sharing if the intervals of the two do not meet.
func (l *acsLiveData) sum(mixes []acsLiveSize, title string) acsRun {
	run := acsRun{Title: title}
	for _, mix := range mixes {
		r, kernel := l.of(mix, title), l.of(mix, "kernel")
		if len(r.unfairness) == 0 {
			continue
		}
		own, theirs := estimateOf(r.unfairness), estimateOf(kernel.unfairness)
		run.Unfairness = append(run.Unfairness, own.Mean)
		run.Mean, run.Worst = append(run.Mean, estimateOf(r.mean).Mean), append(run.Worst, estimateOf(r.worst).Mean)
		run.Work = append(run.Work, estimateOf(r.work).Mean/estimateOf(kernel.work).Mean)
		run.Rates = append(run.Rates, estimateOf(r.rates).Mean/estimateOf(kernel.rates).Mean)
		if own.Mean-own.Half > theirs.Mean+theirs.Half {
			run.Worse++
		}
	}
	if n := len(run.Unfairness); n > 0 && n < len(mixes) {
		run.Title += fmt.Sprintf(" (%d of these mixes)", n)
	}
	return run
}

// acsSettling is how acs behaved in all runs of a mode.
type acsSettling struct {
	Title    string
	Runs     int
	Settled  int     // runs that settled within acsSoon periods
	Periods  float64 // until that, in the median run
	Most     int     // in the slowest one
	Even     int     // runs in which acs found the slowdowns equal enough
	Moves    float64 // largest change of a weight or a cap from one period to the next while measured, in the median run
	MostMove float64
}

func (l *acsLiveData) settling() (list []acsSettling) {
	for _, title := range acsModeTitles() {
		s := acsSettling{Title: title}
		var periods, moves []float64
		for _, mix := range l.Mixes {
			for _, run := range mix.Runs {
				if run.Title != title || len(run.Moments) == 0 {
					continue
				}
				s.Runs++
				n := run.settled()
				moves, periods = append(moves, run.moves()), append(periods, float64(n))
				s.Settled += count(n <= acsSoon)
				s.Most = max(s.Most, n)
				s.Even += count(slices.ContainsFunc(run.Moments, func(m acsMoment) bool { return m.Code == "acs_even" }))
			}
		}
		if s.Runs > 0 {
			s.Periods, s.Moves, s.MostMove = middle(periods), middle(moves), slices.Max(moves)
			list = append(list, s)
		}
	}
	return list
}

// middle is the median; 0 without values.
func middle(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// acsSoon is the number of periods within which acs should settle.
const acsSoon = 10

// settled returns the number of the last period of changes in which a weight or a cap moved by more than the tolerance. Periods of solo
// runs do not count.
func (run acsLiveRun) settled() (last int) {
	const tolerance = 0.1 // the default
	periods := 0
	list := run.together()
	for i, m := range list {
		if m.Code == "acs_uneven" || periods > 0 {
			periods++
		}
		if periods == 1 || periods > 1 && m.moved(list[i-1]) > tolerance {
			last = periods
		}
	}
	return last
}

// moves is the largest relative change of a weight or a cap from one period to the next while the run was measured.
func (run acsLiveRun) moves() (most float64) {
	list := run.together()
	for i := 1; i < len(list); i++ {
		if list[i].AtS >= run.SettleS {
			most = max(most, list[i].moved(list[i-1]))
		}
	}
	return most
}

// together are the moments in which no group ran nearly alone.
func (run acsLiveRun) together() []acsMoment {
	return slices.DeleteFunc(slices.Clone(run.Moments), func(m acsMoment) bool { return m.Code == "acs_solo" })
}

// moved is the largest relative change of a weight or a cap since another moment. A cap that comes or goes changes by all of it.
func (m acsMoment) moved(before acsMoment) (most float64) {
	for group, now := range m.Limits {
		if was := before.Limits[group]; was > 0 {
			most = max(most, math.Abs(now/was-1))
		}
	}
	for _, group := range slices.Concat(slices.Collect(maps.Keys(m.Caps)), slices.Collect(maps.Keys(before.Caps))) {
		now, was := m.Caps[group], before.Caps[group]
		most = max(most, math.Abs(now-was)/max(was, now))
	}
	return most
}

// acsQuiet says how quiet the machine was.
type acsQuiet struct {
	Others, MostOthers float64 // processors that were used outside of the tenants' groups: mean and largest of all runs
	MostSteal          float64 // largest part of the processors' time that the hypervisor gave to others
}

func (l *acsLiveData) quiet() (q acsQuiet) {
	var others []float64
	for _, mix := range l.Mixes {
		for _, run := range mix.Runs {
			q.MostSteal = max(q.MostSteal, run.Steal)
			if run.Others != nil {
				others = append(others, *run.Others)
			}
		}
	}
	if len(others) > 0 {
		q.Others, q.MostOthers = estimateOf(others).Mean, slices.Max(others)
	}
	return q
}

// acsLiveFigures are the figures of real programs on the page.
type acsLiveFigures struct {
	*acsLiveData
	Tables        []acsTable
	Rows          []acsLiveRow
	Settling      []acsSettling
	Quiet         acsQuiet
	Measured, All int // mixes
	Repeats       int
	Start, Settle time.Duration
	Run, Many     time.Duration // that are measured
	RunAlone      time.Duration // of a tenant alone
	AloneRuns     int           // least number of these
	Drawn         string        // the mix whose weights and caps are drawn; "": none
}

func newACSLiveFigures(l *acsLiveData) *acsLiveFigures {
	f := &acsLiveFigures{acsLiveData: l, Tables: l.tables(), Rows: l.rows(), Settling: l.settling(), Quiet: l.quiet(), Measured: len(l.Mixes),
		All: len(acsLiveMixes), Repeats: acsModes[0].repeats,
		Start: acsLiveTimes.start, Settle: acsLiveTimes.settle, Run: acsLiveTimes.measured, Many: acsLiveTimes.many,
		RunAlone: acsLiveTimes.alone, AloneRuns: l.aloneRuns()}
	if drawn := l.drawn(); len(drawn) > 0 {
		f.Drawn = drawn[0].Tenants.String()
	}
	return f
}

// aloneRuns is the least number of runs of a tenant that had the machine to itself.
func (l *acsLiveData) aloneRuns() int {
	least := acsAloneMode.repeats
	for _, r := range l.Alone {
		least = min(least, len(l.runsAlone(r.Tenants[0])))
	}
	return least
}

// drawn returns the runs whose weights and caps are drawn: those of the first mix of four tenants, or else of the first mix.
func (l *acsLiveData) drawn() (runs []acsLiveRun) {
	if len(l.Mixes) == 0 {
		return nil
	}
	mix := l.Mixes[max(0, slices.IndexFunc(l.Mixes, func(m acsLiveSize) bool { return len(m.Tenants) == 4 }))]
	for _, run := range mix.Runs {
		if run.Repeat == 0 && len(run.Moments) > 0 {
			runs = append(runs, run)
		}
	}
	return runs
}
