package main

import (
	"cmp"
	"fmt"
	"image/color"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/figure"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
)

// overTime are the runs of Table I that are drawn over time, as in Figure 6 of ICE.
var overTime = []string{"static", "server parameters alone (IC²)", "ICE"}

// plotDisturbed draws the median response time at the disturbed server, one panel for each scheduling (Figure 6). Vertical lines are the
// neighbour's beginning and end.
func plotDisturbed(path string, sc *scenario.Scenario, records []*experiment.Record) (drawn bool, err error) {
	var plots []*plot.Plot
	n := presences(sc)[0]
	for _, scheduling := range []quell.Scheduling{quell.RoundRobin, quell.LeastConn} {
		var lines []figure.Series
		for i, run := range sc.Runs {
			if title := iceRunTitle(run); records[i] != nil && run.Scheduling == scheduling && slices.Contains(overTime, title) {
				col, _ := figure.Policy(title)
				lines = append(lines, figure.Series{Name: title, Points: disturbedOverTime(sc, n, records[i]), Color: col})
			}
		}
		if len(lines) == 0 {
			continue
		}
		p := figure.New(string(scheduling)+": response times of the server beside the neighbour (dashed: it comes, it goes)", "", "median, ms")
		figure.Logarithmic(&p.Y)
		if err := figure.AddLines(p, lines...); err != nil {
			return false, err
		}
		for _, at := range []float64{n.from, n.to} {
			if err := addVertical(p, at); err != nil {
				return false, err
			}
		}
		p.X.Min, p.X.Max = 0, sc.Duration.Seconds()
		plots = append(plots, p)
	}
	if len(plots) == 0 {
		return false, nil
	}
	plots[len(plots)-1].X.Label.Text = "seconds"
	return true, figure.WriteAbove(path, plots...)
}

// disturbedOverTime is the median response time at a disturbed instance in each two seconds.
func disturbedOverTime(sc *scenario.Scenario, n presence, r *experiment.Record) (line plotter.XYs) {
	const step = 2.0
	for at := 0.0; at < sc.Duration.Seconds(); at += step {
		if ms := p50Of(r.Phase(at, at+step).Instances[n.instance].LatencyMS); ms > 0 {
			line = append(line, plotter.XY{X: at + step/2, Y: ms})
		}
	}
	return line
}

// addVertical adds a dashed line over the whole height.
func addVertical(p *plot.Plot, at float64) error {
	line, err := plotter.NewLine(plotter.XYs{{X: at, Y: p.Y.Min}, {X: at, Y: p.Y.Max}})
	if err != nil {
		return err
	}
	line.Dashes = []vg.Length{vg.Points(3), vg.Points(3)}
	p.Add(line)
	return nil
}

// plotMedians draws the medians of Table I at the disturbed server as bars, one group for each run (Figure 7).
func plotMedians(path string, rows []iceTableRow) error {
	var titles []string
	for _, row := range rows {
		if !slices.Contains(titles, row.Title) {
			titles = append(titles, row.Title)
		}
	}
	p := figure.New("", "", "median beside the neighbour, ms")
	const width = 14
	colours := map[quell.Scheduling]color.Color{quell.RoundRobin: figure.Others, quell.LeastConn: figure.Threshold}
	for k, scheduling := range []quell.Scheduling{quell.RoundRobin, quell.LeastConn} {
		values := make(plotter.Values, len(titles))
		for _, row := range rows {
			if row.Scheduling == scheduling {
				values[slices.Index(titles, row.Title)] = row.DisturbedMS
			}
		}
		bars, err := plotter.NewBarChart(values, vg.Points(width))
		if err != nil {
			return err
		}
		bars.Color, bars.LineStyle.Width = colours[scheduling], 0
		bars.Offset = vg.Points(width) * (vg.Length(k) - 0.5)
		p.Add(bars)
		p.Legend.Add(string(scheduling), bars)
	}
	least := slices.MinFunc(rows, func(a, b iceTableRow) int { return cmp.Compare(a.DisturbedMS, b.DisturbedMS) })
	p.Title.Text = fmt.Sprintf("%s over %s has the lowest median beside the neighbour: %.0f ms", least.Title, least.Scheduling,
		least.DisturbedMS)
	p.Legend.Top, p.Y.Min, p.Y.Max = true, 0, 1.2*p.Y.Max // room for the legend
	p.NominalX(shortTitles(titles)...)
	p.X.Min, p.X.Max = -0.6, float64(len(titles))-0.4
	return figure.WriteAbove(path, p)
}

// shortTitles are titles of runs that fit below bars.
func shortTitles(titles []string) []string {
	short := map[string]string{"server parameters alone (IC²)": "IC²", "ICE and server parameters": "ICE, parameters",
		"PRIMA with ICE": "PRIMA, ICE"}
	list := slices.Clone(titles)
	for i, title := range list {
		if s, ok := short[title]; ok {
			list[i] = s
		}
	}
	return list
}

// streamFigures are the frame delays of a streaming server.
type streamFigures struct {
	Workers []streamRow // by number of workers, at the whole weight
	Weights []streamRow // by weight, beside the neighbour
	Counts  []int       // the numbers of workers in Weights, in increasing order
	Plot    string
}

// streamRow is a row of a table of delays. A cell that was not measured is empty.
type streamRow struct {
	At    int
	Cells []streamCell
}

// streamCell has what each play measured.
type streamCell struct {
	MS     []float64 // mean delay
	Unsent []float64 // share of the frames that were due and not sent
}

// wholeWeight is the weight of an undisturbed host.
const wholeWeight = 100

// streams reads the frame delays that the lab measured, and draws them (Figures 8 and 9).
func (p labPart) streams(f *partFigures, plots string) error {
	results, err := p.streamResults()
	if err != nil || len(results) == 0 {
		f.Missing = p.name
		return err
	}
	f.Streams = newStreamFigures(results)
	f.Streams.Plot = "streaming.png"
	return plotStreams(filepath.Join(plots, f.Streams.Plot), f.Streams)
}

// streamResults are the delays that were measured, of all seeds.
func (p labPart) streamResults() (all []experiment.StreamResult, err error) {
	for seed := range p.seeds {
		var results []experiment.StreamResult
		if _, err := readJSON(filepath.Join(seedDir(p.scenario(), seed), "streaming.json"), &results); err != nil {
			return nil, err
		}
		all = append(all, results...)
	}
	return all, nil
}

func newStreamFigures(results []experiment.StreamResult) *streamFigures {
	s := &streamFigures{}
	measured, most := map[int]int{}, 0 // other weights with this number of workers, in all plays: each play chooses the best numbers
	for i := range results {
		if r := &results[i]; r.Weight != wholeWeight {
			measured[r.Workers]++
			most = max(most, measured[r.Workers])
		}
	}
	for workers, n := range measured {
		if n == most { // in every play
			s.Counts = append(s.Counts, workers)
		}
	}
	slices.Sort(s.Counts)
	for i := range results {
		r := &results[i]
		if r.Weight == wholeWeight {
			column := 0
			if r.Interfering {
				column = 1
			}
			s.Workers = put(s.Workers, r.Workers, column, 2, r)
		}
		if column := slices.Index(s.Counts, r.Workers); column >= 0 && r.Interfering {
			s.Weights = put(s.Weights, r.Weight, column, len(s.Counts), r)
		}
	}
	slices.SortFunc(s.Workers, func(a, b streamRow) int { return a.At - b.At })
	slices.SortFunc(s.Weights, func(a, b streamRow) int { return b.At - a.At })
	return s
}

// put adds a result to a column of the row that begins with at.
func put(rows []streamRow, at, column, columns int, r *experiment.StreamResult) []streamRow {
	i := slices.IndexFunc(rows, func(row streamRow) bool { return row.At == at })
	if i < 0 {
		i, rows = len(rows), append(rows, streamRow{at, make([]streamCell, columns)})
	}
	if ms, ok := r.DelayMS.Of(quell.Mean); ok {
		c := &rows[i].Cells[column]
		c.MS, c.Unsent = append(c.MS, ms), append(c.Unsent, r.Unsent)
	}
	return rows
}

// Texts are the row's delays in milliseconds, with the share of frames that were due and not sent: the medians of the plays, and of the
// delays the range.
func (r streamRow) Texts() []string {
	texts := make([]string, len(r.Cells))
	for i, c := range r.Cells {
		texts[i] = spreadOf(c.MS, "%.0f")
		if unsent := middle(c.Unsent); unsent >= 0.005 {
			texts[i] += fmt.Sprintf(" (%.0f%% not sent)", 100*unsent)
		}
	}
	return texts
}

func plotStreams(path string, s *streamFigures) error {
	panels := []struct {
		found, label string
		rows         []streamRow
		titles       []string
	}{
		{shortest(s.Workers, 1, "Beside the neighbour frames come soonest with %d workers: after %.0f ms"), "workers, weight 100", s.Workers,
			[]string{"without neighbour", "beside the neighbour"}},
		{shortest(s.Weights, 0, "they come soonest at a weight of %d: after %.0f ms"), "weight, beside the neighbour", s.Weights, nil},
	}
	if len(s.Counts) > 0 {
		panels[1].found = fmt.Sprintf("With %d workers %s", s.Counts[0], panels[1].found)
	}
	for _, n := range s.Counts {
		panels[1].titles = append(panels[1].titles, fmt.Sprintf("%d workers", n))
	}
	var plots []*plot.Plot
	for _, panel := range panels {
		p := figure.New(panel.found, panel.label, "mean frame delay, ms")
		figure.Logarithmic(&p.Y)
		var lines []figure.Series
		for column, title := range panel.titles {
			lines = append(lines, figure.Series{Name: title, Points: delaysOf(panel.rows, column), Color: figure.Nth(column),
				Mark: figure.Disc})
		}
		if err := figure.AddLines(p, lines...); err != nil {
			return err
		}
		plots = append(plots, p)
	}
	return figure.WriteAbove(path, plots...)
}

// shortest says in which row a column has the shortest delay; format takes the row's number and the delay in milliseconds.
func shortest(rows []streamRow, column int, format string) string {
	line := delaysOf(rows, column)
	if len(line) == 0 {
		return ""
	}
	best := slices.MinFunc(line, func(a, b plotter.XY) int { return cmp.Compare(a.Y, b.Y) })
	return fmt.Sprintf(format, int(best.X), best.Y)
}

// delaysOf are the measured mean delays of a column, in the order of their rows' numbers.
func delaysOf(rows []streamRow, column int) (line plotter.XYs) {
	for _, row := range rows {
		if c := row.Cells[column]; len(c.MS) > 0 {
			line = append(line, plotter.XY{X: float64(row.At), Y: middle(c.MS)})
		}
	}
	slices.SortFunc(line, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
	return line
}
