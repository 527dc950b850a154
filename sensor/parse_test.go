package sensor

import (
	"maps"
	"math"
	"os"
	"strings"
	"testing"
)

func TestParseNetDev(t *testing.T) {
	const columns = " 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"
	for _, c := range []struct {
		name, text string
		want       map[string]traffic
		fails      string
	}{
		{"headings only", "a | b\nc | d\n", map[string]traffic{}, ""},
		{"no space after the colon", "eth0:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n", map[string]traffic{"eth0": {1, 9}}, ""},
		{"an alias", "eth0:1:" + columns, map[string]traffic{"eth0:1": {1, 9}}, ""},
		{"the last line lacks its end", "a:" + columns + "\nb:" + columns, map[string]traffic{"a": {1, 9}, "b": {1, 9}}, ""},
		{"too few columns", "\neth0: 1 2 3\n", nil, "line 2: want a name and 16 counters"},
		{"no name", ":" + columns, nil, "line 1"},
		{"no colon", "eth0 1 2 3\n", nil, "line 1: no colon"},
		{"negative", "eth0: -1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n", nil, `reading the bytes of "eth0"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseNetDev([]byte(c.text))
			mustSay(t, err, c.fails)
			if !maps.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestParseRoute(t *testing.T) {
	const head = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
	for _, c := range []struct{ name, text, want, fails string }{
		{"lowest metric wins", head + "b 00000000 1 0003 0 0 600 00000000\na 00000000 1 0003 0 0 100 00000000\n", "a", ""},
		{"the first of equals wins", head + "b 00000000 1 0003 0 0 0 00000000\na 00000000 1 0003 0 0 0 00000000\n", "b", ""},
		{"half of everything is no default route", head + "vpn 00000000 1 0003 0 0 0 00000080\na 0000000A 0 0001 0 0 0 000000FF\n", "", ""},
		{"no default route, one interface", head + "a 0000000A 0 0001 0 0 0 000000FF\na 0000010A 0 0001 0 0 0 00FFFFFF\n", "a", ""},
		{"no default route, and one of two interfaces is down", head + "b 0000000A 0 0000 0 0 0 000000FF\na 0000010A 0 0001 0 0 0 00FFFFFF\n",
			"a", ""},
		{"a route that is down", head + "a 00000000 1 0002 0 0 0 00000000\n", "", ""},
		{"a route that rejects", head + "a 00000000 1 0201 0 0 0 00000000\n", "", ""},
		{"empty", "", "", ""},
		{"too few columns", head + "a 00000000\n", "", "line 2: want at least 8 columns"},
		{"broken flags", head + "a 00000000 1 zz 0 0 0 00000000\n", "", "line 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseRoute([]byte(c.text))
			mustSay(t, err, c.fails)
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestParseSpeed(t *testing.T) {
	for text, want := range map[string]float64{"1000\n": 1e9, "40": 40e6, "-1\n": 0, "0": 0, "": 0, "fast": 0} {
		got, err := parseSpeed([]byte(text))
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: got %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestParseStat(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       cpuTicks
		fails      string
	}{
		{"nice is user, interrupts are system, guests are left out", "cpu 1 2 4 8 16 32 64 128 256 512\ncpu0 1\ncpu1 1\nintr 5\n",
			cpuTicks{user: 3, system: 100, idle: 8, iowait: 16, steal: 128, cores: 2}, ""},
		{"no steal column", "cpu 1 2 4 8 16 32 64\ncpu0 1\n", cpuTicks{}, "line 1: want at least 8 columns"},
		{"no sum", "cpu0 1 2 3\n", cpuTicks{}, "no line for all processors"},
		{"no cores", "cpu 1 2 4 8 16 32 64 128\n", cpuTicks{}, "no line for all processors"},
		{"not a number", "cpu 1 x 4 8 16 32 64 128\ncpu0 1\n", cpuTicks{}, "line 1"},
		{"absurd", "cpu 18446744073709551615 1 4 8 16 32 64 128\ncpu0 1\n", cpuTicks{}, "out of range"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseStat([]byte(c.text))
			mustSay(t, err, c.fails)
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestParsePressure(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       float64
		fails      string
	}{
		{"some, not full", "full avg10=9.00 avg60=0\nsome avg10=1.50 avg60=0\n", 0.015, ""},
		{"only full", "full avg10=9.00\n", 0, `no line "some"`},
		{"another average first", "some avg60=9.00\n", 0, "want avg10"},
		{"not a number", "some avg10=x\n", 0, "parsing"},
		{"NaN", "some avg10=NaN\n", 0, "no percentage"},
		{"above all", "some avg10=101\n", 0, "no percentage"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parsePressure([]byte(c.text))
			mustSay(t, err, c.fails)
			if math.Abs(got-c.want) > 1e-12 {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func mustSay(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Fatalf("error %v, want one that says %q", err, want)
	}
}

func seed(f *testing.F, file string) {
	text, err := os.ReadFile("testdata/after/" + file)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
}

func FuzzParseNetDev(f *testing.F) {
	seed(f, "proc/net/dev")
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := parseNetDev(text)
		if _, unnamed := got[""]; unnamed || err != nil && got != nil {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

func FuzzParseRoute(f *testing.F) {
	seed(f, "proc/net/route")
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, err := parseRoute(text); err != nil && got != "" || !strings.Contains(string(text), got) {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

func FuzzParseSpeed(f *testing.F) {
	seed(f, "sys/class/net/eth0/speed")
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, err := parseSpeed(text); (err == nil) != (got > 0) || math.IsInf(got, 0) {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

func FuzzParseStat(f *testing.F) {
	seed(f, "proc/stat")
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := parseStat(text)
		if err != nil {
			return
		}
		if got.cores < 1 || got.total() < max(got.user, got.system, got.idle, got.iowait, got.steal) {
			t.Errorf("got %+v", got)
		}
	})
}

func FuzzParsePressure(f *testing.F) {
	seed(f, "proc/pressure/cpu")
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, err := parsePressure(text); err == nil && !(got >= 0 && got <= 1) {
			t.Errorf("got %v", got)
		}
	})
}
