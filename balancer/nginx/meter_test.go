package nginx

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/health"
	"github.com/quellhq/quell/balancer/measure"
	"github.com/quellhq/quell/internal/need"
)

// TestLines has lines as nginx writes them, and what they count as at each server.
func TestLines(t *testing.T) {
	const one, two = "10.0.0.1:80", "10.0.0.2:80"
	for _, c := range []struct{ why, line, want string }{
		{"a response", "10.0.0.1:80\t0.001\t0.010\t0.012\t200\t200\t0.013\tOK\ttext/html\t/a", one + " response 12ms"},
		{"a long path that was cut off", "10.0.0.1:80\t0.001\t0.010\t0.012\t200\t200\t0.013\tOK\ttext/html\t/aaaa", one + " response 12ms"},
		{"an answer of the cache", "-\t-\t-\t-\t-\t200\t0.000\tOK\ttext/html\t/a", ""},
		{"no server is left", "web\t-\t-\t0.000\t502\t502\t0.000\tOK\ttext/html\t/a", ""},
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

// wellness is how tests check instances.
var wellness = health.Options{Interval: 10 * time.Millisecond, Timeout: time.Second, Fall: 2, Rise: 1}

// published keeps the readings of a meter.
type published struct {
	mu  sync.Mutex
	all []quell.Reading
}

func (p *published) add(list []quell.Reading) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, list...)
}

// sum adds up the readings of an instance.
func (p *published) sum(id string) (requests, errors int64, responses int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.all {
		if r.Instance != id || r.Fast {
			continue
		}
		requests, errors = requests+r.Requests, errors+r.Errors
		if r.Observation.LatencyMS != nil {
			responses += r.Observation.LatencyMS.N
		}
	}
	return requests, errors, responses
}

// A real nginx is measured by its log: responses, failures, attempts that went on to another server, clients that left, and classes.
func TestMeasuring(t *testing.T) {
	a := newInstance(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			select {
			case <-r.Context().Done():
			case <-time.After(patience):
			}
		case "/bad":
			w.WriteHeader(http.StatusInternalServerError)
		case "/busy":
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	gone := need.FreeAddress(t)
	l := newLab(t, "", "server "+a.address()+";", "server "+gone+" max_fails=0;")
	d := l.driver(func(o *Options) { o.Members = []quell.Member{a.member("a"), {ID: "gone", Address: gone}} })
	got := &published{}
	in := balancer.Service{Name: "shop", Balancer: "nginx", Period: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Classes: balancer.Classes{{Name: "bad", Path: "/bad"}}}
	m, err := (&Settings{Log: l.log, Health: wellness}).Measure(d, in, got.add)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Stop()
	l.start()
	l.get(20, "/")
	l.get(3, "/bad")
	l.get(2, "/busy")
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.traffic+"/slow", nil)
	before := a.served.Load()
	go func() {
		eventually(t, "the slow request arrives", func() bool { return a.served.Load() > before })
		cancel()
	}()
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		t.Fatal("the slow request was answered")
	}
	eventually(t, "everything is measured", func() bool { n, _, _ := got.sum("a"); return n == 26 })
	if n, failed, responses := got.sum("a"); n != 26 || failed != 3 || responses < 5 || responses > 20 {
		t.Errorf("%d requests, %d failed, %d responses", n, failed, responses)
	}
	if err := m.Err(); err != nil {
		t.Error(err)
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	if !slices.ContainsFunc(got.all, func(r quell.Reading) bool { return r.Instance == "a" && r.Observation.RequestRates["bad"] > 0 }) {
		t.Error("class bad was not measured")
	}
}

// A log that cannot be read, or that does not arrive, is said.
func TestTheMeterSaysWhatIsMissing(t *testing.T) {
	hold := make(chan struct{})
	a := newInstance(t, func(http.ResponseWriter, *http.Request) { <-hold })
	l := newLab(t, "", "server "+a.address()+";")
	d := l.driver(func(o *Options) { o.Members = []quell.Member{a.member("a")} })
	in := balancer.Service{Name: "shop", Period: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
	m, err := (&Settings{Log: l.log, Health: wellness}).Measure(d, in, func([]quell.Reading) {})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Stop()
	says := func(text string) {
		t.Helper()
		eventually(t, text, func() bool { return m.Err() != nil && strings.Contains(m.Err().Error(), text) })
	}
	conn, err := net.Dial("tcp", a.address())
	if err != nil {
		t.Fatal(err)
	}
	says("no line of its log arrived")
	conn.Close()
	close(hold)
	log, err := net.Dial("unixgram", l.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				_, _ = io.WriteString(log, "<190>Nov 26 02:20:00 nginx: 127.0.0.1 - - \"GET / HTTP/1.1\" 200")
			}
		}
	})
	says("not in the format quell")
	says("GET / HTTP/1.1")
	close(stop)
	writer.Wait()

	without, err := (&Settings{Health: wellness}).Measure(d, in, nil)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it says that there is no log", func() bool { return without.Err() != nil })
	without.Stop()
}

// An instance whose checks fail is unhealthy, and says what it got. A new one is checked as soon as it is listed.
func TestHealth(t *testing.T) {
	var sick atomic.Bool
	a := newInstance(t, func(w http.ResponseWriter, _ *http.Request) {
		if sick.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	l := newLab(t, "", "server "+a.address()+";")
	l.start()
	d := l.driver(nil)
	in := balancer.Service{Name: "shop", Period: time.Hour, Logger: slog.New(slog.DiscardHandler)}
	o := wellness
	o.Path = "/well"
	m, err := (&Settings{Health: o}).Measure(d, in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Stop()
	gone := quell.Backend{ID: "gone", Address: need.FreeAddress(t), Weight: 0.5}
	settle(t, d, backend("a", a, 0.5), gone)
	eventually(t, "what is gone is unhealthy", func() bool { return !stateOf(t, d, "gone").Healthy })
	if s := stateOf(t, d, "a"); !s.Healthy {
		t.Errorf("a is well: %+v", s)
	}
	sick.Store(true)
	eventually(t, "a is unhealthy", func() bool { return strings.Contains(stateOf(t, d, "a").Health, "GET /well: 503") })
	sick.Store(false)
	eventually(t, "a is well again", func() bool { return stateOf(t, d, "a").Healthy })
}
