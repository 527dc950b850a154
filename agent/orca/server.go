package orca

import (
	"context"
	"time"

	orcaservice "github.com/cncf/xds/go/xds/service/orca/v3"
	"google.golang.org/grpc/metadata"

	"github.com/quellhq/quell/internal/certfile"
	"github.com/quellhq/quell/internal/grpclimit"
)

// Times between two reports.
const shortest, longest, usual = time.Second, time.Minute, 10 * time.Second

// server answers clients that ask for reports.
type server struct {
	orcaservice.UnimplementedOpenRcaServiceServer
	*Reports
}

// Listen answers clients at an address until stop is called, with TLS if files are given.
func (r *Reports) Listen(address string, secure certfile.Files) (stop func(), err error) {
	s, err := grpclimit.Open(grpclimit.Options{Address: address, What: "load reports (agent.reports)", Secure: secure,
		Section: "agent.reports_tls", Logger: r.log})
	if err != nil {
		return nil, err
	}
	orcaservice.RegisterOpenRcaServiceServer(s, &server{Reports: r})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Serve(ctx) }()
	return func() { cancel(); <-ended }, nil
}

// every returns how often a client that asks for an interval gets reports.
func every(asked time.Duration) time.Duration {
	if asked <= 0 {
		return usual
	}
	return min(max(asked, shortest), longest)
}

// StreamCoreMetrics sends reports until the client goes.
func (s *server) StreamCoreMetrics(ask *orcaservice.OrcaLoadReportRequest, to orcaservice.OpenRcaService_StreamCoreMetricsServer) error {
	s.count(1)
	defer s.count(-1)
	authority := authorityOf(to.Context())
	ticker := time.NewTicker(every(ask.GetReportInterval().AsDuration()))
	defer ticker.Stop()
	for {
		if err := to.Send(s.Load(authority)); err != nil {
			return err
		}
		select {
		case <-to.Context().Done():
			return to.Context().Err()
		case <-ticker.C:
		}
	}
}

func (r *Reports) count(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams += n
}

// authorityOf returns the host that a client asked for.
func authorityOf(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	if values := md.Get(":authority"); len(values) > 0 {
		return values[0]
	}
	return ""
}
