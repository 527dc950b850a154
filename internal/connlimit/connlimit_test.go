package connlimit

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"
)

var silent = slog.New(slog.DiscardHandler)

// serve serves with a limit of connections until the test ends.
func serve(t *testing.T, most int, h http.HandlerFunc) (address string, l *Limiter) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l = New(most, silent)
	server := Guard(&http.Server{Handler: h})
	go server.Serve(&Listener{Listener: ln, Limiter: l})
	t.Cleanup(func() { server.Close() })
	return ln.Addr().String(), l
}

// client is one connection.
type client struct {
	net.Conn
	answers *bufio.Reader
}

func dial(t *testing.T, address string) *client {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	return &client{conn, bufio.NewReader(conn)}
}

func (c *client) ask() { io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") }

func (c *client) answered(t *testing.T) {
	t.Helper()
	if resp, err := http.ReadResponse(c.answers, nil); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", resp, err)
	}
}

// awaitIdle waits until the server has noted that all answers were sent. A client may have its answer a moment earlier.
func (l *Limiter) awaitIdle() {
	for idle := false; !idle; runtime.Gosched() {
		l.mu.Lock()
		idle = l.idle.Len() == l.open
		for e := l.idle.Front(); e != nil; e = e.Next() {
			idle = idle && e.Value.(*Conn).sent
		}
		l.mu.Unlock()
	}
}

func TestTheLongestIdleConnectionIsClosedForANewOne(t *testing.T) {
	address, l := serve(t, 2, func(http.ResponseWriter, *http.Request) {})
	a, b := dial(t, address), dial(t, address)
	for _, c := range []*client{a, b, a} { // b is idle for longer
		c.ask()
		c.answered(t)
		l.awaitIdle()
	}
	third := dial(t, address)
	third.ask()
	third.answered(t)
	if _, err := b.answers.ReadByte(); err == nil {
		t.Error("the connection that was idle for longest is open")
	}
	a.ask()
	a.answered(t)
	if n := l.Open(); n != 2 {
		t.Errorf("%d connections are open", n)
	}
}

func TestAConnectionWithoutAFirstRequestIsIdle(t *testing.T) {
	address, _ := serve(t, 1, func(http.ResponseWriter, *http.Request) {})
	silent := dial(t, address)
	io.WriteString(silent, "GET / HTTP/1.1\r\nHost")
	other := dial(t, address)
	other.ask()
	other.answered(t)
}

func TestARequestInProgressIsNotClosed(t *testing.T) {
	begun, proceed := make(chan struct{}, 2), make(chan struct{})
	address, l := serve(t, 1, func(http.ResponseWriter, *http.Request) { begun <- struct{}{}; <-proceed })
	first := dial(t, address)
	first.ask()
	<-begun
	second := dial(t, address)
	second.ask()
	proceed <- struct{}{}
	first.answered(t)
	<-begun // the first is idle now, and gives its place to the second
	proceed <- struct{}{}
	second.answered(t)
	l.Resize(2)
	if n := l.Open(); n != 1 {
		t.Errorf("%d connections are open", n)
	}
}

func TestACloseEndsTheWaiting(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limited := &Listener{Listener: ln, Limiter: New(1, silent)}
	dial(t, ln.Addr().String())
	first, err := limited.Accept()
	if err != nil {
		t.Fatal(err)
	}
	first.(*Conn).Begin()
	waiting := make(chan error)
	go func() { _, err := limited.Accept(); waiting <- err }()
	dial(t, ln.Addr().String())
	limited.Close()
	if err := <-waiting; err == nil {
		t.Error("a closed listener accepted a connection")
	}
}

func TestBeside(t *testing.T) {
	for files, want := range map[int]int{0: 256, 64: 4, 128: 8, 1024: 64, 1 << 20: 256} {
		if got := Beside(files); got != want {
			t.Errorf("%d files: %d, want %d", files, got, want)
		}
	}
}

// A connection that was accepted when the listener was closed belongs to a client that may have sent its request: it is served.
func TestAConnectionAcceptedBeforeTheCloseIsServed(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	l := New(1, silent)
	listener := &Listener{Listener: closedMeanwhile{ours, l}, Limiter: l}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if l.Open() != 1 {
		t.Errorf("%d connections count, want 1", l.Open())
	}
}

// closedMeanwhile accepts one connection, and its limiter is closed before Accept returns.
type closedMeanwhile struct {
	conn    net.Conn
	limiter *Limiter
}

func (c closedMeanwhile) Accept() (net.Conn, error) { c.limiter.Close(); return c.conn, nil }
func (c closedMeanwhile) Close() error              { return nil }
func (c closedMeanwhile) Addr() net.Addr            { return c.conn.LocalAddr() }
