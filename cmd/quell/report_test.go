package main

import (
	"context"
	"errors"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/report"
)

// recorded is a journal in memory.
type recorded struct {
	entries   []bus.Entry
	snapshots []quell.Snapshot
	fail      error
}

func (r *recorded) Read(_ context.Context, _ time.Time, fn func(bus.Entry) error) error {
	for _, e := range r.entries {
		if err := fn(e); err != nil {
			return err
		}
	}
	return r.fail
}

func (r *recorded) ReadSnapshots(_ context.Context, _ time.Time, fn func(quell.Snapshot) error) error {
	for _, s := range r.snapshots {
		if err := fn(s); err != nil {
			return err
		}
	}
	return nil
}

var reportStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// record makes a journal of calm periods. left says which plans are missing.
func record(periods int, left func(k int) bool) *recorded {
	r := &recorded{entries: []bus.Entry{{At: reportStart, Kind: bus.EventEntry, Text: "started"}}}
	for k := range periods {
		at, ms, rate, weight := reportStart.Add(time.Duration(k+1)*10*time.Second), 20.0, 50.0, 1.0
		r.snapshots = append(r.snapshots, quell.Snapshot{At: at, Service: "video", Instances: []quell.Instance{{ID: "a", State: quell.Ready,
			Weight: &weight, Observation: &quell.Observation{At: at, WindowS: 10, RequestRate: &rate,
				LatencyMS: &quell.Latency{Mean: &ms, N: 500}, Utilization: map[quell.Resource]float64{quell.Network: 0.5}}}}})
		if !left(k) {
			plan := &quell.Plan{At: at, Service: "video", Weights: map[string]float64{"a": 1}}
			r.entries = append(r.entries, bus.Entry{At: at, Kind: bus.PlanEntry, Plan: plan, Mode: quell.Advise, Why: "advise mode"})
		}
	}
	return r
}

func concluded(t *testing.T, j journal) (*report.Report, error) {
	t.Helper()
	file := &config.File{Service: quell.DefaultService()}
	file.Service.Name, file.Service.SLO = "video", quell.SLO{Metric: quell.Mean, Threshold: 40 * time.Millisecond}
	f := reportFlags{since: time.Hour, path: "quell.yaml"}
	return f.conclude(t.Context(), file, j, reportStart.Add(time.Hour))
}

func TestReportFindsEachSnapshotsPlan(t *testing.T) {
	for _, c := range []struct {
		about   string
		journal *recorded
		plans   int
		note    string
	}{
		{"all", record(360, func(int) bool { return false }), 359, ""},
		{"plans from before the first snapshot", func() *recorded {
			r := record(360, func(int) bool { return false })
			r.snapshots = r.snapshots[100:]
			return r
		}(), 259, "snapshots cover 43 min of 60 min"},
		{"a plan is missing", record(360, func(k int) bool { return k == 100 }), 358, "1 snapshots have no recorded decision"},
		{"no plans", record(360, func(int) bool { return true }), 0, "360 snapshots have no recorded decision"},
		{"the clock was set back", func() *recorded {
			r, again := record(360, func(int) bool { return false }), record(360, func(int) bool { return false })
			return &recorded{entries: append(r.entries, again.entries...), snapshots: append(r.snapshots, again.snapshots...)}
		}(), 718, "the clock was set back 1 time"},
	} {
		t.Run(c.about, func(t *testing.T) {
			r, err := concluded(t, c.journal)
			if err != nil {
				t.Fatal(err)
			}
			if notes := strings.Join(r.Notes, "\n"); r.Change.Plans != c.plans || !strings.Contains(notes, c.note) {
				t.Errorf("%d plans, notes %q; want %d and %q", r.Change.Plans, notes, c.plans, c.note)
			}
		})
	}
}

func TestReportFailsWithTheJournal(t *testing.T) {
	broken := errors.New("broken")
	j := record(10, func(k int) bool { return k > 5 })
	j.fail = broken
	if _, err := concluded(t, j); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if r, err := concluded(t, &recorded{fail: quell.ErrNoData}); err != nil || r.Verdict != report.NoData {
		t.Errorf("an empty journal: %+v, %v", r, err)
	}
}

// A page that cannot be written leaves the old one.
func TestReportPage(t *testing.T) {
	r, err := concluded(t, record(10, func(int) bool { return false }))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	page := filepath.Join(t.TempDir(), "page.html")
	if err := (&reportFlags{html: page}).write(&out, r); err != nil || !strings.Contains(out.String(), "written to") {
		t.Errorf("%q, %v", &out, err)
	}
	for _, f := range []reportFlags{{html: filepath.Join(page, "x")}, {png: filepath.Join(page, "x")}} {
		if err := f.write(&out, r); err == nil {
			t.Errorf("%+v: written below a file", f)
		}
	}
	picture := filepath.Join(t.TempDir(), "picture.png")
	if err := (&reportFlags{png: picture}).write(&out, r); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(picture)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if decoded, err := png.DecodeConfig(file); err != nil || decoded.Width < 500 {
		t.Errorf("%+v, %v", decoded, err)
	}
}
