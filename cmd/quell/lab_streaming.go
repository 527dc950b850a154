package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
)

// streamingFlags are the flags of `lab streaming`.
type streamingFlags struct {
	experiment.StreamPlan
	threads                  bool // let ICE change the number of workers
	streams                  int
	every, wait, warmUp, run time.Duration
	beside                   time.Duration
}

func labStreamingCommand() *cobra.Command {
	s := &streamingFlags{}
	o := labRun{streaming: s}
	cmd := &cobra.Command{
		Use:   "streaming NAME|SCENARIO.yaml [--out DIR]",
		Short: "Measure how late a streaming server sends frames, by its number of workers and by the balancer's weight",
		Long: "Each host of the scenario has a streaming server with blocking workers, and HAProxy divides the streams. A frame needs what a\n" +
			"request of the scenario's class needs. The scenario's first neighbour uses the first host. Delays are those of the first host.\n" +
			"With --threads, the neighbour comes and goes while the numbers of workers stay, and once more while ICE changes them.",
		Args: named("NAME"),
		RunE: o.command,
	}
	o.flags(cmd)
	f := cmd.Flags()
	f.IntSliceVar(&s.Workers, "workers", []int{1, 2, 3, 5, 10, 30}, "numbers of workers to measure")
	f.IntSliceVar(&s.Weights, "weights", []int{100, 90, 80, 70, 60, 40}, "weights of the first host to measure; the others have 100")
	f.BoolVar(&s.threads, "threads", false, "compare the numbers of --workers with ICE, which begins with the smallest and changes it")
	durationFlag(f, &s.beside, "beside", 45*time.Second,
		"with --threads: how long the neighbour stays; it comes after a third of that, and the play goes on as long")
	f.IntVar(&s.streams, "streams", 6, "number of streams for each host on average")
	durationFlag(f, &s.every, "every", 100*time.Millisecond, "time between two frames of a stream")
	durationFlag(f, &s.wait, "wait", 20*time.Millisecond, "how long the storage of a frame takes to answer, which blocks its worker")
	durationFlag(f, &s.warmUp, "warm-up", 3*time.Second, "time before frames are counted")
	durationFlag(f, &s.run, "run", 10*time.Second, "how long frames are counted in each cell")
	f.BoolVar(&o.resume, "resume", false, "do not measure if --out already has the delays")
	return cmd
}

// check refuses values and scenarios that give no figures.
func (s *streamingFlags) check(sc *scenario.Scenario) error {
	const mostWeight = 256 // of HAProxy
	outside := func(least, most int) func(int) bool { return func(n int) bool { return n < least || n > most } }
	slices.Sort(s.Workers)
	switch {
	case len(s.Workers) == 0 || slices.ContainsFunc(s.Workers, outside(1, 1000)):
		return userErrorf("--workers: give numbers from 1 to 1000")
	case slices.ContainsFunc(s.Weights, outside(1, mostWeight)):
		return userErrorf("--weights: give numbers from 1 to %d", mostWeight)
	case s.streams < 1 || s.streams > 1000:
		return userErrorf("--streams: give a number from 1 to 1000")
	case s.beside <= 0:
		return userErrorf("--beside must be above zero")
	case s.every <= 0 || s.run <= 0 || s.wait < 0 || s.warmUp < 0:
		return userErrorf("--every and --run must be above zero, --wait and --warm-up not below")
	case len(sc.Workload.Classes) != 1 || sc.Workload.Classes[0].Disk > 0 || sc.Workload.Classes[0].Memory > 0:
		return userErrorf("%s: a frame needs a workload of one class, with cpu and network only", sc.Name)
	case len(experiment.Neighbours(sc)) == 0:
		return userErrorf("%s: the timeline has no neighbour to measure beside", sc.Name)
	case len(sc.Hosts) < 2:
		return userErrorf("%s: weights need at least two hosts", sc.Name)
	}
	return nil
}

// stream measures the frame delays, and writes streaming.json.
func (o *labRun) stream(ctx context.Context, program, dir string, machines experiment.Machines, out, errs io.Writer) error {
	path, s := filepath.Join(dir, "streaming.json"), o.streaming
	if s.threads {
		path = filepath.Join(dir, "threads.json")
	}
	if o.measured(path, out) {
		return nil
	}
	lab := &experiment.Streaming{Program: program, Dir: dir, Prefix: o.prefix, Machines: machines, Scenario: o.scenario,
		Streams: s.streams, Every: s.every, Wait: s.wait, WarmUp: s.warmUp, Run: s.run}
	if s.threads {
		results, err := s.playThreads(ctx, lab, errs)
		return errors.Join(err, writeResult(path, results), writeThreads(out, results))
	}
	results, err := s.Measure(func(c experiment.StreamCell) (experiment.StreamResult, error) {
		beside := map[bool]string{true: " beside the neighbour"}[c.Interfering]
		fmt.Fprintf(errs, "Measuring %d workers at weight %d%s.\n", c.Workers, c.Weight, beside)
		return lab.Cell(ctx, c)
	})
	if err != nil {
		return err
	}
	if err := writeResult(path, results); err != nil {
		return err
	}
	return writeDelays(out, results)
}

// playThreads measures each number of workers, and ICE from the smallest.
func (s *streamingFlags) playThreads(
	ctx context.Context, lab *experiment.Streaming, errs io.Writer,
) (results []experiment.ThreadResult, err error) {
	runs := []experiment.ThreadRun{{Workers: s.Workers[0], ICE: true}}
	for _, n := range s.Workers {
		runs = append(runs, experiment.ThreadRun{Workers: n})
	}
	for _, run := range runs {
		fmt.Fprintf(errs, "Measuring %d workers%s.\n", run.Workers, map[bool]string{true: ", which ICE changes"}[run.ICE])
		r, err := lab.Threads(ctx, run, experiment.ThreadPlan{Calm: s.beside / 3, Beside: s.beside, After: s.beside})
		if err != nil {
			return results, err
		}
		results = append(results, r)
	}
	return results, nil
}

// writeThreads prints the frame delays in ms.
func writeThreads(out io.Writer, results []experiment.ThreadResult) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WORKERS\tBY\tBEFORE\tAT FIRST\tLATER\tUNSENT\tAFTER\tWORKERS IN FORCE")
	for i := range results {
		r, by := &results[i], "-"
		if r.ICE {
			by = "ICE"
		}
		var counts []string
		for _, c := range r.Counts {
			counts = append(counts, fmt.Sprintf("%d at %.0f s", c.Workers, c.AtS))
		}
		mean := func(l *quell.Latency) string { return delay(l, quell.Mean) }
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%.1f%%\t%s\t%s\n", r.Workers, by, mean(&r.Before), mean(&r.Early), mean(&r.Late), 100*r.Unsent,
			mean(&r.After), strings.Join(counts, ", "))
	}
	return w.Flush()
}

// writeDelays prints the frame delays in ms.
func writeDelays(out io.Writer, results []experiment.StreamResult) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NEIGHBOUR\tWORKERS\tWEIGHT\tSTREAMS\tFRAMES\tUNSENT\tMEAN MS\tP95 MS\tP99 MS\tOTHERS' MEAN MS")
	for _, r := range results {
		neighbour := "no"
		if r.Interfering {
			neighbour = "yes"
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%.1f%%\t%s\t%s\t%s\t%s\n", neighbour, r.Workers, r.Weight, r.Streams, r.Frames, 100*r.Unsent,
			delay(&r.DelayMS, quell.Mean), delay(&r.DelayMS, quell.P95), delay(&r.DelayMS, quell.P99), delay(&r.Others, quell.Mean))
	}
	return w.Flush()
}

func delay(l *quell.Latency, m quell.Metric) string {
	ms, ok := l.Of(m)
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.1f", ms)
}
