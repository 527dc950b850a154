//go:build unix

package builtin

import (
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestAFullQueueIsTriedAgain: a local socket whose queue is full refuses connections, which a balancer that is busy empties in a moment.
func TestAFullQueueIsTriedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 1)); err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), path)
	listener, err := net.FileListener(file)
	if err = errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	full := false
	for range 100 {
		conn, err := net.Dial("unix", path)
		if full = errors.Is(err, syscall.EAGAIN); full {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if !full {
		t.Skip("this system lets connections wait")
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })}
	defer server.Close()
	time.AfterFunc(5*again, func() { _ = server.Serve(listener) })
	if _, err := NewClient(path).State(t.Context()); err != nil {
		t.Error(err)
	}
}
