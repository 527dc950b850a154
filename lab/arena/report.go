package arena

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
)

// Report writes a Markdown page with the best runs and plots of every contest. The plots, and a page with all runs of each contest, go
// into a folder with the page's name. The sentences about results are generated from the figures. why is a person's explanation for each
// scenario, by its name; it is kept outside the page, so that the page can be written again.
func Report(ctx context.Context, path string, contests []*Contest, why map[string]string) error {
	if err := CheckReport(path); err != nil {
		return err
	}
	folder := plotsOf(path)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("making the report's folder: %w", err)
	}
	var page bytes.Buffer
	opening(&page, contests)
	for _, c := range contests {
		name := filepath.Join(folder, c.Scenario.Name)
		if err := c.drawPlots(ctx, name); err != nil {
			return fmt.Errorf("plotting %s: %w", c.Scenario.Name, err)
		}
		if err := os.WriteFile(name+".md", c.all(), 0o644); err != nil {
			return fmt.Errorf("writing all runs of %s: %w", c.Scenario.Name, err)
		}
		c.section(&page, filepath.Base(folder), why[c.Scenario.Name])
	}
	if err := os.WriteFile(path, page.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// plotsOf is the folder of a report's plots.
func plotsOf(path string) string { return strings.TrimSuffix(path, filepath.Ext(path)) }

// CheckReport returns why a report could not be written to the path; it changes nothing.
func CheckReport(path string) error {
	refuse := func(problem string) error {
		return &quell.UserError{Err: fmt.Errorf("report %s: %s", path, problem)}
	}
	if filepath.Ext(path) != ".md" {
		return refuse("name a file that ends in .md; its plots go into a folder without the ending")
	}
	if found, err := os.Stat(path); err == nil && found.IsDir() {
		return refuse("is a folder: name a file")
	}
	if found, err := os.Stat(plotsOf(path)); err == nil && !found.IsDir() {
		return refuse(plotsOf(path) + " is in the way of the plots' folder")
	}
	parent := filepath.Dir(path)
	for parent != filepath.Dir(parent) {
		if _, err := os.Stat(parent); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		parent = filepath.Dir(parent)
	}
	if err := unix.Access(parent, unix.W_OK|unix.X_OK); err != nil {
		return refuse(fmt.Sprintf("nothing can be written to %s: %v", parent, err))
	}
	return nil
}

func opening(w io.Writer, contests []*Contest) {
	fmt.Fprintf(w, `# The arena: every policy and every rival on the same work

Written by %s. Each run is simulated request by request with the policies, the guard and the schedulings of the
live system, models that are trained in the simulator for every seed anew, and the same arrivals and neighbours for all runs of one seed. A figure
is the mean over seeds; after it, half the width of its 95%% confidence interval (Student's t), which holds what arrivals, neighbours and training
leave to chance.

- *violation*: share of the time in judge windows in which some instance missed the objective, or a request failed. In a window, an instance counts
  with at least as many requests as the section says: who sends next to nothing to a slow instance is not judged by what it answers, which is why
  there is the next column.
- *requests over*: share of all requests that took longer than the objective's threshold, whatever its metric, or failed. A percentile or a mean may
  be held with some of them over.
- *instance-seconds*: what the run cost.
- *front*: by the means, no other run violates less for the same cost or less, or as little for less. The clairvoyant is left out of it. Rows whose
  intervals overlap may well be in the other order.
- *rival at its best*: each policy plays over every scheduling that it could run on, at every size or target. Of all these forms the table has the
  two that an operator would choose beside PRIMA: the one that violates least for PRIMA's cost or less (within %.0f%%), and the one that costs least for
  PRIMA's violation or less. *against PRIMA*: less or more where the 95%% interval of the differences, seed by seed, does not hold 0.
- The second table has the runs on the front, the forms of each policy that no other form of it beats by the means, and the scenario's own runs. All runs
  are on a page of their own.
- xN: a group of that fixed size. From the scenario's size on, larger ones are tried until the first seed misses the objective for at most %.0f%% of the
  time, and smaller ones until it misses it for at least %.0f%%, in at most %d steps each; then PRIMA's mean size, rounded down and up; all of it under every
  scheduling, and with learned curves (knapsack). Sizes on the way that are as lost as their neighbours are left out, and a group of one plays under one
  scheduling only, as all do the same.
- PRIMA plays over every scheduling (over Prequal, which knows no weights, for the size of the group alone), with the other interference model, with
  a headroom of 70%%, and with one spare instance.
- N%%: the target of an autoscaler, or how full the clairvoyant lets machines get.
- *clairvoyant*: the bound. It is told what nobody can measure: what neighbours take of every resource, which machines will fail and what
  clients will ask for, until an instance that is started now can serve. From these and the laws of processor sharing it works out the fewest
  instances and the weights that hold the objective. How full machines may get is what turns out best, seed by seed: the least violation, then the
  least cost; with N%%, always the same, which gives its frontier. It decides once in a sampling period. What a scheduling does request by
  request is beyond it, so a rival could in principle do better by that alone.

`, "`quell arena --report`", (sameCost-1)*100, kept*100, lost*100, ladderSteps)
	overview(w, contests)
}

// overview writes a line for each contest.
func overview(w io.Writer, contests []*Contest) {
	writeMarkdown(w, []string{
		"scenario", "PRIMA: violation, %", "instance-seconds",
		"for that cost or less, the rival that violates least", "violation, %", "against PRIMA",
		"for that violation or less, the cheapest rival", "cost against PRIMA",
	}, func(row func(...string)) {
		for _, c := range contests {
			cells := []string{fmt.Sprintf("[%s](#%s)", c.Scenario.Name, strings.ToLower(c.Scenario.Name))}
			if us := find(c.Rows(), primaItself); us != nil {
				cells = append(cells, us.Violation.text(100, 1), us.Cost.text(1, 0))
				cells = append(cells, c.bestRivals()...)
			}
			row(cells...)
		}
	})
}

// bestRivals are the columns of the overview that name the best rivals.
func (c *Contest) bestRivals() []string {
	var cheap, good *Match
	for _, r := range c.Rivals() {
		if r.Policy == subject || r.Policy == sim.Clairvoyant {
			continue
		}
		if m := r.Cheap; m != nil && (cheap == nil || m.Violation.Mean < cheap.Violation.Mean) {
			cheap = m
		}
		if m := r.Good; m != nil && (good == nil || m.Dearer < good.Dearer) {
			good = m
		}
	}
	cells := []string{"none", "", "", "none", ""}
	if cheap != nil {
		copy(cells, []string{cheap.Entrant.Title(), cheap.Violation.text(100, 1), string(cheap.Against)})
	}
	if good != nil {
		copy(cells[3:], []string{good.Entrant.Title(), good.dearer()})
	}
	return cells
}

// writeMarkdown writes a table.
func writeMarkdown(w io.Writer, header []string, rows func(row func(...string))) {
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(header, " | "), strings.Repeat("---|", len(header)))
	rows(func(cells ...string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) })
	fmt.Fprintln(w)
}

// lineWidth is the width of prose in Markdown.
const lineWidth = 100

// wrapped breaks a paragraph into lines between its words.
func wrapped(text string) string {
	var b strings.Builder
	length := 0
	for i, word := range strings.Fields(text) {
		switch n := utf8.RuneCountInString(word); {
		case i == 0:
			length = n
		case length+1+n > lineWidth:
			b.WriteByte('\n')
			length = n
		default:
			b.WriteByte(' ')
			length += 1 + n
		}
		b.WriteString(word)
	}
	return b.String()
}

// all is the page that lists all runs of a contest.
func (c *Contest) all() []byte {
	var page bytes.Buffer
	fmt.Fprintf(&page, "# All runs of %s\n\nWritten by `quell arena --report`. The columns are those of the arena's page.\n\n",
		c.Scenario.Name)
	rows := c.Rows()
	writeMarkdown(&page, header, func(row func(...string)) {
		for _, r := range rows {
			row(r.cells()...)
		}
	})
	return page.Bytes()
}

func (c *Contest) section(w io.Writer, folder, why string) {
	sc := c.Scenario
	fmt.Fprintf(w,
		"## %s\n\n%d hosts, %v, %d seeds; the %s of each instance at most %g ms, judged in windows of %v, with at least %d requests.", sc.Name,
		len(sc.Hosts), sc.Duration, len(c.Seeds), sc.Service.SLO.Metric, sc.Service.SLO.ThresholdMS(), sc.Judge.Window, sc.Judge.Requests)
	if size, ok := primaSize(c.Results[primaItself]); ok {
		fmt.Fprintf(w, " PRIMA's mean size is %.1f.", size)
	}
	fmt.Fprint(w, "\n\n")
	rows := c.Rows()
	if rivals := c.Rivals(); len(rivals) > 0 {
		fmt.Fprintf(w, "%s\n\n", wrapped(c.outcome()))
		writeMarkdown(w, rivalHeader, func(row func(...string)) {
			for _, r := range rivals {
				row(r.cells()...)
			}
		})
	}
	writeMarkdown(w, header, func(row func(...string)) {
		for _, r := range rows {
			if r.shown() {
				row(r.cells()...)
			}
		}
	})
	fmt.Fprintf(w, "[All %d runs](%s/%s.md)\n\n", len(rows), folder, sc.Name)
	fmt.Fprintf(w, "![violation against cost](%s/%s-tradeoff.png)\n\n![latency over time](%[1]s/%[2]s-latency.png)\n\n", folder, sc.Name)
	if why != "" {
		fmt.Fprintf(w, "%s\n\n", strings.TrimSpace(why))
	}
}

// drawPlots writes name-tradeoff.png and name-latency.png.
func (c *Contest) drawPlots(ctx context.Context, name string) error {
	if err := plotTradeoff(name+"-tradeoff.png", c.Scenario.Name, c.Rows()); err != nil {
		return err
	}
	lines, err := c.lines(ctx)
	if err != nil {
		return err
	}
	return plotLatency(name+"-latency.png", c.Scenario, c.Seeds[0], shades(c.Scenario, c.Seeds[0]), lines)
}

// line is the response time of the worst instance in each window of a run.
type line struct {
	title   string
	policy  string
	windows []sim.Window
}

// mostLines is how many lines a reader can distinguish.
const mostLines = 6

// lines plays the scenario's own runs and the clairvoyant once more with the first seed, and records every window.
func (c *Contest) lines(ctx context.Context) ([]line, error) {
	var lines []line
	own := map[Entrant]bool{}
	for _, r := range c.Scenario.Runs[:min(len(c.Scenario.Runs), mostLines)] {
		own[entrantOf(c.Scenario, r)] = true
	}
	for _, e := range c.Entrants {
		if len(c.Results[e]) == 0 || !own[e] && (e.Policy != sim.Clairvoyant || e.Strain > 0) {
			continue
		}
		l := line{title: e.Title(), policy: e.Policy}
		if _, err := c.play(ctx, e, c.Seeds[0], func(w sim.Window) { l.windows = append(l.windows, w) }); err != nil {
			return nil, err
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// shade is how much neighbours take during an interval, relative to the most that they take in the run.
type shade struct {
	from, to, depth float64 // seconds, seconds, 0 to 1
}

// shades adds up the interference on all hosts that a seed gives.
func shades(sc *scenario.Scenario, seed uint64) []shade {
	type where struct {
		host     string
		resource quell.Resource
	}
	var list []shade
	uses := map[where]float64{}
	sum, most := 0.0, 0.0
	for _, c := range sc.Disturbances(seed) {
		at := where{c.Host, c.Resource}
		sum += c.Use - uses[at]
		uses[at] = c.Use
		if n := len(list); n > 0 {
			list[n-1].to = c.At.Seconds()
		}
		list = append(list, shade{c.At.Seconds(), sc.Duration.Seconds(), sum})
		most = max(most, sum)
	}
	for i := range list {
		if most > 0 {
			list[i].depth = max(0, list[i].depth/most)
		}
	}
	return slices.DeleteFunc(list, func(s shade) bool { return s.to <= s.from || s.depth < 1e-9 })
}
