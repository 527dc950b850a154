package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/examples"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/testbed/kernel"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/setting"
)

// labRun is one call of `quell lab run`. It runs twice. The owner makes the lab and starts the same command line again inside it,
// as the player, which trains models and plays runs. When the player has ended, in whatever way, the owner removes the lab.
type labRun struct {
	policies []string
	runs     []int             // numbers of the runs to play, from 1; none: all
	uses     map[string]string // what neighbours use instead of what the scenario says, by resource or program
	json     string
	out      string
	prefix   string
	models   string
	seed     uint64
	duration time.Duration
	quick    bool
	resume   bool
	validate bool
	probing  bool
	heldOut  time.Duration // how long each held-out point is measured

	crosstalk bool
	periods   int // periods of each cell of the cross-talk matrix

	alternate bool

	streaming *streamingFlags // nil but for `lab streaming`

	name     string
	scenario *scenario.Scenario
	records  string // folder of the runs' records
}

func labRunCommand() *cobra.Command {
	var o labRun
	cmd := &cobra.Command{
		Use:   "run NAME|SCENARIO.yaml [--policy prima,...] [--json FILE] [--out DIR]",
		Short: "Play an experiment on real programs behind shaped links: HAProxy, nginx or dynamic work, interferers",
		Long: "Makes machines of network namespaces and cgroups, trains on them unless --out holds models of the same machines and workload,\n" +
			"plays the scenario's runs one after the other, and removes everything that it made. `quell lab list` names the experiments;\n" +
			"`quell lab clean` removes what a killed run left behind.",
		Args: named("NAME"),
		RunE: o.command,
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.policies, "policy", nil, "run only these policies; default: all runs of the scenario")
	f.IntSliceVar(&o.runs, "run", nil, "play only the scenario's runs of these numbers, from 1; default: all")
	durationFlag(f, &o.duration, "duration", 0,
		"length of the scenario, whose timeline is stretched or cut to it; default: as the scenario says")
	f.StringToStringVar(&o.uses, "use", nil,
		"what neighbours use, by resource or program, instead of what the scenario says, as in cpu=40%,sort=25%")
	f.BoolVar(&o.resume, "resume", false, "skip each run that --out already holds a record of, made with the same inputs")
	o.flags(cmd)
	return cmd
}

// flags adds the flags of `lab run` and `lab validate`.
func (o *labRun) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.json, "json", "", "write the results to this file")
	f.StringVar(&o.out, "out", "quell-lab", "folder for models, records, configurations and logs")
	f.StringVar(&o.prefix, "prefix", kernel.DefaultPrefix, "prefix of the names of the lab's namespaces and cgroups")
	f.StringVar(&o.models, "models", "", "use these models instead of training")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the random arrivals and neighbours; default: the scenario's")
	f.BoolVar(&o.quick, "quick", false, "train with few short runs")
}

// command runs as the owner or, inside the lab, as the player.
func (o *labRun) command(cmd *cobra.Command, args []string) error {
	o.name = args[0]
	if err := o.load(cmd.Flags().Changed); err != nil {
		return err
	}
	if player := insideLab(); player != nil {
		ctx, cancel := player.with(cmd.Context())
		defer cancel()
		return o.interrupted(ctx, o.play(ctx, player, cmd.OutOrStdout(), cmd.ErrOrStderr()))
	}
	return o.own(cmd.Context(), cmd.ErrOrStderr())
}

// load reads the scenario and adapts it to the flags.
func (o *labRun) load(given func(string) bool) error {
	name, data, err := labScenario(o.name)
	if err != nil {
		return err
	}
	sc, err := scenario.Parse(name, data)
	if err != nil {
		return err
	}
	written := slices.Clone(sc.Runs)
	if err := choosePolicies(name, data, sc, o.policies); err != nil {
		return err
	}
	for _, n := range o.runs {
		if n < 1 || n > len(sc.Runs) {
			return userErrorf("--run: %s has runs 1 to %d, not %d", name, len(sc.Runs), n)
		}
	}
	if given("seed") {
		sc.Seed = o.seed
	}
	if err := o.setUses(sc); err != nil {
		return err
	}
	if o.duration > 0 {
		sc.Stretch(o.duration)
	}
	if err := o.playable(sc, written); err != nil {
		return scenario.InFile(name, data, err)
	}
	if o.streaming != nil {
		if err := o.streaming.check(sc); err != nil {
			return err
		}
	}
	o.scenario = sc
	o.out, err = filepath.Abs(o.out)
	o.records = filepath.Join(o.out, sc.Name)
	if given("seed") {
		o.records += fmt.Sprintf("-seed%d", sc.Seed)
	}
	return err
}

// setUses gives the scenario's neighbours the uses of --use.
func (o *labRun) setUses(sc *scenario.Scenario) error {
	for _, what := range slices.Sorted(maps.Keys(o.uses)) {
		use, err := setting.ParseShare(o.uses[what])
		if err != nil || !(use > 0 && use <= 1) {
			return userErrorf("--use %s: give a share above 0, at most 100%%, such as 40%%, not %q", what, o.uses[what])
		}
		if !sc.SetUse(what, use) {
			return userErrorf("--use %s: no neighbour in %s has a constant use of that resource, or runs that program", what, sc.Name)
		}
	}
	return nil
}

// plays returns whether the run with that index is selected.
func (o *labRun) plays(index int) bool { return len(o.runs) == 0 || slices.Contains(o.runs, index+1) }

// chosen are the selected runs.
func (o *labRun) chosen(sc *scenario.Scenario) []scenario.Run {
	var runs []scenario.Run
	for i, r := range sc.Runs {
		if o.plays(i) {
			runs = append(runs, r)
		}
	}
	return runs
}

// labScenario returns the experiment of that name from the library or, if there is none, reads the file of that name.
func labScenario(name string) (file string, data []byte, err error) {
	if strings.HasSuffix(name, ".yaml") || strings.ContainsRune(name, filepath.Separator) {
		data, err = os.ReadFile(name)
		if err != nil {
			return name, nil, userErrorf("reading the scenario: %w", err)
		}
		return name, data, nil
	}
	library := examples.Lab()
	data, ok := library[name]
	if !ok {
		return name, nil, userErrorf("there is no experiment %q (there are: %s); a file's name ends in .yaml", name,
			strings.Join(slices.Sorted(maps.Keys(library)), ", "))
	}
	return name, data, nil
}

// playable returns an error if a lab cannot play a scenario, or cannot train the models that it needs. Run numbers in the error
// count the runs in the file, with those that were not selected.
func (o *labRun) playable(sc *scenario.Scenario, written []scenario.Run) error {
	file := *sc
	file.Runs = written
	if err := experiment.KernelPlayable(&file, o.chosen(sc)...); err != nil {
		return err
	}
	if o.models == "" && o.needsModels(sc) {
		return experiment.KernelTrainable(sc)
	}
	return nil
}

func labListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the experiments, each with what it measures", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			library := examples.Lab()
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "NAME\tRUNS\tLENGTH\tABOUT")
			for _, name := range slices.Sorted(maps.Keys(library)) {
				sc, err := scenario.Parse(name, library[name])
				if err != nil {
					return err
				}
				fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", name, len(sc.Runs), sc.Duration, headline(library[name]))
			}
			return t.Flush()
		},
	}
}

// headline is the first sentence of a file's comment.
func headline(data []byte) string {
	var words []string
	for line := range strings.Lines(string(data)) {
		text, comment := strings.CutPrefix(line, "#")
		if !comment {
			break
		}
		words = append(words, strings.Fields(text)...)
	}
	text, _, _ := strings.Cut(strings.Join(words, " "), ". ")
	return text
}

// own makes the lab and runs the same command line inside it.
func (o *labRun) own(ctx context.Context, errs io.Writer) error {
	if err := kernel.Check(o.programs()...); err != nil {
		return err
	}
	if err := checkPrograms(o.scenario); err != nil {
		return err
	}
	if slices.ContainsFunc(o.chosen(o.scenario), func(r scenario.Run) bool { return r.Balancer == scenario.Envoy }) {
		if _, err := experiment.FindProgram("envoy"); err != nil {
			return err
		}
	}
	if experiment.Contended(o.scenario, quell.Disk) {
		if err := kernel.CheckDisk(o.out); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return userErrorf("--out: %w", err)
	}
	var hosts []kernel.Host
	for _, h := range o.scenario.Hosts {
		hosts = append(hosts, experiment.KernelHost(o.scenario, h))
	}
	if cores := sumOfCores(hosts); cores > float64(runtime.NumCPU()) {
		fmt.Fprintf(errs,
			"The hosts have %g cores in all, and this machine has %d: when all are busy they slow each other down as neighbours would. Give "+
				"them fewer.\n", cores, runtime.NumCPU())
	}
	return ownLab(ctx, kernel.Options{Prefix: o.prefix, Dir: filepath.Join(o.out, "lab-"+o.prefix), Hosts: hosts,
		Programs:   neighboursOf(o.scenario),
		DiskWrites: o.scenario.Workload.Application != ""}, errs)
}

// neighboursOf are the programs that neighbours run.
func neighboursOf(sc *scenario.Scenario) (programs []kernel.Program) {
	for _, p := range sc.Programs() {
		programs = append(programs, kernel.Program(p))
	}
	return programs
}

// checkPrograms returns what the application, or a program of a neighbour, needs and this machine lacks.
func checkPrograms(sc *scenario.Scenario) error {
	var errs []error
	if sc.Workload.Application == scenario.Calendar {
		errs = append(errs, kernel.CheckCalendar())
	}
	for _, p := range neighboursOf(sc) {
		errs = append(errs, kernel.CheckProgram(p))
	}
	return errors.Join(errs...)
}

func sumOfCores(hosts []kernel.Host) (sum float64) {
	for _, h := range hosts {
		sum += h.Cores
	}
	return sum
}

// programs are the programs that the runs need.
func (o *labRun) programs() []string {
	var programs []string
	if k := o.scenario.Workload.Kind; k == scenario.File || k == scenario.Video {
		programs = append(programs, "nginx")
	}
	if slices.ContainsFunc(o.chosen(o.scenario), func(r scenario.Run) bool { return r.Balancer == "" || r.Balancer == scenario.HAProxy }) {
		programs = append(programs, "haproxy")
	}
	byResource := map[quell.Resource]string{quell.Network: "iperf3", quell.CPU: "stress-ng", quell.Memory: "stress-ng", quell.Disk: "fio"}
	if o.needsModels(o.scenario) {
		for _, r := range experiment.Felt(o.scenario) {
			programs = append(programs, byResource[r])
		}
	}
	for _, e := range o.scenario.Timeline {
		if e.Interfere != nil && e.Interfere.Program == "" {
			programs = append(programs, byResource[e.Interfere.Resource])
		}
	}
	slices.Sort(programs)
	return slices.Compact(programs)
}

// play is the player's part: train, then play run after run.
func (o *labRun) play(ctx context.Context, machines experiment.Machines, out, errs io.Writer) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	if o.probing {
		return o.study(ctx, program, o.records, machines, out)
	}
	if o.crosstalk {
		return o.matrix(ctx, program, o.records, machines, out, errs)
	}
	if o.alternate {
		return o.alternations(ctx, program, o.records, machines, out, errs)
	}
	if o.streaming != nil {
		return o.stream(ctx, program, o.records, machines, out, errs)
	}
	models, err := o.prepareModels(ctx, program, machines, errs)
	if err != nil {
		return err
	}
	if o.validate {
		return o.measureHeldOut(ctx, program, models, o.records, machines, out, errs)
	}
	rig := &experiment.Kernel{Program: program, Dir: o.records, Models: models, Prefix: o.prefix, Machines: machines, Scenario: o.scenario}
	var results []scenario.Result
	played := *o.scenario
	played.Runs = nil
	for i, run := range o.scenario.Runs {
		if !o.plays(i) {
			continue
		}
		played.Runs = append(played.Runs, run)
		fmt.Fprintf(out, "Playing %s, run %d of %d, %s, for %s.\n", o.scenario.Name, i+1, len(o.scenario.Runs), experiment.Title(o.scenario, run),
			o.scenario.Duration)
		if kept, err := o.kept(rig, i); err != nil {
			return err
		} else if kept != nil {
			fmt.Fprintln(out, "It has been played before, and its record is kept.")
			results = append(results, kept.Result)
			continue
		}
		result, err := o.playOne(ctx, rig, i, out)
		if err != nil {
			return err
		}
		results = append(results, result)
	}
	fmt.Fprintln(out)
	if err := experiment.WriteTable(out, &played, results); err != nil {
		return err
	}
	for _, verdict := range experiment.Verdicts(&played, results) {
		fmt.Fprintln(out, verdict)
	}
	fmt.Fprintf(out, "\nRecords, configurations and logs: %s\n", o.records)
	return writeResults(o.json, results)
}

// interrupted suppresses errors that the owner has already reported.
func (o *labRun) interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && !errors.Is(context.Cause(ctx), errOwnerGone) {
		return statusError(exitFailed)
	}
	return err
}

// kept returns the record of a run that was played before with the same inputs; nil if there is none or the user wants no reuse.
func (o *labRun) kept(rig *experiment.Kernel, index int) (*experiment.Record, error) {
	if !o.resume {
		return nil, nil
	}
	run := o.scenario.Runs[index]
	record, err := experiment.LoadRecord(experiment.RecordPath(rig.Dir, index, run))
	if err != nil {
		return nil, nil // there is no usable record
	}
	inputs, err := experiment.Inputs(o.scenario, run, rig.Models)
	if err != nil || record.Inputs != inputs {
		return nil, err
	}
	return record, nil
}

// playOne plays one run and stores its record.
func (o *labRun) playOne(ctx context.Context, rig *experiment.Kernel, index int, out io.Writer) (result scenario.Result, err error) {
	sc, run := *o.scenario, o.scenario.Runs[index]
	sc.Runs = []scenario.Run{run}
	release, err := experiment.LockRun(rig.Dir, index, run)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, release()) }()
	g, err := rig.Start(ctx, index, run)
	if err != nil {
		return result, err
	}
	var recorder experiment.Recorder
	view := newDemoView(out, &sc)
	began := time.Now()
	warm := cmp.Or(sc.WarmUp, warmUp)
	results, err := experiment.Play(ctx, experiment.Options{
		Scenario: &sc, Players: []experiment.Player{{Run: run, Group: g}}, Resources: experiment.KernelResources(),
		WarmUp: warm, Sample: func(_ int, s scenario.Sample) { recorder.Sample(s) },
		Watch: func(f experiment.Frame) { recorder.Frame(f); view.frame(f) },
	})
	zero := began.Add(experiment.StartDelay + warm)
	if err == nil {
		err = o.noteChanges(ctx, g, zero, &recorder)
	}
	if err = errors.Join(err, g.Stop()); err != nil {
		return result, err
	}
	err = g.Snapshots(ctx, zero, func(s quell.Snapshot) {
		recorder.Snapshot(s.At.Sub(zero).Seconds(), s, table.All.Resource(sc.Service.Policy))
	})
	if err != nil {
		return result, err
	}
	record := recorder.Record(run, results[0])
	if record.Inputs, err = experiment.Inputs(o.scenario, run, rig.Models); err != nil {
		return result, err
	}
	if rel, err := filepath.Rel(o.out, rig.Models); err == nil && filepath.IsLocal(rel) {
		record.Models = rel
	} else {
		record.Models = rig.Models
	}
	return results[0], record.Save(experiment.RecordPath(rig.Dir, index, run))
}

func (o *labRun) noteChanges(ctx context.Context, g *experiment.KernelGroup, zero time.Time, recorder *experiment.Recorder) error {
	changes, err := g.Changes(ctx, zero)
	for _, c := range changes {
		recorder.Change(c.Sub(zero).Seconds())
	}
	return errors.Join(err, g.Plans(ctx, zero, func(p *quell.Plan) { recorder.Plan(p.At.Sub(zero).Seconds(), p) }))
}

// measured returns true if the run is resumed and an earlier call already wrote this result. In that case it prints a message.
func (o *labRun) measured(path string, out io.Writer) bool {
	if _, err := os.Stat(path); err != nil || !o.resume {
		return false
	}
	fmt.Fprintf(out, "%s is there already.\n", path)
	return true
}

// writeResult writes what was measured as JSON.
func writeResult(path string, v any) error {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}
