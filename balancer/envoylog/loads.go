package envoylog

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/quellhq/quell/balancer"
)

const (
	reportEvery = time.Second     // how often Envoys report their load
	silent      = 5 * reportEvery // after which time a report of load is too old
)

// Loads are what Envoys report of requests in progress. Its methods may be called concurrently. The zero value is ready.
type Loads struct {
	mu      sync.Mutex
	reports map[int64]reporting // by stream
}

// reporting is the newest report over a connection.
type reporting struct {
	at   time.Time
	open map[string]int64 // requests in progress by address
}

// reported keeps a report.
func (l *Loads) reported(stream int64, stats []*endpoint.ClusterStats, clusters []string, now time.Time) {
	open := map[string]int64{}
	for _, c := range stats {
		if !slices.Contains(clusters, c.GetClusterName()) && !slices.Contains(clusters, c.GetClusterServiceName()) {
			continue
		}
		for _, in := range c.GetUpstreamLocalityStats() {
			for _, e := range in.GetUpstreamEndpointStats() {
				open[Plain(e.GetAddress())] += int64(e.GetTotalRequestsInProgress())
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reports == nil {
		l.reports = map[int64]reporting{}
	}
	l.reports[stream] = reporting{at: now, open: open}
}

func (l *Loads) ended(stream int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.reports, stream)
}

// Open returns the requests in progress at an address, and whether any Envoy reports them.
func (l *Loads) Open(address string) (n int64, reported bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.reports {
		if time.Since(r.at) < silent {
			n, reported = n+r.open[address], true
		}
	}
	return n, reported
}

// Connected returns whether an Envoy reports its load.
func (l *Loads) Connected() bool {
	_, reported := l.Open("")
	return reported
}

// busy returns whether Envoys report requests in progress.
func (l *Loads) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.reports {
		for _, n := range r.open {
			if n > 0 {
				return true
			}
		}
	}
	return false
}

// Plain is the address of a socket in Envoy's terms, as balancer.Plain writes it; empty if it is none.
func Plain(address *core.Address) string {
	s := address.GetSocketAddress()
	ip, err := netip.ParseAddr(s.GetAddress())
	if err != nil {
		return ""
	}
	return balancer.Plain(netip.AddrPortFrom(ip, uint16(s.GetPortValue()))).String()
}
