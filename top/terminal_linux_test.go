package top

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
)

// inTerminal is set in the process that runs the view on a pseudo-terminal.
const inTerminal = "QUELL_TEST_TOP"

func TestMain(m *testing.M) {
	if os.Getenv(inTerminal) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // as main does
	o := options(&fake{status: shop(5)})
	o.Services[0].Controller = &fragile{fake: fake{status: shop(5)}}
	o.Every = 20 * time.Millisecond
	err := Run(ctx, o, os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// fragile is a controller that does not answer any more once it was paused, and whose client panics at a resume.
type fragile struct {
	fake
	mu   sync.Mutex
	gone bool
}

func (f *fragile) Status(ctx context.Context) (controller.Status, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone {
		return controller.Status{}, fmt.Errorf("it was killed")
	}
	return f.fake.Status(ctx)
}

func (f *fragile) Command(_ context.Context, cmd bus.Command) (string, error) {
	if cmd.Name == bus.Resume {
		panic("on purpose")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = true
	return "killed", nil
}

// session is a process on a pseudo-terminal.
type session struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	slave  *os.File
	before unix.Termios
	mu     sync.Mutex
	out    bytes.Buffer
	read   chan struct{} // closed when all output was read
}

func start(t *testing.T, env ...string) *session {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(master, &pty.Winsize{Rows: 24, Cols: 80}); err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, cmd: exec.Command(os.Args[0]), master: master, slave: slave, before: settings(t, slave), read: make(chan struct{})}
	s.cmd.Env = append(append(os.Environ(), inTerminal+"=1", "TERM=xterm-256color", "NO_COLOR="), env...)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = slave, slave, slave
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = master.Close()
		_ = slave.Close()
	})
	go func() {
		defer close(s.read)
		part := make([]byte, 4096)
		for {
			n, err := master.Read(part)
			s.mu.Lock()
			s.out.Write(part[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

func settings(t *testing.T, f *os.File) unix.Termios {
	t.Helper()
	now, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *now
}

func (s *session) output() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

func (s *session) await(text string) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(s.output(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("no %q in %q", text, s.output())
		}
	}
}

func (s *session) write(text string) {
	s.t.Helper()
	if _, err := s.master.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// ended waits for the end of the process, checks that the terminal is as before, and returns the exit status.
func (s *session) ended() int {
	s.t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		s.t.Fatalf("it does not end: %q", s.output())
	}
	if now := settings(s.t, s.slave); now != s.before {
		s.t.Errorf("the terminal's settings are %+v, were %+v", now, s.before)
	}
	s.await("\x1b[?1049l") // the screen of before is back
	s.await("\x1b[?25h")   // with its cursor
	return s.cmd.ProcessState.ExitCode()
}

// However the view ends, the terminal is as before.
func TestTheTerminalIsAsBefore(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(*session)
		want int
	}{
		"key":       {func(s *session) { s.write("q") }, 0},
		"ctrl+c":    {func(s *session) { s.write("\x03") }, 0},
		"terminate": {func(s *session) { _ = s.cmd.Process.Signal(syscall.SIGTERM) }, 0},
		"interrupt": {func(s *session) { _ = s.cmd.Process.Signal(syscall.SIGINT) }, 0},
		"hangup":    {func(s *session) { _ = s.cmd.Process.Signal(syscall.SIGHUP) }, 0},
		"quit":      {func(s *session) { _ = s.cmd.Process.Signal(syscall.SIGQUIT) }, 0},
		"panic":     {func(s *session) { s.write("ry") }, 1},
		"no controller": {func(s *session) {
			s.write("py")
			s.await("it was killed")
			s.write("q")
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.await("neighbours on 25% of network")
			tc.end(s)
			if status := s.ended(); status != tc.want {
				t.Errorf("exit status %d, want %d: %q", status, tc.want, s.output())
			}
		})
	}
}

// A larger terminal gets the wider table. NO_COLOR leaves out colours.
func TestSizeAndColours(t *testing.T) {
	colour := regexp.MustCompile(`\x1b\[([0-9]+;)*3[1-7](;[0-9]+)*m`)
	for _, off := range []bool{false, true} {
		var env []string
		if off {
			env = []string{"NO_COLOR=1"}
		}
		s := start(t, env...)
		s.await("neighbours on 25% of network")
		if err := pty.Setsize(s.master, &pty.Winsize{Rows: 30, Cols: 120}); err != nil {
			t.Fatal(err)
		}
		s.await("LATENCY")
		s.write("q")
		s.ended()
		if colour.MatchString(s.output()) == off {
			t.Errorf("NO_COLOR %v: %q", off, s.output())
		}
	}
}
