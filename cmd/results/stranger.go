package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/report"
)

// strangerSettings are a fleet that runs already, and what happens to it while Quell, which knows nothing of it, watches.
type strangerSettings struct {
	Link      float64       `json:"link"`              // bit/s of each machine
	File      int64         `json:"file"`              // bytes that each request downloads
	Load      float64       `json:"load"`              // mean use of the links by requests, a fraction
	Swing     float64       `json:"swing"`             // by which fraction of its mean the load goes up and down
	Sampling  time.Duration `json:"sampling"`          //
	Fast      string        `json:"fast"`              // policy beside the main one; empty: none
	Before    time.Duration `json:"before"`            // with users, without Quell
	Patience  time.Duration `json:"patience"`          // within which each machine must have a severity
	Calm      time.Duration `json:"calm"`              // after that, without neighbours
	Present   time.Duration `json:"present"`           // how long a neighbour stays
	Away      time.Duration `json:"away"`              // between two neighbours
	Uses      []float64     `json:"uses"`              // of the neighbours, one after the other, each beside the next machine: fractions of the link
	Threshold time.Duration `json:"threshold"`         // of the response time
	Balance   string        `json:"balance,omitempty"` // HAProxy's rule; empty: leastconn
	Metric    quell.Metric  `json:"metric,omitempty"`  // of the objective; empty: the mean

	// Work is the query of each request to the lab's service of dynamic work, which then runs instead of nginx; empty: nginx runs.
	Work     string  `json:"work,omitempty"`
	Cores    float64 `json:"cores,omitempty"`    // of each machine; 0: no limit
	DiskIOPS float64 `json:"diskIOPS,omitempty"` // likewise
}

// path is what each request asks for.
func (s strangerSettings) path() string {
	if s.Work != "" {
		return "/work?" + s.Work
	}
	return "/file"
}

// strangerRuns are the runs of the page, by their names.
var strangerRuns = map[string]strangerSettings{
	"fast":    strangerAt(time.Second, 4*time.Minute, 30*time.Second, 20*time.Second),
	"default": strangerAt(10*time.Second, 5*time.Minute, time.Minute, 40*time.Second),
	"ice":     strangerBeside("ice", strangerAt(10*time.Second, 5*time.Minute, time.Minute, 40*time.Second)),

	"calm":      strangerHour(0),
	"disturbed": strangerHour(12),
}

// strangerHour are the settings of an hour in which this many rounds of neighbours come, each beside all machines in turn.
func strangerHour(rounds int) strangerSettings {
	s := strangerAt(10*time.Second, time.Hour, time.Minute, 40*time.Second)
	if s.Uses = slices.Repeat(s.Uses, rounds); rounds > 0 {
		s.Calm = time.Minute
	}
	return s
}

// strangerAt are the settings of a run with this sampling period.
func strangerAt(sampling, calm, present, away time.Duration) strangerSettings {
	return strangerSettings{
		Link: 100e6, File: 100_000, Load: 0.3, Swing: 0.5, Threshold: 75 * time.Millisecond, Sampling: sampling,
		Before: time.Minute, Patience: 5 * time.Minute, Calm: calm, Present: present, Away: away, Uses: []float64{0.5, 0.3, 0.6},
	}
}

// strangerBeside are these settings with a fast policy.
func strangerBeside(fast string, s strangerSettings) strangerSettings {
	s.Fast = fast
	return s
}

// strangerNames are the names of the runs, in the order of the page.
var strangerNames = []string{"fast", "default", "ice"}

// strangerHours are those of the runs that take an hour.
var strangerHours = []string{"calm", "disturbed"}

// rate is the number of requests per second at a time since the beginning.
func (s strangerSettings) rate(machines int, at time.Duration) float64 {
	const swings = time.Minute
	mean := s.Load * float64(machines) * s.Link / 8 / float64(s.File)
	return mean * (1 + s.Swing*math.Sin(2*math.Pi*at.Seconds()/swings.Seconds()))
}

// strangerVisit is a neighbour's time beside a machine.
type strangerVisit struct {
	Instance string    `json:"instance"`
	Use      float64   `json:"use"`  // that it was to have
	True     float64   `json:"true"` // that its receiver counted
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
}

// strangerRecord is what was seen in a run.
type strangerRecord struct {
	Settings strangerSettings `json:"settings"`
	Machines []string         `json:"machines"`
	Began    time.Time        `json:"began"`  // agents and controller
	Knows    time.Time        `json:"knows"`  // a severity of each machine
	Calm     time.Time        `json:"calm"`   // the end of the calm time
	Visits   []strangerVisit  `json:"visits"` //
	Told     []strangerTold   `json:"told"`   // a line for each plan
	Alone    strangerCost     `json:"alone"`  // without Quell
	Beside   strangerCost     `json:"beside"` // from the first severities to the end
	Requests int              `json:"requests"`
	Failed   int              `json:"failed"`

	Predictions report.Predictions `json:"predictions,omitzero"` // as quell report has them
}

// strangerCost is the processor time that programs used, in shares of one processor.
type strangerCost struct {
	Balancer   float64 `json:"balancer"`
	Controller float64 `json:"controller"`
	Agent      float64 `json:"agent"` // mean of the agents
}

// strangerCostOf computes shares from the clock ticks that each program had used before and after this time, by name.
func strangerCostOf(before, after map[string]int, passed time.Duration) (c strangerCost) {
	agents := 0
	for name, used := range after {
		share := float64(used-before[name]) / (passed.Seconds() * perSecond)
		switch {
		case name == frontProgram:
			c.Balancer = share
		case name == "controller":
			c.Controller = share
		case strings.HasPrefix(name, "agent-"):
			c.Agent, agents = c.Agent+share, agents+1
		}
	}
	c.Agent /= float64(max(1, agents))
	return c
}

// strangerTold is what a plan said: the use of the neighbours on the links, what a machine can carry, and its share, by machine.
type strangerTold struct {
	At       time.Time          `json:"at"`
	Use      map[string]float64 `json:"use,omitempty"`
	Capacity map[string]float64 `json:"capacity,omitempty"`
	Shares   map[string]float64 `json:"shares,omitempty"`   // of the requests, if the plan was carried out
	Overload bool               `json:"overload,omitempty"` // it said that the group cannot carry its load
}

// amount finds a neighbour's use in the text that a plan gives to a person.
var amount = regexp.MustCompile(`about ([0-9.]+) of the network`)

// toldBy reads a plan as a person would.
func toldBy(e *bus.Entry) strangerTold {
	plan := e.Plan
	told := strangerTold{At: plan.At, Use: map[string]float64{}, Capacity: plan.Capacity}
	if e.Applied {
		told.Shares = plan.Weights
	}
	for _, r := range plan.Reasons {
		told.Overload = told.Overload || r.Code == "overload"
		found := amount.FindStringSubmatch(r.Text)
		if r.Code != "interference" || found == nil {
			continue
		}
		if use, err := strconv.ParseFloat(found[1], 64); err == nil {
			told.Use[r.Instance] = use
		}
	}
	return told
}

// knowing is the time of the first of these entries whose plan has a severity of each machine.
func knowing(entries []bus.Entry, machines int) (at time.Time, ok bool) {
	i := slices.IndexFunc(entries, func(e bus.Entry) bool { return e.Plan != nil && len(e.Plan.Severity) == machines })
	if i < 0 {
		return at, false
	}
	return entries[i].Plan.At, true
}

// strangerRow is a run on the page.
type strangerRow struct {
	Title        string
	Known        float64 // seconds until each machine had a severity
	Calm, Alarms int     // periods of a machine without a neighbour, before the first one came; in which one was reported
	Visits       []strangerSeen
	Requests     int
	Failed       int
	Sampling     string
	Machines     int
	LinkMbit     float64
	FileKB       int64
	Load, Swing  float64
	Fast         string
	PerSecond    float64 // requests, on average
	Alone        strangerCost
	Beside       strangerCost
}

// AlarmShare is the share of calm periods with a false alarm.
func (r strangerRow) AlarmShare() float64 { return float64(r.Alarms) / float64(max(1, r.Calm)) }

// strangerSeen is how a neighbour was seen, from the end of the second period after it came until it left.
type strangerSeen struct {
	Instance  string
	True      float64
	Plans     int
	Right     int     // plans that name its machine
	Elsewhere int     // machines that plans name without reason, over all plans
	Told      float64 // median use that these plans tell
	Near      int     // plans that tell its use within 0.1
	FirstS    float64 // seconds until the first plan that names the machine; negative: never
}

func newStrangerRow(r *strangerRecord) strangerRow {
	s := r.Settings
	row := strangerRow{Sampling: s.Sampling.String(), Known: r.Knows.Sub(r.Began).Seconds(), Requests: r.Requests, Failed: r.Failed,
		Machines: len(r.Machines), LinkMbit: s.Link / 1e6, FileKB: s.File / 1000, Load: s.Load, Swing: s.Swing,
		Fast: s.Fast, PerSecond: s.rate(len(r.Machines), 0), Alone: r.Alone, Beside: r.Beside}
	for _, t := range r.Told {
		if t.At.After(r.Knows) && t.At.Before(r.Calm) {
			row.Calm, row.Alarms = row.Calm+len(r.Machines), row.Alarms+len(t.Use)
		}
	}
	for _, v := range r.Visits {
		row.Visits = append(row.Visits, r.seen(v))
	}
	return row
}

func (r *strangerRecord) seen(v strangerVisit) strangerSeen {
	seen := strangerSeen{Instance: v.Instance, True: v.True, FirstS: -1}
	var uses []float64
	for _, t := range r.Told {
		if t.At.Before(v.From) || t.At.After(v.To) {
			continue
		}
		use, named := t.Use[v.Instance]
		if named && seen.FirstS < 0 {
			seen.FirstS = t.At.Sub(v.From).Seconds()
		}
		if t.At.Before(v.From.Add(2 * r.Settings.Sampling)) {
			continue
		}
		seen.Plans++
		seen.Elsewhere += len(t.Use)
		if !named {
			continue
		}
		seen.Elsewhere--
		seen.Right++
		uses = append(uses, use)
		if math.Abs(use-v.True) <= 0.1 {
			seen.Near++
		}
	}
	seen.Told = middle(uses)
	return seen
}

// strangerHourRow is a run of an hour on the page.
type strangerHourRow struct {
	Name      string
	Visits    int
	Right     int // plans that name the neighbour's machine, from the end of the second period after it came
	Plans     int // of this many
	Calm      int // periods of a machine without a neighbour
	Accused   int // in which one was reported
	Overload  int // plans of the first five minutes that say that the group cannot carry its load
	Early     int // capacities of the first five minutes
	Off       int // that are off by more than a third of the median of those of the last ten minutes
	Requests  int
	Failed    int
	Predicted report.Predictions
}

// CalmShare is the share of calm periods in which a machine was accused.
func (r strangerHourRow) CalmShare() float64 { return float64(r.Accused) / float64(max(1, r.Calm)) }

func newStrangerHourRow(name string, r *strangerRecord) strangerHourRow {
	row := strangerHourRow{Name: name, Visits: len(r.Visits), Requests: r.Requests, Failed: r.Failed, Predicted: r.Predictions}
	for _, v := range r.Visits {
		seen := r.seen(v)
		row.Right, row.Plans = row.Right+seen.Right, row.Plans+seen.Plans
	}
	for _, t := range r.Told {
		if t.Overload && r.early(t) {
			row.Overload++
		}
	}
	for _, machine := range r.Machines {
		row.count(r, machine)
	}
	return row
}

// count adds the periods of a machine in which it had no neighbour.
func (row *strangerHourRow) count(r *strangerRecord, machine string) {
	var early, late []float64
	for _, t := range r.Told {
		if !r.calm(machine, t.At) {
			continue
		}
		row.Calm++
		if _, accused := t.Use[machine]; accused {
			row.Accused++
		}
		c, known := t.Capacity[machine]
		switch {
		case known && r.early(t):
			early = append(early, c)
		case known && t.At.After(r.Told[len(r.Told)-1].At.Add(-10*time.Minute)):
			late = append(late, c)
		}
	}
	row.Early += len(early)
	for _, c := range early {
		if math.Abs(c-middle(late)) > middle(late)/3 {
			row.Off++
		}
	}
}

// early tells whether a plan is one of the first five minutes.
func (r *strangerRecord) early(t strangerTold) bool { return t.At.Before(r.Began.Add(5 * time.Minute)) }

// calm tells whether a machine had no neighbour at a time, nor in the two periods before.
func (r *strangerRecord) calm(machine string, at time.Time) bool {
	return !slices.ContainsFunc(r.Visits, func(v strangerVisit) bool {
		return v.Instance == machine && !at.Before(v.From) && at.Before(v.To.Add(2*r.Settings.Sampling))
	})
}

// strangerFile is the record of a run.
func strangerFile(name string) string { return filepath.Join(labDir, "stranger", name+".json") }

// strangerPage plays the runs that have no record yet, and writes the page.
func strangerPage(ctx context.Context, dir string) error {
	for _, name := range slices.Concat(strangerNames, strangerHours) {
		if _, err := os.Stat(strangerFile(name)); err == nil {
			continue
		}
		if err := playStranger(ctx, name); err != nil {
			return err
		}
	}
	return writeStrangerPage(dir)
}

// strangerPagePart plays one run again; with page, none.
func strangerPagePart(ctx context.Context, dir, part string) error {
	if _, ok := strangerRuns[part]; !ok && part != "page" {
		return fmt.Errorf("the stranger page has no part %q", part)
	}
	if part != "page" {
		if err := playStranger(ctx, part); err != nil {
			return err
		}
	}
	return writeStrangerPage(dir)
}

func playStranger(ctx context.Context, name string) (err error) {
	f, err := newStrangerFleet(filepath.Join("bin", "quell"), haproxyFront, strangerRuns[name])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	record, err := f.play(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := os.MkdirAll(filepath.Dir(strangerFile(name)), 0o755); err != nil {
		return err
	}
	return writeJSON(strangerFile(name), record)
}

// strangerFigures are the figures of the page.
type strangerFigures struct {
	place
	Rows    []strangerRow
	Hours   []strangerHourRow
	Missing []string // runs without a record
	Later   []string // hours without a record
}

// Measured describes the machine on which the runs were measured.
func (f strangerFigures) Measured() string {
	if len(f.Missing) > 0 {
		return notMeasured
	}
	return f.Machine
}

func newStrangerFigures(records map[string]*strangerRecord) (f strangerFigures) {
	f.place = here()
	for _, name := range strangerNames {
		if records[name] == nil {
			f.Missing = append(f.Missing, name)
			continue
		}
		row := newStrangerRow(records[name])
		row.Title = name
		f.Rows = append(f.Rows, row)
	}
	for _, name := range strangerHours {
		if records[name] == nil {
			f.Later = append(f.Later, name)
			continue
		}
		f.Hours = append(f.Hours, newStrangerHourRow(name, records[name]))
	}
	return f
}

func writeStrangerPage(dir string) error {
	records := map[string]*strangerRecord{}
	for _, name := range slices.Concat(strangerNames, strangerHours) {
		var r strangerRecord
		found, err := readJSON(strangerFile(name), &r)
		if err != nil {
			return err
		}
		if found {
			records[name] = &r
		}
	}
	return writePage(dir, "stranger", newStrangerFigures(records))
}
