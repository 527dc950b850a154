package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
)

// A measurement may be interrupted at any time, and loses one run at most. So no run may be long.
func TestLiveRunsOfICEAreShort(t *testing.T) {
	for _, p := range iceLab().parts {
		sc, err := p.load()
		if err != nil {
			t.Fatal(err)
		}
		if took := sc.WarmUp + sc.Duration; took > 5*time.Minute {
			t.Errorf("a run of %s takes %v", p.name, took)
		}
	}
	for _, a := range experiment.Alternations() {
		if p := a.Plan(); p.WarmUp+p.Run > 5*time.Minute || p.Validate() != nil {
			t.Errorf("%s: %v and %v, %v", a.Name(), p.WarmUp, p.Run, p.Validate())
		}
	}
}

// cuts are shares of which i1 and i2 keep these parts.
func cuts(at, i1, i2 float64) experiment.RecordedShares {
	return experiment.RecordedShares{AtS: at, Shares: map[string]float64{"i1": i1 / (i1 + i2), "i2": i2 / (i1 + i2)},
		Cuts: map[string]float64{"i1": i1, "i2": i2}}
}

// A reaction is the first plan that cuts the share of the disturbed instance while the neighbour is there. If its share
// only falls because another instance's share comes back, that is no reaction.
func TestReactionsOfLiveRuns(t *testing.T) {
	use := func(host string, at time.Duration, use float64) scenario.Event {
		return scenario.Event{At: at * time.Second, Interfere: &scenario.Interference{Host: host, Resource: quell.CPU, Use: use}}
	}
	sc := &scenario.Scenario{Duration: 60 * time.Second, Timeline: []scenario.Event{
		use("h1", 10, 0.6), use("h1", 20, 0), use("h2", 30, 0.6), use("h2", 40, 0), use("h1", 50, 0.6)}}
	early := &experiment.Record{Shares: []experiment.RecordedShares{
		cuts(0, 1, 1), cuts(11.5, 0.98, 1), cuts(12, 0.6, 1), cuts(13, 0.4, 1), cuts(25, 0.6, 1), cuts(35, 1, 1), cuts(41, 1, 0.5),
		cuts(51.25, 0.6, 1)}}
	var f partFigures
	if err := iceOnsetsLive(&f, "", sc, [][]*experiment.Record{{early}, {nil}}); err != nil {
		t.Fatal(err)
	}
	// i2's share falls at 35 s as i1's grows, and it is cut at 41 s only, when its neighbour has gone.
	if r := f.Reaction; r.Onsets != 3 || len(r.Delays) != 2 || r.Least != 1.25 || r.Most != 2 {
		t.Errorf("%+v", r)
	}
}

// The runs of Table I are named, and their medians are compared with the first run under the same scheduling.
func TestLiveTableOfICE(t *testing.T) {
	sc, err := labPart{name: "ice-parameters"}.load()
	if err != nil {
		t.Fatal(err)
	}
	records := make([]*experiment.Record, len(sc.Runs))
	for i := range records {
		at := sc.Timeline[0].At.Seconds()
		records[i] = &experiment.Record{Samples: []experiment.RecordedSample{{AtS: at - 1, LatencyMS: 10, Instance: "i2"},
			{AtS: at + 1, LatencyMS: 100 / float64(i+1), Instance: "i2"}, {AtS: at + 2, LatencyMS: 1000, Instance: "i1"}},
			Moments: []experiment.Moment{{AtS: at - 1, Instances: []experiment.SeenInstance{{ID: "i2"}}},
				{AtS: at + 1, Instances: []experiment.SeenInstance{{ID: "i2"}, {ID: "i1"}}}}}
	}
	order := func(at float64, name string) experiment.RecordedSetting {
		return experiment.RecordedSetting{AtS: at, Setting: quell.Setting{Instance: "i2", Target: "apache", Name: name}}
	}
	from := sc.Timeline[0].At.Seconds()
	records[1].Settings = []experiment.RecordedSetting{order(from+20, "a"), order(from+21, "b"), order(from+30, "a"), order(from+32, "b"),
		order(from+50, "a"), order(from+55, "a"), order(from+60, "b")}
	var f partFigures
	plots := t.TempDir()
	if err := iceTableLive(&f, plots, sc, [][]*experiment.Record{records}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{f.Plot, f.OverTime} {
		if info, err := os.Stat(filepath.Join(plots, name)); err != nil || info.Size() < 1000 {
			t.Errorf("%q: %v, %v", name, info, err)
		}
	}
	if n := presences(sc)[0]; f.Table[1].ChangedS != 12+5+n.to-n.from-60 {
		t.Errorf("parameters were changed for %g s of %+v", f.Table[1].ChangedS, n)
	}
	titles := []string{"static", "server parameters alone (IC²)", "ICE", "ICE and server parameters"}
	for i, want := range titles {
		for k, scheduling := range []quell.Scheduling{quell.LeastConn, quell.RoundRobin} {
			row, first := f.Table[i+len(titles)*k], len(titles)*k+1
			versus := against(float64(first), float64(first+i))
			if row.Title != want || row.Scheduling != scheduling || row.CalmMS != 10 || row.Versus != versus {
				t.Errorf("run %d: %+v, want %s and %s", first+i, row, want, versus)
			}
		}
	}
}

// The page's detector is fitted to the rows of the training, and judged by those of the test. Here they are simulated.
func TestLiveDetector(t *testing.T) {
	sc, err := scenario.Load(filepath.Join("..", "..", "examples", "scenarios", "ice-hour.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	p := labPart{name: "live-detector", of: "ice-onsets", command: "alternate"}
	f, err := p.figures("plots")
	if err != nil || f.Missing != "live-detector" {
		t.Fatalf("without rows: %+v, %v", f, err)
	}
	for i, a := range experiment.Alternations() {
		rows, err := alternating(t.Context(), sc, quell.CPU, a.Plan(), uint64(1+1000*i))
		if err != nil {
			t.Fatal(err)
		}
		var lines []byte
		for _, row := range rows {
			line, err := json.Marshal(row)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(append(lines, line...), '\n')
		}
		dir := filepath.Join(labDir, "ice-onsets", "alternating", a.Name())
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "training.jsonl")
		for _, interrupted := range [][]byte{nil, lines[:len(lines)-10]} {
			if err := os.WriteFile(path, interrupted, 0o644); err != nil {
				t.Fatal(err)
			}
			if f, err = p.figures("plots"); err != nil || f.Missing != "live-detector" {
				t.Errorf("%d bytes of rows: %+v, %v", len(interrupted), f, err)
			}
		}
		if err := os.WriteFile(path, lines, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if f, err = p.figures("plots"); err != nil || f.Detector == nil {
		t.Fatalf("%+v, %v", f, err)
	}
	if d := f.Detector; d.Runs != 6 || d.Windows != 6*240 || len(d.Accuracies) != 9 || d.Accuracies[0].Right < 0.9 {
		t.Errorf("%+v", d)
	}
}

// Delays of the lab become a row for each number of workers and for each weight.
func TestDelaysOfStreams(t *testing.T) {
	s := newStreamFigures(someStreams())
	if got := fmt.Sprint(s.Counts); got != "[2 10]" {
		t.Errorf("numbers of workers %s", got)
	}
	text := ""
	for _, row := range append(s.Workers, s.Weights...) {
		text += fmt.Sprintf("%d: %s; ", row.At, strings.Join(row.Texts(), ", "))
	}
	const want = "1: 2608 (32% not sent), -; 2: 25, 229; 10: 34, 49; 100: 229, 49; 40: 26, 24; "
	if text != want {
		t.Errorf("%s, want %s", text, want)
	}
}

// someStreams are measured frame delays, in no order.
func someStreams() (list []experiment.StreamResult) {
	add := func(workers, weight int, interfering bool, ms, unsent float64) {
		list = append(list, experiment.StreamResult{StreamCell: experiment.StreamCell{Workers: workers, Weight: weight, Interfering: interfering},
			Streams: 6, Frames: 600, Unsent: unsent, DelayMS: quell.Latency{Mean: &ms, N: 600}})
	}
	add(10, 40, true, 24, 0)
	add(2, 100, true, 229, 0)
	add(2, 100, false, 25, 0)
	add(10, 100, false, 34, 0.001)
	add(10, 100, true, 49, 0)
	add(1, 100, false, 2608, 0.32)
	add(2, 40, true, 26, 0)
	return list
}
