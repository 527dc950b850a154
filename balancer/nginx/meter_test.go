package nginx

import (
	"context"
	"log/slog"
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
	"github.com/quellhq/quell/internal/need"
)

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
	t.Parallel()
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

// Requests for which a real nginx has no server are told, although they are no instance's.
func TestNoServerIsLeft(t *testing.T) {
	t.Parallel()
	gone := need.FreeAddress(t)
	l := newLab(t, "", "server "+gone+" down;")
	d := l.driver(func(o *Options) { o.Members = []quell.Member{{ID: "gone", Address: gone}} })
	got := &published{}
	in := balancer.Service{Name: "shop", Balancer: "nginx", Period: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
	m, err := (&Settings{Log: l.log, Health: wellness}).Measure(d, in, got.add)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Stop()
	l.start()
	eventually(t, "they are told", func() bool {
		l.get(1, "/")
		got.mu.Lock()
		defer got.mu.Unlock()
		return slices.ContainsFunc(got.all, func(r quell.Reading) bool { return r.Observation.Counters[quell.CounterUnserved] > 0 })
	})
	if n, failed, _ := got.sum("gone"); n+failed > 0 {
		t.Errorf("%d requests, %d failed", n, failed)
	}
}

// An instance whose checks fail is unhealthy, and says what it got. A new one is checked as soon as it is listed.
func TestHealth(t *testing.T) {
	t.Parallel()
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
