package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// manager listens where systemd would, and passes on each message.
func manager(t *testing.T) <-chan string {
	t.Helper()
	folder, err := os.MkdirTemp("", "q") // the length of a socket's path is limited
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); os.RemoveAll(folder) })
	t.Setenv("NOTIFY_SOCKET", path)
	messages := make(chan string, 1000)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			messages <- string(buf[:n])
		}
	}()
	return messages
}

func TestServiceManagerIsToldOfReloads(t *testing.T) {
	messages := manager(t)
	m := serviceManager{slog.New(slog.DiscardHandler), newSelf()}
	m.ready()
	m.reload(func() bool { return true })
	m.stopping(3 * time.Second)
	for _, want := range []string{"READY=1", "RELOADING=1", "READY=1", "STOPPING=1\nEXTEND_TIMEOUT_USEC=3000000"} {
		if got := <-messages; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestWatchdogIsOnlyServedByALivingProcess: the watchdog gets its messages while the process is alive, none while it hangs.
func TestWatchdogIsOnlyServedByALivingProcess(t *testing.T) {
	messages := manager(t)
	t.Setenv("WATCHDOG_USEC", "30000")
	var log strings.Builder
	m := serviceManager{slog.New(slog.NewTextHandler(&log, nil)), newSelf()}
	ctx, cancel := context.WithCancel(t.Context())
	var asked, hangs atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.watchdog(ctx, func(context.Context) error {
			if asked.Add(1) > 3 {
				hangs.Add(1)
				if hangs.Load() == 3 {
					cancel()
				}
				return errors.New("its loop has stood still for 1h0m0s")
			}
			return nil
		})
	}()
	<-ended
	if n := len(messages); n > 3 {
		t.Errorf("%d messages, although the process was alive three times only", n)
	}
	for range 3 {
		if got := <-messages; got != "WATCHDOG=1" {
			t.Errorf("%q, want WATCHDOG=1", got)
		}
	}
	if !strings.Contains(log.String(), "stood still for 1h0m0s") {
		t.Errorf("the log does not say why: %s", log.String())
	}
}

func TestWithoutServiceManagerNothingIsTold(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	var log strings.Builder
	m := serviceManager{slog.New(slog.NewTextHandler(&log, nil)), newSelf()}
	m.ready()
	m.watchdog(t.Context(), func(context.Context) error { t.Error("asked"); return nil })
	if log.Len() > 0 {
		t.Errorf("it logs: %s", log.String())
	}
}
