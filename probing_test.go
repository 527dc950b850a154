package quell_test

import (
	"testing"

	"github.com/quellhq/quell"
)

func TestProbingsAreAlike(t *testing.T) {
	for _, c := range []struct {
		why   string
		a, b  *quell.Probing
		alike bool
	}{
		{"downloads of nearly equal size", &quell.Probing{Bytes: 100}, &quell.Probing{Bytes: 104}, true},
		{"downloads of different sizes", &quell.Probing{Bytes: 100}, &quell.Probing{Bytes: 110}, false},
		{"computations of equal length", &quell.Probing{RunMS: 0.5, Count: 8}, &quell.Probing{RunMS: 0.51, Count: 80}, true},
		{"computations of different lengths", &quell.Probing{RunMS: 0.5}, &quell.Probing{RunMS: 0.25}, false},
		{"a read and a write", &quell.Probing{Bytes: 4096}, &quell.Probing{Bytes: 4096, Write: true}, false},
		{"one that is not known", nil, &quell.Probing{RunMS: 1}, true},
	} {
		if c.a.Alike(c.b) != c.alike || c.b.Alike(c.a) != c.alike {
			t.Errorf("%s: want alike %t", c.why, c.alike)
		}
	}
}

func TestProbingSaysWhatAProbeTakes(t *testing.T) {
	for want, by := range map[string]quell.Probing{
		"25000 bytes":                 {Bytes: 25_000},
		"0.5 ms of computing":         {RunMS: 0.5},
		"synced writes of 4096 bytes": {Bytes: 4096, Write: true},
	} {
		if got := by.Size(); got != want || !by.Sound() {
			t.Errorf("%+v: %q, sound %t", by, got, by.Sound())
		}
	}
	if (&quell.Probing{Count: 8}).Sound() || (&quell.Probing{Bytes: -1, RunMS: 2}).Sound() {
		t.Error("a probing of nothing is sound")
	}
}
