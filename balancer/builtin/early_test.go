package builtin

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func dialTo(t testing.TB, s *Server) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	return conn.(*net.TCPConn)
}

// An instance answers before it has read the body. The client gets the whole answer, and the server never reads the client's connection
// twice at the same time.
func TestAnEarlyAnswerToAnUpload(t *testing.T) {
	var log record
	s := start(t, Options{Health: checkedOnce(), Logger: log.logger()})
	rawInstance(t, s, "HTTP/1.1 202 Accepted\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge")
	ends := map[string]string{"chunks": "\r\n0\r\n\r\n"}
	for name, body := range map[string]string{
		"length": "Content-Length: 100000\r\n\r\n" + strings.Repeat("x", 100),
		"chunks": "Transfer-Encoding: chunked\r\n\r\n186a0\r\n" + strings.Repeat("x", 100),
	} {
		t.Run(name, func(t *testing.T) {
			conn := dialTo(t, s)
			io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\n"+body)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || resp.StatusCode != http.StatusAccepted {
				t.Fatalf("%+v, %v", resp, err)
			}
			if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "large" {
				t.Errorf("%q, %v", text, err)
			}
			io.WriteString(conn, strings.Repeat("x", 99900)+ends[name]) // the connection is not reset: the answer cannot be lost
			if more, err := io.ReadAll(conn); err != nil || len(more) > 0 {
				t.Errorf("then %q, %v", more, err)
			}
		})
	}
	if strings.Contains(log.String(), "panic") {
		t.Error(log.String())
	}
}

// An instance that does not read a body that has arrived costs the client nothing: its connection is kept.
func TestAnUnreadBodyThatHasArrived(t *testing.T) {
	var log record
	s := start(t, Options{Health: checkedOnce(), Logger: log.logger()})
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "unread") })
	applyHealthy(t, s, in.backend(1))
	conn := dialTo(t, s)
	answers := bufio.NewReader(conn)
	for i := range 200 {
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n%s", strings.Repeat("x", 1000))
		resp, err := http.ReadResponse(answers, nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("request %d: %+v, %v", i, resp, err)
		}
		io.Copy(io.Discard, resp.Body)
	}
	if strings.Contains(log.String(), "panic") {
		t.Error(log.String())
	}
}

// Uploads of all sizes are answered at all moments. Only in a part of them both sides read at the same time.
func TestManyEarlyAnswers(t *testing.T) {
	var log record
	s := start(t, Options{Health: checkedOnce(), Logger: log.logger()})
	rawInstance(t, s, "HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge")
	for i := range 60 {
		conn := dialTo(t, s)
		size := 1000 << (i % 10)
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", size)
		go io.WriteString(conn, strings.Repeat("x", size))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Fatalf("%d bytes: %+v, %v", size, resp, err)
		}
		conn.Close()
	}
	waitFor(t, "the end of all requests", func() bool { return s.proxy.open.Load() == 0 })
	if strings.Contains(log.String(), "panic") {
		t.Error(log.String())
	}
}

// A client that closes its sending side behind a request still gets the answer.
func TestHalfClosedClients(t *testing.T) {
	s := start(t, Options{Timeouts: Timeouts{HalfClosed: 10 * time.Second}})
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		select {
		case <-time.After(50 * time.Millisecond): // long enough for the balancer to see the client's end
			fmt.Fprintf(w, "%s of %d", r.Method, len(body))
		case <-r.Context().Done():
		}
	})
	applyHealthy(t, s, in.backend(1))
	for want, request := range map[string]string{
		"GET of 0 HEAD": "GET / HTTP/1.1\r\nHost: a\r\n\r\nHEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET of 0":      "GET / HTTP/1.0\r\n\r\n",
		"POST of 5":     "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
		"PUT of 5":      "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	} {
		conn := dialTo(t, s)
		io.WriteString(conn, request)
		conn.CloseWrite()
		got, err := io.ReadAll(conn) // the connection ends after the last answer
		answers := strings.Fields(want)
		if err != nil || strings.Count(string(got), " 200 OK\r\n") != 1+strings.Count(want, "HEAD") ||
			!strings.Contains(string(got), strings.Join(answers[:3], " ")) {
			t.Errorf("want %s, got %q, %v", want, got, err)
		}
	}
}

// A client that has left altogether looks the same at first, so its request is cancelled later.
func TestAClientThatLeavesIsGivenUp(t *testing.T) {
	for _, grace := range []time.Duration{0, 20 * time.Millisecond} {
		s := start(t, Options{Timeouts: Timeouts{HalfClosed: grace}})
		asked, cancelled := make(chan struct{}), make(chan struct{})
		in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
			close(asked)
			<-r.Context().Done()
			close(cancelled)
		})
		applyHealthy(t, s, in.backend(1))
		conn := dialTo(t, s)
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		<-asked
		conn.Close()
		<-cancelled
		waitFor(t, "the end", func() bool { return stateOf(t, s, "i1").InFlight == 0 })
		if r := s.reporter.readings(time.Now())[0]; r.Errors != 0 {
			t.Errorf("a client that left counts against the instance: %+v", r)
		}
	}
}
