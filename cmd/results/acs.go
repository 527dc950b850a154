package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/tenants"
	"github.com/quellhq/quell/policy/acs"
	"github.com/quellhq/quell/policy/table"
)

// acsMeasured are the page's parts by name. The figures of parts that are not measured again are read from acs.json.
var acsMeasured = map[string]func(ctx context.Context, d *acsData) error{
	"simulated": simulateTenants,
	"model":     playModels,
	"page":      func(_ context.Context, d *acsData) error { return d.collect(acsLiveRecords) },
}

// acsPage simulates machines with several tenants. The live part is measured only on request, because it needs a quiet machine.
func acsPage(ctx context.Context, dir string) error { return acsPagePart(ctx, dir, "simulated") }

func acsPagePart(ctx context.Context, dir, part string) error {
	var d acsData
	path := filepath.Join(dir, "acs.json")
	if _, err := readJSON(path, &d); err != nil {
		return err
	}
	measure, ok := acsMeasured[part]
	if piece, live := acsPieceOf(part); live {
		measure, ok = piece.play, true
	}
	if !ok {
		return fmt.Errorf("the acs page has no part %q", part)
	}
	if err := measure(ctx, &d); err != nil {
		return err
	}
	if err := errors.Join(writeJSON(path, d), plotCaps(dir), plotLive(dir, d.Live)); err != nil {
		return err
	}
	return writePage(dir, "acs", newACSFigures(d))
}

// acsData has all measured figures, as they are in acs.json.
type acsData struct {
	Simulated []acsSize    `json:"simulated"`
	Pairs     []acsPair    `json:"pairs"`
	Stability []acsCell    `json:"stability"`
	Windows   []acsCell    `json:"windows"`
	Live      *acsLiveData `json:"live,omitempty"`

	Model []acsModelRun `json:"model,omitempty"` // of the part model, with real programs
}

// acsSize has the runs with a number of tenants.
type acsSize struct {
	Tenants int      `json:"tenants"`
	Mixes   int      `json:"mixes"`
	Runs    []acsRun `json:"runs"`
	// Related is the correlation of slowdown and waiting (Eq. 9), over all tenants under the kernel's sharing.
	Related float64 `json:"related"`
}

// acsRun has the figures of one way to divide the processors, mix by mix.
type acsRun struct {
	Title      string    `json:"title"`
	Unfairness []float64 `json:"unfairness"`
	Mean       []float64 `json:"mean"`  // slowdown of the tenants
	Worst      []float64 `json:"worst"` // slowdown of the tenant that is slowed down most
	Work       []float64 `json:"work"`  // over that of the kernel's sharing
	Rates      []float64 `json:"rates"` // sum of the rates of work, each over its rate alone, over that of the kernel's sharing
	Worse      int       `json:"worse"` // mixes that are less even than under the kernel's sharing
}

// acsContender is a way to divide the processors. A policy without a name is the kernel's own sharing.
type acsContender struct {
	title  string
	policy quell.Policy
	around int // how many groups the tenants' groups lie in
}

// acsWith returns policy acs with changed settings.
func acsWith(change func(*acs.Settings)) quell.Policy {
	p := table.All.Whole(quell.Policy{Name: "acs"})
	set := p.Settings.(acs.Settings)
	change(&set)
	p.Settings = set
	return p
}

func acsContenders() []acsContender {
	return []acsContender{
		{"kernel", quell.Policy{}, 1},
		{"kernel, two groups around", quell.Policy{}, 2},
		{"acs", acsWith(func(*acs.Settings) {}), 1},
		{"acs, two groups around", acsWith(func(*acs.Settings) {}), 2},
		{"acs with solo runs", acsWith(func(s *acs.Settings) { s.Solo = time.Hour }), 1},
		{"acs by caps", acsWith(func(s *acs.Settings) { s.By = acs.Caps }), 1},
		{"literal rule", acsWith(func(s *acs.Settings) { s.Rule = acs.Literal }), 1},
	}
}

// What is simulated.
const (
	acsMixes    = 24
	acsCores    = 2
	acsNoise    = 0.03
	acsLeast    = 1.2 // mixes count whose unfairness under the kernel's sharing is at least this
	acsDuration = 90 * time.Second
	acsSettle   = 30 * time.Second // solo runs of eight tenants take 16 s
	acsMapMixes = 8
)

func acsOptions() tenants.Options {
	return tenants.Options{Cores: acsCores, Duration: acsDuration, Settle: acsSettle, Noise: acsNoise}
}

// simulateTenants plays mixes of two, four and eight tenants.
func simulateTenants(ctx context.Context, d *acsData) error {
	d.Simulated = nil
	for _, n := range []int{2, 4, 8} {
		size, err := simulateSize(ctx, n)
		if err != nil {
			return err
		}
		d.Simulated = append(d.Simulated, size)
	}
	if err := d.pairs(ctx); err != nil {
		return err
	}
	return d.sweep(ctx)
}

func simulateSize(ctx context.Context, n int) (acsSize, error) {
	size := acsSize{Tenants: n, Mixes: acsMixes}
	mixes, err := tenants.Uneven(acsOptions(), n, acsMixes, acsLeast, 1)
	if err != nil {
		return size, err
	}
	kernel := map[int][]tenants.Outcome{} // by the number of groups around
	for _, c := range acsContenders() {
		o := acsOptions()
		o.Around = c.around
		outs, err := playMixes(ctx, o, mixes, c.policy)
		if err != nil {
			return size, err
		}
		if c.policy.Name == "" {
			kernel[c.around] = outs
		}
		if c.policy.Name == "" && c.around == 1 {
			size.Related = related(outs)
		}
		size.Runs = append(size.Runs, newACSRun(c.title, outs, kernel[c.around]))
	}
	return size, nil
}

// related is the correlation over all tenants of how much slower they are than alone with the part of their time in which they waited.
func related(outs []tenants.Outcome) float64 {
	var slowdowns, waiting []float64
	for _, out := range outs {
		slowdowns, waiting = append(slowdowns, out.Slowdown...), append(waiting, out.Waiting...)
	}
	return stat.Correlation(waiting, slowdowns, nil)
}

func newACSRun(title string, outs, kernel []tenants.Outcome) acsRun {
	r := acsRun{Title: title}
	for i, out := range outs {
		sum, worst := 0.0, 0.0
		for _, s := range out.Slowdown {
			sum, worst = sum+s, max(worst, s)
		}
		r.Unfairness = append(r.Unfairness, out.Unfairness)
		r.Mean = append(r.Mean, sum/float64(len(out.Slowdown)))
		r.Worst = append(r.Worst, worst)
		r.Work = append(r.Work, out.Work/kernel[i].Work)
		r.Rates = append(r.Rates, out.Rates/kernel[i].Rates)
		if out.Unfairness > kernel[i].Unfairness*(1+1e-9) {
			r.Worse++
		}
	}
	return r
}

// playMixes plays each mix with a policy, as many at once as there are processors.
func playMixes(ctx context.Context, o tenants.Options, mixes [][]tenants.Tenant, p quell.Policy) ([]tenants.Outcome, error) {
	outs := make([]tenants.Outcome, len(mixes))
	err := playAll(len(mixes), func(i int) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		one := o
		one.Tenants, one.Policy, one.Seed = mixes[i], p, uint64(i)
		var err error
		outs[i], err = tenants.Play(one)
		return err
	})
	return outs, err
}

// acsPair is a row like those of Tables 10 and 11: two tenants, of which the second is the same in all rows.
type acsPair struct {
	First  string    `json:"first"`
	Kernel []float64 `json:"kernel"` // slowdowns of both
	ACS    []float64 `json:"acs"`
	// The parts of their time in which they waited.
	KernelWaits []float64 `json:"kernel_waits"`
	ACSWaits    []float64 `json:"acs_waits"`
}

// pairs plays pairs of tenants. The second one uses memory as much as the paper's milc.
func (d *acsData) pairs(ctx context.Context) error {
	ms := time.Millisecond
	firsts := []tenants.Tenant{
		{Name: "one task", Tasks: 1},
		{Name: "eight tasks", Tasks: 8},
		{Name: "one task that uses memory", Tasks: 1, Memory: 0.9, Reports: true},
		{Name: "four tasks that use memory", Tasks: 4, Memory: 0.6, Reports: true},
		{Name: "one task that works a third of the time", Tasks: 1, Burst: 20 * ms, Sleep: 40 * ms, Vary: 0.5},
		{Name: "four tasks that work half of the time", Tasks: 4, Burst: 30 * ms, Sleep: 30 * ms, Vary: 0.5},
	}
	var mixes [][]tenants.Tenant
	for _, first := range firsts {
		mixes = append(mixes, []tenants.Tenant{first, {Name: "second", Tasks: 4, Memory: 0.8, Reports: true}})
	}
	kernel, err := playMixes(ctx, acsOptions(), mixes, quell.Policy{})
	if err != nil {
		return err
	}
	own, err := playMixes(ctx, acsOptions(), mixes, acsWith(func(s *acs.Settings) { s.Solo = time.Hour }))
	if err != nil {
		return err
	}
	d.Pairs = nil
	for i := range mixes {
		d.Pairs = append(d.Pairs, acsPair{firsts[i].Name, kernel[i].Slowdown, own[i].Slowdown, kernel[i].Waiting, own[i].Waiting})
	}
	return nil
}

// acsCell is a point of a map: mean unfairness with four tenants.
type acsCell struct {
	Gain       float64 `json:"gain"`
	WindowS    float64 `json:"window_s"`
	Noise      float64 `json:"noise"`
	Delay      int     `json:"delay"` // periods
	Unfairness float64 `json:"unfairness"`
}

// The points of the maps.
var (
	acsGains    = []float64{0.2, 0.4, 0.6, 0.8, 1}
	acsWindows  = []float64{0, 1, 3, 5, 10} // seconds
	acsTroubles = []acsCell{{}, {Noise: 0.03}, {Noise: 0.1}, {Noise: 0.3}, {Delay: 1}, {Delay: 2}, {Delay: 3}, {Noise: 0.1, Delay: 1},
		{Noise: 0.3, Delay: 3}}
)

// sweep fills the maps: the gain against noise and delay with the default window, and the window with the default gain.
func (d *acsData) sweep(ctx context.Context) error {
	mixes, err := tenants.Uneven(acsOptions(), 4, acsMapMixes, acsLeast, 1)
	if err != nil {
		return err
	}
	set := table.All.Whole(quell.Policy{Name: "acs"}).Settings.(acs.Settings)
	d.Stability, d.Windows = nil, nil
	fill := func(cells *[]acsCell, gain, window float64) error {
		for _, c := range acsTroubles {
			c.Gain, c.WindowS = gain, window
			if err := c.play(ctx, mixes); err != nil {
				return err
			}
			*cells = append(*cells, c)
		}
		return nil
	}
	for _, gain := range acsGains {
		if err := fill(&d.Stability, gain, set.Window.Seconds()); err != nil {
			return err
		}
	}
	for _, window := range acsWindows {
		if err := fill(&d.Windows, set.Gain, window); err != nil {
			return err
		}
	}
	return nil
}

func (c *acsCell) play(ctx context.Context, mixes [][]tenants.Tenant) error {
	o := acsOptions()
	o.Noise, o.Delay = c.Noise, c.Delay
	outs, err := playMixes(ctx, o, mixes, acsWith(func(s *acs.Settings) {
		s.Gain, s.Window = c.Gain, time.Duration(c.WindowS*float64(time.Second))
	}))
	for _, out := range outs {
		c.Unfairness += out.Unfairness / float64(len(outs))
	}
	return err
}

// acsFigures are the figures of the page.
type acsFigures struct {
	acsData
	Settings              acs.Settings
	Cores                 int
	Noise, Least          float64
	Measured              time.Duration
	Sizes                 []acsTable
	Troubles              []string
	Gains, WindowRows     []acsMapRow
	MapMixes              int
	PairsKernel, PairsACS float64 // mean unfairness of the pairs
	PairSlowdowns         []acsPairMean
	PairsRelated          float64         // correlation of slowdown and waiting, over both tenants of the pairs under the kernel's sharing
	Real                  *acsLiveFigures // nil: not measured yet
}

// acsPairMean is the mean slowdown over the pairs, of the first or the second tenant.
type acsPairMean struct {
	Tenant                             string
	Kernel, ACS, PaperKernel, PaperACS float64
}

// newACSPairMeans compares with the means of Tables 10 and 11. The second tenant's are those of Tables 12 and 13, and Figure 11.
func newACSPairMeans(pairs []acsPair) []acsPairMean {
	means := []acsPairMean{
		{Tenant: "first", PaperKernel: 1.20, PaperACS: 1.67},
		{Tenant: "second, the paper's milc", PaperKernel: 2.06, PaperACS: 1.41},
	}
	for i := range means {
		for _, p := range pairs {
			means[i].Kernel += p.Kernel[i] / float64(len(pairs))
			means[i].ACS += p.ACS[i] / float64(len(pairs))
		}
	}
	return means
}

// acsTable has the rows of a number of tenants.
type acsTable struct {
	Tenants, Mixes int
	All            int     // mixes, of which some may not be measured yet
	Goal           float64 // largest mean unfairness
	Chance         float64 // mean unfairness that even slowdowns would show; 0: not known
	Rows           []acsTableRow
}

// Kernel and ACS are the rows of the kernel's own sharing, and of acs by waiting alone.
func (t acsTable) Kernel() acsTableRow { return t.row("kernel") }
func (t acsTable) ACS() acsTableRow    { return t.row("acs") }

func (t acsTable) row(title string) (found acsTableRow) {
	for _, r := range t.Rows {
		if r.Title == title {
			found = r
		}
	}
	return found
}

type acsTableRow struct {
	Title                                string
	Unfairness, Mean, Worst, Work, Rates estimate
	Largest                              float64 // unfairness
	Worse                                int
	Reached                              bool
}

// acsMapRow is a row of a map.
type acsMapRow struct {
	Value string
	Cells []float64
}

// acsGoals are the goals of the mean unfairness, by the number of tenants.
var acsGoals = map[int]float64{2: 1.10, 4: 1.15, 8: 1.19}

func newACSTable(size acsSize) acsTable {
	t := acsTable{Tenants: size.Tenants, Mixes: size.Mixes, All: size.Mixes, Goal: acsGoals[size.Tenants]}
	for _, r := range size.Runs {
		row := acsTableRow{Title: r.Title, Unfairness: estimateOf(r.Unfairness), Mean: estimateOf(r.Mean), Worst: estimateOf(r.Worst),
			Work: estimateOf(r.Work), Rates: estimateOf(r.Rates), Worse: r.Worse}
		for _, u := range r.Unfairness {
			row.Largest = max(row.Largest, u)
		}
		row.Reached = row.Unfairness.Mean <= t.Goal
		t.Rows = append(t.Rows, row)
	}
	return t
}

func newACSFigures(d acsData) acsFigures {
	f := acsFigures{acsData: d, Settings: table.All.Whole(quell.Policy{Name: "acs"}).Settings.(acs.Settings), Cores: acsCores,
		Noise: acsNoise, Least: acsLeast, Measured: acsDuration - acsSettle, MapMixes: acsMapMixes}
	for _, size := range d.Simulated {
		f.Sizes = append(f.Sizes, newACSTable(size))
	}
	for _, c := range acsTroubles {
		f.Troubles = append(f.Troubles, c.trouble())
	}
	f.Gains = mapRows(d.Stability, func(c acsCell) string { return fmt.Sprint(c.Gain) })
	f.WindowRows = mapRows(d.Windows, func(c acsCell) string { return fmt.Sprintf("%g s", c.WindowS) })
	var slowdowns, waits []float64
	for _, p := range d.Pairs {
		slowdowns, waits = append(slowdowns, p.Kernel...), append(waits, p.KernelWaits...)
		f.PairsKernel += unfair(p.Kernel) / float64(len(d.Pairs))
		f.PairsACS += unfair(p.ACS) / float64(len(d.Pairs))
	}
	f.PairSlowdowns = newACSPairMeans(d.Pairs)
	f.PairsRelated = stat.Correlation(waits, slowdowns, nil)
	if d.Live != nil {
		f.Real = newACSLiveFigures(d.Live)
	}
	return f
}

// trouble describes noise and delay.
func (c acsCell) trouble() string {
	switch {
	case c.Noise == 0 && c.Delay == 0:
		return "none"
	case c.Delay == 0:
		return fmt.Sprintf("noise %.0f%%", 100*c.Noise)
	case c.Noise == 0:
		return fmt.Sprintf("%d late", c.Delay)
	}
	return fmt.Sprintf("%.0f%%, %d late", 100*c.Noise, c.Delay)
}

// mapRows makes a row of each run of cells that have the same value.
func mapRows(cells []acsCell, value func(acsCell) string) (rows []acsMapRow) {
	for _, c := range cells {
		if len(rows) == 0 || rows[len(rows)-1].Value != value(c) {
			rows = append(rows, acsMapRow{Value: value(c)})
		}
		last := &rows[len(rows)-1]
		last.Cells = append(last.Cells, c.Unfairness)
	}
	return rows
}

// unfair is the largest slowdown over the smallest.
func unfair(slowdowns []float64) float64 {
	least, most := math.Inf(1), 0.0
	for _, s := range slowdowns {
		least, most = min(least, s), max(most, s)
	}
	return most / least
}
