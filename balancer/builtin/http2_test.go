package builtin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// framedInstance is a backend that speaks only HTTP/2 without TLS. It echoes lines, and ends with trailers as gRPC does.
func framedInstance(t *testing.T) *instance {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	in := &instance{id: "i1", address: ln.Addr().String()}
	in.handler = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Grpc-Status")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		for lines := bufio.NewReader(r.Body); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				break
			}
			io.WriteString(w, "echo "+line)
			w.(http.Flusher).Flush()
		}
		w.Header().Set("Grpc-Status", "0")
		w.Header().Set(http.TrailerPrefix+"Seen", r.Trailer.Get("X-Checksum")+" "+r.Header.Get("Te")+" "+r.Proto)
	}
	server := &http.Server{Handler: in, Protocols: H2C.protocols()}
	go server.Serve(ln)
	t.Cleanup(func() { server.Close() })
	return in
}

func framedClient(t *testing.T) *http.Client {
	transport := &http.Transport{Protocols: H2C.protocols()}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

// A conversation such as a bidirectional stream of gRPC passes from end to end, with trailers in both directions.
func TestHTTP2FromEndToEnd(t *testing.T) {
	s := start(t, Options{HTTP2: true, Upstream: H2C})
	in := framedInstance(t)
	applyHealthy(t, s, in.backend(1))
	c := framedClient(t)
	for range 3 {
		body, send := io.Pipe()
		req, err := http.NewRequest(http.MethodPost, "http://"+s.Addr()+"/shop.Service/Talk", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Te", "trailers")
		req.Trailer = http.Header{"X-Checksum": nil}
		resp, err := c.Do(req) // the response begins before the client has sent anything
		if err != nil {
			t.Fatal(err)
		}
		if resp.ProtoMajor != 2 || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s", resp.Proto, resp.Status)
		}
		answers := bufio.NewReader(resp.Body)
		for i := range 5 { // each line is sent after the answer to the one before
			fmt.Fprintf(send, "%d\n", i)
			if line, err := answers.ReadString('\n'); err != nil || line != fmt.Sprintf("echo %d\n", i) {
				t.Fatalf("answer %d: %q, %v", i, line, err)
			}
		}
		req.Trailer.Set("X-Checksum", "42")
		send.Close()
		if rest, err := io.ReadAll(answers); err != nil || len(rest) > 0 {
			t.Errorf("then %q, %v", rest, err)
		}
		if got := resp.Trailer.Get("Grpc-Status") + "|" + resp.Trailer.Get("Seen"); got != "0|42 trailers HTTP/2.0" {
			t.Errorf("trailers %q", got)
		}
	}
	waitFor(t, "the end of all requests", func() bool { return stateOf(t, s, "i1").InFlight == 0 })
}

// A client that cancels an HTTP/2 stream cancels the request at the instance, and its other streams go on.
func TestACancelledStream(t *testing.T) {
	s := start(t, Options{HTTP2: true, Timeouts: Timeouts{HalfClosed: time.Hour}})
	asked, cancelled := make(chan struct{}), make(chan struct{})
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/quick" {
			return
		}
		close(asked)
		<-r.Context().Done()
		close(cancelled)
	})
	applyHealthy(t, s, in.backend(1))
	c := framedClient(t)
	slow, err := http.NewRequest(http.MethodGet, "http://"+s.Addr()+"/slow", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go c.Do(slow.WithContext(ctx))
	<-asked
	cancel()
	<-cancelled
	if r, err := do(c, http.MethodGet, "http://"+s.Addr()+"/quick", nil); err != nil || r.status != http.StatusOK {
		t.Errorf("%+v, %v", r, err)
	}
	if open, _ := s.limiter.counts(); open != 1 {
		t.Errorf("%d connections for two requests of one client", open)
	}
}

// An HTTP/2 client that stops sending a body, or reading an answer, is given up.
func TestSlowStreams(t *testing.T) {
	s := start(t, Options{HTTP2: true, Timeouts: Timeouts{Body: 30 * time.Millisecond, Write: 30 * time.Millisecond}})
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, strings.Repeat("x", 8<<20))
	})
	applyHealthy(t, s, in.backend(1))
	body, send := io.Pipe()
	defer send.Close()
	go io.WriteString(send, "half")
	r, err := do(framedClient(t), http.MethodPost, "http://"+s.Addr()+"/", body)
	if err == nil && r.status != http.StatusRequestTimeout {
		t.Errorf("a halted body: %d", r.status)
	}
	resp, err := framedClient(t).Get("http://" + s.Addr() + "/") // nothing of the body is read
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	waitFor(t, "the end of all requests", func() bool { return stateOf(t, s, "i1").InFlight == 0 })
}

// A stream that is quiet because of its instance is not cut, whether the instance pauses between two events or before it reads. Nor is a
// client that is quiet when the instance has begun to answer.
func TestQuietStreams(t *testing.T) {
	const limit, pause = time.Second, 1500 * time.Millisecond
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			time.Sleep(pause)
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n, err)
			return
		}
		io.WriteString(w, "a")
		w.(http.Flusher).Flush()
		time.Sleep(pause)
		io.WriteString(w, "b")
	})
	framed := framedInstance(t)
	run := func(t *testing.T, o Options, b quell.Backend) string {
		t.Parallel()
		o.HTTP2, o.Timeouts = true, Timeouts{Body: limit, Write: limit, Upgrade: time.Hour}
		s := start(t, o)
		applyHealthy(t, s, b)
		return "http://" + s.Addr() + "/"
	}
	t.Run("events", func(t *testing.T) {
		r, err := do(framedClient(t), http.MethodGet, run(t, Options{}, in.backend(1)), nil)
		if r.body != "ab" || err != nil {
			t.Errorf("%q, %v", r.body, err)
		}
	})
	t.Run("upload", func(t *testing.T) { // its body does not fit in the buffers before the instance
		body := bytes.NewReader(make([]byte, 32<<20))
		r, err := do(framedClient(t), http.MethodPost, run(t, Options{}, in.backend(1)), body)
		if want := fmt.Sprint(body.Size(), nil); r.body != want || err != nil {
			t.Errorf("%d %q, %v; want %s", r.status, r.body, err, want)
		}
	})
	t.Run("conversation", func(t *testing.T) {
		body, send := io.Pipe()
		resp, err := framedClient(t).Post(run(t, Options{Upstream: H2C}, framed.backend(1)), "", body)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(pause)
		io.WriteString(send, "late\n")
		send.Close()
		if answer, err := io.ReadAll(resp.Body); string(answer) != "echo late\n" || err != nil {
			t.Errorf("%q, %v", answer, err)
		}
	})
}

// The transport may read a body when its request's handler has ended. Then nothing may be asked of the response any more: net/http would
// panic in the transport's goroutine, and with it the process.
func TestABodyIsReadAfterItsHandler(t *testing.T) {
	bodies := make(chan *streamBody, 1)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Protocols: H2C.protocols(), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := &streamBody{ReadCloser: r.Body, control: http.NewResponseController(w), rules: &clientRules{}}
		defer body.end()
		bodies <- body
	})}
	go server.Serve(ln)
	defer server.Close()
	if _, err := do(framedClient(t), http.MethodPost, "http://"+ln.Addr().String()+"/", strings.NewReader("body")); err != nil {
		t.Fatal(err)
	}
	if n, err := (<-bodies).Read(make([]byte, 9)); n != 0 || !errors.Is(err, errOver) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// A client whose request is malformed in a way that only the transport would notice gets 400, and nothing counts against the instance.
func TestMalformedFramesDoNotAccuseAnInstance(t *testing.T) {
	for why, change := range map[string]func(r *http.Request){
		"method":  func(r *http.Request) { r.Method = "GE T" },
		"host":    func(r *http.Request) { r.Host = "a b" },
		"user":    func(r *http.Request) { r.Host = "user@a" },
		"lengths": func(r *http.Request) { r.Header["Content-Length"] = []string{"1", "1"} },
		"length":  func(r *http.Request) { r.Header["Content-Length"] = []string{"-1"} },
	} {
		r, _ := http.NewRequest(http.MethodGet, "http://a/", nil)
		if isMalformed(r) {
			t.Fatal("a valid request is refused")
		}
		change(r)
		if !isMalformed(r) {
			t.Errorf("%s: passed on", why)
		}
	}
}
