package sensor

import (
	"fmt"
	"io/fs"
	"maps"
	"math"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/quellhq/quell"
)

// spender is a machine with one processor that has used, sent, received and read so much.
func spender(ticks, sent, received, reads int) fstest.MapFS {
	return fstest.MapFS{
		"proc/stat": {Data: fmt.Appendf(nil, "cpu  %d 0 0 900 0 0 0 0 0 0\ncpu0 %d 0 0 900 0 0 0 0 0 0\n", ticks, ticks)},
		"proc/net/route": {Data: []byte("Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n" +
			"eth0 00000000 0100000A 0003 0 0 0 00000000 0 0 0\n")},
		"proc/net/dev":   {Data: fmt.Appendf(nil, " Inter-| Receive | Transmit\n eth0: %d 0 0 0 0 0 0 0 %d 0 0 0 0 0 0 0\n", received, sent)},
		"proc/diskstats": {Data: fmt.Appendf(nil, " 8 0 sda %d 0 8 1 2 0 8 1 0 1 1\n 8 16 sdb 999 0 8 1 2 0 8 1 0 1 1\n", reads)},
		"proc/net/tcp": {Data: []byte("  sl  local_address rem_address   st\n   0: 0100007F:0015 00000000:0000 0A 0\n" +
			"   1: 0100007F:0015 0200007F:D431 01 0\n   2: 0100007F:D431 0100007F:0015 01 0\n")},
		"proc/net/tcp6": {Data: []byte("  sl  local_address rem_address   st\n   0: 00000000000000000000000001000000:0015 0:1 01 0\n")},
	}
}

func TestSpending(t *testing.T) {
	m := &machine{spender(100, 1000, 500, 40)}
	s := NewSpending(SpendingOptions{Options: Options{Root: m}, Disk: "8:0", Port: 21})
	var first quell.Observation
	if err := s.Sample(start, &first); err != nil {
		t.Fatal(err)
	}
	if want := map[string]float64{quell.CounterConnections: 2}; !maps.Equal(first.Counters, want) {
		t.Errorf("the first sample has %v, want %v", first.Counters, want)
	}
	m.FS = spender(250, 126_000, 500, 140)
	var obs quell.Observation
	if err := s.Sample(start.Add(2*time.Second), &obs); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{quell.CounterProcessors: 0.75, CounterTx: 500_000, CounterRx: 0, quell.CounterOperations: 50,
		quell.CounterConnections: 2} {
		if got, ok := obs.Counters[name]; !ok || math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v (%t), want %v", name, got, ok, want)
		}
	}
}

// What cannot be read is missing, and the rest is there. Counters that went back give no figures.
func TestSpendingWithoutSomeFiles(t *testing.T) {
	for _, c := range []struct {
		why, removed, absent, says string
	}{
		{"no processors", "proc/stat", quell.CounterProcessors, "reading processor times"},
		{"no default route", "proc/net/route", CounterTx, ""},
		{"no network counters", "proc/net/dev", CounterTx, "reading network counters"},
		{"no disks", "proc/diskstats", quell.CounterOperations, "reading disk counters"},
		{"no sockets", "proc/net/tcp", quell.CounterConnections, "counting connections"},
		{"no IPv6", "proc/net/tcp6", "", ""},
	} {
		tree := spender(200, 2000, 2000, 50)
		delete(tree, c.removed)
		m := &machine{tree}
		s := NewSpending(SpendingOptions{Options: Options{Root: m}, Disk: "8:0", Port: 21})
		_ = s.Sample(start, &quell.Observation{})
		var obs quell.Observation
		err := s.Sample(start.Add(time.Second), &obs)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.why, err)
		}
		if _, there := obs.Counters[c.absent]; there || len(obs.Counters) < 3 {
			t.Errorf("%s: %v", c.why, obs.Counters)
		}
	}
	m := &machine{spender(200, 2000, 2000, 50)}
	s := NewSpending(SpendingOptions{Options: Options{Root: m}})
	var obs quell.Observation
	for i, tree := range []fs.FS{m.FS, spender(100, 1000, 1000, 0)} {
		m.FS = tree
		if err := s.Sample(start.Add(time.Duration(i)*time.Second), &obs); err != nil || len(obs.Counters) > 0 {
			t.Errorf("sample %d: %v, %v", i, obs.Counters, err)
		}
	}
}

func FuzzParseConnections(f *testing.F) {
	f.Add([]byte("heading\n 1: 0:0015 0:0 01\n"), 21)
	f.Add([]byte("heading\n 1: 0 0:0\n"), 0)
	f.Fuzz(func(t *testing.T, text []byte, port int) {
		if n, err := parseConnections(text, port); n < 0 || err != nil && n != 0 {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// When the default route moves to another interface, the difference between the two is no traffic.
func TestSpendingOfARouteThatMoves(t *testing.T) {
	first := spender(100, 1_000, 500, 0)
	second := spender(200, 0, 0, 0)
	second["proc/net/route"].Data = []byte(strings.ReplaceAll(string(second["proc/net/route"].Data), "eth0", "wg0"))
	second["proc/net/dev"].Data = append(second["proc/net/dev"].Data, " wg0: 9000000 0 0 0 0 0 0 0 9000000 0 0 0 0 0 0 0\n"...)
	m := &machine{first}
	s := NewSpending(SpendingOptions{Options: Options{Root: m}})
	for i, tree := range []fs.FS{first, second, second, first} {
		m.FS = tree
		obs := quell.Observation{}
		if err := s.Sample(start.Add(time.Duration(i)*time.Second), &obs); err != nil {
			t.Fatal(err)
		}
		if rate, told := obs.Counters[quell.CounterSent]; told != (i == 2) || rate > 0 {
			t.Errorf("sample %d: %v bit/s, %v", i, rate, told)
		}
	}
}
