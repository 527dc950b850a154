package envoy

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// fleet is what is known of the Envoys that are connected.
type fleet struct {
	log      *slog.Logger
	clusters []string // whose endpoints are given

	mu       *sync.Mutex
	version  int               // counts the changes of the endpoints
	streams  map[int64]*stream // of endpoints
	everSeen bool              // an Envoy has asked for endpoints
}

// stream is a connection over which an Envoy gets endpoints.
type stream struct {
	node     string
	asked    map[string]bool // the clusters whose endpoints it asks for
	sent     map[string]int  // the version that each response without an answer has, by nonce
	accepted int             // the newest version that it has accepted
	refused  string          // why it refused the last response
}

func newFleet(log *slog.Logger, clusters []string) fleet {
	return fleet{log: log, clusters: clusters, mu: &sync.Mutex{}, streams: map[int64]*stream{}}
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
	f.streams[id] = &stream{asked: map[string]bool{}, sent: map[string]int{}}
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
func (f *fleet) asks(id int64, node string, clusters []string, nonce, refused string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.streams[id]
	if s == nil {
		return
	}
	for _, c := range clusters {
		s.asked[c] = true
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
	f.asks(id, r.GetNode().GetId(), r.GetResourceNames(), r.GetResponseNonce(), r.GetErrorDetail().GetMessage())
}

func (f *fleet) takesDelta(id int64, r *discovery.DeltaDiscoveryRequest) {
	f.asks(id, r.GetNode().GetId(), r.GetResourceNamesSubscribe(), r.GetResponseNonce(), r.GetErrorDetail().GetMessage())
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
	nodes, asked := 0, map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(f.streams)) {
		s := f.streams[id]
		if s.node == "" {
			continue
		}
		maps.Copy(asked, s.asked)
		if nodes++; s.refused != "" {
			errs = append(errs, fmt.Errorf("the Envoy %s refused its endpoints and keeps the old ones: %s", s.node, s.refused))
		}
	}
	switch {
	case nodes > 0:
		for _, c := range f.clusters {
			if len(asked) > 0 && !asked[c] {
				errs = append(errs, fmt.Errorf("no Envoy asks for endpoints of cluster %s: they ask for %s; correct balancer.envoy.clusters, "+
					"or eds_config in Envoy's cluster", c, strings.Join(slices.Sorted(maps.Keys(asked)), ", ")))
			}
		}
	case f.everSeen:
		errs = append(errs, errors.New("no Envoy is connected any more: each keeps the endpoints that it has, until it is restarted"))
	default:
		errs = append(errs, fmt.Errorf("no Envoy has asked for endpoints at %s yet", listen))
	}
	return errors.Join(errs...)
}
