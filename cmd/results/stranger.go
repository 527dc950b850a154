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
)

// strangerSettings are a fleet that runs already, and what happens to it while Quell, which knows nothing of it, watches.
type strangerSettings struct {
	Link      float64       `json:"link"`      // bit/s of each machine
	File      int64         `json:"file"`      // bytes that each request downloads
	Load      float64       `json:"load"`      // mean use of the links by requests, a fraction
	Swing     float64       `json:"swing"`     // by which fraction of its mean the load goes up and down
	Sampling  time.Duration `json:"sampling"`  //
	Fast      string        `json:"fast"`      // policy beside the main one; empty: none
	Before    time.Duration `json:"before"`    // with users, without Quell
	Patience  time.Duration `json:"patience"`  // within which each machine must have a severity
	Calm      time.Duration `json:"calm"`      // after that, without neighbours
	Present   time.Duration `json:"present"`   // how long a neighbour stays
	Away      time.Duration `json:"away"`      // between two neighbours
	Uses      []float64     `json:"uses"`      // of the neighbours, one after the other, each beside the next machine: fractions of the link
	Threshold time.Duration `json:"threshold"` // of the mean response time
}

// strangerRuns are the runs of the page, by their names.
var strangerRuns = map[string]strangerSettings{
	"fast":    strangerAt(time.Second, 4*time.Minute, 30*time.Second, 20*time.Second),
	"default": strangerAt(10*time.Second, 5*time.Minute, time.Minute, 40*time.Second),
	"ice":     strangerBeside("ice", strangerAt(10*time.Second, 5*time.Minute, time.Minute, 40*time.Second)),
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
}

// strangerCost is the processor time that programs used, in shares of one processor.
type strangerCost struct {
	HAProxy    float64 `json:"haproxy"`
	Controller float64 `json:"controller"`
	Agent      float64 `json:"agent"` // mean of the agents
}

// strangerCostOf computes shares from the clock ticks that each program had used before and after this time, by name.
func strangerCostOf(before, after map[string]int, passed time.Duration) (c strangerCost) {
	agents := 0
	for name, used := range after {
		share := float64(used-before[name]) / (passed.Seconds() * perSecond)
		switch {
		case name == "haproxy":
			c.HAProxy = share
		case name == "controller":
			c.Controller = share
		case strings.HasPrefix(name, "agent-"):
			c.Agent, agents = c.Agent+share, agents+1
		}
	}
	c.Agent /= float64(max(1, agents))
	return c
}

// strangerTold is what a plan said of the neighbours on the links: their use, by machine.
type strangerTold struct {
	At  time.Time          `json:"at"`
	Use map[string]float64 `json:"use,omitempty"`
}

// amount finds a neighbour's use in the text that a plan gives to a person.
var amount = regexp.MustCompile(`about ([0-9.]+) of the network`)

// toldBy reads a plan as a person would.
func toldBy(plan *quell.Plan) strangerTold {
	told := strangerTold{At: plan.At, Use: map[string]float64{}}
	for _, r := range plan.Reasons {
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

// strangerFile is the record of a run.
func strangerFile(name string) string { return filepath.Join(labDir, "stranger", name+".json") }

// strangerPage plays the runs that have no record yet, and writes the page.
func strangerPage(ctx context.Context, dir string) error {
	for _, name := range strangerNames {
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
	f, err := newStrangerFleet(filepath.Join("bin", "quell"), strangerRuns[name])
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
	Missing []string // runs without a record
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
	return f
}

func writeStrangerPage(dir string) error {
	records := map[string]*strangerRecord{}
	for _, name := range strangerNames {
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
