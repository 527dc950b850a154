package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// frontsRecord is what was seen behind one front.
type frontsRecord struct {
	Fleet   *strangerRecord `json:"fleet,omitempty"` // nil: the front was not watched
	Changes []frontsChange  `json:"changes"`
	Offered int             `json:"offered"` // requests during the changes
	Failed  int             `json:"failed"`
}

// frontsChange is a share that a person sets.
type frontsChange struct {
	Wanted  float64 `json:"wanted"`  // share of the first server
	InForce float64 `json:"inForce"` // seconds until the balancer itself had it; negative: it was not asked, or did not have it in time
	Got     float64 `json:"got"`     // part of the requests that were sent in the second half of the time until the next change
}

// What happens behind each front.
const (
	frontsChanges = 100
	frontsEach    = 4 * time.Second // between two changes
)

// frontsSettings are those of the fleet of docs/results/stranger.md, with a shorter calm time.
func frontsSettings() strangerSettings {
	return strangerAt(time.Second, 3*time.Minute, 30*time.Second, 20*time.Second)
}

// frontsData are the figures of the page, which are kept in docs/results/fronts.json.
type frontsData struct {
	Measured string                      `json:"measured"` // the machine
	Rows     map[string]frontsRow        `json:"rows"`
	Pressed  map[string]frontsPressedRow `json:"pressed,omitempty"` // by the name of a way
}

// frontsRow is a front on the page.
type frontsRow struct {
	Fleet *strangerRow `json:"fleet,omitempty"`
	// ReactionS are the seconds from each neighbour's arrival until its server's share in a plan in force was below 0.95 of what it had
	// been, negative if it never was.
	ReactionS []float64 `json:"reactionS,omitempty"`

	Changes    int     `json:"changes"`
	Offered    int     `json:"offered"`
	Failed     int     `json:"failed"`
	MedianS    float64 `json:"medianS"`    // until the balancer had a share; negative: it cannot be asked
	LargestS   float64 `json:"largestS"`   //
	NotInTime  int     `json:"notInTime"`  // changes that the balancer did not have before the next one
	ErrorShare float64 `json:"errorShare"` // median of the difference between the wanted share and the part of the requests
}

func frontsFile(dir string) string { return filepath.Join(dir, "fronts.json") }

// frontsPage plays all fronts, and writes the page.
func frontsPage(ctx context.Context, dir string) error {
	for _, f := range fronts {
		if err := frontsPagePart(ctx, dir, f.name); err != nil {
			return err
		}
	}
	for _, run := range slices.Sorted(maps.Keys(frontsRuns)) {
		if err := frontsPagePart(ctx, dir, run); err != nil {
			return err
		}
	}
	return nil
}

// frontsPagePart plays a run, or one front: NAME/seen and NAME/changes play half of it. With page, none is played.
func frontsPagePart(ctx context.Context, dir, part string) error {
	d := frontsData{Rows: map[string]frontsRow{}, Pressed: map[string]frontsPressedRow{}}
	if _, err := readJSON(frontsFile(dir), &d); err != nil {
		return err
	}
	keep := func() error {
		d.Measured = here().Machine
		return writeJSON(frontsFile(dir), d)
	}
	names, run := frontsRuns[part]
	var err error
	switch {
	case part == "page":
	case run:
		err = playPressed(ctx, &d, names, keep)
	default:
		err = playFrontPart(ctx, &d, part, keep)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", part, err)
	}
	return writePage(dir, "fronts", newFrontsFigures(d))
}

// playFrontPart plays a front, or half of it, and keeps the other half as it was.
func playFrontPart(ctx context.Context, d *frontsData, part string, keep func() error) error {
	name, half, _ := strings.Cut(part, "/")
	f, err := frontOf(name)
	if err != nil {
		return err
	}
	play := []func(context.Context, *strangerFleet, *frontsRecord) error{seeFleet, changeFleet}
	switch half {
	case "":
	case "seen":
		play = play[:1]
	case "changes":
		play = play[1:]
	default:
		return fmt.Errorf("%q is neither seen nor changes", half)
	}
	row := d.Rows[name]
	for _, half := range play {
		r := &frontsRecord{}
		if err := playFleet(ctx, f, func(f *strangerFleet) error { return half(ctx, f, r) }); err != nil {
			return err
		}
		row = row.with(r)
	}
	d.Rows[name] = row
	return keep()
}

// seeFleet watches the fleet behind a front.
func seeFleet(ctx context.Context, f *strangerFleet, r *frontsRecord) (err error) {
	r.Fleet, err = f.play(ctx)
	return err
}

// changeFleet changes shares by hand.
func changeFleet(ctx context.Context, f *strangerFleet, r *frontsRecord) error {
	if err := f.serve(); err != nil {
		return err
	}
	if err := f.watch(); err != nil {
		return err
	}
	if err := errors.Join(f.awaitFront(ctx), wait(ctx, 10*time.Second)); err != nil { // agents report, and the balancer has weights
		return err
	}
	return f.changeShares(ctx, r)
}

func playFleet(ctx context.Context, with front, play func(*strangerFleet) error) error {
	f, err := newStrangerFleet(filepath.Join("bin", "quell"), with, frontsSettings())
	if err != nil {
		return err
	}
	return errors.Join(play(f), f.close())
}

// changeShares sets shares of the first server by hand, up and down, while users download.
func (f *strangerFleet) changeShares(ctx context.Context, r *frontsRecord) error {
	load := strangerLoad{served: newServedBy()}
	stop := f.startUsers(ctx, &load)
	defer stop()
	wanted := []float64{0.6, 0.2, 0.5, 0.1}
	for i := range frontsChanges {
		change := frontsChange{Wanted: wanted[i%len(wanted)], InForce: -1}
		began := time.Now()
		if err := f.override(ctx, change.Wanted); err != nil {
			return err
		}
		half, cancel := context.WithDeadline(ctx, began.Add(frontsEach/2))
		change.InForce = f.awaitWeight(half, began, change.Wanted)
		cancel()
		if err := wait(ctx, time.Until(began.Add(frontsEach/2))); err != nil {
			return err
		}
		before := load.served.counts()
		if err := wait(ctx, time.Until(began.Add(frontsEach))); err != nil {
			return err
		}
		change.Got = partOf(before, load.served.counts(), f.names[0])
		r.Changes = append(r.Changes, change)
	}
	stop()
	r.Offered, r.Failed = int(load.requests.Load()), int(load.failed.Load())
	return nil
}

func (f *strangerFleet) override(ctx context.Context, share float64) error {
	c := exec.CommandContext(ctx, f.program, "override", f.names[0], fmt.Sprint(share), "--config", filepath.Join(f.dir, "quell", "edge.yaml"))
	if _, err := f.output(c); err != nil {
		return fmt.Errorf("quell override: %w", err)
	}
	return nil
}

// awaitWeight asks the balancer itself until it has a share of the first server; negative: it did not have it in time.
func (f *strangerFleet) awaitWeight(ctx context.Context, began time.Time, share float64) (seconds float64) {
	for f.front.weights != nil && ctx.Err() == nil {
		weights, err := f.front.weights(ctx, f, f.servers)
		if err == nil && math.Abs(weights[f.names[0]]-share) < 0.02 {
			return time.Since(began).Seconds()
		}
		_ = wait(ctx, 10*time.Millisecond)
	}
	return -1
}

// servedBy counts requests by the server that answered them.
type servedBy struct {
	mu sync.Mutex
	n  map[string]int
}

func newServedBy() *servedBy { return &servedBy{n: map[string]int{}} }

func (s *servedBy) add(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n[name]++
}

func (s *servedBy) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.n)
}

// partOf is a server's part of the requests that were counted between two times.
func partOf(before, after map[string]int, name string) float64 {
	sum := 0
	for id, n := range after {
		sum += n - before[id]
	}
	return float64(after[name]-before[name]) / float64(max(1, sum))
}

// with is the row with what a record has.
func (row frontsRow) with(r *frontsRecord) frontsRow {
	if r.Fleet != nil {
		fleet := newStrangerRow(r.Fleet)
		row.Fleet, row.ReactionS = &fleet, nil
		for _, v := range r.Fleet.Visits {
			row.ReactionS = append(row.ReactionS, r.Fleet.reaction(v))
		}
	}
	if len(r.Changes) > 0 {
		row.change(r)
	}
	return row
}

// change sets what was seen of changes.
func (row *frontsRow) change(r *frontsRecord) {
	row.Changes, row.Offered, row.Failed, row.MedianS, row.LargestS, row.NotInTime = len(r.Changes), r.Offered, r.Failed, -1, 0, 0
	var took, off []float64
	for _, c := range r.Changes {
		off = append(off, math.Abs(c.Got-c.Wanted))
		if c.InForce < 0 {
			row.NotInTime++
			continue
		}
		took = append(took, c.InForce)
	}
	row.ErrorShare = middle(off)
	if len(took) > 0 {
		row.MedianS, row.LargestS = middle(took), slices.Max(took)
	}
}

// reaction is how long after a neighbour came its server's share fell.
func (r *strangerRecord) reaction(v strangerVisit) (seconds float64) {
	before := math.NaN()
	for _, t := range r.Told {
		share, known := t.Shares[v.Instance]
		switch {
		case !known:
		case t.At.Before(v.From):
			before = share
		case t.At.Before(v.To) && share < 0.95*before:
			return t.At.Sub(v.From).Seconds()
		}
	}
	return -1
}
