package daemon_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell/internal/need"
)

// told waits for a message to the service manager, and skips others.
func told(t *testing.T, conn *net.UnixConn, want string) {
	t.Helper()
	buf := make([]byte, 4096)
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	for {
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatalf("waiting for %s: %v", want, err)
		}
		if first, _, _ := strings.Cut(string(buf[:n]), "\n"); first == want {
			return
		}
	}
}

// TestProcessesTellSystemd: each process says when it has started, reloads and ends, and serves the watchdog meanwhile.
func TestProcessesTellSystemd(t *testing.T) {
	k := newKeeper(t)
	r := newRig(t, "")
	r.write(plain(k.address, need.FreeAddress(t), "static"))
	for _, args := range [][]string{{"controller"}, {"balancer"}, {"agent", "--instance", "i1"}} {
		folder, err := os.MkdirTemp("", "q")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(folder)
		path := filepath.Join(folder, "n")
		conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		cmd := exec.Command(quellProgram, append([]string{args[0], "--config", r.config}, args[1:]...)...)
		cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=300000")
		p := r.launch(args[0], cmd)
		told(t, conn, "READY=1")
		told(t, conn, "WATCHDOG=1")
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		told(t, conn, "RELOADING=1")
		told(t, conn, "READY=1")
		told(t, conn, "WATCHDOG=1")
		if args[0] == "controller" {
			continue // the others need it
		}
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		told(t, conn, "STOPPING=1")
		p.ends(t)
	}
}
