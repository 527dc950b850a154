package model

import (
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"
	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

// summary sums up single probes.
func summary(ms []float64) quell.ProbeStats {
	mean, stddev := stat.MeanStdDev(ms, nil)
	return quell.ProbeStats{MeanMS: mean, StddevMS: stddev, N: len(ms)}
}

// A single slow operation of a disk is no neighbour; several are.
func TestOneSlowProbeOfADisk(t *testing.T) {
	tables := map[quell.Resource][]Isolation{}
	for _, r := range []quell.Resource{quell.Disk, quell.Network} {
		tables[r] = []Isolation{{Utilization: 0.3, ProbeMS: 1, StddevMS: 0.2, N: 100}}
	}
	m := &Models{Sections: []Section{&Prima{Isolation: tables}}}
	one := append([]float64{40}, slices.Repeat([]float64{1}, 15)...)
	two := append([]float64{40, 40}, slices.Repeat([]float64{1}, 14)...)
	for _, tc := range []struct {
		why      string
		resource quell.Resource
		probes   []float64
		want     bool
	}{
		{"one of a disk's", quell.Disk, one, false},
		{"two of a disk's", quell.Disk, two, true},
		{"all of a disk's", quell.Disk, slices.Repeat([]float64{2, 3}, 8), true},
		{"one of the link's: a queue delays probes one by one", quell.Network, one, true},
	} {
		b, err := CompileBaseline(m, tc.resource, 0.99)
		if err != nil {
			t.Fatal(err)
		}
		_, got := b.Severity(0.3, summary(tc.probes), false)
		if clear := b.Clear(0.3, summary(tc.probes), 2); got != tc.want || clear != tc.want {
			t.Errorf("%s: significant %t, clear %t", tc.why, got, clear)
		}
	}
}

// What the test assumes of the probes without the slowest is never more than their mean.
func TestMeanWithoutTheSlowest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.SliceOfN(rapid.Float64Range(0.01, 1000), 2, 40).Draw(t, "probes")
		p := summary(ms)
		slices.Sort(ms)
		others := stat.Mean(ms[:len(ms)-1], nil)
		if slowWithoutSlowest(p, others*(1+1e-9)) {
			t.Fatalf("%v: the others take %v, and it assumes more", ms, others)
		}
	})
}
