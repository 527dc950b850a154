package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/train"
)

// demoView shows a demo: a live table on a terminal, plain lines elsewhere.
type demoView struct {
	w        io.Writer
	terminal bool
	sc       *scenario.Scenario
	bar      *progressBar
	rows     int           // rows that the last frame had
	printed  time.Duration // time of the last plain line
}

func newDemoView(w io.Writer, sc *scenario.Scenario) *demoView {
	return &demoView{w: w, terminal: isTerminal(w), sc: sc, bar: newProgressBar(w), printed: -time.Hour}
}

func (v *demoView) opening() {
	fmt.Fprintf(v.w, "Quell demo: %s. The objective is a response time (%s) of at most %s at every machine.\n", v.sc.Name,
		v.sc.Service.SLO.Metric, v.sc.Service.SLO.Threshold)
	if slices.ContainsFunc(v.sc.Runs, learns) {
		fmt.Fprintln(v.w, "Nothing is trained: runs named learning learn from their own requests and probes.")
	}
}

// learns returns whether a run's policy learns its models during the run.
func learns(r scenario.Run) bool { return r.Models == scenario.Learn }

func (v *demoView) training() {
	fmt.Fprintf(v.w, "Training on 8 emulated machines (%.0f Mbit/s each): how fast are probe and service, at which load and interference?\n",
		v.sc.Hosts[0].Network/1e6)
}

func (v *demoView) progress(p train.Progress) { v.bar.show(p) }

func (v *demoView) trained(r *model.Report) {
	v.bar.finish()
	for _, part := range r.Prima() {
		if e := part.Errors; e.ResponseTime != nil && e.Joint != nil {
			fmt.Fprintf(v.w,
				"Models of the %s from %d runs; leaving one out, response time is off by %.0f%%, interference by %.0f%%. (This was a quick "+
					"training; `quell train` does better in minutes.)\n",
				part.Resource, part.Rows, e.ResponseTime.MeanRelative*100, e.Joint.MeanRelative*100)
		}
	}
}

func (v *demoView) playing() {
	var titles []string
	for _, run := range v.sc.Runs {
		titles = append(titles, experiment.Title(v.sc, run))
	}
	fmt.Fprintf(v.w, "Playing for %s. Each of these has machines of its own, and gets the same requests and neighbours:\n  %s\n\n",
		v.sc.Duration, strings.Join(titles, "\n  "))
}

// page names the web page of the run that is compared with the others.
func (v *demoView) page(address string) {
	fmt.Fprintf(v.w, "Watch %s on a page until the demo ends: %s\n\n", experiment.Title(v.sc, v.sc.Runs[len(v.sc.Runs)-1]), address)
}

// plainEvery is how often a line is printed if there is no terminal.
const plainEvery = 5 * time.Second

func (v *demoView) frame(f experiment.Frame) {
	if v.terminal {
		v.redraw(f)
		return
	}
	if f.At >= 0 && f.At-v.printed >= plainEvery-100*time.Millisecond {
		v.printed = f.At
		v.line(f)
	}
}

// redraw draws the table over the one drawn before.
func (v *demoView) redraw(f experiment.Frame) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s   load %.1f machines' worth   noisy neighbours: %s\n\n", max(0, f.At.Round(time.Second)), v.sc.Duration, f.Load,
		noise(f))
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "RUN\tINSTANCES\tSLOWEST\tVIOLATION\tCOST\tFAILED")
	for _, r := range f.Runs {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%.0f\t%d\n", experiment.Title(v.sc, r.Run), running(r), v.latency(r), r.Violation.Round(time.Second),
			r.Status.InstanceSeconds, r.Errors)
	}
	_ = t.Flush()
	if r, ok := thinking(f); ok {
		fmt.Fprintf(&b, "\n%s\n", experiment.Title(v.sc, r.Run))
		fmt.Fprintln(t, "INSTANCE\tSTATE\tLOAD\tSEVERITY\tCAPACITY\tWEIGHT\tLATENCY")
		for _, in := range r.Status.Instances {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", in.ID, in.State, cell(in.Utilization, "%.2f"), cell(in.Severity, "%.2f"),
				cell(in.Capacity, "%.2f"), cell(in.Weight, "%.2f"), cell(in.LatencyMS, "%.0f ms"))
		}
		_ = t.Flush()
		if text := known(r); text != "" {
			fmt.Fprintf(&b, "models: %s\n", text)
		}
		fmt.Fprintf(&b, "latest: %s\n", latest(r))
	}
	text := fitScreen(v.w, b.String())
	if v.rows > 0 {
		fmt.Fprintf(v.w, "\x1b[%dA", v.rows)
	}
	v.rows = strings.Count(text, "\n")
	fmt.Fprintf(v.w, "\x1b[J%s", text)
}

// fitScreen cuts a frame to the terminal's size, because a frame that wraps or scrolls cannot be overwritten.
func fitScreen(w io.Writer, text string) string {
	width, height := 80, 24
	if f, ok := w.(*os.File); ok {
		if x, y, err := term.GetSize(int(f.Fd())); err == nil && x > 0 && y > 0 {
			width, height = x, y
		}
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	lines = lines[:min(len(lines), height-1)]
	for i, line := range lines {
		if runes := []rune(line); len(runes) >= width {
			lines[i] = string(runes[:width-2]) + "…"
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

func (v *demoView) latency(r experiment.RunFrame) string {
	mark := ""
	if r.LatencyMS > v.sc.Service.SLO.ThresholdMS() {
		mark = " !"
	}
	return fmt.Sprintf("%.0f ms%s", r.LatencyMS, mark)
}

// line describes one moment in one line.
func (v *demoView) line(f experiment.Frame) {
	var parts []string
	for _, r := range f.Runs {
		parts = append(parts, fmt.Sprintf("%s %s on %d", experiment.Title(v.sc, r.Run), v.latency(r), running(r)))
	}
	fmt.Fprintf(v.w, "%4s  load %.1f  noise %-13s %s\n", f.At.Round(time.Second), f.Load, noise(f), strings.Join(parts, " | "))
	if r, ok := thinking(f); ok {
		if text := known(r); text != "" {
			fmt.Fprintf(v.w, "      models: %s\n", text)
		}
		if text := latest(r); text != "" {
			fmt.Fprintf(v.w, "      %s: %s\n", r.Run.Policy, text)
		}
	}
}

func (v *demoView) done() { v.rows = 0 }

func noise(f experiment.Frame) string {
	if len(f.Disturbs) == 0 {
		return "none"
	}
	var parts []string
	for _, host := range slices.Sorted(maps.Keys(f.Disturbs)) {
		parts = append(parts, fmt.Sprintf("%s %.0f%%", host, f.Disturbs[host]*100))
	}
	return strings.Join(parts, ", ")
}

func running(r experiment.RunFrame) int {
	n := 0
	for _, in := range r.Status.Instances {
		if in.State != quell.Failed {
			n++
		}
	}
	return n
}

// thinking is the run whose decisions are shown: the last one that is not static.
func thinking(f experiment.Frame) (experiment.RunFrame, bool) {
	for _, r := range slices.Backward(f.Runs) {
		if r.Run.Policy.Name != table.All.Plain() {
			return r, true
		}
	}
	return experiment.RunFrame{}, false
}

// known says what a run has learned so far, and how far its policy may go with that; "" if the run does not learn.
func known(r experiment.RunFrame) string {
	switch {
	case !learns(r.Run) || r.Err != nil:
		return ""
	case len(r.Status.Learned) == 0:
		return "nothing learned yet, weights are equal"
	}
	return fmt.Sprintf("%s; authority: %s", r.Status.Learned[0], r.Status.Authority)
}

// latest is the newest reason of a decision about the group or, if there is none, about an instance.
func latest(r experiment.RunFrame) string {
	if r.Err != nil {
		return r.Err.Error()
	}
	for _, reason := range slices.Backward(r.Status.Reasons) {
		if reason.Instance == "" {
			return reason.Text
		}
	}
	for _, reason := range r.Status.Reasons {
		return reason.Instance + ": " + reason.Text
	}
	return ""
}

// summarise prints the comparison, whether it was fair, where the files are and what to try next.
func summarise(
	w io.Writer, sc *scenario.Scenario, results []scenario.Result, groups []*experiment.EmulatedGroup, dir, models string,
) error {
	fmt.Fprintln(w)
	if err := experiment.WriteTable(w, sc, results); err != nil {
		return err
	}
	if err := experiment.WriteNeeded(w, sc, results); err != nil {
		return err
	}
	fmt.Fprintln(w)
	quell := os.Args[0] // the program as the user called it
	next := []string{quell + " demo --seed 2", quell + " demo --policy prima,lsf,lr",
		"README.md, \"Install\": the same on your own machines, in advise mode first"}
	if models != "" {
		fmt.Fprintf(w, "Models:   %s\n", models)
		next = slices.Insert(next, 0, quell+" model show "+models)
	}
	for i, g := range groups {
		if sc.Runs[i].Policy.Name != table.All.Plain() {
			fmt.Fprintf(w, "Journal:  %s journal --dir %s\n", quell, g.StoreDir())
		}
	}
	_, err := fmt.Fprintf(w, "Logs:     %s\n\nTry next: %s\n", dir, strings.Join(next, "\n          "))
	return err
}
