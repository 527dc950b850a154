package probe

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// servesVariable makes this test's program a probe server until it is killed.
const servesVariable = "QUELL_PROBE_TEST_SERVES"

// Probes of a process that a signal stopped do not count.
func TestProbesOfAStoppedProcess(t *testing.T) {
	if os.Getenv(servesVariable) != "" {
		serveHere(t)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestProbesOfAStoppedProcess$")
	cmd.Env = append(os.Environ(), servesVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has not ended
		_ = cmd.Wait()         // it was killed
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	o := options(&network{}, &journal{}, Target{"i1", strings.TrimSpace(address)})
	o.Dial, o.Period, o.Count, o.Size = nil, 2*time.Second, 20, 1000
	p := run(t, o)
	signal := func(s syscall.Signal) {
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 { // if its timeouts end with a window, they counted before it was continued
		awaitCount(t, "answers", p.Stats().Measured+3, func() uint64 { return p.Stats().Measured })
		signal(syscall.SIGSTOP)
		awaitCount(t, "timeouts", p.Stats().Timeouts+12, func() uint64 { return p.Stats().Timeouts })
		signal(syscall.SIGCONT)
		awaitCount(t, "answers", p.Stats().Measured+3, func() uint64 { return p.Stats().Measured })
		if p.Stats().StoodStill > 0 {
			return
		}
	}
	t.Errorf("nobody noticed that the process was stopped: %+v", p.Stats())
}

// serveHere answers probes, and tells on standard output where.
func serveHere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := NewServer(ServerOptions{Token: token}).Start(l); err != nil {
		t.Fatal(err)
	}
	fmt.Println(l.Addr())
	select {}
}

func awaitCount(t *testing.T, what string, least uint64, count func() uint64) {
	t.Helper()
	for end := time.Now().Add(time.Minute); count() < least; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d %s within a minute, want %d", count(), what, least)
		}
	}
}
