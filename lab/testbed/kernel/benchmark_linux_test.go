package kernel

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/need"
)

// A benchmark gets no more than the host's limit, ends with its context, and leaves nothing that runs. The network has none.
func TestBenchmark(t *testing.T) {
	need.Root(t)
	need.Program(t, "fio")
	need.Program(t, "stress-ng")
	const limit = 100
	l := newLab(t, Options{Hosts: []Host{{ID: "h1", Cores: 0.5, DiskIOPS: limit}}})
	m := l.Machine("h1")
	// A limit is kept in slices of 100 ms, so a second may have one slice more.
	if got, err := m.Benchmark(t.Context(), quell.Disk, time.Second); err != nil || got <= 0 || got > 1.2*limit {
		t.Errorf("%v reads per second, %v: want at most %d", got, err, limit)
	}
	if got, err := m.Benchmark(t.Context(), quell.CPU, time.Second); err != nil || got <= 0 {
		t.Errorf("%v rounds per second, %v", got, err)
	}
	var user *quell.UserError
	if _, err := m.Benchmark(t.Context(), quell.Network, time.Second); !errors.As(err, &user) {
		t.Errorf("network: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Benchmark(ctx, quell.Disk, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// What the programs print is read, and an incomplete text is an error.
func TestBenchmarkTexts(t *testing.T) {
	stress := "---\nsystem-info:\n      run-by: root\n\nmetrics:\n    - stressor: stream\n      bogo-ops: 75\n" +
		"      bogo-ops-per-second-usr-sys-time: 68.333145\n      bogo-ops-per-second-real-time: 36.917699\n\n...\n"
	if got, err := readStress([]byte(stress)); err != nil || got != 36.917699 {
		t.Errorf("stress-ng: %v, %v", got, err)
	}
	fio := `{"fio version": "fio-3.33", "jobs": [{"jobname": "benchmark", "read": {"iops": 400.5}, "write": {"iops": 0}}]}`
	if got, err := readFio([]byte(fio)); err != nil || got != 400.5 {
		t.Errorf("fio: %v, %v", got, err)
	}
	for _, bad := range []string{"", "{}", "\x00"} {
		if got, err := readStress([]byte(bad)); err == nil {
			t.Errorf("stress-ng, %q: %v", bad, got)
		}
		if got, err := readFio([]byte(bad)); err == nil {
			t.Errorf("fio, %q: %v", bad, got)
		}
	}
}
