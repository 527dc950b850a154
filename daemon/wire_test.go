package daemon_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// wire forwards connections to a server of the bus until it is cut or stalls.
type wire struct {
	address string
	to      string
	flow    sync.RWMutex // locked while it stalls
	mu      sync.Mutex
	isCut   bool
	conns   map[net.Conn]bool
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{address: ln.Addr().String(), to: to, conns: map[net.Conn]bool{}}
	t.Cleanup(func() { ln.Close(); w.cut(true) })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go w.carry(conn)
		}
	}()
	return w
}

func (w *wire) carry(a net.Conn) {
	b, err := net.Dial("tcp", w.to)
	if err != nil || !w.hold(a, b) {
		a.Close()
		if b != nil {
			b.Close()
		}
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			w.pass(way[0], way[1])
			a.Close()
			b.Close()
		})
	}
	both.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, a)
	delete(w.conns, b)
}

// pass copies until either end is closed.
func (w *wire) pass(to io.Writer, from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		w.flow.RLock()
		_, wrong := to.Write(buf[:n])
		w.flow.RUnlock()
		if err != nil || wrong != nil {
			return
		}
	}
}

// stall delays all data until the wire works again, like a network that loses packets. Neither end of a connection notices.
func (w *wire) stall(stall bool) {
	if stall {
		w.flow.Lock()
	} else {
		w.flow.Unlock()
	}
}

func (w *wire) hold(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isCut {
		return false
	}
	for _, c := range conns {
		w.conns[c] = true
	}
	return true
}

// cut closes all connections, which both ends notice at once, and refuses new ones until the wire is repaired.
func (w *wire) cut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = cut
	if cut {
		for c := range w.conns {
			c.Close()
		}
	}
}
