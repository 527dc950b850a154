package emulated

import (
	"net"
	"sync"
)

// Listener returns a listener whose connections send over the link, on the owner's account.
func (l *Link) Listener(ln net.Listener, owner Owner) net.Listener {
	return &listener{Listener: ln, link: l, owner: owner}
}

type listener struct {
	net.Listener
	link  *Link
	owner Owner
}

func (ln *listener) Accept() (net.Conn, error) {
	c, err := ln.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return ln.link.Conn(c, ln.owner), nil
}

// Conn returns a connection that sends over the link: a write gives pieces to the real connection when they have crossed the link, a lot
// of them at a time, and returns after the last. Received bytes do not cross the link. One connection is one flow: over HTTP/1 it carries
// one response at a time. A write notices its deadline when the next lot has crossed.
func (l *Link) Conn(c net.Conn, owner Owner) net.Conn {
	return &conn{
		Conn: c, link: l, closed: make(chan struct{}),
		flow: &flow{owner: owner, waiter: newWaiter(), crossed: -1},
	}
}

type conn struct {
	net.Conn
	link    *Link
	flow    *flow
	writing sync.Mutex
	broken  error // what ended the first write that failed; a part of that write may have crossed, so no other write can follow
	once    sync.Once
	closed  chan struct{}
}

func (c *conn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.broken != nil {
		return 0, c.broken
	}
	if err := c.link.send(c.flow, len(p)); err != nil {
		return 0, err
	}
	sent := 0
	for sent < len(p) {
		n, err := c.crossed(len(p) - sent)
		if err == nil {
			n, err = c.Conn.Write(p[sent : sent+n])
			sent += n
		}
		if err != nil {
			c.broken = err
			c.link.cancel(c.flow)
			return sent, err
		}
	}
	return sent, nil
}

// crossed waits until a lot of the flow, or all of the left bytes, has crossed the link, and returns the number of bytes.
func (c *conn) crossed(left int) (int, error) {
	for {
		if n := c.link.taken(c.flow, left); n > 0 {
			return int(n), nil
		}
		select {
		case <-c.flow.waiter.signal:
		case <-c.closed:
			return 0, net.ErrClosed
		case <-c.link.done:
			return 0, net.ErrClosed
		}
	}
}

func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
