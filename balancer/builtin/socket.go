package builtin

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quellhq/quell"
)

// maxSocketPath leaves room for the temporary name within the kernel's limit (104 bytes on macOS, 108 on Linux).
const maxSocketPath = 90

// checkSocketFree checks that an admin socket can be made at the path: there must be nothing, or a dead socket that a killed process left.
func checkSocketFree(path string) error {
	if len(path) > maxSocketPath {
		return &quell.UserError{Err: fmt.Errorf("admin socket %s: the path is longer than %d bytes", path, maxSocketPath)}
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("admin socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return &quell.UserError{Err: fmt.Errorf("admin socket %s: there is a file of another kind at this path", path)}
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return fmt.Errorf("admin socket %s: a balancer is already running there; `quell balancer --take-over` replaces it without a gap", path)
	}
	return nil
}

// listenUnix makes the socket in a private folder and then renames it to its path. So nobody else can connect to it in between, and a dead
// socket at the path is replaced in one step.
func listenUnix(path string) (net.Listener, error) {
	private, err := os.MkdirTemp(filepath.Dir(path), ".q")
	if err != nil {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	defer os.RemoveAll(private)
	made := filepath.Join(private, "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	ln.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(made, 0o600), os.Rename(made, path)); err != nil {
		ln.Close()
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	return &unlinkingListener{Listener: ln, path: path}, nil
}

// unlinkingListener removes the socket from its final path when it is closed.
type unlinkingListener struct {
	net.Listener
	path string
	once sync.Once
	kept atomic.Bool // the socket must stay after this process ends
}

// SyscallConn implements syscall.Conn.
func (l *unlinkingListener) SyscallConn() (syscall.RawConn, error) {
	return l.Listener.(syscall.Conn).SyscallConn()
}

// Close implements net.Listener.
func (l *unlinkingListener) Close() error {
	l.once.Do(func() {
		if !l.kept.Load() {
			os.Remove(l.path)
		}
	})
	return l.Listener.Close()
}
