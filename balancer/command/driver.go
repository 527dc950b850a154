// Package command drives a balancer that Quell does not know through programs of the user's: one that is given the
// backends on its standard input, and perhaps one that tells what is in force.
package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/outage"
)

// Options configure a Driver. A command is a program and its arguments; no shell comes between.
type Options struct {
	Service string
	// Command gets {"service":"...","backends":[...]} on standard input and ends with status 0 when exactly these
	// backends are in force.
	Command []string
	// StateCommand prints a JSON list of quell.BackendState. Without one, State returns what was last applied.
	StateCommand []string
	Timeout      time.Duration // of either command with all its children; default 10 s
	// Memory is the file that keeps, over restarts of the controller, which backends were in service, so that what
	// somebody else drains is known from what Quell does. Empty: none.
	Memory string
	Logger *slog.Logger
}

// Driver runs the commands, one at a time.
type Driver struct {
	opts Options

	mu    sync.Mutex
	last  []quell.Backend
	hands *hands
	keeps outage.Log
}

// New checks the options; a missing program is a *quell.UserError.
func New(o Options) (*Driver, error) {
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Timeout < 0 {
		return nil, &quell.UserError{Err: fmt.Errorf("balancer command: timeout %v is negative", o.Timeout)}
	}
	if len(o.Command) == 0 {
		return nil, &quell.UserError{Err: errors.New("balancer command: no command is given")}
	}
	for _, argv := range [][]string{o.Command, o.StateCommand} {
		if len(argv) == 0 {
			continue
		}
		if _, err := exec.LookPath(argv[0]); err != nil {
			return nil, &quell.UserError{Err: fmt.Errorf("balancer command: %w", err)}
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	hands, err := recall(o.Memory)
	if err != nil {
		return nil, err
	}
	return &Driver{opts: o, hands: hands, keeps: outage.Log{Logger: o.Logger, What: "keeping which backends are in service"}}, nil
}

// request is what the command reads.
type request struct {
	Service  string          `json:"service"`
	Backends []quell.Backend `json:"backends"`
}

// Apply runs the command. Its error carries the end of what the command wrote to standard error.
func (d *Driver) Apply(ctx context.Context, backends []quell.Backend) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tell(ctx, backends)
}

func (d *Driver) tell(ctx context.Context, backends []quell.Backend) error {
	list, err := d.hands.asked(backends)
	d.keeps.Report(err)
	input, err := json.Marshal(request{d.opts.Service, append([]quell.Backend{}, list...)})
	if err != nil {
		return fmt.Errorf("balancer command: %w", err)
	}
	if _, err := d.run(ctx, d.opts.Command, append(input, '\n')); err != nil {
		return err
	}
	d.last = slices.Clone(backends)
	return nil
}

// State runs the state command, or else returns the backends last applied, taken to be healthy.
func (d *Driver) State(ctx context.Context) ([]quell.BackendState, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.opts.StateCommand) == 0 {
		return d.assumed(), nil
	}
	out, err := d.run(ctx, d.opts.StateCommand, nil)
	if err != nil {
		return nil, err
	}
	states, err := parseStates(out)
	if err != nil {
		return nil, fmt.Errorf("balancer command %s: %w", d.opts.StateCommand[0], err)
	}
	d.keeps.Report(d.hands.found(states))
	return states, nil
}

func (d *Driver) assumed() []quell.BackendState {
	states := make([]quell.BackendState, len(d.last))
	for i, b := range d.last {
		states[i] = quell.BackendState{Backend: b, Healthy: true}
	}
	return states
}

func parseStates(out []byte) ([]quell.BackendState, error) {
	var states []quell.BackendState
	if err := quell.DecodeStrict(out, &states); err != nil {
		return nil, fmt.Errorf("what it printed is not a list of backends: %w", err)
	}
	seen := map[string]bool{}
	for i, s := range states {
		if s.ID == "" || seen[s.ID] {
			return nil, fmt.Errorf("backends[%d].id: %q is missing or given twice", i, s.ID)
		}
		seen[s.ID] = true
		if s.Weight < 0 || s.Weight > math.MaxFloat64 || s.InFlight < 0 {
			return nil, fmt.Errorf("backends[%d]: weight %v and in_flight %d cannot be negative", i, s.Weight, s.InFlight)
		}
	}
	return states, nil
}

// Bounds of what is kept of a command's output.
const (
	maxOutput = 16 << 20
	maxStderr = 1 << 10
)

// run starts the program as the leader of a process group of its own, so that the time-out ends its children too.
func (d *Driver) run(ctx context.Context, argv []string, stdin []byte) ([]byte, error) {
	bounded, cancel := context.WithTimeout(ctx, d.opts.Timeout)
	defer cancel()
	cmd := exec.CommandContext(bounded, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	cmd.WaitDelay = time.Second // a child left behind on purpose may hold on to the pipes
	stdout, stderr := &head{limit: maxOutput}, &tail{limit: maxStderr}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), stdout, stderr
	err := cmd.Run()
	switch ended := err == nil || errors.Is(err, exec.ErrWaitDelay); {
	case ended && stdout.cut:
		return nil, fmt.Errorf("balancer command %s printed more than %d bytes", argv[0], maxOutput)
	case ended:
		return stdout.kept, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("balancer command %s was killed: %w", argv[0], ctx.Err())
	case bounded.Err() != nil:
		return nil, fmt.Errorf("balancer command %s did not end within %v and was killed%s", argv[0], d.opts.Timeout, stderr)
	default:
		return nil, fmt.Errorf("balancer command %s: %w%s", argv[0], err, stderr)
	}
}

func killGroup(leader int) error {
	err := syscall.Kill(-leader, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// head keeps the beginning of what is written.
type head struct {
	limit int
	kept  []byte
	cut   bool
}

func (h *head) Write(b []byte) (int, error) {
	room := min(h.limit-len(h.kept), len(b))
	h.kept = append(h.kept, b[:room]...)
	h.cut = h.cut || room < len(b)
	return len(b), nil
}

// tail keeps the end of what is written.
type tail struct {
	limit int
	kept  []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.kept = append(t.kept, b...)
	t.kept = t.kept[max(0, len(t.kept)-t.limit):]
	return len(b), nil
}

// String is the text as it goes after a message: ": text", or nothing.
func (t *tail) String() string {
	text := strings.ToValidUTF8(strings.TrimSpace(string(t.kept)), "?")
	if text == "" {
		return ""
	}
	return ": " + text
}
