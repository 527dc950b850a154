package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quellhq/quell/examples"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
)

// labDir keeps models and records of the lab between calls; what is there is not measured again.
var labDir = filepath.Join(".cache", "lab")

// labs is how many experiments are played at once, each in a lab of its own: a lab takes a twentieth of the machine.
const labs = 4

// labJob is what one lab plays at a time: a part, or one run of a part with several seeds.
type labJob struct {
	part  labPart
	run   int    // by number; 0: all
	seed  uint64 // 1: the scenario's
	takes time.Duration
}

// jobs are those of a part.
func (p labPart) jobs() ([]labJob, error) {
	sc, err := p.load()
	if err != nil {
		return nil, err
	}
	if p.seeds == 0 {
		return []labJob{{part: p, seed: 1, takes: sc.Duration * time.Duration(len(sc.Runs))}}, nil
	}
	var jobs []labJob
	for seed := range p.seeds {
		for i := range sc.Runs {
			jobs = append(jobs, labJob{p, i + 1, seed + 1, sc.Duration})
		}
	}
	return jobs, nil
}

// labPage is a page of experiments on kernel machines, which need root.
type labPage struct {
	name  string // of the file in docs/results, and of the folder of its plots
	head  string // with a verb for the machine
	parts []labPart
	tail  func(b *bytes.Buffer, p labPage) error // what follows from the parts together; nil: nothing
}

func primaLab() labPage { return labPage{name: "prima", head: primaHead, parts: primaParts()} }

// play plays what has not been played of the page's experiments, and writes the page.
func (p labPage) play(ctx context.Context, dir string) error {
	return errors.Join(playParts(ctx, p.parts, false), p.write(dir))
}

// playPart plays one part again, or with the name page none, and writes the page.
func (p labPage) playPart(ctx context.Context, dir, name string) error {
	if name == "page" {
		return p.write(dir)
	}
	i := slices.IndexFunc(p.parts, func(part labPart) bool { return part.name == name })
	if i < 0 {
		return fmt.Errorf("there is no part %q of the %s page", name, p.name)
	}
	return errors.Join(playParts(ctx, p.parts[i:i+1], true), p.write(dir))
}

// playParts plays the parts whose records are not all there, or with again all, several labs at once. The first run of
// those that train goes before, one by one: the others use its models.
func playParts(ctx context.Context, parts []labPart, again bool) error {
	var jobs []labJob
	for _, p := range parts {
		if p.command == "replay" {
			continue
		}
		own, err := p.jobs()
		if err != nil {
			return err
		}
		if !p.trains {
			jobs = append(jobs, own...)
			continue
		}
		if err := own[0].play(ctx, 0, again); err != nil {
			return err
		}
		jobs = append(jobs, own[1:]...)
	}
	slices.SortStableFunc(jobs, func(a, b labJob) int { return cmp.Compare(b.takes, a.takes) }) // no lab is left with the longest
	queue := make(chan labJob)
	var workers sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for n := range labs {
		workers.Go(func() {
			for j := range queue {
				if err := j.play(ctx, n, again); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for _, j := range jobs {
		queue <- j
	}
	close(queue)
	workers.Wait()
	return errors.Join(errs...)
}

// play plays a job in the lab of that number; runs whose records are there are kept unless again.
func (j labJob) play(ctx context.Context, lab int, again bool) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	args := []string{"lab", "run", j.part.scenario(), "--out", labDir, "--prefix", fmt.Sprintf("results%d", lab+1)}
	if !again {
		args = append(args, "--resume")
	}
	if j.part.command != "" {
		args[1] = j.part.command
	}
	if j.run > 0 {
		args = append(args, "--run", fmt.Sprint(j.run))
	}
	if j.seed > 1 {
		args = append(args, "--seed", fmt.Sprint(j.seed))
	}
	cmd := exec.CommandContext(ctx, filepath.Join("bin", "quell"), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("quell %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// labPart is one experiment of the page.
type labPart struct {
	name    string // of the scenario
	title   string
	text    string  // what the paper found, and how ours is to be read
	phases  []phase // of which a table is made
	command string  // of quell lab, instead of run; replay: none, what others measured is read again
	of      string  // the scenario, where it is not called as the part
	trains  bool    // is the first of its workload
	seeds   uint64  // each run is played with so many; 0: once
	write   func(b *bytes.Buffer, dir string, sc *scenario.Scenario, plays [][]*experiment.Record) error
}

func (p labPart) scenario() string {
	if p.of != "" {
		return p.of
	}
	return p.name
}

// phase is a part of a run that becomes a row.
type phase struct {
	label      string
	paper      string
	begin, end float64
}

func (p labPart) load() (*scenario.Scenario, error) {
	return scenario.Parse(p.scenario(), examples.Lab()[p.scenario()])
}

// records are those of a scenario's runs, by seed; nil where one has not been played.
func (p labPart) records(sc *scenario.Scenario) ([][]*experiment.Record, error) {
	plays := make([][]*experiment.Record, max(1, p.seeds))
	for n := range plays {
		dir := filepath.Join(labDir, sc.Name)
		if n > 0 {
			dir += fmt.Sprintf("-seed%d", n+1)
		}
		plays[n] = make([]*experiment.Record, len(sc.Runs))
		for i, run := range sc.Runs {
			r, err := experiment.LoadRecord(experiment.RecordPath(dir, i, run))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			plays[n][i] = r
		}
	}
	return plays, nil
}

func (p labPage) write(dir string) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, p.head, machine())
	plots := filepath.Join(dir, p.name)
	if err := os.MkdirAll(plots, 0o755); err != nil {
		return err
	}
	for _, part := range p.parts {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", part.title, part.text)
		if err := part.section(&b, plots); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		if reading := readings[part.name]; reading != "" {
			fmt.Fprintf(&b, "\n%s\n", reading)
		}
	}
	if p.tail != nil {
		if err := p.tail(&b, p); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, p.name+".md"), b.Bytes(), 0o644)
}

func (p labPart) section(b *bytes.Buffer, plots string) error {
	switch p.command {
	case "validate":
		return writeValidation(b, p.name)
	case "probing":
		return writeProbing(b, p)
	case "replay":
		return writeReplayed(b, plots)
	}
	sc, err := p.load()
	if err != nil {
		return err
	}
	plays, err := p.records(sc)
	if err != nil {
		return err
	}
	records := plays[0]
	if !slices.ContainsFunc(records, func(r *experiment.Record) bool { return r != nil }) {
		fmt.Fprintf(b, "Not measured yet: `go run ./cmd/results prima:%s`.\n", p.name)
		return nil
	}
	if p.write != nil {
		return p.write(b, plots, sc, plays)
	}
	for i, r := range records {
		if r == nil {
			continue
		}
		p.table(b, experiment.Title(sc, sc.Runs[i]), r)
		name := fmt.Sprintf("%s-%d.png", p.name, i+1)
		if err := plotRun(filepath.Join(plots, name), p.title+": "+experiment.Title(sc, sc.Runs[i]), sc, r); err != nil {
			return err
		}
		fmt.Fprintf(b, "![over time](prima/%s)\n\n", name)
	}
	return nil
}

// table has a row for each phase: the paper's account beside ours.
func (p labPart) table(b *bytes.Buffer, title string, r *experiment.Record) {
	fmt.Fprintf(b, "**%s**: %.0f s of %.0f s in violation, %.0f instance-seconds, %d requests, %d failed.\n\n| when | paper | ours: instances | instance: U, SF, mean response |\n|---|---|---|---|\n",
		title, r.Result.SLO.ViolationS, r.Result.DurationS, r.Result.InstanceSeconds, r.Result.Requests, r.Result.Errors)
	for _, ph := range p.phases {
		sum := r.Phase(ph.begin, ph.end)
		var parts []string
		for _, id := range slices.SortedFunc(maps.Keys(sum.Instances), byNumber) {
			in := sum.Instances[id]
			if in.PerSecond == 0 {
				continue
			}
			parts = append(parts, fmt.Sprintf("%s: %s, %s, %s", id, percent(in.Utilization), number(in.Severity, "%.2f"), milliseconds(in.LatencyMS.Mean)))
		}
		fmt.Fprintf(b, "| %s, %.0f-%.0f s | %s | %.1f | %s |\n", ph.label, ph.begin, ph.end, ph.paper, sum.Size, strings.Join(parts, "; "))
	}
	fmt.Fprintln(b)
}

// byNumber puts i2 before i10.
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

const primaHead = `# PRIMA on real links

Written by ` + "`go run ./cmd/results prima`" + ` (after ` + "`make build`" + `, as root) on %s. Mukherjee and Krishnamurthy, "PRIMA", IEEE TNSM 17(2), 2020, measured again
with real programs: HAProxy in front of nginx on machines made of network namespaces, each with a shaped link that it shares with a neighbour, which is
iperf3 sending UDP; ` + "`quell controller`" + ` and ` + "`quell agent`" + ` as anybody runs them; probes over the same links. Each experiment is a scenario file,
` + "`quell lab list`" + ` names them, and ` + "`quell lab run NAME`" + ` repeats one.

**Scaling.** Links have 100 Mbit/s for the paper's 1 Gbit/s; files 125 KB for 1 GB; videos a fifth of Table I's bytes, played 20 times as fast, so that
sessions have as many chunks as the paper's, of 105 KB for 0.5 MB; the sampling period T is 1 s for 10 s, start-up 3 s for 30 s. Loads and neighbours are in shares of a link, as the paper has them. Thresholds are the mean response times alone at the
utilisation where the paper's are: 35%% for files, 30%% for video, 50%% on EC2. Connections of a link get equal shares of it,
so an idle link of utilisation U answers in size / rate / (1 - U). Requests wait for processors, too: two run everything here.
`
