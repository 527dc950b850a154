// Package grpclimit opens gRPC servers whose connections and streams are limited, and whose certificate follows its files.
package grpclimit

import (
	"context"
	"log/slog"
	"net"
	"sync"

	"google.golang.org/grpc/stats"

	"github.com/quellhq/quell/internal/connlimit"
)

// Listener is a listener with a limit of connections. One over which there is a stream is not closed for others. It is the server's
// stats.Handler, too.
type Listener struct {
	connlimit.Listener

	mu    sync.Mutex
	conns map[string]*connlimit.Conn // by the address of the other end
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	address, counted := conn.RemoteAddr().String(), conn.(*connlimit.Conn)
	counted.OnClose = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, address)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[address] = counted
	return conn, nil
}

// limit limits a listener to so many connections.
func limit(ln net.Listener, most int, log *slog.Logger) *Listener {
	return &Listener{Listener: connlimit.Listener{Listener: ln, Limiter: connlimit.New(most, log)}, conns: map[string]*connlimit.Conn{}}
}

func (l *Listener) at(address string) *connlimit.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conns[address]
}

type addressKey struct{}

// TagConn implements stats.Handler.
func (l *Listener) TagConn(ctx context.Context, i *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, addressKey{}, i.RemoteAddr.String())
}

// HandleConn implements stats.Handler.
func (l *Listener) HandleConn(context.Context, stats.ConnStats) {}

// TagRPC implements stats.Handler.
func (l *Listener) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler: it notes streams that begin and end.
func (l *Listener) HandleRPC(ctx context.Context, s stats.RPCStats) {
	address, _ := ctx.Value(addressKey{}).(string)
	conn := l.at(address)
	if conn == nil {
		return
	}
	switch s.(type) {
	case *stats.Begin:
		conn.Begin()
	case *stats.End:
		conn.End()
	}
}
