// Package envoy gives Envoys the endpoints of clusters: it is their management server for endpoints (EDS, also over ADS) and nothing else,
// and takes their access log and load reports.
package envoy

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/envoylog"
	"github.com/quellhq/quell/balancer/health"
)

// mostWeight is the weight of the endpoint with the largest share. Equal shares have equal weights, which LEAST_REQUEST needs in order to
// look at two endpoints instead of taking turns.
const mostWeight = 10000

// Options configure a Driver.
type Options struct {
	Clusters []string
	Members  []quell.Member // the instances of a fixed group, which Envoys get before the first Apply
	Drain    time.Duration  // how long a drain takes if nobody reports requests in progress
	Memory   string         // a file that stores the last endpoints. Empty: there is none
	Logger   *slog.Logger
}

// Driver keeps the endpoints that Envoys get. Its methods may be called concurrently.
type Driver struct {
	opts   Options
	cache  *cache.LinearCache
	fleet  fleet
	loads  envoylog.Loads
	checks *health.Checks
	first  chan struct{} // closed as soon as there are endpoints to give

	mu      sync.Mutex
	entries []*entry
	given   map[string]*endpoint.ClusterLoadAssignment // by cluster
	memory  balancer.Memory[entry]
	asked   bool
}

// entry is an endpoint.
type entry struct {
	ID      string    `json:"id"`
	Address string    `json:"address"` // as it was given
	Numeric string    `json:"numeric"` // as Envoy gets it, which resolves no names of endpoints
	Probe   string    `json:"probe,omitempty"`
	Share   float64   `json:"share"`
	Drain   bool      `json:"drain,omitempty"`
	Held    bool      `json:"held,omitempty"`
	Since   time.Time `json:"since,omitzero"` // when the drain began
	foreign bool      // given to Envoys before the first plan
}

// New reads the memory. It does not listen yet.
func New(o Options) (*Driver, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Driver{opts: o, first: make(chan struct{}), given: map[string]*endpoint.ClusterLoadAssignment{}, fleet: newFleet(o.Logger),
		// Versions of another controller's time must differ, so that Envoys that come back get the present endpoints.
		cache: cache.NewLinearCache(resource.EndpointType, cache.WithVersionPrefix(strconv.FormatInt(time.Now().UnixNano(), 36)+"-"))}
	var err error
	d.memory = balancer.Memory[entry]{
		Path: o.Memory, About: "which endpoints Envoy has", Remedy: "delete it, and Envoys get the instances from the next plan",
		Valid: func(e *entry) bool {
			_, err := netip.ParseAddrPort(e.Numeric)
			return e.ID != "" && err == nil && e.Share >= 0 && e.Share <= 1
		}, Logger: o.Logger,
	}
	if d.entries, err = d.memory.Read(); err != nil {
		return nil, err
	}
	if d.entries == nil {
		for _, m := range o.Members {
			e := &entry{ID: m.ID, Address: m.Address, Probe: m.Probe, Share: 1 / float64(len(o.Members)), foreign: true}
			if e.Numeric, err = numeric(context.Background(), m.Address); err != nil {
				return nil, fmt.Errorf("address of %s: %w", m.ID, err)
			}
			d.entries = append(d.entries, e)
		}
	}
	if len(d.entries) > 0 {
		return d, d.give()
	}
	return d, nil
}

// Apply gives all Envoys these endpoints.
func (d *Driver) Apply(ctx context.Context, backends []quell.Backend) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := balancer.CheckBackends(backends); err != nil {
		return err
	}
	known := map[string]*entry{}
	for _, e := range d.entries {
		known[e.ID] = e
	}
	entries := make([]*entry, len(backends))
	for i, b := range backends {
		e := &entry{ID: b.ID, Address: b.Address, Probe: b.Probe, Share: b.Weight, Drain: b.Draining, Held: b.Held}
		if e.Drain {
			e.Share, e.Since = 0, time.Now()
		}
		if k := known[b.ID]; k != nil && k.Drain && e.Drain {
			e.Since = k.Since
		}
		var err error
		if e.Numeric, err = numeric(ctx, b.Address); err != nil {
			return fmt.Errorf("address of %s: %w", b.ID, err)
		}
		entries[i] = e
	}
	d.entries, d.asked = entries, true
	d.checks.Follow(d.addresses())
	d.memory.Keep(d.entries)
	return d.give()
}

// give puts the endpoints in the cache, from which every Envoy gets what changed. The caller holds the lock, or nobody knows d yet.
func (d *Driver) give() error {
	resources := map[string]types.Resource{}
	for _, name := range d.opts.Clusters {
		a := d.assignment(name)
		if !proto.Equal(a, d.given[name]) {
			resources[name], d.given[name] = a, a
		}
	}
	if len(resources) > 0 {
		d.fleet.changed()
		if err := d.cache.UpdateResources(resources, nil); err != nil {
			return fmt.Errorf("giving Envoy its endpoints: %w", err)
		}
	}
	select {
	case <-d.first:
	default:
		close(d.first)
	}
	return nil
}

// assignment describes the endpoints of a cluster.
func (d *Driver) assignment(cluster string) *endpoint.ClusterLoadAssignment {
	var largest float64
	for _, e := range d.entries {
		largest = max(largest, e.Share)
	}
	list := &endpoint.LocalityLbEndpoints{LoadBalancingWeight: wrapperspb.UInt32(1)}
	for _, e := range d.entries {
		well, _ := d.checks.Of(e.ID)
		status, weight := core.HealthStatus_UNKNOWN, uint32(1)
		switch {
		case e.Drain || e.Share == 0:
			status = core.HealthStatus_DRAINING
		case !well:
			status = core.HealthStatus_UNHEALTHY
		}
		if largest > 0 {
			weight = max(1, uint32(math.Round(e.Share/largest*mostWeight)))
		}
		list.LbEndpoints = append(list.LbEndpoints, &endpoint.LbEndpoint{
			HealthStatus: status, LoadBalancingWeight: wrapperspb.UInt32(weight),
			HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: socket(e.Numeric)}},
		})
	}
	return &endpoint.ClusterLoadAssignment{ClusterName: cluster, Endpoints: []*endpoint.LocalityLbEndpoints{list}}
}

// refresh tells Envoys which instances' health has changed.
func (d *Driver) refresh() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.entries) == 0 && !d.asked {
		return nil
	}
	return d.give()
}

// State returns the endpoints. One that an Envoy has not accepted yet has no address: it then differs from the request, and so Apply is
// called again.
func (d *Driver) State(context.Context) ([]quell.BackendState, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	accepted := d.fleet.accepted()
	states := make([]quell.BackendState, len(d.entries))
	for i, e := range d.entries {
		s := quell.BackendState{Foreign: e.foreign,
			Backend: quell.Backend{ID: e.ID, Address: e.Address, Probe: e.Probe, Weight: e.Share, Draining: e.Drain, Held: e.Drain && e.Held}}
		s.Healthy, s.Health = d.checks.Of(e.ID)
		s.InFlight = d.inFlight(e)
		if !accepted {
			s.Address = ""
		}
		states[i] = s
	}
	slices.SortFunc(states, func(a, b quell.BackendState) int { return strings.Compare(a.ID, b.ID) })
	return states, nil
}

// inFlight returns the requests in progress at an instance, as Envoys report them. If none does, a drain counts as open for its whole time.
func (d *Driver) inFlight(e *entry) int64 {
	open, reported := d.loads.Open(e.Numeric)
	if !reported && e.Drain && time.Since(e.Since) < d.opts.Drain {
		return 1
	}
	return open
}

// numeric returns an address whose name is resolved.
func numeric(ctx context.Context, address string) (string, error) {
	list, err := balancer.Resolve(ctx, address)
	if err != nil {
		return "", err
	}
	return list[0].String(), nil
}

// socket is a numeric address in Envoy's terms.
func socket(address string) *core.Address {
	a := netip.MustParseAddrPort(address)
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address: a.Addr().String(), PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(a.Port())},
	}}}
}

// addresses returns the address of each instance.
func (d *Driver) addresses() map[string]string {
	at := make(map[string]string, len(d.entries))
	for _, e := range d.entries {
		at[e.ID] = e.Address
	}
	return at
}

// instances returns the addresses of all instances, for readings.
func (d *Driver) instances(context.Context) map[string][]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make(map[string][]string, len(d.entries))
	for _, e := range d.entries {
		list[e.ID] = []string{e.Numeric}
	}
	return list
}
