package main

import (
	"math"
	"slices"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
)

// causes are plans that name a resource of an instance, one every five seconds from a moment on.
func causes(id string, r quell.Resource, from float64, plans int) *experiment.Record {
	record := &experiment.Record{}
	for n := range plans {
		record.Causes = append(record.Causes,
			experiment.RecordedCause{AtS: from + 5*float64(n), Named: map[string]quell.Resource{id: r}})
	}
	return record
}

// A run is named by what most plans say of the instance beside the neighbour after the onset, if at least two do.
func TestNamedLive(t *testing.T) {
	sc, err := labPart{name: "dial-names-cpu"}.load()
	if err != nil {
		t.Fatal(err)
	}
	var f partFigures
	plays := [][]*experiment.Record{
		{causes("i2", quell.CPU, 41, 5)}, {causes("i2", quell.CPU, 36, 1)}, {causes("i1", quell.CPU, 41, 5)}, {causes("i2", quell.CPU, 5, 3)},
		{causes("i2", quell.Disk, 50, 4)}, {nil},
	}
	if err := named(&f, "", sc, plays); err != nil {
		t.Fatal(err)
	}
	r := f.Named
	if r.Truth != "cpu" || r.Neighbour != "a compiler" || r.Runs != 5 || !slices.Equal(r.Named, []int{0, 1, 1, 0, 3}) || r.Elsewhere != 5 {
		t.Errorf("%+v", r)
	}
	if r.Most != 4 || math.Abs(r.Periods.Mean-3) > 1e-9 { // after 3, 2 and 4 periods
		t.Errorf("periods %+v, at most %v", r.Periods, r.Most)
	}
	if r.right() != 1 || (confusionRow{Truth: "load change", Named: []int{1, 2, 3, 4, 5}}).right() != 5 {
		t.Error("counted wrongly")
	}
}

// The p90 in contention leaves out the first two periods, in which nobody can have acted.
func TestTails(t *testing.T) {
	sc, err := labPart{name: "dial-network"}.load()
	if err != nil {
		t.Fatal(err)
	}
	record := func(contended float64) *experiment.Record {
		r := &experiment.Record{}
		for at := 0.5; at < 100; at += 0.5 {
			ms := 10.0
			switch {
			case at >= 30 && at < 40:
				ms = 1000
			case at >= 40 && at < 90:
				ms = contended
			}
			r.Samples = append(r.Samples, experiment.RecordedSample{AtS: at, LatencyMS: ms, Instance: "i1"})
		}
		return r
	}
	records := make([]*experiment.Record, len(sc.Runs))
	records[0], records[4] = record(50), record(20)
	var f partFigures
	if err := tails(&f, "", sc, [][]*experiment.Record{records}); err != nil {
		t.Fatal(err)
	}
	if len(f.Tails) != 2 || f.Tails[0].Growth() != 5 || f.Tails[1].MS != 20 || f.Tails[1].Against != 0.4 || f.Tails[0].Requests != 100 {
		t.Errorf("%+v", f.Tails)
	}
}

// Every row of the confusion matrix is a scenario whose neighbours are of its kind, and no training has them.
func TestNamedScenarios(t *testing.T) {
	for _, row := range namedLive {
		sc, err := labPart{name: row.part}.load()
		if err != nil {
			t.Fatal(err)
		}
		n := sc.Timeline[0].Interfere
		if row.truth == "load change" != (n == nil) || len(sc.Runs) != 1 || sc.Workload.Application != scenario.Calendar {
			t.Errorf("%s: %+v", row.part, sc.Timeline)
		}
		if n != nil && n.Program == "" && n.Resource != quell.Resource(row.truth) {
			t.Errorf("%s: its neighbour uses %s", row.part, n.Resource)
		}
	}
}
