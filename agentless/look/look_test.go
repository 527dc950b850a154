package look

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell/agentless"
)

func serve(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func TestWindow(t *testing.T) {
	whole := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 2000)) })
	short := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 10)) })
	moved := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusFound) })
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	samples, err := Window(t.Context(), []Target{{"a", whole}, {"b", short}, {"c", moved}, {"d", closed.Addr().String()}},
		Options{Path: "/", Period: 200 * time.Millisecond, Count: 3, Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"", "has 10 bytes", "status 302", "refused"} {
		s := samples[i]
		if want == "" && (s.ProbeMS == nil || s.ProbeMS.N != 3 || s.ConnectMS == nil || s.Failed != "") {
			t.Errorf("%+v", s)
		}
		if want != "" && (s.ProbeMS != nil || !strings.Contains(s.Failed, want)) {
			t.Errorf("%+v, want %q", s, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := Options{Path: "/", Period: time.Hour, Count: 3, Timeout: time.Second}
	if _, err := Window(ctx, []Target{{"a", whole}}, o); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

const header = "# pxname,svname,bck,stot,status,weight,type,ttime,addr,\n"

func TestParseStat(t *testing.T) {
	servers, err := parseStat(header + "app,a,0,120,UP,10,2,13,10.0.0.1:80,\n" +
		"app,b,1,5,DOWN,1,2,,,\nother,c,0,0,no check,1,2,0,10.0.0.3:80,\n")
	first := Server{Backend: "app", Name: "a", Address: "10.0.0.1:80", Weight: 10, Status: "UP", Requests: 120, LatencyMS: 13}
	if err != nil || len(servers) != 3 || servers[0] != first || !servers[1].Backup {
		t.Fatalf("%+v, %v", servers, err)
	}
	h := HAProxy{Servers: servers}
	if _, err := h.Backend(""); err == nil || !strings.Contains(err.Error(), "app, other") {
		t.Errorf("got %v", err)
	}
	if _, err := h.Backend("nope"); err == nil || err.Error() != "HAProxy has no backend nope with servers; it has app, other" {
		t.Errorf("got %v", err)
	}
	if list, err := h.Backend("app"); err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
	for _, bad := range []string{"", "x,y\n1,2\n", "\"", "Permission denied\n"} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	later := []Server{{Name: "a", Requests: 220, LatencyMS: 15}, {Name: "b", Requests: 1}}
	samples := []agentless.Sample{{ID: "a"}, {ID: "b"}, {ID: "new"}}
	Count(samples, servers, later, 10)
	if samples[0].Rate == nil || *samples[0].Rate != 10 || *samples[0].LatencyMS != 15 || samples[1].Rate != nil || samples[2].Rate != nil {
		t.Errorf("%+v", samples)
	}
}

// Each reason for which a socket cannot be asked has a hint.
func TestWhyASocketCannotBeAsked(t *testing.T) {
	for hint, err := range map[string]error{"stats socket PATH level admin": fs.ErrNotExist, "the socket's group": fs.ErrPermission,
		"is HAProxy running": syscall.ECONNREFUSED, "the master process": os.ErrDeadlineExceeded, "EOF": io.EOF} {
		if got := unanswered("/s", &net.OpError{Op: "dial", Err: err}); !strings.Contains(got.Error(), hint) {
			t.Errorf("%v: %v, want %q", err, got, hint)
		}
	}
}

// A socket that does not exist, one that says nothing, and one that is not HAProxy's.
func TestBadSockets(t *testing.T) {
	if _, err := AskHAProxy(t.Context(), filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a socket that does not exist answered")
	}
	for _, answer := range []string{"", "Unknown command. Please enter one of\n", "hello\n"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				conn.Read(make([]byte, 100))
				conn.Write([]byte(answer))
				conn.Close()
			}
		}()
		if _, err := AskHAProxy(t.Context(), l.Addr().String()); err == nil {
			t.Errorf("%q was taken for HAProxy", answer)
		}
	}
}
