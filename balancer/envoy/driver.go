// Package envoy gives Envoys the endpoints of clusters: it is their management server for endpoints (EDS, also over ADS) and nothing else,
// and takes their access log and load reports.
package envoy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
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
	"github.com/quellhq/quell/balancer/managed"
	"github.com/quellhq/quell/internal/outage"
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

	resolve func(ctx context.Context, address string) ([]netip.AddrPort, error)
	turns   atomic.Uint64 // of questions for names

	mu      sync.Mutex
	entries []*entry
	given   map[string]*endpoint.ClusterLoadAssignment // by cluster
	memory  balancer.Memory[entry]
	asked   bool
	waiting []quell.Member // of the fixed group, before the first Apply: their names could not be resolved yet
	looked  time.Time      // when the names of entries were last resolved
	placed  outage.Log
}

// entry is an endpoint.
type entry struct {
	managed.Given
	Numeric string `json:"numeric"` // as Envoy gets it, which resolves no names of endpoints
	turn    uint64 // of the answer by which Numeric was found out or confirmed
	foreign bool   // given to Envoys before the first plan
}

// New reads the memory. It does not listen yet.
func New(o Options) (*Driver, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	d := &Driver{opts: o, resolve: balancer.Resolve, first: make(chan struct{}), given: map[string]*endpoint.ClusterLoadAssignment{},
		fleet: newFleet(o.Logger, o.Clusters),
		// Versions of another controller's time must differ, so that Envoys that come back get the present endpoints.
		cache: cache.NewLinearCache(resource.EndpointType, cache.WithVersionPrefix(strconv.FormatInt(time.Now().UnixNano(), 36)+"-"))}
	var err error
	d.memory = balancer.Memory[entry]{
		Path: o.Memory, About: "which endpoints Envoy has", Remedy: "delete it, and Envoys get the instances from the next plan",
		Valid: func(e *entry) bool {
			_, err := netip.ParseAddrPort(e.Numeric)
			return err == nil && e.Valid()
		}, Logger: o.Logger,
	}
	if d.entries, err = d.memory.Read(); err != nil {
		return nil, err
	}
	d.placed = outage.Log{Logger: o.Logger, What: "giving Envoys every instance"}
	if d.entries == nil {
		d.waiting = o.Members
		d.placeMembers(d.lookUp(context.Background(), d.names(time.Time{})))
	}
	if len(d.entries) > 0 {
		return d, d.give()
	}
	return d, nil
}

// placeMembers adds the instances of the fixed group that are not there yet, and returns whether it added any. One whose name cannot be
// resolved does not hold up the others.
func (d *Driver) placeMembers(found map[string]resolved) (added bool) {
	if len(d.waiting) == 0 {
		return false
	}
	var waiting []quell.Member
	var errs []error
	for _, m := range d.waiting {
		e := &entry{Given: managed.Given{Entry: managed.OfMember(m), Share: 1 / float64(len(d.opts.Members))}, foreign: true}
		if err := e.place(found[m.Address], &entry{}); err != nil {
			waiting, errs = append(waiting, m), append(errs, err)
			continue
		}
		d.entries, added = append(d.entries, e), true
	}
	d.waiting = waiting
	d.placed.Report(errors.Join(errs...))
	return added
}

// Apply gives all Envoys these endpoints. One whose name cannot be resolved keeps the address that it had by that name, or is left out and
// so tried again; it is an error only if that leaves none.
func (d *Driver) Apply(ctx context.Context, backends []quell.Backend) error {
	if err := balancer.CheckBackends(backends); err != nil {
		return err
	}
	addresses := make([]string, len(backends))
	for i, b := range backends {
		addresses[i] = b.Address
	}
	found := d.lookUp(ctx, addresses)
	d.mu.Lock()
	defer d.mu.Unlock()
	known, now := managed.ByID(d.entries), time.Now()
	var entries []*entry
	var errs []error
	for _, b := range backends {
		k := known[b.ID]
		if k == nil {
			k = &entry{}
		}
		e := &entry{Given: managed.Give(b, k.Given, now)}
		if err := e.place(found[e.Address], k); err != nil {
			errs = append(errs, err)
		}
		if e.Numeric != "" {
			entries = append(entries, e)
		}
	}
	unplaced := errors.Join(errs...)
	if unplaced != nil && len(entries) == 0 {
		return unplaced
	}
	d.placed.Report(unplaced)
	d.entries, d.asked, d.waiting = entries, true, nil
	d.follow()
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
		s := quell.BackendState{Foreign: e.foreign, Backend: e.Backend(e.Share)}
		s.Healthy, s.Health = d.checks.Of(e.ID)
		open, reported := d.loads.Open(e.Numeric)
		s.InFlight = e.InFlight(open, reported, d.opts.Drain, time.Now())
		if !accepted {
			s.Address = ""
		}
		states[i] = s
	}
	managed.Sort(states)
	return states, nil
}

// socket is a numeric address in Envoy's terms.
func socket(address string) *core.Address {
	a := netip.MustParseAddrPort(address)
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address: a.Addr().String(), PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(a.Port())},
	}}}
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
