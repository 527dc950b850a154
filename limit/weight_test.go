package limit

import (
	"errors"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/need"
)

func weightOf(group string, value float64) map[Target]float64 {
	return map[Target]float64{TargetOf(group, quell.Limit{Resource: quell.CPU, Unit: quell.WeightUnit}): value}
}

func TestWeights(t *testing.T) {
	for _, c := range []struct{ name, mounts, file, usual, third, most string }{
		{"version 2", mounts2, "web/cpu.weight", "100", "33", "10000"},
		{"version 1", mounts1, "cpu/web/cpu.shares", "1024", "341", "262144"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fakeTree(t, c.mounts, map[string]string{c.file: c.usual})
			l := New(f.Options)
			for value, text := range map[float64]string{1. / 3: c.third, 1e6: c.most} {
				wantNone(t, l.Apply(weightOf("/web", value)))
				f.want(c.file, text)
			}
			list, err := Show(f.Options)
			if err != nil || len(list) != 1 || list[0].Form != Weight || list[0].Before != c.usual {
				t.Errorf("shown: %+v, %v", list, err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			f.want(c.file, c.usual)
			wantRecords(t, f.Options, 0)

			f.put(filepath.Join("sys/fs/cgroup", c.file), "77")
			wantOne(t, New(f.Options).Apply(weightOf("/web", 2)), "times the usual weight that somebody else set")
			f.want(c.file, "77")
		})
	}
}

// A quota and a weight of the same group do not disturb each other.
func TestQuotaBesideWeight(t *testing.T) {
	f := fakeTree(t, mounts2, map[string]string{"web/cpu.max": "max 100000", "web/cpu.weight": "100"})
	quotas, weights := New(f.Options), New(f.Options)
	wantNone(t, quotas.Apply(cpuOf("/web", 0.5)))
	wantNone(t, weights.Apply(weightOf("/web", 0.5)))
	f.want("web/cpu.max", "50000 100000")
	f.want("web/cpu.weight", "50")
	wantRecords(t, f.Options, 2)
	if err := errors.Join(quotas.Close(), weights.Close()); err != nil {
		t.Error(err)
	}
	f.want("web/cpu.max", "max 100000")
	f.want("web/cpu.weight", "100")
}

// Weights that the kernel can tell apart stay what they are when they are read and written again.
func TestWeightsAreWhatTheKernelAccepts(t *testing.T) {
	for _, w := range []*weight{{nil, "cpu.weight", 100, 1, 10000}, {nil, "cpu.shares", 1024, 2, 262144}} {
		rapid.Check(t, func(t *rapid.T) {
			s := w.to(rapid.Float64Range(1e-6, 1e6).Draw(t, "value"), "")
			value, _ := w.value(s)
			if value < w.least/w.usual || value > w.most/w.usual || w.to(value, s) != s {
				t.Fatalf("%q, %v", s, value)
			}
		})
	}
}

func TestThisMachinesWeights(t *testing.T) {
	name, o := group(t)
	k, err := o.filled().kind(Target{Resource: quell.CPU, Form: Weight})
	if err != nil {
		need.Skip(t, err.Error())
	}
	before, err := k.read(name)
	if err != nil {
		need.Skip(t, err.Error())
	}
	l := New(o)
	for _, value := range []float64{0.5, 0.01, 100, 2} {
		wantNone(t, l.Apply(weightOf(name, value)))
		if now, limited := k.value(must(k.read(name))); !limited || now < 0.9*value || now > 1.1*value {
			t.Errorf("weight %v became %v", value, now)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if after, err := k.read(name); err != nil || after != before {
		t.Errorf("%q was there, and now %q, %v", before, after, err)
	}
}
