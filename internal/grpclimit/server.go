package grpclimit

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/quellhq/quell/internal/certfile"
	"github.com/quellhq/quell/internal/connlimit"
)

const (
	dead         = 20 * time.Second // after which time without an answer a connection is closed
	greet        = 5 * time.Second  // within which a connection must begin to speak HTTP/2
	usualStreams = 100              // of one connection, at most
)

// Options say how a server listens.
type Options struct {
	Address string
	What    string         // that is listened for, with its key, for messages
	Secure  certfile.Files // without a Cert: no TLS
	Section string         // of the configuration that names these files
	Streams uint32         // of one connection, at most; 0: 100
	Logger  *slog.Logger
}

// Server is a gRPC server with limits, and with a certificate that follows its files. Services are registered before Serve.
type Server struct {
	*grpc.Server
	listener *Listener
	cert     *certfile.Certificate // nil: without TLS
}

// Open opens the port and the certificate of a server. A mistake in the files is a *quell.UserError.
func Open(o Options) (*Server, error) {
	s := &Server{}
	var options []grpc.ServerOption
	if o.Secure.Cert != "" {
		var err error
		if s.cert, err = certfile.Open(o.Secure, o.Section, o.Logger); err != nil {
			return nil, err
		}
		options = append(options, grpc.Creds(credentials.NewTLS(s.cert.Config("h2"))))
	}
	open, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("listening for %s: %w; choose another address or stop what uses it", o.What, err)
	}
	s.listener = limit(open, connlimit.Beside(connlimit.Files()), o.Logger)
	s.Server = grpc.NewServer(append(options, grpc.MaxConcurrentStreams(cmp.Or(o.Streams, usualStreams)), grpc.StatsHandler(s.listener),
		grpc.ConnectionTimeout(greet), grpc.KeepaliveParams(keepalive.ServerParameters{Time: dead / 2, Timeout: dead / 2}))...)
	return s, nil
}

// Address is where the server listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Limiter limits the connections.
func (s *Server) Limiter() *connlimit.Limiter { return s.listener.Limiter }

// Serve answers until the context ends, which ends all streams. It is called once; after a context that has ended it only closes the port.
func (s *Server) Serve(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { <-ctx.Done(); s.Stop() })
	if s.cert != nil {
		running.Go(func() { s.cert.Follow(ctx) })
	}
	_ = s.Server.Serve(s.listener) // returns when it is stopped
	cancel()
	s.listener.Close()
	running.Wait()
}
