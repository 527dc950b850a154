package program

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var wide = Limits{Time: time.Minute, OutputMiB: 1}

// sh is a command that runs a shell script with arguments.
func sh(script string, args ...string) []string {
	return append([]string{"sh", "-c", script, "sh"}, args...)
}

func TestInputAndOutput(t *testing.T) {
	out, err := Run(t.Context(), sh(`echo "$1"; cat`, "a b"), []byte("input"), wide)
	if err != nil || string(out) != "a b\ninput" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestFailureTellsStatusAndTheEndOfStandardError(t *testing.T) {
	script := `head -c 5000 /dev/zero | tr '\0' x >&2; echo "quota is used up" >&2; exit 7`
	_, err := Run(t.Context(), sh(script), nil, wide)
	if err == nil || !strings.HasPrefix(err.Error(), "running sh: exit status 7; it said: x") ||
		!strings.HasSuffix(err.Error(), "quota is used up") {
		t.Fatalf("got %v", err)
	}
	if len(err.Error()) > errorTail+200 {
		t.Errorf("the message has %d bytes", len(err.Error()))
	}
}

func TestMissingProgram(t *testing.T) {
	if _, err := Run(t.Context(), []string{"./no-such-program"}, nil, wide); err == nil ||
		!strings.Contains(err.Error(), "./no-such-program") {
		t.Errorf("got %v", err)
	}
}

func TestTimeout(t *testing.T) {
	_, err := Run(t.Context(), []string{"sleep", "600"}, nil, Limits{Time: 20 * time.Millisecond, OutputMiB: 1})
	if err == nil || err.Error() != "running sleep: it took longer than 20ms" {
		t.Errorf("got %v", err)
	}
}

// Whether a program was ended before it was done shows in the error: what it had done until then is unknown.
func TestAProgramThatWasEnded(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for why, c := range map[string]struct {
		ctx  context.Context
		argv []string
		time time.Duration
		cut  bool
	}{
		"time-out":                {t.Context(), []string{"sleep", "600"}, 20 * time.Millisecond, true},
		"too much output":         {t.Context(), sh("head -c 3000000 /dev/zero"), time.Minute, true},
		"killed":                  {t.Context(), sh("kill -9 $$"), time.Minute, true},
		"its child was killed":    {t.Context(), sh("sh -c 'kill -9 $$'"), time.Minute, true},
		"it failed":               {t.Context(), sh("exit 1"), time.Minute, false},
		"it failed with 255":      {t.Context(), sh("exit 255"), time.Minute, false},
		"no such program":         {t.Context(), []string{"./no-such-program"}, time.Minute, false},
		"the caller had given up": {ended, []string{"sleep", "600"}, time.Minute, false},
	} {
		_, err := Run(c.ctx, c.argv, nil, Limits{Time: c.time, OutputMiB: 1})
		if cut := errors.As(err, new(*CutError)); err == nil || cut != c.cut {
			t.Errorf("%s: cut %v, %v", why, cut, err)
		}
	}
}

func TestOutputIsBounded(t *testing.T) {
	_, err := Run(t.Context(), sh("head -c 3000000 /dev/zero"), nil, wide)
	if err == nil || err.Error() != "running sh: it printed more than 1 MiB" {
		t.Errorf("got %v", err)
	}
	if out, err := Run(t.Context(), sh("head -c 1048576 /dev/zero"), nil, wide); err != nil || len(out) != 1<<20 {
		t.Errorf("got %d bytes, %v", len(out), err)
	}
}

func TestEndOfContextKillsTheWholeGroup(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := Run(ctx, sh(`sleep 600 & echo $! > "$1.new"; mv "$1.new" "$1"; wait`, pidFile), nil, wide)
		ended <- err
	}()
	var child int
	eventually(t, "the child runs", func() bool {
		text, _ := os.ReadFile(pidFile)
		child, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return child > 0
	})
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	eventually(t, "the child killed", func() bool { return !running(child) })
}

func TestWhatIsLeftRunningGoesOn(t *testing.T) {
	t.Parallel()                                                       // in parallel, because it takes a second
	out, err := Run(t.Context(), sh(`sleep 600 & echo $!`), nil, wide) // the child holds standard output open
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	if !running(child) {
		t.Error("the run waited for what was left running, or ended it")
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// running returns false if a process is gone, or if it was killed but not yet reaped.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || !strings.Contains(string(stat), ") Z ")
}
