package kernel

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell/internal/need"
)

func TestWork(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux")
	}
	file := filepath.Join(t.TempDir(), "disk.data")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	service := func(o WorkOptions) http.Handler {
		h, err := Work(o)
		if errors.Is(err, syscall.EINVAL) {
			need.Skip(t, "needs its temporary files on a disk: "+err.Error())
		}
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	diskless, whole := service(WorkOptions{Memory: true}), service(WorkOptions{Disk: file, Memory: true})
	for _, c := range []struct {
		handler http.Handler
		url     string
		status  int
		answer  string // the answer begins with this; a successful answer is not longer
	}{
		{diskless, "/healthz", http.StatusOK, "ok\n"},
		{diskless, "/work", http.StatusOK, ""},
		{diskless, "/work?class=home&cpu=1000us&memory=100us&bytes=3", http.StatusOK, "\x00\x03\x07"},
		{whole, "/work?class=home&cpu=100us&disk=300&memory=20us&bytes=1", http.StatusOK, "\x00"},
		{diskless, "/work?disk=1", http.StatusNotImplemented, "disk: this service has no file to read: start it with --disk FILE"},
		{service(WorkOptions{}), "/work?memory=1us", http.StatusNotImplemented, "memory: this service has none to read: start it with --memory"},
		{whole, "/work?cpu=much", http.StatusBadRequest, `cpu: "much": give a time from 0 to 1m0s, as in cpu=5ms`},
		{whole, "/work?memory=-1ms", http.StatusBadRequest, "memory: "},
		{whole, "/work?disk=1.5", http.StatusBadRequest, `disk: "1.5": give a whole number from 0 to 100000, as in disk=2`},
		{whole, "/work?bytes=1KB", http.StatusBadRequest, "bytes: "},
	} {
		reply := httptest.NewRecorder()
		c.handler.ServeHTTP(reply, httptest.NewRequest(http.MethodGet, c.url, nil))
		body := reply.Body.String()
		if reply.Code != c.status || !strings.HasPrefix(body, c.answer) || c.status == http.StatusOK && body != c.answer {
			t.Errorf("%s: %d %q, want %d %q", c.url, reply.Code, body, c.status, c.answer)
		}
	}
	if _, err := Work(WorkOptions{Disk: file + "x"}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// If the client closes its connection, its request ends.
func TestWorkEndsWithItsClient(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := burn(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("burning ends with %v", err)
	}
	if err := newStock().read(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("reading memory ends with %v", err)
	}
}

// The work ends when its thread has used the requested processor time, however long that takes.
func TestBurn(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := threadTime()
	if err != nil {
		t.Fatal(err)
	}
	const span = 3 * time.Millisecond
	if err := burn(t.Context(), span); err != nil {
		t.Fatal(err)
	}
	if after, err := threadTime(); err != nil || after-before < span {
		t.Errorf("burnt %v, %v; want at least %v", after-before, err, span)
	}
}
