package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	maxOutput = 1 << 20 // bytes of standard output
	errorTail = 2 << 10 // bytes of standard error that stand in a message
	// pipesStay is the wait for output after a command's exit, where something it left behind holds its output open.
	pipesStay = time.Second
)

var errTooMuch = errors.New("it printed more than 1 MiB")

// run runs a command with v as JSON on its standard input and returns its standard output. It is bounded in time and
// in output; a command that passes a bound is killed with its process group.
func (d *Driver) run(ctx context.Context, argv []string, v any) ([]byte, error) {
	input, err := encode(v)
	if err != nil {
		return nil, err
	}
	late := fmt.Errorf("it took longer than %s", d.opts.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, d.opts.Timeout, late)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	out := &limited{full: func() { stop(errTooMuch) }}
	said := &tail{}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), out, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = pipesStay
	err = cmd.Run()
	if err == nil || errors.Is(err, exec.ErrWaitDelay) && ctx.Err() == nil { // the latter exited with status 0
		return out.b.Bytes(), nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return nil, fmt.Errorf("running %s: %w%s", argv[0], err, said)
}

// limited collects output up to maxOutput and reports when there is more. It does not embed the buffer, whose
// ReadFrom would go round the limit.
type limited struct {
	b    bytes.Buffer
	full func()
}

func (l *limited) Write(p []byte) (int, error) {
	if l.b.Len()+len(p) > maxOutput {
		l.full()
		return 0, errTooMuch
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

// String is how the tail stands at the end of a message; nothing where nothing was said.
func (t *tail) String() string {
	said := strings.TrimSpace(strings.ToValidUTF8(string(t.b), ""))
	if said == "" {
		return ""
	}
	return "; it said: " + said
}
