package probe

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stamping makes a TCP listener's connections report when the kernel received the bytes that were read last. Other listeners are returned
// unchanged.
func stamping(l net.Listener) net.Listener {
	if _, ok := l.(*net.TCPListener); !ok {
		return l
	}
	return stampingListener{l}
}

type stampingListener struct{ net.Listener }

// Accept implements net.Listener.
func (l stampingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return stamped(conn), nil
}

// stamped makes a TCP connection report when the kernel received the bytes that were read last. Other connections, and those of a kernel
// that does not report times of arrival, are returned unchanged.
func stamped(conn net.Conn) net.Conn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return conn
	}
	refused := error(nil)
	err = raw.Control(func(fd uintptr) { refused = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) })
	if err != nil || refused != nil {
		return conn
	}
	return &stampedConn{TCPConn: tcp, raw: raw}
}

// stampedConn is a connection that notes when the kernel received what is read, and that can send an answer as a whole.
type stampedConn struct {
	*net.TCPConn
	raw     syscall.RawConn
	arrived atomic.Int64 // in ns since 1970; 0: not known

	// While holding is true, held keeps the bytes that were written and not sent yet. Only the goroutine that answers a request uses both.
	holding bool
	held    []byte
}

// Write implements net.Conn.
func (c *stampedConn) Write(p []byte) (int, error) {
	if c.holding {
		c.held = append(c.held, p...)
		return len(p), nil
	}
	return c.TCPConn.Write(p)
}

// Read implements net.Conn. Only one goroutine may read at a time, as in net/http.
func (c *stampedConn) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	var control [64]byte
	var length int
	failed := c.raw.Read(func(fd uintptr) bool {
		for {
			n, length, _, _, err = unix.Recvmsg(int(fd), p, control[:], 0)
			if err != unix.EINTR {
				return err != unix.EAGAIN
			}
		}
	})
	switch {
	case failed != nil: // the deadline passed, or the connection was closed
		return 0, failed
	case err != nil:
		return 0, &net.OpError{Op: "read", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
	case n == 0:
		return 0, io.EOF
	}
	c.arrived.Store(stampIn(control[:length]))
	return n, nil
}

// stampIn returns the time of arrival in a packet's control messages, 0 if there is none.
func stampIn(control []byte) int64 {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0
	}
	for _, m := range messages {
		var at unix.Timespec
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(at)) {
			at = *(*unix.Timespec)(unsafe.Pointer(&m.Data[0]))
			return at.Nano()
		}
	}
	return 0
}

// hold makes the connection of this request keep back what is written until send is called, which sends everything at once. Other
// connections than those of a stamping listener send at once.
func hold(ctx context.Context) (send func() error) {
	c, ok := ctx.Value(connKey{}).(*stampedConn)
	if !ok {
		return func() error { return nil }
	}
	c.holding = true
	return func() error {
		c.holding = false
		c.tell()
		_, err := c.TCPConn.Write(c.held)
		c.held = c.held[:0]
		return err
	}
}

// tell writes into the headers of a held answer how long the request has waited by now. Between the headers and the sending the server
// may wait for a processor, too.
func (c *stampedConn) tell() {
	headers, _, _ := bytes.Cut(c.held, []byte("\r\n\r\n"))
	_, value, found := bytes.Cut(headers, []byte("\r\n"+waitedHeader+": "))
	if d, known := sinceArrival(c); found && known && len(value) >= waitedDigits {
		copy(value, waitedText(d))
	}
}

type connKey struct{}

// remember stores a connection in the context of its requests, for waited.
func remember(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// waited returns how long the request of this context has waited on this machine since the kernel received it; see sinceArrival.
func waited(ctx context.Context) (d time.Duration, ok bool) {
	conn, ok := ctx.Value(connKey{}).(net.Conn)
	if !ok {
		return 0, false
	}
	return sinceArrival(conn)
}

// sinceArrival returns for how long the bytes that were read last from a connection have been on this machine. ok is false if that time is
// not known, or if the wall clock was set back meanwhile.
func sinceArrival(conn net.Conn) (d time.Duration, ok bool) {
	c, ok := conn.(*stampedConn)
	if !ok {
		return 0, false
	}
	at := c.arrived.Load()
	d = time.Duration(time.Now().UnixNano() - at)
	return d, at > 0 && d >= 0
}
