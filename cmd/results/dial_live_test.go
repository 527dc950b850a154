package main

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
)

func dialScenarioOf(t *testing.T, name string) *scenario.Scenario {
	t.Helper()
	sc, err := labPart{name: name}.load()
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

// naming adds plans to a record that name a resource of an instance, one every five seconds from a moment on.
func naming(record *experiment.Record, id string, r quell.Resource, from float64, plans int) *experiment.Record {
	for n := range plans {
		record.Causes = append(record.Causes,
			experiment.RecordedCause{AtS: from + 5*float64(n), Named: map[string]quell.Resource{id: r}})
	}
	return record
}

// An episode is named by what most plans say of the instance beside the neighbour while it is there, if at least two do.
func TestNamedLive(t *testing.T) {
	sc := dialScenarioOf(t, "dial-names")
	list := episodes(sc)
	cpu := slices.IndexFunc(list, func(e episode) bool { return e.truth == "cpu" })
	onset := list[cpu].begin
	run := func() *experiment.Record { return &experiment.Record{} }
	plays := [][]*experiment.Record{
		{naming(run(), "i2", quell.CPU, onset+11, 2)},
		{naming(run(), "i2", quell.CPU, onset+6, 1)},     // one plan alone does not count
		{naming(run(), "i1", quell.Network, onset+1, 5)}, // of the neighbour before
		{naming(run(), "i3", quell.CPU, onset+1, 5)},
		{naming(naming(run(), "i2", quell.Disk, onset+16, 2), "i2", quell.CPU, onset+30, 5)}, // after the end
		{nil},
	}
	var f partFigures
	if err := named(&f, "", sc, plays); err != nil {
		t.Fatal(err)
	}
	r := f.Named[cpu]
	if r.Truth != "cpu" || r.Neighbour != "a compiler" || r.Runs != 5 || !slices.Equal(r.Named, []int{0, 1, 1, 0, 3}) || r.Elsewhere != 5 {
		t.Errorf("%+v", r)
	}
	if r.Most != 4 || math.Abs(r.Periods.Mean-3) > 1e-9 { // after 3, 2 and 4 periods
		t.Errorf("periods %+v, at most %v", r.Periods, r.Most)
	}
	if load := f.Named[0]; load.Truth != loadChange || load.right() != 5 {
		t.Errorf("%+v", load)
	}
	if r.right() != 1 || (confusionRow{Truth: loadChange, Named: []int{1, 2, 3, 4, 5}}).right() != 5 {
		t.Error("counted wrongly")
	}
}

// The scenarios of the live measurement contain what its pieces are about, and no two neighbours at once.
func TestEpisodes(t *testing.T) {
	neighbours := []string{"network", "cpu", "disk"}
	for name, want := range map[string][]string{
		"dial-names": append([]string{loadChange}, neighbours...), "dial-tail": neighbours, "dial-calm": nil,
	} {
		sc := dialScenarioOf(t, name)
		last := 0.0
		var truths []string
		for _, e := range episodes(sc) {
			if name == "dial-calm" {
				continue // its load changes all the time
			}
			if e.begin < last+2*sc.Service.Sampling.Seconds() || e.end > sc.Duration.Seconds() {
				t.Errorf("%s: %+v after %v", name, e, last)
			}
			truths, last = append(truths, e.truth), e.end
		}
		if !slices.Equal(truths, want) || sc.Workload.Application != scenario.Calendar {
			t.Errorf("%s: %v", name, truths)
		}
	}
	for _, n := range dialNeighbours {
		sc := dialScenarioOf(t, n.ladder())
		last := 0.0
		for _, e := range episodes(sc) {
			if e.truth != string(n.resource) || e.end-e.begin <= ladderSettles {
				t.Errorf("%s: %+v", sc.Name, e)
			}
		}
		for _, e := range sc.Timeline {
			if e.Interfere.Use <= last {
				t.Errorf("%s: uses do not grow at %v", sc.Name, e.At)
			}
			last = e.Interfere.Use
		}
	}
}

// All live scenarios share one training.
func TestLiveScenariosAreAlike(t *testing.T) {
	first := dialScenarioOf(t, "dial-tail")
	for _, p := range dialLab().parts {
		sc := dialScenarioOf(t, p.name)
		if len(sc.Hosts) != 3 || sc.Hosts[0] != first.Hosts[0] || !slices.Equal(sc.Workload.Classes, first.Workload.Classes) ||
			sc.Service.Sampling != 5*time.Second {
			t.Errorf("%s differs from dial-tail", p.name)
		}
	}
}

// The p90 in contention leaves out the first two periods, in which nobody can have acted.
func TestTails(t *testing.T) {
	sc := dialScenarioOf(t, "dial-tail")
	network := episodes(sc)[0]
	record := func(contended float64) *experiment.Record {
		r := &experiment.Record{}
		for at := 0.5; at < sc.Duration.Seconds(); at += 0.5 {
			ms := 10.0
			switch {
			case at >= network.begin && at < network.begin+10:
				ms = 1000
			case at >= network.begin && at < network.end:
				ms = contended
			}
			r.Samples = append(r.Samples, experiment.RecordedSample{AtS: at, LatencyMS: ms, Instance: "i1"})
		}
		r.Moments = append(r.Moments, experiment.Moment{AtS: network.end - 1, Disturbs: map[string]float64{"h1": 0.3}})
		return r
	}
	seed := func(robin, dial float64) []*experiment.Record {
		records := make([]*experiment.Record, len(sc.Runs))
		records[0], records[5] = record(robin), record(dial)
		return records
	}
	records := seed(50, 20)
	var f partFigures
	if err := tails(&f, t.TempDir(), sc, [][]*experiment.Record{records, seed(40, 30), seed(100, 10)}); err != nil {
		t.Fatal(err)
	}
	rows := f.Tails[0].Rows
	if len(f.Tails) != 3 || len(rows) != 2 || rows[0].Growth() != 5 || rows[1].MS != 20 || rows[1].Range != "20.0 (10.0 to 30.0)" ||
		rows[1].Against != 0.4 || rows[0].Requests != 120 || rows[0].Seeds != 3 || f.Tails[0].Use != 0.3 {
		t.Errorf("%+v", f.Tails)
	}
	records[0] = nil
	f = partFigures{}
	if err := tails(&f, t.TempDir(), sc, [][]*experiment.Record{records}); err != nil || f.Tails[0].Rows[0].Against != 0 {
		t.Errorf("without round robin: %+v, %v", f.Tails, err)
	}
}

func TestChosenStep(t *testing.T) {
	for name, tc := range map[string]struct {
		steps       []ladderStep
		use, growth float64
	}{
		"between two steps":       {[]ladderStep{{0.1, 1}, {0.2, 2}, {0.4, 12.5}}, 0.3, 5},
		"the first crossing":      {[]ladderStep{{0.1, 2.5}, {0.3, 10}, {0.5, 3}, {0.7, 20}}, 0.2, 5},
		"never slow enough":       {[]ladderStep{{0.1, 1}, {0.2, 3.5}, {0.4, 3}}, 0.2, 3.5},
		"too slow from the first": {[]ladderStep{{0.1, 9}, {0.2, 30}}, 0.1, 9},
		"exactly":                 {[]ladderStep{{0.1, 1}, {0.2, 5}}, 0.2, 5},
		"clear of a steep edge":   {[]ladderStep{{0.4, 1.5}, {0.48, 2}, {0.5, 6}, {0.7, 12}}, 0.6, 6 * math.Sqrt2},
	} {
		if use, growth := chosenStep(tc.steps); math.Abs(use-tc.use) > 1e-9 || math.Abs(growth-tc.growth) > 1e-9 {
			t.Errorf("%s: %v with %v", name, use, growth)
		}
	}
}

// Each window of an instance counts once: as above a bound, and as taken for disturbed if that is confirmed.
func TestCalmLive(t *testing.T) {
	sc := dialScenarioOf(t, "dial-calm")
	r := &experiment.Record{Changes: []float64{31, 36}, Causes: []experiment.RecordedCause{
		{AtS: -3, Above: map[string]string{"i1": "confirming"}},
		{AtS: 5, Above: map[string]string{"i1": "confirming", "i2": "own_load"}},
		{AtS: 10, Above: map[string]string{"i1": "interference"}, Named: map[string]quell.Resource{"i1": quell.Disk}},
	}}
	var f partFigures
	if err := calmLive(&f, "", sc, [][]*experiment.Record{{r}, {nil}}); err != nil {
		t.Fatal(err)
	}
	c := f.CalmLive
	if c.Runs != 1 || c.Windows != 144 || math.Abs(c.Above*144-3) > 1e-9 || math.Abs(c.Taken*144-2) > 1e-9 || math.Abs(c.Moved*48-2) > 1e-9 {
		t.Errorf("%+v", c)
	}
	if len(c.Fits()) > 0 || c.Rows() != 0 || c.Right() != 0 {
		t.Error("figures of a training that is not known")
	}
}

// Without a calibration, the pieces that need it say so. Each piece has a name of its own.
func TestPiecesNeedPreparation(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := readUses(); err == nil || !strings.Contains(err.Error(), "play dial:live-calibrate first") {
		t.Errorf("got %v", err)
	}
	for _, piece := range dialPieces {
		if _, simulated := dialParts[piece]; simulated {
			t.Errorf("dial:%s is a part in the simulator, so the piece can never be played by itself", piece)
		}
	}
	if err := playDial(t.Context(), "everything"); err == nil || !strings.Contains(err.Error(), `no part "everything"`) {
		t.Errorf("got %v", err)
	}
}

// A calibration keeps the uses of the programs.
func TestUsesAreKept(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := calibrate(); err == nil || !strings.Contains(err.Error(), "has no record") {
		t.Errorf("got %v", err)
	}
	for _, n := range dialNeighbours {
		keepRecords(t, labPart{name: n.ladder()}, 1)
	}
	if err := os.MkdirAll(labDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := calibrate(); err != nil {
		t.Fatal(err)
	}
	uses, err := readUses()
	if err != nil || len(uses) != 3 || uses["memory"] != 0 || !(uses["sort"] > 0 && uses["sort"] <= 1) {
		t.Errorf("%v, %v", uses, err)
	}
}
