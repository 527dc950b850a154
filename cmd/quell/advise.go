package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/chart"
	"github.com/quellhq/quell/config/yaml"
	"github.com/quellhq/quell/credit"
	"github.com/quellhq/quell/internal/strictjson"
	"github.com/quellhq/quell/internal/terminal"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/setting"
)

func adviseCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "advise", Short: "Advise what to rent", Args: cobra.NoArgs, RunE: showHelp}
	cmd.AddCommand(endsAtOnce(adviseInstancesCommand()))
	return cmd
}

// advising is a run of quell advise instances.
type advising struct {
	slo             quell.SLO
	metric          string
	utilization     float64 // 0: from the recording
	headroom, miss  float64
	length          time.Duration
	cores           float64
	most, top       int
	full, asJSON    bool
	types           []string
	table, pictures string

	service string
	demand  credit.Demand
}

func adviseInstancesCommand() *cobra.Command {
	var o advising
	cmd := &cobra.Command{
		Use:   "instances SNAPSHOTS.jsonl... --threshold T | --utilization U",
		Short: "From a recorded load: which type and number of instances hold the objective for how much an hour, burstable or not",
		Long: "The files have snapshots of a service, as quell journal --snapshots prints them, the oldest file first; - is standard input.\n" +
			"Their load (busy processors) is repeated for --for and divided equally among identical instances of each type that has a price.\n" +
			"The objective counts as held while an instance has credits, or needs none, and its processors are at most as busy as they were\n" +
			"in the recording while --threshold was kept (or --utilization), times --headroom. The cheapest number of each type is printed.",
		Args: someNamed("SNAPSHOTS.jsonl"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	f := cmd.Flags()
	durationFlag(f, &o.slo.Threshold, "threshold", 0, "the objective's threshold for response time")
	f.StringVar(&o.metric, "metric", string(quell.Mean), "metric of the objective: mean, p50, p90, p95, p99")
	shareFlag(f, &o.utilization, "utilization", 0, "utilisation of its processors up to which an instance holds the objective; "+
		"default: what the recording shows")
	shareFlag(f, &o.headroom, "headroom", 0.9, "part of that utilisation that may be used, as in policy.headroom")
	shareFlag(f, &o.miss, "miss", 0, "part of the time in which the objective may be missed")
	durationFlag(f, &o.length, "for", 7*24*time.Hour, "how long the load is repeated")
	f.Float64Var(&o.cores, "cores", 0, "processors of an instance, if snapshots do not say it")
	f.IntVar(&o.most, "most", 1000, "largest number of instances")
	f.BoolVar(&o.full, "full", false, "instances begin with full balances instead of launch credits")
	f.StringSliceVar(&o.types, "types", []string{"*"}, "types to consider, as in t4g.*,m7g.*")
	f.StringVar(&o.table, "table", "", "file with types and prices of your own, as in docs/credits.md")
	f.IntVar(&o.top, "top", 10, "how many types are printed; 0: all")
	f.StringVar(&o.pictures, "plot", "", "draw the load, and the credits' course of the first burstable types, into this folder")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	return cmd
}

// shareFlag adds a flag for a fraction, written as in a configuration.
func shareFlag(f *pflag.FlagSet, dst *float64, name string, start float64, usage string) {
	*dst = start
	f.Var((*shareValue)(dst), name, usage)
}

type shareValue float64

func (s *shareValue) Set(text string) error {
	v, err := setting.ParseShare(text)
	if err == nil && !(v >= 0 && v <= 1) {
		err = errors.New("must be between 0% and 100%")
	}
	if err == nil {
		*s = shareValue(v)
	}
	return err
}

func (s *shareValue) String() string {
	if *s == 0 {
		return ""
	}
	return fmt.Sprintf("%g%%", 100*float64(*s))
}

func (s *shareValue) Type() string { return "share" }

// check refuses flags that make no sense.
func (o *advising) check() error {
	if err := o.slo.Metric.UnmarshalText([]byte(o.metric)); err != nil {
		return userErrorf("--metric: %w", err)
	}
	for _, pattern := range o.types {
		if _, err := path.Match(pattern, ""); err != nil {
			return userErrorf("--types %s: is no pattern", pattern)
		}
	}
	switch {
	case o.slo.Threshold <= 0 && o.utilization == 0:
		return userErrorf("give the objective's --threshold, as in --threshold 75ms, or --utilization, as in --utilization 60%%")
	case o.headroom == 0:
		return userErrorf("--headroom 0%%: then nothing may be used")
	case o.length <= 0 || o.length > 366*24*time.Hour:
		return userErrorf("--for %s: must be above 0 and at most a year", setting.FormatDuration(o.length))
	case o.most < 1 || o.most > 100_000:
		return userErrorf("--most %d: must be between 1 and 100000", o.most)
	case o.top < 0:
		return userErrorf("--top %d: must not be negative; 0 prints all types", o.top)
	case !(o.cores >= 0) || o.cores > 10_000:
		return userErrorf("--cores %g: must be a number of processors", o.cores)
	}
	return nil
}

func (o *advising) run(cmd *cobra.Command, files []string) error {
	if err := o.check(); err != nil {
		return err
	}
	table := credit.Shipped()
	if o.table != "" {
		own, err := ownTypes(o.table)
		if err != nil {
			return err
		}
		table = table.With(own)
	}
	for _, path := range files {
		if err := o.read(cmd, path, table); err != nil {
			return err
		}
	}
	if o.demand.Mean() == 0 {
		return userErrorf("the snapshots have no utilisation of processors, so nothing is known of the load: run an agent on each instance, " +
			"with cpu in agent.probes or agent.capacity, and record again")
	}
	held := o.utilization
	if held == 0 {
		seen, err := o.demand.HeldUpTo()
		if err != nil {
			return userErrorf("%w: say with --utilization how busy an instance may be", err)
		}
		held = seen
	}
	advice := credit.Advice{Steps: o.demand.Steps, Seconds: math.Max(o.length.Seconds(), o.demand.Seconds()),
		Utilization: min(1, held) * o.headroom, Miss: o.miss, Most: o.most, Full: o.full}
	offers := table.Offers(o.considered)
	if len(offers) == 0 {
		return userErrorf("--types %s: matches no type with a price: `--types '*' --top 0` shows all", strings.Join(o.types, ","))
	}
	ranked := advice.Rank(offers)
	if len(ranked) == 0 {
		return fmt.Errorf("no type holds the objective with at most %d instances: allow more (--most), other types (--types) or misses (--miss)",
			o.most)
	}
	return o.tell(cmd.OutOrStdout(), advice, held, ranked)
}

// considered returns whether --types has a type.
func (o *advising) considered(name string) bool {
	return slices.ContainsFunc(o.types, func(pattern string) bool {
		ok, _ := path.Match(pattern, name) // check has refused bad patterns
		return ok
	})
}

// read adds the snapshots of a file to the demand.
func (o *advising) read(cmd *cobra.Command, path string, table *credit.Table) error {
	return eachSnapshot(cmd, path, func(r *strictjson.SnapshotReader, s *quell.Snapshot) error {
		switch {
		case s.Host != "":
			return r.Errorf("host: the snapshot is of the machine %q; the load is that of a service", s.Host)
		case o.service != "" && s.Service != o.service:
			return r.Errorf("service: the snapshot is of %q, and the load is that of %q", s.Service, o.service)
		}
		o.service = s.Service
		if err := o.demand.Add(s, o.slo, table, o.cores); err != nil {
			return r.Errorf("%w", err)
		}
		return nil
	})
}

// tell prints and draws the ranking.
func (o *advising) tell(w io.Writer, a credit.Advice, held float64, ranked []credit.Rented) error {
	shown := ranked
	if o.top > 0 && len(shown) > o.top {
		shown = shown[:o.top]
	}
	if o.asJSON {
		if err := json.NewEncoder(w).Encode(advisedOf(shown)); err != nil {
			return err
		}
	} else if err := o.write(w, a, held, shown, len(ranked)); err != nil {
		return err
	}
	if o.pictures == "" {
		return nil
	}
	names, err := chart.Pictures(o.pictures, coursePictures(a, ranked)...)
	if err == nil && !o.asJSON {
		_, err = fmt.Fprintf(w, "\npictures: %s\n", strings.Join(names, ", "))
	}
	return err
}

// write prints the ranking as a table.
func (o *advising) write(w io.Writer, a credit.Advice, held float64, shown []credit.Rented, all int) error {
	p := &printer{w: w}
	p.line("load: %s of service %s, %.3g processors busy on average and %.3g at most, repeated for %s", span(o.demand.Seconds()),
		terminal.Printable(o.service, longestText), o.demand.Mean(), o.demand.Peak(), span(a.Seconds))
	p.line("objective: held while at most %.0f%% of an instance's processors are busy; planned with %.0f%%\n", 100*held, 100*a.Utilization)
	if p.err != nil {
		return p.err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TYPE\tMODE\tNUMBER\t$/HOUR\tOF IT CREDITS\tBUSIEST\tMISSED\tLEAST CREDITS")
	for _, r := range shown {
		surplus, least := "-", "-"
		if r.UnlimitedMode {
			surplus = fmt.Sprintf("%.4f", r.Surplus)
		}
		if r.Least != nil {
			least = fmt.Sprintf("%.0f of %.0f, after %s", r.Least.Credits, *r.CPU.Cap, span(r.Least.Seconds))
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%.4f\t%s\t%.0f%%\t%s\t%s\n", terminal.Printable(r.Name, longestText), r.Mode(), r.Number, r.Hourly, surplus,
			100*r.Busiest, missedText(r.Missed), least)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if more := all - len(shown); more > 0 {
		p.line("\n%d more with --top 0", more)
	}
	return p.err
}

// missedText prints a share with two digits, or as a whole number of percent.
func missedText(share float64) string {
	if share >= 0.1 {
		return fmt.Sprintf("%.0f%%", 100*share)
	}
	return fmt.Sprintf("%.2g%%", 100*share)
}

// span prints a length of time in the largest unit that fits.
func span(seconds float64) string {
	switch {
	case seconds >= 48*3600:
		return fmt.Sprintf("%.3g d", seconds/86400)
	case seconds >= 2*3600:
		return fmt.Sprintf("%.3g h", seconds/3600)
	case seconds >= 120:
		return fmt.Sprintf("%.3g min", seconds/60)
	}
	return fmt.Sprintf("%.3g s", seconds)
}

// advised is an entry of the ranking as JSON.
type advised struct {
	Type         string   `json:"type"`
	Mode         string   `json:"mode"`
	Number       int      `json:"number"`
	HourlyUSD    float64  `json:"hourly_usd"`
	SurplusUSD   float64  `json:"surplus_usd"` // the part of hourly_usd that is for use beyond the credits
	Busiest      float64  `json:"busiest"`
	Missed       float64  `json:"missed"`
	LeastCredits *float64 `json:"least_credits,omitempty"`
}

func advisedOf(ranked []credit.Rented) []advised {
	list := make([]advised, len(ranked))
	for i, r := range ranked {
		list[i] = advised{r.Name, r.Mode(), r.Number, r.Hourly, r.Surplus, r.Busiest, r.Missed, nil}
		if r.Least != nil {
			list[i].LeastCredits = &r.Least.Credits
		}
	}
	return list
}

// mostDrawn is how many courses one picture has.
const mostDrawn = 4

// coursePictures draws the load, and the credits of the first burstable types in the ranking. An axis is in hours or, beyond four days, in
// days.
func coursePictures(a credit.Advice, ranked []credit.Rented) []model.Picture {
	unit, label := 3600.0, "hours"
	if a.Seconds > 4*86400 {
		unit, label = 86400, "days"
	}
	across := model.Axis{Label: label, High: a.Seconds / unit}
	credits := model.Picture{Name: "credits", Title: "Credits of an instance", X: across, Y: model.Axis{Label: "credits (processor minutes)"}}
	for _, r := range ranked {
		if r.Course == nil || len(credits.Layers) == mostDrawn {
			continue
		}
		line := model.Layer{Form: model.Line, Legend: fmt.Sprintf("%d x %s, %s", r.Number, r.Name, r.Mode()),
			Colour: model.Colour{Shaded: true, Shade: float64(len(credits.Layers)) / mostDrawn}}
		for _, b := range r.Course {
			line.Points = append(line.Points, model.Point{X: b.Seconds / unit, Y: b.Credits})
			credits.Y.Low, credits.Y.High = min(credits.Y.Low, b.Credits), max(credits.Y.High, b.Credits)
		}
		credits.Layers = append(credits.Layers, line)
	}
	pictures := []model.Picture{loadPicture(a, unit, label)}
	if len(credits.Layers) > 0 {
		credits.Y.High = max(credits.Y.High*1.25, credits.Y.Low+1) // leaves room for the legend
		pictures = append(pictures, credits)
	}
	return pictures
}

// loadPicture draws the recorded load once.
func loadPicture(a credit.Advice, unit float64, label string) model.Picture {
	p := model.Picture{Name: "load", Title: "Recorded load", X: model.Axis{Label: label}, Y: model.Axis{Label: "busy processors"}}
	line := model.Layer{Form: model.Line, Colour: model.Colour{Shaded: true}}
	now := 0.0
	for _, s := range a.Steps {
		line.Points = append(line.Points, model.Point{X: now / unit, Y: s.Use}, model.Point{X: (now + s.Seconds) / unit, Y: s.Use})
		now += s.Seconds
		p.Y.High = max(p.Y.High, 1.1*s.Use)
	}
	p.X.High, p.Layers = now/unit, []model.Layer{line}
	return p
}

// ownTypes reads a user's table of instance types.
func ownTypes(path string) (*credit.Table, error) {
	data, err := yaml.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return credit.Parse(yaml.NewDecoder(path), data)
}
