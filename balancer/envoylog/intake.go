// Package envoylog takes what Envoys tell of the requests of clusters, over gRPC: their access log, and their load reports.
package envoylog

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	accesslog "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	loadstats "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/measure"
)

// Intake makes readings from what Envoys tell.
type Intake struct {
	accesslog.UnimplementedAccessLogServiceServer
	loadstats.UnimplementedLoadReportingServiceServer

	clusters []string
	page     string
	recorder *measure.Recorder
	loads    *Loads
	ids      atomic.Int64

	mu     sync.Mutex
	lines  int64 // entries of the log in this period
	logged bool  // entries have arrived
	err    error // why not everything was measured in the last period
}

// NewIntake takes the requests of these clusters. page is where the documents say which lines Envoy's configuration needs.
func NewIntake(clusters []string, page string, loads *Loads, in balancer.Service, publish func([]quell.Reading)) *Intake {
	return &Intake{clusters: clusters, page: page, loads: loads, recorder: measure.NewRecorder(in, publish)}
}

// Register makes a server take both.
func (i *Intake) Register(s grpc.ServiceRegistrar) {
	accesslog.RegisterAccessLogServiceServer(s, i)
	loadstats.RegisterLoadReportingServiceServer(s, i)
}

// Run publishes readings until ctx ends. instances returns the addresses of each instance; connected returns why no Envoy can tell
// anything.
func (i *Intake) Run(ctx context.Context, instances func(context.Context) map[string][]string, connected func() error) {
	i.recorder.Run(ctx, instances, func(context.Context) { i.judge(connected()) })
}

// judge finds out whether everything was measured in a period.
func (i *Intake) judge(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.logged = i.logged || i.lines > 0
	if i.lines = 0; err == nil && !i.logged && i.loads.busy() {
		err = fmt.Errorf("requests are in progress, and none has arrived in the access log: give Envoy the access_log of %s", i.page)
	}
	i.err = err
}

// StreamAccessLogs takes an Envoy's access log.
func (i *Intake) StreamAccessLogs(stream accesslog.AccessLogService_StreamAccessLogsServer) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, e := range m.GetHttpLogs().GetLogEntry() {
			if slices.Contains(i.clusters, e.GetCommonProperties().GetUpstreamCluster()) {
				i.count(read(e))
			}
		}
	}
}

// count counts a request.
func (i *Intake) count(l logged) {
	i.mu.Lock()
	i.lines++
	i.mu.Unlock()
	if l.open {
		return
	}
	if l.unserved {
		i.recorder.Unserved()
	}
	if l.address == "" {
		return
	}
	i.recorder.Judge(l.address, l.target, l.end, l.request)
}

// StreamLoadStats takes an Envoy's reports of load.
func (i *Intake) StreamLoadStats(stream loadstats.LoadReportingService_StreamLoadStatsServer) error {
	id := i.ids.Add(1)
	defer i.loads.ended(id)
	if _, err := stream.Recv(); err != nil {
		return err
	}
	err := stream.Send(&loadstats.LoadStatsResponse{Clusters: i.clusters, LoadReportingInterval: durationpb.New(reportEvery),
		ReportEndpointGranularity: true})
	for err == nil {
		var r *loadstats.LoadStatsRequest
		if r, err = stream.Recv(); err == nil {
			i.loads.reported(id, r.GetClusterStats(), i.clusters, time.Now())
		}
	}
	return err
}

// Pace implements balancer.Meter.
func (i *Intake) Pace(period, fast time.Duration) { i.recorder.Pace(period, fast) }

// Err implements balancer.Meter.
func (i *Intake) Err() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.err
}
