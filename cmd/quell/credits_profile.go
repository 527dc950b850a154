package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent/profile"
	"github.com/quellhq/quell/credit"
	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/internal/cgroup"
	"github.com/quellhq/quell/limit"
	"github.com/quellhq/quell/progress"
	"github.com/quellhq/quell/sensor"
	"github.com/quellhq/quell/setting"
)

// profiling is a run of quell credits profile.
type profiling struct {
	out, group, iface string
	received          bool
	resources         []string
	port              int
	progress          string
	url, command      string
	log, pattern      string
	objective         time.Duration
	percentile        float64
	worst             float64
	kind, types       string // instance type, and a table of the user's own
	window, longest   time.Duration
	idle              time.Duration
	windows, limits   int
	cgroup            string
	records           limit.Options
}

func creditsProfileCommand() *cobra.Command {
	var o profiling
	cmd := &cobra.Command{
		Use: "profile --group CGROUP --out FILE --objective 2s (--port PORT | --progress SOCKET) " +
			"(--url URL | --command COMMAND | --log FILE --pattern REGEXP)",
		Short: "Measure how response times and use of a running service depend on limits, for the policy mrburst",
		Long: "Limit the processors, the disk and the network of a running service, one after the other, for short stretches, and record\n" +
			"response times and uses under its present load. Leave it running while the load varies, and begin at a high load. A limit is\n" +
			"lifted at once if response times exceed --worst times the objective or a request fails; all are lifted at the end, also if\n" +
			"this command is killed. The result is a profile for agent.policy.profile (docs/policies/mrburst.md).",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.out, "out", "", "file for the profile; it must not exist")
	f.StringVar(&o.group, "group", "", "control group of the service, as /system.slice/vsftpd.service")
	f.StringVar(&o.iface, "interface", "", "network interface to limit (default: the network is not limited)")
	f.BoolVar(&o.received, "received", false, "limit what the interface receives, not what it sends")
	f.StringSliceVar(&o.resources, "resources", nil, "what to limit: cpu, disk, network (default: cpu, disk, and network with --interface)")
	f.IntVar(&o.port, "port", 0, "TCP port of the service: the load is the number of its open connections (agent.policy.port)")
	f.StringVar(&o.progress, "progress", "", "socket: the load is what programs report there (agent.policy.progress)")
	f.StringVar(&o.url, "url", "", "measure response times by requests for this URL")
	f.StringVar(&o.command, "command", "", "measure response times by a program that sends one request, without a shell")
	f.StringVar(&o.log, "log", "", "take response times from this log, with --pattern")
	f.StringVar(&o.pattern, "pattern", "", "regular expression with a group named ms or seconds, or with groups bytes and kib_s; also failed")
	durationFlag(f, &o.objective, "objective", 0, "response time to keep")
	f.Float64Var(&o.percentile, "percentile", 95, "percentile of response times that the objective is about")
	f.Float64Var(&o.worst, "worst", 2, "response time, in objectives, at which a limit is lifted at once")
	f.StringVar(&o.kind, "type", "", "instance type: limits are not below its baselines")
	f.StringVar(&o.types, "types", "", "file with types that Quell's own table lacks")
	f.IntVar(&o.limits, "limits", 4, "limits of each resource")
	f.IntVar(&o.windows, "windows", 4, "windows for each limit and load")
	durationFlag(f, &o.window, "window", 5*time.Second, "length of a window")
	durationFlag(f, &o.longest, "longest", 30*time.Minute, "largest length of the measurement")
	durationFlag(f, &o.idle, "idle", 10*time.Minute, "end the measurement when no new load has come for this long")
	f.StringVar(&o.cgroup, "cgroup", "", "control group that is the instance, or self, as agent.cgroup (default: the whole machine)")
	recordsFlags(cmd, &o.records)
	for _, name := range []string{"out", "group", "objective"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // the flags are defined above
		}
	}
	return cmd
}

// check refuses flags that make no sense.
func (o *profiling) check() error {
	if problem := (sensor.Group{Path: o.group}).Check(); problem != "" {
		return userErrorf("--group: %s", problem)
	}
	if strings.ContainsAny(o.group, `*?[\`) {
		return userErrorf("--group %s: give one group, not a pattern", o.group)
	}
	if len(o.resources) == 0 {
		o.resources = []string{string(quell.CPU), string(quell.Disk)}
		if o.iface != "" {
			o.resources = append(o.resources, string(quell.Network))
		}
	}
	for _, r := range o.resources {
		if !slices.Contains([]quell.Resource{quell.CPU, quell.Disk, quell.Network}, quell.Resource(r)) {
			return userErrorf("--resources: %q cannot be limited; cpu, disk and network can", r)
		}
		if quell.Resource(r) == quell.Network && o.iface == "" {
			return userErrorf("--resources: to limit the network, give --interface")
		}
	}
	given := func(flags ...bool) (n int) {
		for _, is := range flags {
			if is {
				n++
			}
		}
		return n
	}
	switch {
	case given(o.port != 0, o.progress != "") != 1:
		return userErrorf("give one of --port and --progress: the load of the service")
	case given(o.url != "", o.command != "", o.log != "") != 1:
		return userErrorf("give one of --url, --command and --log: its response times")
	case (o.log == "") != (o.pattern == ""):
		return userErrorf("--log and --pattern go together")
	case o.objective <= 0:
		return userErrorf("--objective: must be above 0")
	case !(o.percentile >= 50 && o.percentile <= 99):
		return userErrorf("--percentile %g: must be between 50 and 99", o.percentile)
	case !(o.worst >= 1 && o.worst <= 100):
		return userErrorf("--worst %g: must be between 1 and 100", o.worst)
	case o.limits < 2 || o.limits > 20:
		return userErrorf("--limits %d: must be between 2 and 20", o.limits)
	case o.windows < 1 || o.windows > 1000:
		return userErrorf("--windows %d: must be between 1 and 1000", o.windows)
	case o.window < 100*time.Millisecond || o.window > time.Hour:
		return userErrorf("--window %s: must be between 100ms and 1h", setting.FormatDuration(o.window))
	case o.idle < o.window:
		return userErrorf("--idle %s: must be at least --window", setting.FormatDuration(o.idle))
	case o.progress == "" && (o.port < 1 || o.port > 65535):
		return userErrorf("--port %d: must be between 1 and 65535", o.port)
	}
	if _, err := os.Lstat(o.out); err == nil {
		return userErrorf("--out %s: exists already", o.out)
	}
	return nil
}

func (o *profiling) run(cmd *cobra.Command) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	plan, err := o.plan()
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(cmd.Context(), o.longest)
	defer stop()
	latencies, end, err := o.latencies(ctx)
	if err != nil {
		return err
	}
	defer end()
	live, closeLive, err := o.live(cmd, latencies)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLive()) }()
	release, err := restoreWhenKilled(o.records)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	err = profile.Run(ctx, profile.Options{
		Plan: plan, Source: live, Limiter: groupLimiter{limit.New(o.records), o}, Window: o.window, Windows: o.windows,
		Percentile: o.percentile / 100, Idle: o.idle,
		Tell: func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), text) },
	})
	if len(plan.Rows()) == 0 && err != nil {
		return err
	}
	return errors.Join(err, o.finish(cmd.OutOrStdout(), plan)) // what was measured until an error is not lost
}

// plan returns a plan whose limits are not below the baselines of the instance type.
func (o *profiling) plan() (*credit.Sparse, error) {
	s := credit.SparseOptions{ObjectiveMS: o.objective.Seconds() * 1000, PerRow: o.limits, Worst: o.worst,
		Least: map[quell.Resource]float64{}}
	for _, r := range o.resources {
		s.Resources = append(s.Resources, quell.Resource(r))
	}
	if o.kind == "" {
		return credit.NewSparse(s)
	}
	table := credit.Shipped()
	if o.types != "" {
		own, err := ownTypes(o.types)
		if err != nil {
			return nil, err
		}
		table = table.With(own)
	}
	entry, err := table.Find(o.kind)
	if err != nil {
		return nil, &quell.UserError{Err: fmt.Errorf("--type: %w", err)}
	}
	for r, b := range entry.Buckets() {
		s.Least[r] = b.Baseline
	}
	return credit.NewSparse(s)
}

// latencies returns where response times are taken from. end ends that.
func (o *profiling) latencies(ctx context.Context) (_ profile.Latencies, end func(), err error) {
	if o.log != "" {
		log, err := profile.Follow(o.log, o.pattern)
		if err != nil {
			return nil, nil, &quell.UserError{Err: fmt.Errorf("--log: %w", err)}
		}
		return log, func() { _ = log.Close() }, nil
	}
	const askers, patience = 2, 10 // at once; in objectives
	timeout := max(patience*o.objective, 10*time.Second)
	asker := profile.Get(o.url, timeout)
	if o.command != "" {
		argv := strings.Fields(o.command)
		if len(argv) == 0 {
			return nil, nil, userErrorf("--command: is empty")
		}
		asker = profile.Command(argv, timeout)
	}
	if err := asker.Try(ctx); err != nil {
		return nil, nil, userErrorf("the service does not answer a request of %s: %w", cmp.Or(o.url, o.command), err)
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		asker.Run(ctx, askers)
	}()
	return asker, func() { stop(); <-done }, nil
}

// live returns the measurement of the service, and what ends it.
func (o *profiling) live(cmd *cobra.Command, latencies profile.Latencies) (*profile.Live, func() error, error) {
	root := os.DirFS(o.records.Root)
	s := sensor.SpendingOptions{Port: o.port}
	s.Root, s.Interface, s.Cgroup = root, o.iface, o.cgroup
	if disk, err := cgroup.DiskOf(o.records.Root); err == nil {
		s.Disk = disk
	}
	l := &profile.Live{Spending: sensor.NewSpending(s), Latencies: latencies, Received: o.received, Group: o.group}
	if o.progress == "" {
		return l, func() error { return nil }, nil
	}
	server, err := progress.Listen(root, o.progress, newLogger(cmd.ErrOrStderr()))
	if err != nil {
		return nil, nil, &quell.UserError{Err: fmt.Errorf("--progress: %w", err)}
	}
	l.Progress = server
	return l, server.Close, nil
}

// groupLimiter limits the service's group or interface.
type groupLimiter struct {
	limits *limit.Limits
	o      *profiling
}

// Limit implements profile.Limiter.
func (g groupLimiter) Limit(r quell.Resource, value float64) error {
	wanted := map[limit.Target]float64{}
	if r != "" {
		t := limit.Target{Group: g.o.group, Resource: r}
		if r == quell.Network {
			t.Group = g.o.iface
		}
		if r == quell.Network && g.o.received {
			t.Form = limit.Receiving
		}
		wanted[t] = value
	}
	var errs []error
	for t, err := range g.limits.Apply(wanted) {
		errs = append(errs, fmt.Errorf("%s: %w", t, err))
	}
	if len(errs) > 0 && r != "" {
		errs = append(errs, g.Limit("", 0))
	}
	return errors.Join(errs...)
}

// finish writes the profile, and says what it is good for.
func (o *profiling) finish(w io.Writer, plan *credit.Sparse) error {
	rows := plan.Rows()
	for _, r := range slices.Sorted(maps.Keys(plan.Refused())) {
		fmt.Fprintf(w, "%s: not limited: %s\n", r, plan.Refused()[r])
	}
	fitted, err := credit.NewProfile(rows)
	if err != nil {
		return userErrorf("what was measured makes no profile: %w (let it run for longer, or at a higher load)", err)
	}
	var b bytes.Buffer
	for i := range rows {
		if err := json.NewEncoder(&b).Encode(rows[i]); err != nil {
			return err
		}
	}
	if err := atomicfile.Create(o.out, b.Bytes(), 0o644); err != nil {
		return err
	}
	measured, exhaustive := plan.Share()
	fmt.Fprintf(w, "%s: %d windows of %d pairs of limit and load, %.0f%% of the %d that an exhaustive search measures\n\n", o.out, len(rows),
		measured, 100*float64(measured)/float64(exhaustive), exhaustive)
	return o.show(w, plan, fitted)
}

// show prints, for each load, the tightest limits that keep the objective.
func (o *profiling) show(w io.Writer, plan *credit.Sparse, fitted *credit.Profile) error {
	ms := o.objective.Seconds() * 1000
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "LOAD\tNO LIMIT\tTIGHTEST LIMITS THAT KEEP THE OBJECTIVE")
	none := 0
	for _, load := range plan.Loads() {
		free, _ := fitted.Predict("", 0, load)
		var limits []string
		for _, r := range plan.Limitable() {
			if c, ok := fitted.Tightest(r, load, ms); ok {
				limits = append(limits, fmt.Sprintf("%s %.4g (%.4g ms)", r, c.Limit, c.LatencyMS))
			}
		}
		if len(limits) == 0 {
			none++
			limits = []string{"none"}
		}
		fmt.Fprintf(t, "%.4g\t%.4g ms\t%s\n", load, free.LatencyMS, strings.Join(limits, ", "))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if none > 0 {
		fmt.Fprintf(w, "\nAt %d of %d loads no limit keeps %s: mrburst limits nothing there.\n", none, len(plan.Loads()),
			setting.FormatDuration(o.objective))
	}
	return nil
}
