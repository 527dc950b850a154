package envoy

import (
	"context"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	xds "github.com/envoyproxy/go-control-plane/pkg/server/v3"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/envoylog"
	"github.com/quellhq/quell/balancer/health"
	"github.com/quellhq/quell/internal/tick"
)

const refreshEvery = time.Second // how often Envoys are told about health

// server is what Envoys connect to. It is the driver's meter, too.
type server struct {
	*envoylog.Intake

	port     *envoylog.Port
	driver   *Driver
	settings *Settings
	in       balancer.Service
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// serve listens for Envoys until the meter is stopped.
func serve(d *Driver, s *Settings, in balancer.Service, publish func([]quell.Reading)) (*server, error) {
	port, err := s.Open("balancer.envoy", d.opts.Logger)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	v := &server{Intake: envoylog.NewIntake(s.Clusters, "docs/balancers/envoy.md", &d.loads, in, publish), port: port, driver: d, settings: s,
		in: in, cancel: cancel}
	eds := xds.NewServer(ctx, only{d.cache}, v.callbacks())
	discovery.RegisterAggregatedDiscoveryServiceServer(port, eds)
	endpointservice.RegisterEndpointDiscoveryServiceServer(port, eds)
	v.Register(port)
	d.watch(ctx, s.Health)
	v.running.Go(func() { port.Serve(ctx, d.first) }) // an Envoy that got no endpoints would drop those that it has
	v.running.Go(func() { v.Run(ctx, d.instances, func() error { return d.fleet.err(s.Listen) }) })
	v.running.Go(func() { v.refresh(ctx) })
	v.running.Go(func() { v.resolve(ctx) })
	return v, nil
}

// watch checks the health of all instances until ctx ends.
func (d *Driver) watch(ctx context.Context, o health.Options) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.checks = health.NewChecks(ctx, o)
	d.follow()
}

// refresh tells Envoys about health.
func (v *server) refresh(ctx context.Context) {
	for tick.Sleep(ctx, min(refreshEvery, v.settings.Health.Interval)) {
		if err := v.driver.refresh(); err != nil {
			v.in.Logger.Error("endpoints not given", "error", err)
		}
	}
}

// resolve tells Envoys what the instances' names stand for.
func (v *server) resolve(ctx context.Context) {
	for tick.Sleep(ctx, refreshEvery) {
		limited, cancel := context.WithTimeout(ctx, lookEvery)
		if err := v.driver.renew(limited, time.Now()); err != nil {
			v.in.Logger.Error("endpoints not given", "error", err)
		}
		cancel()
	}
}

// callbacks follow what Envoys accept.
func (v *server) callbacks() xds.Callbacks {
	f := &v.driver.fleet
	return xds.CallbackFuncs{
		StreamOpenFunc:        func(_ context.Context, id int64, _ string) error { f.opened(id); return nil },
		DeltaStreamOpenFunc:   func(_ context.Context, id int64, _ string) error { f.opened(-id); return nil },
		StreamClosedFunc:      func(id int64, _ *core.Node) { f.closed(id) },
		DeltaStreamClosedFunc: func(id int64, _ *core.Node) { f.closed(-id) },
		StreamRequestFunc: func(id int64, r *discovery.DiscoveryRequest) error {
			if r.GetTypeUrl() == resource.EndpointType {
				f.takes(id, r)
			}
			return nil
		},
		StreamDeltaRequestFunc: func(id int64, r *discovery.DeltaDiscoveryRequest) error {
			if r.GetTypeUrl() == resource.EndpointType {
				f.takesDelta(-id, r)
				r.InitialResourceVersions = nil // an Envoy that comes back gets all endpoints again: only by its answer is it known to have them
			}
			return nil
		},
		StreamResponseFunc: func(_ context.Context, id int64, _ *discovery.DiscoveryRequest, r *discovery.DiscoveryResponse) {
			f.gets(id, r.GetNonce())
		},
		StreamDeltaResponseFunc: func(id int64, _ *discovery.DeltaDiscoveryRequest, r *discovery.DeltaDiscoveryResponse) {
			f.gets(-id, r.GetNonce())
		},
	}
}

// only answers for endpoints. Requests for other resources over the same stream stay without an answer.
type only struct{ *cache.LinearCache }

// CreateWatch implements cache.Cache.
func (o only) CreateWatch(r *cache.Request, sub cache.Subscription, value chan cache.Response) (func(), error) {
	if r.GetTypeUrl() != resource.EndpointType {
		return func() {}, nil
	}
	return o.LinearCache.CreateWatch(r, sub, value)
}

// CreateDeltaWatch implements cache.Cache.
func (o only) CreateDeltaWatch(r *cache.DeltaRequest, sub cache.Subscription, value chan cache.DeltaResponse) (func(), error) {
	if r.GetTypeUrl() != resource.EndpointType {
		return func() {}, nil
	}
	return o.LinearCache.CreateDeltaWatch(r, sub, value)
}

// Stop implements balancer.Meter.
func (v *server) Stop() {
	v.cancel()
	v.running.Wait()
	v.driver.checks.Wait()
}
