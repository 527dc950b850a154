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

This page is written by %s. It compares PRIMA, Quell's default policy, with its
*rivals*: all other policies. Each run is simulated request by request, with the policies, the guard
and the schedulings of the live system. The models are trained in the simulator, again for every
seed. All runs with the same seed have the same arrivals and the same neighbours. Every figure is
the mean over seeds, followed by half the width of its 95%% confidence interval (Student's t). The
interval covers the random variation of arrivals, neighbours and training.

## Terms

- *violation*: the share of the run's time in which the objective was missed. The run is divided
  into windows. A window counts as missed if the response time of at least one instance is above the
  objective's threshold, or if a request fails. An instance with fewer requests in a window than the
  section says is not judged in that window. So if a policy sends almost no requests to a slow
  instance, that instance's response times do not count.
- *requests over*: the share of all requests that failed or took longer than the threshold. This
  column counts every request, so it may be above 0 although no window is missed.
- *largest / mean load*: how evenly the load is spread. The load of an instance in a sampling period is
  what its requests use, over what its neighbours leave it. The figure is the largest load over the mean
  of all instances, on average over the periods; 1 is even.
- *instance-seconds*: the cost of the run, which is the sum of the times that its instances ran.
- *form*: one combination of a policy with a scheduling, a size or target, and settings.
- *front*: marked if, judged by the means, no other run has both a lower or equal violation and a
  lower or equal cost, with at least one of the two lower. The bounds are left out of this
  comparison. If the intervals of two rows overlap, the order of these rows may be due to chance.
- *rival at its best*: of every policy, the first table has the two forms that an operator would
  choose instead of PRIMA. One is the form with the least violation among those that cost at most as
  much as PRIMA (within %.0f%%). The other is the form with the lowest cost among those that violate at
  most as much as PRIMA.
- *against PRIMA*: the violation is called less or more than PRIMA's if the 95%% confidence interval
  of the differences, computed seed by seed, does not contain 0. A cost is given as its difference
  from PRIMA's cost in percent.
- *xN*: a group with a fixed size of N instances. The first size tried is the scenario's. Then
  larger sizes are tried until the first seed misses the objective for at most %.0f%% of the time, and
  smaller ones until it misses the objective for at least %.0f%%, with at most %d sizes in each
  direction. PRIMA's mean size, rounded down and up, is tried as well. Each size runs under every
  scheduling, with equal shares (static) and with learned curves (knapsack). A size is left out if
  it, the next smaller and the next larger size all miss the objective for at least %.0[4]f%% of the
  time. A group of one instance runs under one scheduling only, because all schedulings do the same
  there.
- *prima*: PRIMA runs over every scheduling. It also runs with the other interference model (total),
  with a headroom of 70%%, and with one spare instance. The scheduling Prequal ignores weights, so
  PRIMA over Prequal only sets the size of the group.
- *N%%*: the target utilisation of an autoscaler, or the highest utilisation that a bound allows.
- *bound*: a policy that is possible only in the simulator, because it gets data that cannot be
  measured. There are three: clairvoyant, present and foresight. Unless its name has a percentage, a
  bound's highest utilisation is the one that turned out best for the seed: the one with the least
  violation and, among equals, the lowest cost. Bounds decide once per sampling period and do not know what
  a scheduling does with single requests. So another policy could in principle do better.
- *clairvoyant*: it knows what neighbours take of every resource, which machines will fail, and which
  requests clients will make until an instance that is started now is ready. From these data and the
  laws of processor sharing it computes the smallest group, and the weights, that meet the
  objective, as if each instance had a queue of its own.
- *present*: it knows the load of the last period and what neighbours take now, and nothing of later. It
  uses the law of the group: behind a balancer that looks for idle instances, requests wait only if all
  are busy. Its distance from PRIMA is what better measurements could gain.
- *foresight*: the same law, with the load and the neighbours until an instance that is started now is
  ready. Its distance from present is what a perfect forecast could gain.

The second table of each section has the runs on the front, the best forms of each policy (no other
form of the policy has a lower violation at no higher cost, or a lower cost at no higher violation),
and the scenario's own runs. All runs are on a page of their own.

## Overview

`, "`quell arena --report`", costMargin, kept*100, lost*100, sweepSteps)
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
		if r.Policy == subject || sim.Bound(r.Policy) {
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
		copy(cells, []string{cheap.Candidate.Title(), cheap.Violation.text(100, 1), string(cheap.Against)})
	}
	if good != nil {
		copy(cells[3:], []string{good.Candidate.Title(), good.dearer()})
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
		"## %s\n\n%d hosts, %v, %d seeds. Objective: the %s of each instance's response times is at most %g ms in every window of %v.\n"+
			"An instance is not judged in a window in which it has fewer than %d requests.", sc.Name,
		len(sc.Hosts), sc.Duration, len(c.Seeds), sc.Service.SLO.Metric, sc.Service.SLO.ThresholdMS(), sc.Judge.Window, sc.Judge.Requests)
	if size, ok := primaSize(c.Results[primaItself]); ok {
		fmt.Fprintf(w, " PRIMA uses %.1f instances on average.", size)
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

// lines plays the scenario's own runs and the bounds once more with the first seed, and records every window.
func (c *Contest) lines(ctx context.Context) ([]line, error) {
	var lines []line
	own := map[Candidate]bool{}
	for _, r := range c.Scenario.Runs[:min(len(c.Scenario.Runs), mostLines)] {
		own[candidateOf(c.Scenario, r)] = true
	}
	for _, e := range c.Candidates {
		if len(c.Results[e]) == 0 || !own[e] && (!sim.Bound(e.Policy) || e.Strain > 0) {
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
