package setting

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestUnits(t *testing.T) {
	share := func(s string) (float64, error) { return parseShare(s) }
	size := func(s string) (float64, error) { n, err := parseSize(s); return float64(n), err }
	seconds := func(s string) (float64, error) { d, err := parseDuration(s); return d.Seconds(), err }
	bad := math.NaN()
	for _, c := range []struct {
		what  string
		parse func(string) (float64, error)
		text  string
		want  float64 // NaN: the text is refused
	}{
		{"share", share, "5%", 0.05}, {"share", share, "0.05", 0.05}, {"share", share, "2.5 %", 0.025}, {"share", share, "0", 0},
		{"share", share, "-1%", -0.01}, {"share", share, "%", bad}, {"share", share, "5%%", bad}, {"share", share, "five", bad},
		{"share", share, "NaN", bad}, {"share", share, "inf", bad}, {"share", share, "1e999", bad}, {"share", share, "1_0", bad},
		{"share", share, "0x1p4", bad}, {"share", share, "", bad},
		{"bandwidth", parseBandwidth, "40Mbps", 40e6}, {"bandwidth", parseBandwidth, "1Gbps", 1e9},
		{"bandwidth", parseBandwidth, "2.5 Gbit/s", 2.5e9}, {"bandwidth", parseBandwidth, "64kbps", 64e3},
		{"bandwidth", parseBandwidth, "64Kbps", 64e3}, {"bandwidth", parseBandwidth, "9bps", 9},
		{"bandwidth", parseBandwidth, "40MBps", bad}, {"bandwidth", parseBandwidth, "40", bad},
		{"bandwidth", parseBandwidth, "40mbps", bad}, {"bandwidth", parseBandwidth, "Mbps", bad},
		{"bandwidth", parseBandwidth, "1e308Gbps", bad},
		{"size", size, "50KB", 50e3}, {"size", size, "50kB", 50e3}, {"size", size, "50KiB", 51200}, {"size", size, "64MiB", 64 << 20},
		{"size", size, "1.5GB", 1.5e9}, {"size", size, "7B", 7}, {"size", size, "7", 7}, {"size", size, "0", 0},
		{"size", size, "1.5B", bad}, {"size", size, "50K", bad}, {"size", size, "9999999999GB", bad}, {"size", size, "B", bad},
		{"duration", seconds, "75ms", 0.075}, {"duration", seconds, "1h30m", 5400}, {"duration", seconds, "0", 0},
		{"duration", seconds, "-1s", -1}, {"duration", seconds, "10", bad}, {"duration", seconds, "1d", 86400},
		{"duration", seconds, "1d12h", 129600}, {"duration", seconds, "0.5d", 43200}, {"duration", seconds, "-1d1h", -90000},
		{"duration", seconds, "99999999h", bad}, {"duration", seconds, "99999999d", bad}, {"duration", seconds, "1d-1h", bad},
		{"duration", seconds, "1d25h", bad}, {"duration", seconds, "d", bad}, {"duration", seconds, "1day", bad},
		{"duration", seconds, "1d5", bad},
	} {
		got, err := c.parse(c.text)
		if refused := math.IsNaN(c.want); refused != (err != nil) || !refused && math.Abs(got-c.want) > 1e-12*math.Abs(c.want) {
			t.Errorf("%s %q: got %v, %v, want %v", c.what, c.text, got, err, c.want)
		}
	}
}

// TestWrittenValuesReadBack checks that messages and the reference write values in a form that files accept.
func TestWrittenValuesReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, maxSize).Draw(t, "bytes")
		if got, err := parseSize(FormatSize(n)); err != nil || got != n {
			t.Fatalf("%d bytes are written %q and read as %d, %v", n, FormatSize(n), got, err)
		}
		x := float64(rapid.Int64Range(0, 1e12).Draw(t, "bit/s"))
		if got, err := parseBandwidth(formatBandwidth(x)); err != nil || math.Abs(got-x) > 1e-9*x {
			t.Fatalf("%v bit/s are written %q and read as %v, %v", x, formatBandwidth(x), got, err)
		}
		d := time.Duration(rapid.Int64Range(-1e15, 1e15).Draw(t, "ns"))
		if got, err := parseDuration(FormatDuration(d)); err != nil || got != d {
			t.Fatalf("%v is written %q and read as %v, %v", d, FormatDuration(d), got, err)
		}
		share := rapid.Float64Range(0, 2).Draw(t, "share")
		if got, err := parseShare(FormatShare(share)); err != nil || got != share {
			t.Fatalf("%v is written %q and read as %v, %v", share, FormatShare(share), got, err)
		}
	})
}

func TestFormat(t *testing.T) {
	for want, got := range map[string]string{
		"10s": FormatDuration(10 * time.Second), "1h": FormatDuration(time.Hour), "5m": FormatDuration(5 * time.Minute),
		"1h30m": FormatDuration(90 * time.Minute), "20m": FormatDuration(20 * time.Minute), "0s": FormatDuration(0),
		"64MiB": FormatSize(64 << 20), "50KB": FormatSize(50_000), "0B": FormatSize(0), "1B": FormatSize(1),
		"40Mbps": formatBandwidth(40e6), "2.5Gbps": formatBandwidth(2.5e9), "0bps": formatBandwidth(0),
		"5%": FormatShare(0.05), "2.5%": FormatShare(0.025), "95%": FormatShare(0.95),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"threshold", "metric", "min", "max", "scale_in_margin"}
	for word, want := range map[string]string{
		"treshold": "threshold", "threshhold": "threshold", "thresohld": "threshold", "Metric": "metric",
		"mn": "min", "mxa": "max", "scale-in-margin": "scale_in_margin", "colour": "", "": "", "zzz": "",
	} {
		if got, ok := Nearest(word, known); got != want || ok != (want != "") {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"abc", "abc", 0}, {"abc", "", 3}, {"", "abc", 3}, {"abc", "abd", 1}, {"abc", "acb", 1},
		{"kitten", "sitting", 3}, {"ca", "abc", 3},
	} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("from %q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
