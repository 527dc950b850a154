package builtin

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/health"
	"github.com/quellhq/quell/internal/webcheck"
)

// record is a log that can be read while it is written.
type record struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.String()
}

func (r *record) logger() *slog.Logger { return slog.New(slog.NewTextHandler(r, nil)) }

// The message about a failing check contains its request and the answer. The most common mistake is a file server without /healthz.
func TestFailingCheckSaysWhatItGot(t *testing.T) {
	server := func(handler http.HandlerFunc) string {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: handler}
		go s.Serve(ln)
		t.Cleanup(func() { s.Close() })
		return ln.Addr().String()
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := ln.Addr().String()
	ln.Close()
	for name, c := range map[string]struct{ address, path, want string }{
		"no such file": {server(http.NotFound), "/healthz", `GET /healthz: 404 Not Found, body "404 page not found"`},
		"another name": {server(func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "unknown host", http.StatusMisdirectedRequest)
		}),
			"/up", `GET /up: 421 Misdirected Request, body "unknown host"; it was asked with ` + "`Host: ADDRESS`" +
				": if it answers to another name only, set balancer.health.host"},
		"no body": {server(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }), "/up",
			"GET /up: 503 Service Unavailable, no body"},
		"a long page": {server(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			io.WriteString(w, "<html>\n\x1b[31m"+strings.Repeat("x", 1000))
		}), "/", `GET /: 500 Internal Server Error, body begins "<html> [31m` + strings.Repeat("x", 69) + `"`},
		"nobody":            {closed, "/healthz", "GET /healthz: dial tcp " + closed + ": connect: connection refused"},
		"nobody, by itself": {closed, "", "connecting to " + closed + ": dial tcp " + closed + ": connect: connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			var log record
			s := start(t, Options{Health: health.Options{Path: c.path, Interval: 5 * time.Millisecond, Fall: 2}, Logger: log.logger()})
			apply(t, s, quell.Backend{ID: "i1", Address: c.address, Weight: 1})
			waitFor(t, "two checks", func() bool { return strings.Contains(log.String(), "has not passed a health check yet") })
			c.want = strings.ReplaceAll(c.want, "ADDRESS", c.address)
			if got := stateOf(t, s, "i1"); got.Healthy || got.Health != c.want {
				t.Errorf("healthy %v, it says %s, want %s", got.Healthy, got.Health, c.want)
			}
			if n := strings.Count(log.String(), "has not passed"); n != 1 {
				t.Errorf("%d lines, want one in\n%s", n, log.String())
			}
		})
	}
}

// An instance that answers to its own name only is healthy if it is asked with that name.
func TestCheckByName(t *testing.T) {
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "shop.example" || r.Header.Get("X-Forwarded-Proto") != "https" {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	h := health.Options{Path: "/up", Interval: 5 * time.Millisecond}
	s := start(t, Options{Health: h})
	apply(t, s, in.backend(1))
	waitFor(t, "a refused check", func() bool { return strings.Contains(stateOf(t, s, "i1").Health, "GET /up: 400 Bad Request") })
	h.Request = webcheck.Request{Host: "shop.example", Headers: []string{"X-Forwarded-Proto: https"}}
	if err := s.Reconfigure(Options{Listen: s.opts.Listen, Health: h}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "a check by name", func() bool { return stateOf(t, s, "i1").Healthy })
}

// However many requests fail at an instance, the log has one line as long as they fail.
func TestFailingRequestsAreOneLine(t *testing.T) {
	var log record
	s := start(t, Options{Logger: log.logger()})
	in := newInstance(t, "i1", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	applyHealthy(t, s, in.backend(1))
	c := client(t)
	for range 40 {
		if got := get(t, c, s); got.status != http.StatusBadGateway {
			t.Fatalf("answered %+v", got)
		}
	}
	apply(t, s)
	for range 40 {
		get(t, c, s)
	}
	for _, line := range []string{`msg="requests fail" instance=i1`, `msg="requests find no instance"`} {
		if n := strings.Count(log.String(), line); n != 1 {
			t.Errorf("%d times %s in\n%s", n, line, log.String())
		}
	}
}
