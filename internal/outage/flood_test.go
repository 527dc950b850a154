package outage

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// record is a log that goroutines write.
type record struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(p)
}

func (r *record) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.b.Len() == 0 {
		return nil
	}
	return strings.Split(strings.TrimSpace(r.b.String()), "\n")
}

func (r *record) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func TestAFloodIsTwoLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log record
		f := Flood{Logger: log.logger(), What: "requests fail", Level: slog.LevelWarn}
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				for range 2000 {
					f.Note("error", "no route")
					time.Sleep(time.Millisecond)
				}
			})
		}
		all.Wait()
		if got := log.lines(); len(got) != 1 || !strings.Contains(got[0], `level=WARN msg="requests fail" error="no route"`) {
			t.Fatalf("after 20,000: %q", got)
		}
		time.Sleep(quiet + time.Second)
		synctest.Wait()
		if got := log.lines(); len(got) != 2 || !strings.Contains(got[1], `msg="requests fail: over" times=20000 lasted=1.999s`) {
			t.Fatalf("when it is over: %q", got)
		}
		f.Note()
		time.Sleep(3 * quiet)
		synctest.Wait()
		if got := log.lines(); len(got) != 3 {
			t.Errorf("a single one is one line: %q", got[2:])
		}
	})
}

// Kinds are distinguished up to a limit: invented messages do not fill the log.
func TestKindsOfAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log record
		k := Kinds{Logger: log.logger(), What: "dropped a reading"}
		for i := range 500 {
			k.Note(fmt.Sprintf(`reading of instance "i%d" from 10.0.0.%d:%d: %d is too much`, i, i, i, i))
			k.Note(fmt.Sprintf("more than %d bytes", i))
		}
		if got := log.lines(); len(got) != 2 {
			t.Fatalf("two kinds: %q", got)
		}
		letters := "abcdefghijklmnopqrstuvwxyz"
		for i := range 20_000 {
			k.Note("made up " + string(letters[i%26]) + string(letters[i/26%26]))
		}
		if got := log.lines(); len(got) != mostKinds+1 {
			t.Fatalf("%d lines of made up kinds", len(got))
		}
		time.Sleep(2 * quiet)
		synctest.Wait()
		if got := log.lines(); len(got) != 2*(mostKinds+1) {
			t.Errorf("%d lines when all is over", len(got))
		}
		k.Note("a new one")
		if got := log.lines(); len(got) != 2*(mostKinds+1)+1 || len(k.kinds) != 1 {
			t.Errorf("%d lines, %d kinds remembered", len(got), len(k.kinds))
		}
	})
}

func TestErrorLogOfALibrary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log record
		l := ErrorLog(log.logger())
		for i := range 14_384 {
			l.Printf("http: Accept error: accept tcp 127.0.0.1:8080: accept4: too many open files; retrying in %dms", i%1000)
			l.Printf("http: TLS handshake error from 10.1.2.3:%d: EOF", i)
		}
		got := log.lines()
		if len(got) != 2 || !strings.Contains(got[0], "level=WARN") || !strings.Contains(got[0], "too many open files") ||
			!strings.Contains(got[1], "level=DEBUG") {
			t.Errorf("%q", got)
		}
	})
}
