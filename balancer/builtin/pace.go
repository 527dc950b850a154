package builtin

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/quellhq/quell/internal/connlimit"
)

// paced is a client's connection as the system has it, below TLS. It fails if the client reads nothing within the allowed time.
type paced struct {
	net.Conn
	rules *atomic.Pointer[clientRules]
	wrote atomic.Int64 // when the client last read something, in ns since epoch; 0: never
	armed atomic.Int64 // deadline of the present write, in ns since epoch; 0: none
}

// Write implements net.Conn.
func (p *paced) Write(b []byte) (n int, err error) {
	for {
		if err := p.arm(); err != nil {
			return n, err
		}
		taken, err := p.Conn.Write(b[n:])
		n += taken
		if taken > 0 {
			p.wrote.Store(int64(time.Since(epoch)))
		}
		if taken == 0 || n == len(b) || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		p.armed.Store(0)
	}
}

// arm sets the deadline of the next write. Between many short writes it leaves the deadline unchanged, because
// setting it is expensive.
func (p *paced) arm() error {
	limit := p.rules.Load().write
	now, armed := time.Since(epoch), time.Duration(p.armed.Load())
	switch {
	case limit <= 0 && armed == 0, limit > 0 && armed-now > limit-limit/8 && armed-now <= limit:
		return nil
	case limit <= 0:
		p.armed.Store(0)
		return p.Conn.SetWriteDeadline(time.Time{})
	}
	p.armed.Store(int64(now + limit))
	return p.Conn.SetWriteDeadline(epoch.Add(now + limit))
}

// CloseWrite closes the sending side.
func (p *paced) CloseWrite() error { return connlimit.CloseWrite(p.Conn) }

// SetDeadline implements net.Conn.
func (p *paced) SetDeadline(t time.Time) error {
	return errors.Join(p.SetReadDeadline(t), p.SetWriteDeadline(t))
}

// SetWriteDeadline implements net.Conn.
func (p *paced) SetWriteDeadline(t time.Time) error {
	p.armed.Store(0)
	return p.Conn.SetWriteDeadline(t)
}
