// Package program runs the user's programs within limits.
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Limits bound one run.
type Limits struct {
	Time      time.Duration // for the program and all its children
	OutputMiB int           // of standard output
}

// CutError says that a program had begun, and was ended before it was done: by a limit, by the end of the context or by a signal. What it
// had done until then is unknown.
type CutError struct{ Err error }

func (e *CutError) Error() string { return e.Err.Error() }
func (e *CutError) Unwrap() error { return e.Err }

const (
	errorTail = 2 << 10 // bytes of standard error that stand in a message
	// pipesStay is how long to wait for output after a program has exited, if a process that it left behind keeps the
	// output open.
	pipesStay = time.Second
)

// Run runs a program with its arguments, without a shell, with input on its standard input, and returns its standard output. The
// program has its own process group, which is killed if the program exceeds a limit or ctx ends. If the program ends by itself,
// processes that it leaves behind keep running. If it exceeds a limit or its exit status is not 0, the error contains the end of
// its standard error; if ctx has ended, the error also wraps ctx's error. If the program was ended, the error is a *CutError. The program
// and processes that it leaves behind keep the given files open.
func Run(ctx context.Context, argv []string, input []byte, l Limits, kept ...*os.File) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.Time, fmt.Errorf("it took longer than %s", l.Time))
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	out := &limited{most: l.OutputMiB << 20}
	out.full = func() { stop(fmt.Errorf("it printed more than %d MiB", l.OutputMiB)) }
	said := &tail{}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), out, said
	cmd.SysProcAttr, cmd.ExtraFiles = &syscall.SysProcAttr{Setpgid: true}, kept
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	cmd.WaitDelay = pipesStay
	err := cmd.Run()
	if err == nil || errors.Is(err, exec.ErrWaitDelay) && ctx.Err() == nil { // with ErrWaitDelay, too, the program exited with status 0
		return out.b.Bytes(), nil
	}
	cut := cmd.Process != nil && (ctx.Err() != nil || signalled(err))
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	err = fmt.Errorf("running %s: %w%s", argv[0], err, said)
	if cut {
		return nil, &CutError{err}
	}
	return nil, err
}

// mostSignals is the number of the last signal on Linux.
const mostSignals = 64

// signalled returns whether a signal ended a program, or a child of it: shells then exit with 128 plus the signal's number.
func signalled(err error) bool {
	exit := new(exec.ExitError)
	if !errors.As(err, &exit) {
		return false
	}
	status := exit.ExitCode()
	return status < 0 || status > 128 && status <= 128+mostSignals
}

func killGroup(leader int) error {
	err := syscall.Kill(-leader, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// limited collects output, up to a limit, and reports when there is more. It does not embed the buffer, because the buffer's
// ReadFrom would bypass the limit.
type limited struct {
	b    bytes.Buffer
	most int
	full func()
}

func (l *limited) Write(p []byte) (int, error) {
	if l.b.Len()+len(p) > l.most {
		l.full()
		return 0, errors.New("too much output")
	}
	return l.b.Write(p)
}

// tail keeps the end of what is written.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if cut := len(t.b) - errorTail; cut > 0 {
		t.b = append(t.b[:0], t.b[cut:]...)
	}
	return len(p), nil
}

// String returns the kept output as the end of a message; empty if there was no output.
func (t *tail) String() string {
	said := strings.TrimSpace(strings.ToValidUTF8(string(t.b), ""))
	if said == "" {
		return ""
	}
	return "; it said: " + said
}
