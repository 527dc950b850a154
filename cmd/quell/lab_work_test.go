package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell/internal/need"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/testbed/kernel"
)

// startWork starts `quell lab work` on a free port and waits until it answers.
func startWork(t *testing.T) (cmd *exec.Cmd, said *strings.Builder, url string) {
	t.Helper()
	free, err := new(experiment.Ports).Free(1)
	if err != nil {
		t.Fatal(err)
	}
	address := free[0]
	said = &strings.Builder{}
	cmd = exec.Command("quell", "lab", "work", "--listen", address)
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	url = "http://" + address
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		resp, err := http.Get(url + "/healthz")
		if err == nil {
			resp.Body.Close()
			return cmd, said, url
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not answer: %v\n%s", err, said)
		}
	}
}

// A server that is asked to stop first answers its open requests completely.
func TestWorkFinishesWhatItHasBegun(t *testing.T) {
	cmd, said, url := startWork(t)
	const size = 64 << 20 // more than socket buffers can hold
	resp, err := http.Get(fmt.Sprintf("%s/work?class=home&cpu=1000us&bytes=%d", url, size))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
		t.Errorf("%d bytes of %d, %v", n, size, err)
	}
	if err := cmd.Wait(); err != nil || said.Len() > 0 {
		t.Errorf("it ended with %v and said %q", err, said)
	}
}

// A file that cannot be read, or an address that cannot be used, gives one message.
func TestWorkRefuses(t *testing.T) {
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("too little"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"--disk: opening the file that disk operations read": {"--listen", "127.0.0.1:0", "--disk", filepath.Join(t.TempDir(), "absent")},
		"a plain file of at least 4096 bytes":                {"--listen", "127.0.0.1:0", "--disk", short},
		"--listen: ":                                         {"--listen", "nowhere"},
	} {
		out, err := exec.Command("quell", append([]string{"lab", "work"}, args...)...).CombinedOutput()
		if strings.Contains(string(out), "cannot read past its cache") {
			need.Skip(t, "needs its temporary files on a disk: "+string(out))
		}
		if statusOf(err) != exitUsage || !strings.Contains(string(out), want) || strings.Count(string(out), "\n") != 1 {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

// If the work uses the disk, a folder that is not on a disk is refused at once; otherwise the service would only fail to become
// ready in time.
func TestLabWantsADisk(t *testing.T) {
	need.Root(t)
	for _, program := range []string{"haproxy", "stress-ng"} {
		need.Program(t, program)
	}
	memory, err := os.MkdirTemp("/dev/shm", "quell-test-")
	if err != nil {
		need.Skip(t, "needs a file system in memory: "+err.Error())
	}
	t.Cleanup(func() { _ = os.RemoveAll(memory) })
	if kernel.CheckDisk(memory) == nil {
		need.Skip(t, "needs /dev/shm to be in memory")
	}
	out := filepath.Join(memory, "deep", "out")
	said, err := exec.Command("quell", "lab", "run", filepath.Join("testdata", "lab", "work.yaml"), "--prefix",
		fmt.Sprintf("tdisk%d", os.Getpid()), "--out", out).CombinedOutput()
	if statusOf(err) != exitUsage || !strings.Contains(string(said), "quell: --out: "+memory+" lies on no disk that can be limited") {
		t.Errorf("%v\n%s", err, said)
	}
	if left, err := os.ReadDir(memory); err != nil || len(left) > 0 {
		t.Errorf("it left behind %v, %v", left, err)
	}
}
