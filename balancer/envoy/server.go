package envoy

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	accesslog "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	loadstats "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	xds "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/health"
	"github.com/quellhq/quell/balancer/measure"
	"github.com/quellhq/quell/internal/certfile"
	"github.com/quellhq/quell/internal/grpclimit"
	"github.com/quellhq/quell/internal/tick"
)

const (
	reportEvery  = time.Second // how often Envoys report their load
	refreshEvery = time.Second // how often they are told about health
	mostStreams  = 1000        // of one connection
)

// server is what Envoys connect to. It is the driver's meter, too.
type server struct {
	accesslog.UnimplementedAccessLogServiceServer
	loadstats.UnimplementedLoadReportingServiceServer

	driver   *Driver
	settings *Settings
	in       balancer.Service
	recorder *measure.Recorder
	grpc     *grpclimit.Server
	cancel   context.CancelFunc
	running  sync.WaitGroup
	ids      atomic.Int64

	mu     sync.Mutex
	lines  int64 // entries of the log in this period
	logged bool  // entries have arrived
	err    error // why not everything was measured in the last period
}

// serve listens for Envoys until the meter is stopped.
func serve(d *Driver, s *Settings, in balancer.Service, publish func([]quell.Reading)) (*server, error) {
	open, err := grpclimit.Open(grpclimit.Options{Address: s.Listen, What: "Envoy", Section: "balancer.envoy", Streams: mostStreams,
		Secure: certfile.Files{Cert: s.Cert, Key: s.Key, ClientCA: s.ClientCA}, Logger: d.opts.Logger})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	v := &server{driver: d, settings: s, in: in, recorder: measure.NewRecorder(in, publish), grpc: open, cancel: cancel}
	eds := xds.NewServer(ctx, only{d.cache}, v.callbacks())
	discovery.RegisterAggregatedDiscoveryServiceServer(v.grpc, eds)
	endpointservice.RegisterEndpointDiscoveryServiceServer(v.grpc, eds)
	accesslog.RegisterAccessLogServiceServer(v.grpc, v)
	loadstats.RegisterLoadReportingServiceServer(v.grpc, v)
	d.watch(ctx, s.Health)
	v.running.Go(func() { v.accept(ctx) })
	v.running.Go(func() { v.recorder.Run(ctx, d.instances, v.judge) })
	v.running.Go(func() { v.refresh(ctx) })
	return v, nil
}

// watch checks the health of all instances until ctx ends.
func (d *Driver) watch(ctx context.Context, o health.Options) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.checks = health.NewChecks(ctx, o)
	d.checks.Follow(d.addresses())
}

// accept serves connections as soon as there are endpoints to give: an Envoy that got none would drop those that it has.
func (v *server) accept(ctx context.Context) {
	select {
	case <-v.driver.first:
	case <-ctx.Done():
	}
	v.grpc.Serve(ctx)
}

// refresh tells Envoys about health.
func (v *server) refresh(ctx context.Context) {
	for tick.Sleep(ctx, min(refreshEvery, v.settings.Health.Interval)) {
		if err := v.driver.refresh(); err != nil {
			v.in.Logger.Error("endpoints not given", "error", err)
		}
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

// StreamAccessLogs takes an Envoy's access log.
func (v *server) StreamAccessLogs(stream accesslog.AccessLogService_StreamAccessLogsServer) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, e := range m.GetHttpLogs().GetLogEntry() {
			if slices.Contains(v.settings.Clusters, e.GetCommonProperties().GetUpstreamCluster()) {
				v.count(read(e))
			}
		}
	}
}

// count counts a request.
func (v *server) count(l logged) {
	v.mu.Lock()
	v.lines++
	v.mu.Unlock()
	if l.address == "" {
		return
	}
	class := v.in.Classes.Of(l.target)
	l.end.Aside, l.end.FirstByte = v.in.Classes.Aside(class), v.in.FirstByte
	took := l.took
	if v.in.FirstByte {
		took = l.first
	}
	v.recorder.Count(l.address, measure.Request{Verdict: measure.Judge(l.end), Class: class, Took: took, Open: l.end.Waited})
}

// StreamLoadStats takes an Envoy's reports of load.
func (v *server) StreamLoadStats(stream loadstats.LoadReportingService_StreamLoadStatsServer) error {
	id := v.ids.Add(1)
	defer v.driver.fleet.reportsNoMore(id)
	if _, err := stream.Recv(); err != nil {
		return err
	}
	err := stream.Send(&loadstats.LoadStatsResponse{Clusters: v.settings.Clusters, LoadReportingInterval: durationpb.New(reportEvery),
		ReportEndpointGranularity: true})
	for err == nil {
		var r *loadstats.LoadStatsRequest
		if r, err = stream.Recv(); err == nil {
			v.driver.fleet.reported(id, r.GetClusterStats(), v.settings.Clusters, time.Now())
		}
	}
	return err
}

// judge finds out whether everything was measured in a period.
func (v *server) judge(context.Context) {
	err := v.driver.fleet.err(v.settings.Listen)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.logged = v.logged || v.lines > 0
	if v.lines = 0; err == nil && !v.logged && v.driver.fleet.busy() {
		err = errors.New("requests are in progress, and none has arrived in the access log: give Envoy the access_log of docs/balancers/envoy.md")
	}
	v.err = err
}

// Pace implements balancer.Meter.
func (v *server) Pace(period, fast time.Duration) { v.recorder.Pace(period, fast) }

// Err implements balancer.Meter.
func (v *server) Err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

// Stop implements balancer.Meter.
func (v *server) Stop() {
	v.cancel()
	v.running.Wait()
	v.driver.checks.Wait()
}
