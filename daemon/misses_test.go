package daemon

import (
	"bytes"
	"encoding/binary"
	"io"
	"log/slog"
	"math"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/sensor"
)

// missing counts 1,000 accesses of the last cache more at each reading, of which this part misses.
type missing struct {
	part  float64
	reads int
	open  *int
}

func (m *missing) Read(data []byte) (int, error) {
	m.reads++
	n := uint64(m.reads)
	var b []byte
	for _, word := range []uint64{2, n * 1e9, n * 1e9, uint64(1000 * m.part * float64(n)), n * 1000} {
		b = binary.NativeEndian.AppendUint64(b, word)
	}
	return copy(data, b), nil
}

func (m *missing) Close() error {
	*m.open--
	return nil
}

// Cache misses are counted of each group of a snapshot that has a reading, and no longer of groups that are gone.
func TestCacheMissesOfGroups(t *testing.T) {
	root := fstest.MapFS{
		"sys/devices/system/cpu/online":    {Data: []byte("0-1\n")},
		"proc/self/mountinfo":              {Data: []byte("31 22 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")},
		"sys/fs/cgroup/cgroup.controllers": {Data: []byte("cpu\n")},
		"sys/fs/cgroup/a/cpu.stat":         {Data: []byte("usage_usec 5\n")},
		"sys/fs/cgroup/b/cpu.stat":         {Data: []byte("usage_usec 5\n")},
	}
	open, parts := 0, map[string]float64{"sys/fs/cgroup/a": 0.1, "sys/fs/cgroup/b": 0.3}
	o := sensor.Options{Root: root, Events: func(pair sensor.Pair, _ int, folder string) (io.ReadCloser, error) {
		if pair != sensor.Cache || parts[folder] == 0 {
			return nil, syscall.EINVAL
		}
		open++
		return &missing{part: parts[folder], open: &open}, nil
	}}
	m := misses{log: slog.New(slog.DiscardHandler)}
	path := func(id string) string { return "/" + id }
	at := time.Unix(1e9, 0)
	sample := func(ids ...string) quell.Snapshot {
		var s quell.Snapshot
		for _, id := range ids {
			s.Instances = append(s.Instances, quell.Instance{ID: id, Observation: &quell.Observation{}})
		}
		s.Instances = append(s.Instances, quell.Instance{ID: "new"})
		at = at.Add(time.Second)
		if failures := m.add(at, &s, path, o); len(failures) > 0 {
			t.Fatal(failures)
		}
		return s
	}
	sample("a", "b")
	s := sample("a", "b")
	for i, want := range []float64{0.1, 0.3} {
		if got := s.Instances[i].Observation.Counters[quell.CounterMissRate]; math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v, want %v", s.Instances[i].ID, got, want)
		}
	}
	if sample("b"); open != 2 {
		t.Errorf("%d counters are open for one group on two processors", open)
	}
	if m.close(); open != 0 {
		t.Errorf("%d counters are still open", open)
	}
}

// On a machine without such counters the agent says so once, and nothing fails.
func TestCacheMissesThatAreNotCounted(t *testing.T) {
	root := fstest.MapFS{
		"sys/devices/system/cpu/online":    {Data: []byte("0\n")},
		"proc/self/mountinfo":              {Data: []byte("31 22 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")},
		"sys/fs/cgroup/cgroup.controllers": {Data: []byte("cpu\n")},
		"sys/fs/cgroup/a/cpu.stat":         {Data: []byte("usage_usec 5\n")},
	}
	var log bytes.Buffer
	m := misses{log: slog.New(slog.NewTextHandler(&log, nil))}
	o := sensor.Options{Root: root, Events: func(sensor.Pair, int, string) (io.ReadCloser, error) { return nil, syscall.ENOENT }}
	for k := range 3 {
		s := quell.Snapshot{Instances: []quell.Instance{{ID: "a", Observation: &quell.Observation{}}}}
		if failures := m.add(time.Unix(int64(k), 0), &s, func(string) string { return "/a" }, o); len(failures) > 0 {
			t.Error(failures)
		}
	}
	if n := strings.Count(log.String(), "cache misses of control groups are not counted"); n != 1 {
		t.Errorf("said %d times: %s", n, &log)
	}
}
