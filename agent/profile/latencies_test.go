package profile

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell/internal/need"
)

func TestFollowALog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	write := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.WriteString(text)
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("GET / 200 99\n")
	l, err := Follow(path, `(?P<failed> 5\d\d )|.* 200 (?P<ms>[0-9.]+)$`)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	take := func(wantFailed int, want ...float64) {
		t.Helper()
		got, failed, err := l.Take()
		if err != nil || failed != wantFailed || !slices.Equal(got, want) {
			t.Errorf("%v, %d failed, %v; want %v, %d", got, failed, err, want, wantFailed)
		}
	}
	take(0)
	write("GET / 200 5.5\nPOST / 200 x\nnothing\nGET / 502 3\nGET / 20")
	take(1, 5.5)
	write("0 7\n")
	take(0, 7)
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	take(0)
	write("GET / 200 8\n")
	take(0, 8)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	take(0)
	write("GET / 200 9\n")
	take(0, 9)
	write(strings.Repeat("x", longestLine+1))
	if _, _, err := l.Take(); err == nil {
		t.Error("a line without an end is read")
	}
}

func TestPatternsOfLogs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"(", "200", `(?P<bytes>\d+)`, `(?P<failed>x)`} {
		if _, err := Follow(path, bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if _, err := Follow(path+"x", `(?P<ms>\d+)`); err == nil {
		t.Error("a log that does not exist is accepted")
	}
	for _, c := range []struct {
		pattern, line string
		want          float64 // 0: none
	}{
		{`rt=(?P<seconds>[0-9.]+)`, "GET / rt=0.25", 250},
		{`rt=(?P<seconds>[0-9.]+)`, "GET / rt=-", 0},
		{`rt=(?P<ms>.+)`, "rt=NaN", 0},
		{`rt=(?P<ms>.+)`, "rt=-5", 0},
		{`OK DOWNLOAD: .*, (?P<bytes>\d+) bytes, (?P<kib_s>[0-9.]+)Kbyte/sec`,
			`Mon Nov 23 08:20:01 2026 [pid 3] [ftp] OK DOWNLOAD: Client "10.0.0.2", "/f", 1048576 bytes, 512.00Kbyte/sec`, 2000},
	} {
		l, err := Follow(path, c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok, _ := l.parse(c.line); got != c.want || ok != (c.want > 0) {
			t.Errorf("%q in %q: %v, %t; want %v", c.pattern, c.line, got, ok, c.want)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func FuzzLog(f *testing.F) {
	f.Add("rt=5 500 bytes 3Kbyte/sec")
	path := filepath.Join(f.TempDir(), "log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		f.Fatal(err)
	}
	l, err := Follow(path, `rt=(?P<ms>\S*) |(?P<bytes>\d+) bytes (?P<kib_s>\S+)Kbyte`)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if ms, ok, failed := l.parse(line); ok && !(ms > 0) || ok && failed {
			t.Errorf("%q: %v", line, ms)
		}
	})
}

func TestAsker(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/good" {
			http.Error(w, "no", http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	ctx, stop := context.WithCancel(t.Context())
	good := Get(server.URL+"/good", time.Minute)
	bad := Get(server.URL+"/bad", time.Minute)
	if err := good.Try(ctx); err != nil {
		t.Error(err)
	}
	if err := bad.Try(ctx); err == nil || !strings.Contains(err.Error(), "status 500") {
		t.Errorf("a failure: %v", err)
	}
	for _, a := range []*Asker{good, bad} {
		for range 3 {
			a.once(ctx)
		}
		ms, failed, err := a.Take()
		if len(ms)+failed != 3 || err != nil || (failed == 0) != (a == good) {
			t.Errorf("%v, %d failed, %v", ms, failed, err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		good.Run(ctx, 2)
	}()
	stop()
	<-done
	need.Program(t, "sh")
	if err := Command([]string{"sh", "-c", "exit 3"}, time.Minute).Try(t.Context()); err == nil {
		t.Error("a program that fails has answered")
	}
	if err := Command([]string{"true"}, time.Minute).Try(t.Context()); err != nil {
		t.Error(err)
	}
}
