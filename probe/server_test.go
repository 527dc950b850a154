package probe

import (
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// start runs a server on loopback until the test ends and returns its address.
func start(t *testing.T, s *Server) string {
	t.Helper()
	l := listen(t)
	if err := s.Start(l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func get(t *testing.T, url, authorization string) (status int, body []byte) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, body
}

func TestServerAnswers(t *testing.T) {
	open, guarded := start(t, NewServer(ServerOptions{})), start(t, NewServer(ServerOptions{Token: "secret"}))
	for _, c := range []struct {
		name, address, path, authorization string
		status, size                       int
	}{
		{"a probe", open, "/probe?size=5000", "", 200, 5000},
		{"the smallest", open, "/probe?size=1", "", 200, 1},
		{"more than a block, not a multiple", open, "/probe?size=200001", "", 200, 200001},
		{"the largest", open, fmt.Sprintf("/probe?size=%d", mostServed), "", 200, mostServed},
		{"above the largest", open, fmt.Sprintf("/probe?size=%d", mostServed+1), "", 400, -1},
		{"nothing", open, "/probe?size=0", "", 400, -1},
		{"no size", open, "/probe", "", 400, -1},
		{"no number", open, "/probe?size=1e3", "", 400, -1},
		{"another page", open, "/", "", 404, -1},
		{"the right token", guarded, "/probe?size=10", "Bearer secret", 200, 10},
		{"the scheme in lower case", guarded, "/probe?size=10", "bearer secret", 200, 10},
		{"no token", guarded, "/probe?size=10", "", 401, -1},
		{"the wrong token", guarded, "/probe?size=10", "Bearer secre", 401, -1},
		{"an empty token", guarded, "/probe?size=10", "Bearer ", 401, -1},
		{"another scheme", guarded, "/probe?size=10", "Basic secret", 401, -1},
		{"health needs no token", guarded, "/healthz", "", 200, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, body := get(t, "http://"+c.address+c.path, c.authorization)
			if status != c.status || c.size >= 0 && len(body) != c.size {
				t.Errorf("status %d with %d bytes, want %d with %d", status, len(body), c.status, c.size)
			}
		})
	}
}

func TestServerContentDoesNotCompress(t *testing.T) {
	_, body := get(t, "http://"+start(t, NewServer(ServerOptions{}))+"/probe?size=1000000", "")
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if packed.Len() < len(body)*99/100 {
		t.Errorf("%d bytes compress to %d", len(body), packed.Len())
	}
}

func TestServerWithoutATokenStaysLocal(t *testing.T) {
	outside, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	s := NewServer(ServerOptions{})
	var user *quell.UserError
	if err := s.Start(outside); !errors.As(err, &user) || !strings.Contains(err.Error(), "set probe.token") {
		t.Errorf("started on every address: %v", err)
	}
	for address, want := range map[string]int{"192.0.2.1": 401, "127.0.0.1": 200, "::1": 200} {
		request := httptest.NewRequest(http.MethodGet, "/probe?size=1", nil)
		local := &net.TCPAddr{IP: net.ParseIP(address)}
		request = request.WithContext(context.WithValue(request.Context(), http.LocalAddrContextKey, net.Addr(local)))
		answer := httptest.NewRecorder()
		s.ServeHTTP(answer, request)
		if answer.Code != want {
			t.Errorf("mounted on %s: status %d, want %d", address, answer.Code, want)
		}
	}
	guarded := NewServer(ServerOptions{Token: "secret"})
	l := listen(t)
	if err := guarded.Start(l); err != nil {
		t.Fatal(err)
	}
	defer guarded.Shutdown(context.Background())
	if err := guarded.Start(l); err == nil {
		t.Error("started twice")
	}
}

// countingListener counts the bytes that its connections send.
type countingListener struct {
	net.Listener
	sent atomic.Uint64
}

type countingConn struct {
	net.Conn
	sent *atomic.Uint64
}

func (l *countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &countingConn{conn, &l.sent}, nil
}

func (c *countingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.Add(uint64(n))
	return n, err
}

func TestBytesSentAreThoseOnTheWire(t *testing.T) {
	l := &countingListener{Listener: listen(t)}
	s := NewServer(ServerOptions{Token: "secret"})
	if err := s.Start(l); err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{}}
	for _, path := range []string{"/probe?size=1000", "/probe?size=123456", "/probe?size=0", "/healthz"} {
		request, err := http.NewRequest(http.MethodGet, "http://"+l.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer secret")
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
	client.CloseIdleConnections()
	if err := s.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s.BytesSent() != l.sent.Load() {
		t.Errorf("%d bytes counted, %d sent", s.BytesSent(), l.sent.Load())
	}
}

func TestServerBoundsConcurrency(t *testing.T) {
	s := NewServer(ServerOptions{Concurrent: 1})
	address := start(t, s)
	slow, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	// Nobody reads this answer, and it does not fit into the socket's buffers, so it occupies the only place.
	if _, err := fmt.Fprintf(slow, "GET /probe?size=%d HTTP/1.1\r\nHost: x\r\n\r\n", mostServed); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(slow, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if status, _ := get(t, "http://"+address+"/probe?size=1", ""); status != http.StatusServiceUnavailable {
		t.Errorf("status %d while the only slot is taken, want 503", status)
	}
	if status, _ := get(t, "http://"+address+"/healthz", ""); status != http.StatusOK {
		t.Errorf("health is %d while busy", status)
	}
	slow.Close()
	deadline := time.Now().Add(5 * time.Second)
	for len(s.slots) > 0 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if status, _ := get(t, "http://"+address+"/probe?size=1", ""); status != http.StatusOK {
		t.Errorf("status %d after the slot was given back", status)
	}
}

func TestShutdownCutsStalledDownloads(t *testing.T) {
	s := NewServer(ServerOptions{})
	l := listen(t)
	if err := s.Start(l); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET /probe?size=%d HTTP/1.1\r\nHost: x\r\n\r\n", mostServed); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("shutdown with a stalled download: %v, want the deadline", err)
	}
	if n, err := io.Copy(io.Discard, conn); n >= mostServed {
		t.Errorf("the stalled download was finished: %d bytes, %v", n, err)
	}
}
