// Package reports shows how a server passes the load reports of its machine's agent on to clients that ask the server itself: clients of
// gRPC, and those that read a response header. Copy what you need.
package reports

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	orcadata "github.com/cncf/xds/go/xds/data/orca/v3"
	orcaservice "github.com/cncf/xds/go/xds/service/orca/v3"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Relay answers a gRPC server's clients with the agent's reports: orcaservice.RegisterOpenRcaServiceServer(server, Relay{Agent: client}).
type Relay struct {
	orcaservice.UnimplementedOpenRcaServiceServer
	Agent orcaservice.OpenRcaServiceClient // at the address agent.reports
}

// StreamCoreMetrics implements the service.
func (r Relay) StreamCoreMetrics(ask *orcaservice.OrcaLoadReportRequest, to orcaservice.OpenRcaService_StreamCoreMetricsServer) error {
	from, err := r.Agent.StreamCoreMetrics(to.Context(), ask)
	for err == nil {
		var report *orcadata.OrcaLoadReport
		if report, err = from.Recv(); err == nil {
			err = to.Send(report)
		}
	}
	return err
}

// Header adds the agent's newest report to the responses of a handler.
type Header struct {
	http.Handler
	newest atomic.Pointer[header]
}

type header struct {
	text string
	at   time.Time
}

// fresh is for how long a report may be sent.
const fresh = 10 * time.Second

// Follow reads the agent's reports until ctx ends or the stream breaks.
func (h *Header) Follow(ctx context.Context, agent orcaservice.OpenRcaServiceClient) error {
	from, err := agent.StreamCoreMetrics(ctx, &orcaservice.OrcaLoadReportRequest{ReportInterval: durationpb.New(time.Second)})
	for err == nil {
		var r *orcadata.OrcaLoadReport
		if r, err = from.Recv(); err == nil {
			h.newest.Store(&header{at: time.Now(), text: fmt.Sprintf("TEXT cpu_utilization=%g,application_utilization=%g,rps_fractional=%g",
				r.CpuUtilization, r.ApplicationUtilization, r.RpsFractional)})
		}
	}
	return err
}

// ServeHTTP implements http.Handler.
func (h *Header) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if newest := h.newest.Load(); newest != nil && time.Since(newest.at) < fresh {
		w.Header().Set("endpoint-load-metrics", newest.text)
	}
	h.Handler.ServeHTTP(w, r)
}
