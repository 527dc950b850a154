package builtin

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
)

// An instance that refuses half of its requests at once gets no more of them than one that answers all, whatever the scheduling.
func TestARefusalAttractsNoRequests(t *testing.T) {
	for _, scheduling := range quell.Schedulings {
		t.Run(string(scheduling), func(t *testing.T) {
			s := start(t, Options{Scheduling: scheduling})
			work := func(w http.ResponseWriter, _ *http.Request) { time.Sleep(10 * time.Millisecond) }
			var n atomic.Int64
			refuse := func(w http.ResponseWriter, r *http.Request) {
				if n.Add(1)%2 == 0 {
					w.WriteHeader([]int{http.StatusTooManyRequests, http.StatusServiceUnavailable}[n.Load()/2%2])
					return
				}
				work(w, r)
			}
			good, shedding := newInstance(t, "good", work), newInstance(t, "shedding", refuse)
			applyHealthy(t, s, good.backend(0.5), shedding.backend(0.5))
			l := startLoad(t, s, 8)
			l.more(t, 600)
			l.stop()
			l.done.Wait()
			if share := float64(shedding.served.Load()) / float64(l.sent.Load()); share > 0.55 {
				t.Errorf("%.2f of the requests went to the instance that refuses half of them", share)
			}
			for _, r := range s.reporter.readings(time.Now()) {
				o := r.Observation
				if bad := r.Instance == "shedding"; *o.ErrorRate != 0 || bad != (o.ShedRate != nil) {
					t.Errorf("%s: error rate %v, refused %v", r.Instance, *o.ErrorRate, o.ShedRate)
				}
				if o.LatencyMS == nil || *o.LatencyMS.P50 < 9 {
					t.Errorf("%s: response times %+v; refusals must not be among them", r.Instance, o.LatencyMS)
				}
			}
			waitFor(t, "all places to be given back", func() bool {
				s.pool.mu.Lock()
				defer s.pool.mu.Unlock()
				return s.pool.listed[0].candidate.InFlight == 0 && s.pool.listed[1].candidate.InFlight == 0
			})
		})
	}
}

// Streams, requests that were moved, and classes outside the objective have no response times. A stream is no open request either.
func TestRequestsWithoutAResponseTime(t *testing.T) {
	classes := balancer.Classes{{Name: "poll", Path: "/poll", Outside: true}}
	s := start(t, Options{Health: checkedOnce(), Classes: classes, Scheduling: quell.RoundRobin})
	end := make(chan struct{})
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" {
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			w.(http.Flusher).Flush()
			<-end
		}
		io.WriteString(w, "x")
	})
	dead := newInstance(t, "dead", nil)
	applyHealthy(t, s, in.backend(0.5), dead.backend(0.5))
	dead.kill()
	c := client(t)
	for range 4 { // half of them first try the instance that was killed, which stays in service until its next check
		get(t, c, s)
	}
	apply(t, s, in.backend(1))
	if _, err := do(c, http.MethodGet, "http://"+s.Addr()+"/poll", nil); err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+s.Addr()+"/events", nil)
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	var moved, times int
	for _, r := range s.reporter.readings(time.Now()) {
		if r.Instance == "dead" && r.Observation.ErrorRate != nil {
			moved++
		} else if r.Observation.LatencyMS != nil {
			times = r.Observation.LatencyMS.N
		}
	}
	if moved != 1 || times >= 4 {
		t.Errorf("%d response times of 4 requests, some of which were moved, one outside the objective, and a stream", times)
	}
	time.Sleep(5 * time.Millisecond)
	if o := s.reporter.readings(time.Now())[0].Observation; *o.InFlight != 0 {
		t.Errorf("%v requests are open beside the stream", *o.InFlight)
	}
	if n := stateOf(t, s, "i1").InFlight; n != 1 {
		t.Errorf("%d requests in flight, want the stream: a drain waits for it", n)
	}
	close(end)
	resp.Body.Close()
}
