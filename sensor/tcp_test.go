package sensor

import (
	"io/fs"
	"math"
	"testing"
	"testing/fstest"
	"time"

	"github.com/quellhq/quell"
)

// snmp is a machine that has sent this many segments again.
func snmp(segments string) fs.FS {
	return fstest.MapFS{"proc/net/snmp": {Data: []byte("Ip: Forwarding DefaultTTL\nIp: 1 64\n" +
		"Tcp: RtoAlgorithm MaxConn OutSegs RetransSegs InErrs\nTcp: 1 -1 900 " + segments + " 0\nUdp: InDatagrams\nUdp: 3\n")}}
}

func TestTCP(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after fs.FS
		want          float64 // -1: absent
		fails         string
	}{
		{"some", snmp("100"), snmp("125"), 2.5, ""},
		{"none", snmp("100"), snmp("100"), 0, ""},
		{"the namespace is new", snmp("100"), snmp("3"), -1, "went back"},
		{"the file is gone", snmp("100"), fstest.MapFS{}, -1, "reading TCP counters: open proc/net/snmp"},
		{"not a number", snmp("100"), snmp("many"), -1, "parsing /proc/net/snmp"},
		{"the column is gone", snmp("100"), fstest.MapFS{"proc/net/snmp": {Data: []byte("Tcp: A\nTcp: 1\n")}}, -1, "no number of RetransSegs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &machine{c.before}
			sensor := NewTCP(Options{Root: m})
			var obs quell.Observation
			if err := sensor.Sample(start, &obs); err != nil || obs.TCP != nil {
				t.Fatalf("the first sample is a reading: %v, %v", obs.TCP, err)
			}
			m.FS = c.after
			mustSay(t, sensor.Sample(start.Add(10*time.Second), &obs), c.fails)
			got, ok := obs.TCP[RetransmitRate]
			if ok != (c.want >= 0) || ok && math.Abs(got-c.want) > 1e-9 {
				t.Errorf("%v (present: %t), want %v", got, ok, c.want)
			}
		})
	}
}

// A sensor of differences begins anew after a failure, and never divides by zero.
func TestTCPBeginsAnew(t *testing.T) {
	m := &machine{snmp("100")}
	sensor := NewTCP(Options{Root: m})
	var obs quell.Observation
	for i, c := range []struct {
		tree  fs.FS
		at    time.Duration
		fails string
	}{
		{snmp("100"), 0, ""}, {snmp("110"), 0, "or the clock, went back"}, {fstest.MapFS{}, time.Second, "reading TCP counters"},
		{snmp("1000"), 2 * time.Second, ""},
	} {
		m.FS = c.tree
		mustSay(t, sensor.Sample(start.Add(c.at), &obs), c.fails)
		if obs.TCP != nil {
			t.Fatalf("step %d reports %v", i, obs.TCP)
		}
	}
	m.FS = snmp("1004")
	if err := sensor.Sample(start.Add(4*time.Second), &obs); err != nil || obs.TCP[RetransmitRate] != 2 {
		t.Errorf("%v, %v; want 2 per second", obs.TCP, err)
	}
}

func FuzzParseRetransmitted(f *testing.F) {
	seed(f, "proc/net/snmp")
	f.Add([]byte("Tcp: RetransSegs\nTcp:\n"))
	f.Add([]byte("Tcp: RetransSegs\nTcp: -1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, err := parseRetransmitted(text); err != nil && got != 0 {
			t.Errorf("got %v, %v", got, err)
		}
	})
}
