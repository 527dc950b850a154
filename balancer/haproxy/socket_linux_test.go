package haproxy

import (
	"context"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/quellhq/quell/internal/need"
)

// TestSocketOfAnotherUser checks that a user without the right to open the socket is told what to change.
func TestSocketOfAnotherUser(t *testing.T) {
	need.Root(t)
	l := newLab(t, "")
	l.start()
	if err := os.Chmod(l.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := newSocket(l.socket)
	defer s.close()
	runtime.LockOSThread() // the user id is changed for this thread only
	defer runtime.UnlockOSThread()
	if err := syscall.Setfsuid(65534); err != nil {
		t.Fatal(err)
	}
	_, err := s.exec(context.Background(), "show info")
	if err := syscall.Setfsuid(0); err != nil {
		t.Fatal(err)
	}
	if err == nil || !strings.Contains(err.Error(), "this user may not open the socket") {
		t.Error(err)
	}
}
