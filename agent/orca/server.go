package orca

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	orcaservice "github.com/cncf/xds/go/xds/service/orca/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/quellhq/quell/internal/certfile"
	"github.com/quellhq/quell/internal/connlimit"
	"github.com/quellhq/quell/internal/grpclimit"
)

const (
	dead        = 20 * time.Second // after which time without an answer a connection is closed
	greet       = 5 * time.Second  // within which a connection must begin to speak HTTP/2
	mostStreams = 100              // of one connection

	shortest, longest, usual = time.Second, time.Minute, 10 * time.Second // between two reports
)

// server answers clients that ask for reports.
type server struct {
	orcaservice.UnimplementedOpenRcaServiceServer
	*Reports
}

// Listen answers clients at an address until stop is called, with TLS if files are given.
func (r *Reports) Listen(address string, secure certfile.Files) (stop func(), err error) {
	var cert *certfile.Certificate
	var options []grpc.ServerOption
	if secure.Cert != "" {
		if cert, err = certfile.Open(secure, "agent.reports_tls", r.log); err != nil {
			return nil, err
		}
		options = append(options, grpc.Creds(credentials.NewTLS(cert.Config("h2"))))
	}
	open, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for load reports (agent.reports): %w; choose another address or stop what uses it", err)
	}
	listener := grpclimit.Limit(open, connlimit.Beside(connlimit.Files()), r.log)
	s := grpc.NewServer(append(options, grpc.MaxConcurrentStreams(mostStreams), grpc.StatsHandler(listener), grpc.ConnectionTimeout(greet),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: dead / 2, Timeout: dead / 2}))...)
	orcaservice.RegisterOpenRcaServiceServer(s, &server{Reports: r})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Serve(listener) }) // returns when it is stopped
	if cert != nil {
		running.Go(func() { cert.Follow(ctx) })
	}
	return func() { cancel(); s.Stop(); running.Wait() }, nil
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
