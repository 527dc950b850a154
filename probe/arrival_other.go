//go:build !linux

package probe

import (
	"context"
	"net"
	"time"
)

// Only Linux reports when the kernel received what is read from a connection.
func stamping(l net.Listener) net.Listener                     { return l }
func stamped(c net.Conn) net.Conn                              { return c }
func remember(ctx context.Context, _ net.Conn) context.Context { return ctx }
func hold(context.Context) (send func() error)                 { return func() error { return nil } }
func waited(context.Context) (d time.Duration, ok bool)        { return 0, false }
func sinceArrival(net.Conn) (d time.Duration, ok bool)         { return 0, false }
