package probe

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A connection reports when the kernel received the bytes that were read last, however late they are read.
func TestArrival(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stamped := stamping(l)
	defer stamped.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := stamped.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := remember(t.Context(), conn)
	if _, ok := waited(ctx); ok {
		t.Error("nothing was read, and it has waited")
	}
	const late = 20 * time.Millisecond
	buffer := make([]byte, 16)
	for range 100 { // the kernel starts to record times only a moment after it is asked to
		if _, err := client.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(late)
		if n, err := conn.Read(buffer); n != 1 || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
		if d, ok := waited(ctx); ok {
			if d < late {
				t.Errorf("it waited %v, want at least %v", d, late)
			}
			break
		}
	}
	if _, ok := waited(ctx); !ok {
		t.Error("the kernel never told a time")
	}
	_ = conn.SetReadDeadline(time.Unix(1, 0))
	if _, err := conn.Read(buffer); err == nil || !err.(net.Error).Timeout() {
		t.Errorf("after the deadline: %v", err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	client.Close()
	if n, err := conn.Read(buffer); n != 0 || err == nil || err.Error() != "EOF" {
		t.Errorf("after the end: %d bytes, %v", n, err)
	}
}

// A download's time ends when its last byte has arrived, not when this machine's processors come to read it.
func TestReadingLateDoesNotCount(t *testing.T) {
	server := NewServer(ServerOptions{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(l); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Shutdown(t.Context()) }()
	const late = 200 * time.Millisecond
	target := Target{Instance: "i1", Address: l.Addr().String()}
	s, err := newSession(Options{Dial: new(net.Dialer).DialContext, Timeout: time.Minute}, target, 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for range 100 { // the kernel starts to record times only a moment after it is asked to
		if r := s.probe(t.Context()); r.kind == refused {
			t.Fatal(r.err)
		}
		if _, known := sinceArrival(s.conn); known {
			break
		}
	}
	s.reader.Reset(lateReader{s.conn, late})
	began := time.Now()
	r := s.probe(t.Context())
	if r.kind != measured || time.Since(began) < late {
		t.Fatalf("%+v after %v", r, time.Since(began))
	}
	if r.took > time.Since(began)-late {
		t.Errorf("a download that was read %v late took %v of %v", late, r.took, time.Since(began))
	}
}

// lateReader reads long after there is something to read.
type lateReader struct {
	net.Conn
	late time.Duration
}

func (r lateReader) Read(p []byte) (int, error) {
	time.Sleep(r.late)
	return r.Conn.Read(p)
}

func TestArrivalIsUnknown(t *testing.T) {
	if _, ok := waited(context.Background()); ok {
		t.Error("a request without a connection has waited")
	}
	future := &stampedConn{}
	future.arrived.Store(time.Now().Add(time.Hour).UnixNano())
	if d, ok := waited(remember(t.Context(), future)); ok {
		t.Errorf("the clock was set back, and a request has waited %v", d)
	}
	for _, control := range [][]byte{nil, make([]byte, 3), unix.UnixRights(1)} {
		if at := stampIn(control); at != 0 {
			t.Errorf("%v: a time of %d", control, at)
		}
	}
}

// A held answer says how long its request had waited when the answer was sent, not when its headers were written.
func TestHeldAnswersTellTheWholeWait(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := stamping(l).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, tc := range []struct{ why, written, body string }{
		{"with the header", "HTTP/1.1 200 OK\r\n" + waitedHeader + ": " + waitedText(time.Millisecond) + "\r\nA: b\r\n\r\n", "body"},
		{"the body is no header", "HTTP/1.1 200 OK\r\nA: b\r\n\r\n", "\r\n" + waitedHeader + ": " + waitedText(0)},
		{"nothing", "", ""},
	} {
		send := hold(remember(t.Context(), conn))
		conn.(*stampedConn).arrived.Store(time.Now().Add(-time.Hour).UnixNano())
		if _, err := conn.Write([]byte(tc.written + tc.body)); err != nil {
			t.Fatal(err)
		}
		if err := send(); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(tc.written+tc.body))
		if _, err := io.ReadFull(client, got); err != nil {
			t.Fatal(err)
		}
		text := string(got)
		if !strings.HasSuffix(text, tc.body) || strings.Contains(tc.written, waitedHeader) != (strings.Contains(text, ": 0036000")) {
			t.Errorf("%s: %q", tc.why, text)
		}
	}
}
