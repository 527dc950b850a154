package builtin

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quellhq/quell"
)

// LoadHeader is the response header in which a balancer in front, such as Envoy's client_side_weighted_round_robin, finds a load report
// (ORCA) of the whole group. https://www.envoyproxy.io/docs/envoy/latest/api-v3/extensions/load_balancing_policies
const LoadHeader = "endpoint-load-metrics"

const (
	// Clients ignore a utilization of 0. An idle group must be reported, too.
	leastUtilization, mostUtilization = 0.01, 100
	// loadLasts is how many sampling periods a report counts without being renewed.
	loadLasts = 3
)

// loadBody is the body of PUT /load: the group's use of its scarcest resource over what it can carry within the objective, as a fraction.
type loadBody struct {
	Utilization float64 `json:"utilization"`
}

// loadReport is what responses say of the group's load. Its methods may be called concurrently.
type loadReport struct {
	requests, failed atomic.Int64 // since the start
	now              atomic.Pointer[loadText]

	mu            sync.Mutex
	since         time.Time // the counts below are of this time
	before, wrong int64
}

// loadText is the value of the header, for some time.
type loadText struct {
	text  string
	until time.Time
}

// count counts a response.
func (l *loadReport) count(status int) {
	l.requests.Add(1)
	if status >= 500 {
		l.failed.Add(1)
	}
}

// tell sets the utilisation, and with it the rates of requests and failures since the last time. lasts is how long it counts.
func (l *loadReport) tell(b loadBody, now time.Time, lasts time.Duration) error {
	if math.IsNaN(b.Utilization) || b.Utilization < 0 || b.Utilization > mostUtilization {
		return &quell.InvalidError{Path: "utilization", Problem: fmt.Sprintf("%v is not from 0 to %v", b.Utilization, mostUtilization)}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	requests, failed, passed := l.requests.Load(), l.failed.Load(), now.Sub(l.since).Seconds()
	if !l.since.IsZero() && passed > 0 {
		l.now.Store(&loadText{until: now.Add(lasts), text: fmt.Sprintf("TEXT application_utilization=%.4g,rps_fractional=%.4g,eps=%.4g",
			max(leastUtilization, b.Utilization), float64(requests-l.before)/passed, float64(failed-l.wrong)/passed)})
	}
	l.since, l.before, l.wrong = now, requests, failed
	return nil
}

// header returns the value of the header; empty while there is none.
func (l *loadReport) header(now time.Time) string {
	if t := l.now.Load(); t != nil && now.Before(t.until) {
		return t.text
	}
	return ""
}

// informing is the driver of a balancer whose responses have load reports.
type informing struct{ *Client }

// Inform tells the balancer how much of what its instances can carry is used. It says nothing while no capacity is known.
func (r informing) Inform(ctx context.Context, _ quell.Resource, capacity, use map[string]float64) error {
	var carried, used float64
	for id, c := range capacity {
		if u, known := use[id]; known {
			carried, used = carried+c, used+u
		}
	}
	if carried <= 0 {
		return nil
	}
	return r.put(ctx, "/load", loadBody{Utilization: min(used/carried, mostUtilization)})
}

// tellLoad sets what responses say, until three sampling periods have passed.
func (s *Server) tellLoad(b loadBody) error {
	s.applying.Lock()
	lasts := loadLasts * s.opts.Period
	s.applying.Unlock()
	return s.proxy.load.tell(b, time.Now(), lasts)
}
