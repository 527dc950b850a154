package envoy

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// fleet is what is known of the Envoys that are connected.
type fleet struct {
	log *slog.Logger

	mu       *sync.Mutex
	version  int                  // counts the changes of the endpoints
	streams  map[int64]*stream    // of endpoints
	reports  map[int64]*reporting // of load
	everSeen bool                 // an Envoy has asked for endpoints
}

// stream is a connection over which an Envoy gets endpoints.
type stream struct {
	node     string
	sent     map[string]int // the version that each response without an answer has, by nonce
	accepted int            // the newest version that it has accepted
	refused  string         // why it refused the last response
}

// reporting is a connection over which an Envoy reports its load.
type reporting struct {
	at   time.Time
	open map[string]int64 // requests in progress by address
}

// silent is after which time a report of load is too old.
const silent = 5 * reportEvery

func newFleet(log *slog.Logger) fleet {
	return fleet{log: log, mu: &sync.Mutex{}, streams: map[int64]*stream{}, reports: map[int64]*reporting{}}
}

// changed notes that the endpoints are about to change.
func (f *fleet) changed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
}

// opened notes that an Envoy has connected.
func (f *fleet) opened(id int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams[id] = &stream{sent: map[string]int{}}
}

func (f *fleet) closed(id int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.streams[id]; s != nil && s.node != "" {
		f.log.Info("an Envoy has left", "node", s.node)
	}
	delete(f.streams, id)
}

// asks notes a request of an Envoy. If it names a nonce, it answers a response: it accepts it, or says why not.
func (f *fleet) asks(id int64, node, nonce, refused string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.streams[id]
	if s == nil {
		return
	}
	if s.node == "" && node != "" {
		s.node, f.everSeen = node, true
		f.log.Info("an Envoy gets its endpoints here", "node", node)
	}
	version, answered := s.sent[nonce]
	if !answered {
		return
	}
	delete(s.sent, nonce)
	if refused != "" && refused != s.refused {
		f.log.Warn("an Envoy refused its endpoints and keeps the old ones", "node", s.node, "why", refused)
	}
	if s.refused = refused; refused == "" {
		s.accepted = max(s.accepted, version)
	}
}

// gets notes a response to an Envoy.
func (f *fleet) gets(id int64, nonce string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.streams[id]; s != nil {
		s.sent[nonce] = f.version
	}
}

func (f *fleet) takes(id int64, r *discovery.DiscoveryRequest) {
	f.asks(id, r.GetNode().GetId(), r.GetResponseNonce(), r.GetErrorDetail().GetMessage())
}

func (f *fleet) takesDelta(id int64, r *discovery.DeltaDiscoveryRequest) {
	f.asks(id, r.GetNode().GetId(), r.GetResponseNonce(), r.GetErrorDetail().GetMessage())
}

// accepted returns whether every Envoy that is connected has accepted the present endpoints.
func (f *fleet) accepted() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.streams {
		if s.node != "" && (s.accepted < f.version || s.refused != "") {
			return false
		}
	}
	return true
}

// err returns why Envoys do not have the present endpoints.
func (f *fleet) err(listen string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	nodes := 0
	for _, id := range slices.Sorted(maps.Keys(f.streams)) {
		s := f.streams[id]
		if s.node == "" {
			continue
		}
		if nodes++; s.refused != "" {
			errs = append(errs, fmt.Errorf("the Envoy %s refused its endpoints and keeps the old ones: %s", s.node, s.refused))
		}
	}
	switch {
	case nodes > 0:
	case f.everSeen:
		errs = append(errs, errors.New("no Envoy is connected any more: each keeps the endpoints that it has, until it is restarted"))
	default:
		errs = append(errs, fmt.Errorf("no Envoy has asked for endpoints at %s yet", listen))
	}
	return errors.Join(errs...)
}

// reported keeps a report of load.
func (f *fleet) reported(id int64, stats []*endpoint.ClusterStats, clusters []string, now time.Time) {
	open := map[string]int64{}
	for _, c := range stats {
		if !slices.Contains(clusters, c.GetClusterName()) && !slices.Contains(clusters, c.GetClusterServiceName()) {
			continue
		}
		for _, l := range c.GetUpstreamLocalityStats() {
			for _, e := range l.GetUpstreamEndpointStats() {
				open[plain(e.GetAddress())] += int64(e.GetTotalRequestsInProgress())
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reports[id] = &reporting{at: now, open: open}
}

func (f *fleet) reportsNoMore(id int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.reports, id)
}

// open returns the requests in progress at an address, and whether any Envoy reports them.
func (f *fleet) open(address string) (n int64, reported bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.reports {
		if time.Since(r.at) < silent {
			n, reported = n+r.open[address], true
		}
	}
	return n, reported
}

// busy returns whether Envoys report requests in progress.
func (f *fleet) busy() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.reports {
		for _, n := range r.open {
			if n > 0 {
				return true
			}
		}
	}
	return false
}
