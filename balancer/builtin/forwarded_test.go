package builtin

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// rawInstance is a backend that answers each connection's first request with the given bytes. It returns the request's header as it
// arrived.
func rawInstance(t testing.TB, s *Server, answer string) (seen <-chan string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	heads := make(chan string, 16)
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go answerRaw(conn, answer, heads)
		}
	}()
	in := instance{id: "raw", address: ln.Addr().String()}
	applyHealthy(t, s, in.backend(1))
	return heads
}

func answerRaw(conn net.Conn, answer string, heads chan<- string) {
	defer conn.Close()
	var head strings.Builder
	for r := bufio.NewReader(conn); ; {
		line, err := r.ReadString('\n')
		if head.WriteString(line); err != nil {
			return
		}
		if line == "\r\n" {
			break
		}
	}
	if strings.HasPrefix(head.String(), "GET /health ") {
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return
	}
	select {
	case heads <- head.String():
	default: // the test does not look at all of them
	}
	io.WriteString(conn, answer)
	conn.(*net.TCPConn).CloseWrite()
	io.Copy(io.Discard, conn) // an immediate close could reset the connection, and the answer would be lost
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"

// What names a client comes from the balancer or from a trusted proxy, in whatever form a client writes it.
func TestForwardedFieldsOfAClientAreDropped(t *testing.T) {
	s := start(t, Options{Health: checkedOnce()})
	seen := rawInstance(t, s, okAnswer)
	var fields strings.Builder
	for _, name := range []string{"Port", "Server", "Prefix", "Ssl", "Proto", "For", "Host", "Anything"} {
		fmt.Fprintf(&fields, "X-Forwarded-%s: forged\r\nx_forwarded_%s: forged\r\nX-Forwarded_%s: forged\r\n", name, name, name)
	}
	rawly(t, s, "GET / HTTP/1.1\r\nHost: a\r\nForwarded: for=forged\r\nConnection: close\r\nX-Forward: kept\r\n"+fields.String()+"\r\n")
	if head := <-seen; strings.Contains(head, "forged") || !strings.Contains(head, "X-Forward: kept") ||
		!strings.Contains(head, "X-Forwarded-For: 127.0.0.1\r\n") {
		t.Errorf("the instance got\n%s", head)
	}
}

// Only protocols that are allowed can be changed to; a request that wants another one is an ordinary request.
func TestUpgradesAreLimited(t *testing.T) {
	s := start(t, Options{Health: checkedOnce()})
	seen := rawInstance(t, s, okAnswer)
	for wish, want := range map[string]string{
		"h2c": "", "TLS/1.0": "", "websocket": "websocket", "WebSocket": "WebSocket", "h2c, websocket": "websocket",
		"h2c\r\nUpgrade: echo": "echo",
	} {
		rawly(t, s, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings, close\r\n"+
			"Upgrade: "+wish+"\r\nHTTP2-Settings: AAMAAABk\r\n\r\n")
		head := <-seen
		if got := strings.Contains(head, "Upgrade: "); got != (want != "") || strings.Contains(head, "Http2") {
			t.Errorf("%s: the instance got\n%s", wish, head)
		}
		if want != "" && !strings.Contains(head, "\r\nUpgrade: "+want+"\r\n") {
			t.Errorf("%s: the instance got\n%s", wish, head)
		}
	}
}

func TestARequestWithoutHost(t *testing.T) {
	for name, want := range map[string]string{"": "Host: \r\n", "shop.example": "Host: shop.example\r\n"} {
		s := start(t, Options{Health: checkedOnce(), DefaultHost: name})
		seen := rawInstance(t, s, okAnswer)
		rawly(t, s, "GET / HTTP/1.0\r\n\r\n")
		if head := <-seen; !strings.Contains(head, "\r\n"+want) {
			t.Errorf("the instance got\n%s", head)
		}
	}
}

func TestABalancerAddsNothingToAResponse(t *testing.T) {
	s, err := New(Options{Listen: "127.0.0.1:0", Health: checkedOnce()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	rawInstance(t, s, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nDate: then\r\nConnection: close\r\n\r\n<html>")
	const want = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nDate: then\r\nConnection: close\r\n\r\n<html>"
	if got := rawly(t, s, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestInterimResponses(t *testing.T) {
	s := start(t, Options{Health: checkedOnce()})
	rawInstance(t, s, "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: x-private\r\nX-Private: 1\r\nKeep-Alive: timeout=1\r\n"+
		"Upgrade: h2c\r\n\r\n"+okAnswer)
	got := rawly(t, s, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	interim, final, _ := strings.Cut(got, "\r\n\r\n")
	if interim != "HTTP/1.1 103 Early Hints\r\nLink: </a.css>" || !strings.HasPrefix(final, "HTTP/1.1 200 OK\r\n") {
		t.Errorf("got %q", got)
	}
	if got := rawly(t, s, "GET / HTTP/1.0\r\nHost: a\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.0 200 OK\r\n") {
		t.Errorf("HTTP/1.0 got %q", got)
	}
}

func TestThePrefaceOfHTTP2IsNoRequest(t *testing.T) {
	s := start(t, Options{})
	in := newInstance(t, "i1", nil)
	applyHealthy(t, s, in.backend(1))
	for _, request := range []string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "PRI * HTTP/1.1\r\nHost: a\r\n\r\n"} {
		if got := rawly(t, s, request); !strings.HasPrefix(got, "HTTP/1.1 505 ") || strings.Count(got, "HTTP/1.1 ") != 1 {
			t.Errorf("got %q", got)
		}
	}
	if n := in.served.Load(); n != 0 {
		t.Errorf("the instance got %d requests", n)
	}
}

func TestOptionsForEverythingIsForAnInstance(t *testing.T) {
	s := start(t, Options{Health: checkedOnce()})
	seen := rawInstance(t, s, okAnswer)
	got := rawly(t, s, "OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 "+fmt.Sprint(http.StatusOK)) {
		t.Fatalf("got %q", got)
	}
	if head := <-seen; !strings.HasPrefix(head, "OPTIONS * HTTP/1.1\r\n") {
		t.Errorf("the instance got\n%s", head)
	}
}
