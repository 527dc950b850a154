package accesslog

import (
	"strings"
	"testing"

	"github.com/quellhq/quell/balancer/measure"
)

// TestLines has lines as nginx writes them, and what they count as at each server.
func TestLines(t *testing.T) {
	const one, two = "10.0.0.1:80", "10.0.0.2:80"
	for _, c := range []struct{ why, line, want string }{
		{"a response", "10.0.0.1:80\t0.001\t0.010\t0.012\t200\t200\t0.013\tOK\ttext/html\t/a", one + " response 12ms"},
		{"a long path that was cut off", "10.0.0.1:80\t0.001\t0.010\t0.012\t200\t200\t0.013\tOK\ttext/html\t/aaaa", one + " response 12ms"},
		{"an answer of the cache", "-\t-\t-\t-\t-\t200\t0.000\tOK\ttext/html\t/a", ""},
		{"no server is left", "web\t-\t-\t0.000\t502\t502\t0.000\tOK\ttext/html\t/a", ""},
		{"no server is left after one", "10.0.0.1:80, web\t-, -\t-, -\t0.000, 0.000\t502, 502\t502\t0.000\tOK\ttext/html\t/a", one + " failure"},
		{"a failure", "10.0.0.1:80\t0.001\t0.010\t0.012\t500\t500\t0.013\tOK\ttext/html\t/a", one + " failure"},
		{"no connection", "10.0.0.1:80\t-\t-\t0.000\t502\t502\t0.000\tOK\ttext/html\t/a", one + " failure"},
		{"no answer in time", "10.0.0.1:80\t0.000\t-\t60.001\t504\t504\t60.001\tOK\ttext/html\t/a", one + " failure"},
		{"the next server", "10.0.0.1:80, 10.0.0.2:80\t-, 0.001\t-, 0.003\t0.000, 0.004\t502, 200\t200\t0.004\tOK\ttext/html\t/a",
			one + " moved; " + two + " demand only"},
		{"it had the request", "10.0.0.1:80, 10.0.0.2:80\t0.001, 0.001\t-, 0.003\t1.000, 0.004\t504, 200\t200\t1.004\tOK\ttext/html\t/a",
			one + " failure; " + two + " demand only"},
		{"an internal redirect", "10.0.0.1:80 : 10.0.0.2:80\t0.001 : 0.001\t0.002 : 0.003\t0.002 : 0.004\t404 : 200\t200\t0.007\tOK\t-\t/a",
			one + " response; " + two + " demand only"},
		{"shed", "10.0.0.1:80\t0.001\t0.002\t0.002\t503\t503\t0.002\tOK\ttext/html\t/a", one + " shed"},
		{"a quick cancel", "10.0.0.1:80\t0.001\t-\t0.018\t-\t499\t0.018\t\t-\t/a", one + " demand only"},
		{"a client that waited long", "10.0.0.1:80\t0.001\t-\t5.018\t-\t499\t5.018\t\t-\t/a", one + " failure"},
		{"a download that was broken off", "10.0.0.1:80\t0.001\t0.002\t0.300\t200\t200\t0.300\t\t-\t/a", one + " demand only"},
		{"events", "10.0.0.1:80\t0.001\t0.002\t30.000\t200\t200\t30.000\tOK\ttext/event-stream\t/a", one + " demand only"},
		{"a WebSocket", "10.0.0.1:80\t0.001\t0.002\t30.000\t101\t101\t30.000\tOK\t-\t/a", one + " demand only"},
	} {
		l, err := parseLine([]byte("<190>Nov 26 02:20:00 nginx: " + formatMark + c.line))
		if err != nil {
			t.Errorf("%s: %v", c.why, err)
			continue
		}
		var got []string
		attempts := l.given()
		for i, a := range attempts {
			switch verdict := measure.Judge(l.ending(&a, i > 0)); {
			case i < len(attempts)-1 && !a.connected:
				got = append(got, a.server+" moved")
			case i < len(attempts)-1:
				got = append(got, a.server+" "+a.verdict().String())
			case verdict == measure.Response:
				got = append(got, a.server+" response "+a.all.String())
			default:
				got = append(got, a.server+" "+verdict.String())
			}
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s: %s, want %s", c.why, text, c.want)
		}
		if (l.unserved() == "web") != (c.why == "no server is left") {
			t.Errorf("%s: without a server: %q", c.why, l.unserved())
		}
	}
	for _, line := range []string{"", "GET / HTTP/1.1", formatMark, formatMark + "a\tb\tc\td\te\tf\tg\th\ti\tj",
		formatMark + "a, b\t1\t1\t1\t1\t200\t1\tOK\t-\t/"} {
		if _, err := parseLine([]byte(line)); err == nil {
			t.Errorf("%q was read", line)
		}
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add("quell1\t10.0.0.1:80\t0.001\t0.010\t0.012\t200\t200\t0.013\tOK\ttext/html\t/a")
	f.Add("quell1\t[::1]:80, unix:/a\t-, -\t-, -\t-, -\t-, -\t0\t-\t\t\t")
	f.Fuzz(func(t *testing.T, line string) {
		l, err := parseLine([]byte(line))
		if err != nil {
			return
		}
		attempts := l.given()
		for i := range attempts {
			if a := &attempts[i]; a.all < 0 || a.first < 0 || a.connect < 0 {
				t.Fatalf("%q: negative times %+v", line, a)
			}
			measure.Judge(l.ending(&attempts[i], i > 0))
		}
	})
}
