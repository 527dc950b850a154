package accesslog

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/measure"
)

const response = formatMark + "10.0.0.1:80, [::ffff:10.0.0.2]:80\t-, 0.001\t-, 0.003\t0.000, 0.004\t502, 200\t200\t0.004\tOK\ttext/html\t/a"

// What is missing is said until it is there.
func TestLogSaysWhatIsMissing(t *testing.T) {
	l := &Log{recorder: measure.NewRecorder(balancer.Service{Period: time.Second}, nil)}
	for _, c := range []struct {
		why     string
		message string
		busy    bool
		want    string
	}{
		{"no requests", "", false, ""},
		{"requests, and no log", "", true, "no line of its log arrived"},
		{"another format", "<190>Nov 26 02:20:00 nginx: 127.0.0.1 - - \"GET / HTTP/1.1\" 200", true, "1 of 1 lines"},
		{"a long line", strings.Repeat("ü", 1000), true, strings.Repeat("ü", 120) + "..."},
		{"the right format", response, true, ""},
		{"a quiet period after it", "", true, ""},
	} {
		if c.message != "" {
			l.hear([]byte(c.message))
		}
		l.judge(c.busy)
		if err := l.Err(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.why, err, c.want)
		}
	}
	l, err := Listen("", "", balancer.Service{}, nil)
	if err != nil || l.Err() == nil || !strings.Contains(l.Err().Error(), "balancer.nginx.log is not set") {
		t.Errorf("without a log: %v, %v", err, l.Err())
	}
	if _, err := Listen(t.TempDir()+"/missing/socket", "", balancer.Service{}, nil); err == nil {
		t.Error("a socket in a folder that is not there was opened")
	}
}

// Requests that found no server are this service's if their upstream is. If its name is not configured, that is not known any more as soon
// as a second one had none.
func TestWhoseUpstreamIsEmpty(t *testing.T) {
	for _, c := range []struct {
		configured string
		empty      []string
		want       float64
	}{
		{"shop", []string{"shop", "other", "shop"}, 2},
		{"shop", []string{"other"}, 0},
		{"", []string{"shop", "shop"}, 2},
		{"", []string{"shop", "other", "other", "shop"}, 1},
	} {
		var lines []string
		for _, name := range c.empty {
			lines = append(lines, formatMark+name+"\t-\t-\t0.000\t502\t502\t0.000\tOK\ttext/html\t/a")
		}
		if o := observed(t, c.configured, lines...); o.Counters[quell.CounterUnserved]*o.WindowS != c.want {
			t.Errorf("%q configured, %v empty: %v, want %g", c.configured, c.empty, o.Counters, c.want)
		}
	}
}

// The hour of a WebSocket or of a stream is no load of the window in which it ends.
func TestAConnectionOfAnHourEnds(t *testing.T) {
	for line, want := range map[string]float64{
		"10.0.0.1:80\t0.001\t0.002\t3600.000\t101\t101\t3600.000\tOK\t-\t/a":                 0,
		"10.0.0.1:80\t0.001\t0.002\t3600.000\t200\t200\t3600.000\tOK\ttext/event-stream\t/a": 0,
		"10.0.0.1:80\t0.001\t0.002\t5.000\t200\t200\t5.000\tOK\ttext/html\t/a":               0.5,
	} {
		if o := observed(t, "", formatMark+line); o.WindowS != 10 || o.InFlight == nil || *o.InFlight != want {
			t.Errorf("%q: %+v, want %g in flight", line, o, want)
		}
	}
}

// observed returns what lines of the log become in a window of 10 s, at the server 10.0.0.1:80.
func observed(t *testing.T, upstream string, lines ...string) (o quell.Observation) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		in := balancer.Service{Name: "shop", Period: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)}
		recorder := measure.NewRecorder(in, func(list []quell.Reading) { o = list[0].Observation; cancel() })
		l := &Log{recorder: recorder, upstream: upstream}
		for _, line := range lines {
			l.hear([]byte(line))
		}
		recorder.Run(ctx, func(context.Context) map[string][]string { return map[string][]string{"one": {"10.0.0.1:80"}} },
			func(context.Context) {})
	})
	return o
}

// What arrives at the socket becomes readings of the servers' instances.
func TestReadings(t *testing.T) {
	dir, err := os.MkdirTemp("", "qa") // the length of a socket's path is limited
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	published := make(chan []quell.Reading)
	ctx, cancel := context.WithCancel(t.Context())
	publish := func(list []quell.Reading) {
		select {
		case published <- list:
		case <-ctx.Done():
		}
	}
	place := filepath.Join(dir, "log")
	l, err := Listen(place, "", balancer.Service{Name: "shop", Period: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}, publish)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		l.Run(ctx, func(context.Context) map[string][]string {
			return map[string][]string{"one": {"10.0.0.1:80"}, "two": {"10.0.0.2:80"}, "three": {}}
		}, func(context.Context) bool { return true })
	})
	defer running.Wait()
	defer cancel()
	conn, err := net.Dial("unixgram", place)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, line := range []string{response, formatMark + "web\t-\t-\t0.000\t502\t502\t0.000\tOK\ttext/html\t/a"} {
		if _, err := conn.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	requests, unserved := map[string]int64{}, map[string]bool{}
	for requests["two"] == 0 || len(unserved) < 3 {
		select {
		case list := <-published:
			for _, r := range list {
				requests[r.Instance] += r.Requests
				if r.Observation.Counters[quell.CounterUnserved] > 0 {
					unserved[r.Instance] = true
				}
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("no reading of the requests: %v, without a server by %v", requests, unserved)
		}
	}
	if requests["two"] != 1 || requests["one"] != 0 || requests["three"] != 0 || len(requests) != 3 {
		t.Errorf("one request to two: %v", requests)
	}
}
