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
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell/balancer/health"
)

func TestRequestTrailersArePassed(t *testing.T) {
	s := start(t, Options{})
	seen := make(chan http.Header, 1)
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		seen <- r.Trailer
	})
	applyHealthy(t, s, in.backend(1))
	const head = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"
	const body = "\r\n5\r\nhello\r\n0\r\nX-Checksum: 42\r\nX-Forwarded-For: 192.0.2.7\r\nAuthorization: forged\r\nX-Late: yes\r\n\r\n"
	for why, request := range map[string]string{
		"announced": head + "Trailer: X-Checksum, Authorization\r\n" + body,
		"sudden":    head + body,
	} {
		if got := rawly(t, s, request); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			t.Fatalf("%s: %q", why, got)
		}
		got := <-seen
		for k, want := range map[string]string{"X-Checksum": "42", "X-Late": "yes", "X-Forwarded-For": "", "Authorization": ""} {
			if got.Get(k) != want {
				t.Errorf("%s: the trailer's %s is %q, want %q", why, k, got.Get(k), want)
			}
		}
	}
}

func TestResponsesStream(t *testing.T) {
	for _, length := range []string{"", "10"} {
		t.Run("length "+length, func(t *testing.T) {
			s := start(t, Options{})
			proceed := make(chan struct{})
			in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
				if length != "" {
					w.Header().Set("Content-Length", length)
				}
				io.WriteString(w, "first")
				w.(http.Flusher).Flush()
				<-proceed
				io.WriteString(w, "-last")
			})
			applyHealthy(t, s, in.backend(1))
			resp, err := client(t).Get("http://" + s.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			first := make([]byte, 5)
			if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "first" {
				t.Fatalf("%q, %v", first, err)
			}
			close(proceed) // the instance may send the rest only now, so the first chunk arrived before that
			if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "-last" {
				t.Errorf("%q, %v", rest, err)
			}
		})
	}
}

func TestUploadsStream(t *testing.T) {
	s := start(t, Options{})
	arrived := make(chan string)
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		first := make([]byte, 5)
		io.ReadFull(r.Body, first)
		arrived <- string(first)
		io.Copy(w, r.Body)
	})
	applyHealthy(t, s, in.backend(1))
	body, send := io.Pipe()
	got := make(chan string, 1)
	go func() {
		r, err := do(client(t), http.MethodPost, "http://"+s.Addr()+"/", body)
		got <- fmt.Sprint(r.body, err)
	}()
	io.WriteString(send, "first")
	if first := <-arrived; first != "first" {
		t.Errorf("the instance got %q before the upload's end", first)
	}
	io.WriteString(send, "-last")
	send.Close()
	if r := <-got; r != "-last<nil>" {
		t.Errorf("got %q", r)
	}
}

func TestBothDirectionsAtOnce(t *testing.T) {
	s := start(t, Options{})
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		control.EnableFullDuplex()
		for line := bufio.NewReader(r.Body); ; {
			text, err := line.ReadString('\n')
			if err != nil {
				return
			}
			io.WriteString(w, "echo "+text)
			control.Flush()
		}
	})
	applyHealthy(t, s, in.backend(1))
	body, send := io.Pipe()
	go io.WriteString(send, "0\n")
	resp, err := client(t).Post("http://"+s.Addr(), "text/plain", body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answers := bufio.NewReader(resp.Body)
	for i := range 5 { // each line is sent after the answer to the one before
		if line, err := answers.ReadString('\n'); err != nil || line != fmt.Sprintf("echo %d\n", i) {
			t.Fatalf("answer %d: %q, %v", i, line, err)
		}
		fmt.Fprintf(send, "%d\n", i+1)
	}
	send.Close()
}

// echoUpgraded upgrades a connection to another protocol and answers the first line that is sent on it.
func echoUpgraded(t *testing.T, w http.ResponseWriter) {
	conn, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if line, err := rw.ReadString('\n'); err == nil {
		io.WriteString(conn, "echo "+line)
	}
}

func TestUpgradedConnection(t *testing.T) {
	s := start(t, Options{})
	in := newInstance(t, "i1", func(w http.ResponseWriter, _ *http.Request) { echoUpgraded(t, w) })
	applyHealthy(t, s, in.backend(1))
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get(InstanceHeader) != "i1" {
		t.Fatalf("%+v, %v", resp, err)
	}
	io.WriteString(conn, "hello\n")
	if line, err := r.ReadString('\n'); err != nil || line != "echo hello\n" {
		t.Errorf("%q, %v", line, err)
	}
}

func TestBrokenOffResponseReachesTheClientAsBroken(t *testing.T) {
	s := start(t, Options{})
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "short")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	applyHealthy(t, s, in.backend(1))
	if _, err := do(client(t), http.MethodGet, "http://"+s.Addr()+"/", nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the client saw %v", err)
	}
	waitFor(t, "the request's end", func() bool { return stateOf(t, s, "i1").InFlight == 0 })
	if r := s.reporter.readings(time.Now())[0]; r.Errors != 1 || r.Observation.LatencyMS != nil {
		t.Errorf("%d errors, latency %v; want 1 and none", r.Errors, r.Observation.LatencyMS)
	}
}

func TestImpatientClients(t *testing.T) {
	s := start(t, Options{Health: health.Options{Path: "/health", Interval: 5 * time.Millisecond, Timeout: 50 * time.Millisecond, Fall: 1000}})
	var slowly atomic.Bool
	release := make(chan struct{})
	defer close(release)
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		if slowly.Load() {
			io.WriteString(w, "a frame")
			w.(http.Flusher).Flush()
		}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	applyHealthy(t, s, in.backend(1))
	for _, tt := range []struct {
		why    string
		slowly bool
		errors int64
	}{{"left without an answer", false, 1}, {"left amid a stream", true, 0}} {
		slowly.Store(tt.slowly)
		ctx, leave := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr()+"/", nil)
		if tt.slowly {
			resp, err := client(t).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			io.ReadFull(resp.Body, make([]byte, 7))
			leave()
			resp.Body.Close()
		} else {
			c, left := client(t), make(chan error)
			go func() {
				_, err := c.Do(req)
				left <- err
			}()
			waitFor(t, "the request's arrival", func() bool { return stateOf(t, s, "i1").InFlight == 1 })
			time.Sleep(60 * time.Millisecond) // longer than a healthy instance may take
			leave()
			if <-left == nil {
				t.Fatal("there was an answer")
			}
		}
		waitFor(t, "the request's end", func() bool { return stateOf(t, s, "i1").InFlight == 0 })
		if r := s.reporter.readings(time.Now())[0]; r.Requests != 1 || r.Errors != tt.errors || r.LatencyHDR != nil {
			t.Errorf("%s: %d requests, %d errors, want 1 and %d, and no response time", tt.why, r.Requests, r.Errors, tt.errors)
		}
	}
}

func TestLargeBodiesArriveWhole(t *testing.T) {
	s := start(t, Options{})
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		io.Copy(w, r.Body)
	})
	applyHealthy(t, s, in.backend(1))
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	r, err := do(client(t), http.MethodPut, "http://"+s.Addr()+"/", bytes.NewReader(body))
	if err != nil || r.body != string(body) {
		t.Errorf("%d of %d bytes, %v", len(r.body), len(body), err)
	}
}
