// Package command drives other balancers through the user's programs: one program gets the backends on its standard input, and an optional
// second one prints what is in force.
package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/internal/outage"
	"github.com/quellhq/quell/internal/program"
	"github.com/quellhq/quell/internal/strictjson"
)

// Options configure a Driver. A command is a program with its arguments; it is not run by a shell.
type Options struct {
	Service string
	// Command gets {"service":"...","backends":[...]} on standard input and ends with status 0 when exactly these
	// backends are in force.
	Command []string
	// StateCommand prints a JSON list of quell.BackendState. If it is empty, State returns what was last applied.
	StateCommand []string
	Timeout      time.Duration // limit for either command with all its child processes; default 10 s
	// Memory is a file that records which backends were in service. With this file, the controller can distinguish a drain by somebody else
	// from a drain by Quell, even after a restart. Empty: there is no such file.
	Memory string
	Logger *slog.Logger
}

// Driver runs the commands, one at a time.
type Driver struct {
	opts Options

	mu       sync.Mutex
	last     []quell.Backend
	external *external
	keeps    outage.Log
}

// New checks the options. If a program is missing, it returns a *quell.UserError.
func New(o Options) (*Driver, error) {
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
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
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	external, err := recall(o.Memory)
	if err != nil {
		return nil, err
	}
	return &Driver{opts: o, external: external, keeps: outage.Log{Logger: o.Logger, What: "storing which backends are in service"}}, nil
}

// request is what Command reads on its standard input.
type request struct {
	Service  string          `json:"service"`
	Backends []quell.Backend `json:"backends"`
}

// Apply runs the command. If the command fails, the error contains the end of what it wrote to standard error.
func (d *Driver) Apply(ctx context.Context, backends []quell.Backend) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := balancer.CheckBackends(backends); err != nil {
		return err
	}
	return d.tell(ctx, backends)
}

func (d *Driver) tell(ctx context.Context, backends []quell.Backend) error {
	list, err := d.external.asked(backends)
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

// State runs the state command. If there is none, it returns the backends last applied, as healthy.
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
	d.keeps.Report(d.external.found(states, time.Now()))
	d.external.bases(states)
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
	if err := strictjson.Decode(out, &states); err != nil {
		return nil, fmt.Errorf("its output is not a list of backends: %w", err)
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
		if s.Base != nil && !(*s.Base > 0 && *s.Base <= math.MaxFloat64) {
			return nil, fmt.Errorf("backends[%d]: base %v must be above 0", i, *s.Base)
		}
	}
	return states, nil
}

func (d *Driver) run(ctx context.Context, argv []string, input []byte) ([]byte, error) {
	out, err := program.Run(ctx, argv, input, program.Limits{Time: d.opts.Timeout, OutputMiB: 16})
	if err != nil {
		return nil, fmt.Errorf("balancer command: %w", err)
	}
	return out, nil
}
