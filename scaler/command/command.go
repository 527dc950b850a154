// Package command is the scaler for everything without a driver of its own: it starts, stops
// and lists instances by running three commands of the user.
//
//	start: gets {"count":2} on standard input, prints the ids of the new instances: ["a","b"]; or nothing if
//	       they have no ids yet, as in a cloud's group: then they appear in the list later
//	stop:  gets {"ids":["a"]}; what it prints is ignored
//	list:  gets nothing, prints every instance as a quell.Member:
//	       [{"id":"a","address":"10.0.0.1:80","state":"ready","started":"2026-01-01T00:00:00Z"}]
//
// A command that fails must exit with a status other than 0 and write the reason to standard error. If start fails, it must not have
// started anything; if it was killed, or what it printed cannot be read, it counts as unknown whether it did. Instances that a command
// leaves running on this machine must be in a process group of their own (setsid): if a command takes too long,
// its whole process group is killed.
package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/program"
	"github.com/quellhq/quell/internal/strictjson"
	"github.com/quellhq/quell/setting"
)

// Options hold the three commands. Each is a program with its arguments and is not run by a shell. All three are required.
type Options struct {
	Start, Stop, List []string
	Timeout           time.Duration // of one run of a command; 30 s by default
	Now               func() time.Time
}

// Driver runs the commands. It is safe for concurrent use if the commands are.
type Driver struct {
	opts  Options
	mu    sync.Mutex
	first map[string]time.Time // when List first reported an instance without a start time
}

// New checks the options; its error is a *quell.UserError.
func New(opts Options) (*Driver, error) {
	var errs []error
	for name, argv := range map[string][]string{"start": opts.Start, "stop": opts.Stop, "list": opts.List} {
		if len(argv) == 0 || argv[0] == "" {
			errs = append(errs, fmt.Errorf("%s: missing: give the program and its arguments", name))
		}
	}
	if opts.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout: %s is negative", opts.Timeout))
	}
	if len(errs) > 0 {
		slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return nil, &quell.UserError{Err: fmt.Errorf("scaler commands: %w", errors.Join(errs...))}
	}
	opts.Timeout = cmp.Or(opts.Timeout, 30*time.Second)
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Driver{opts: opts, first: map[string]time.Time{}}, nil
}

// Members returns what the list command prints. An instance without a start time started when it was first listed.
func (d *Driver) Members(ctx context.Context) ([]quell.Member, error) {
	at := d.opts.Now()
	out, err := d.run(ctx, d.opts.List, nil)
	if err != nil {
		return nil, fmt.Errorf("listing instances: %w", err)
	}
	members, err := decodeMembers(out)
	if err != nil {
		return nil, fmt.Errorf("listing instances: what %s printed: %w", d.opts.List[0], err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.date(members, at)
	return members, nil
}

// date fills in missing start times with the time at which an instance was first listed. It forgets instances that are gone.
func (d *Driver) date(members []quell.Member, at time.Time) {
	known := d.first
	d.first = map[string]time.Time{}
	for i := range members {
		m := &members[i]
		if !m.Started.IsZero() {
			continue
		}
		m.Started = at
		if t, ok := known[m.ID]; ok {
			m.Started = t
		}
		d.first[m.ID] = m.Started
	}
}

// Start asks for n instances and returns the printed ids. If their number is not n, it returns them with an error. If the command prints
// nothing, there are no ids yet, and the instances appear later in the list. The error is a *quell.UnsureError if the instances may have
// been started.
func (d *Driver) Start(ctx context.Context, n int) ([]string, error) {
	if n < 0 {
		return nil, fmt.Errorf("starting %d instances: the number is negative", n)
	}
	if n == 0 {
		return nil, nil
	}
	out, err := d.run(ctx, d.opts.Start, struct {
		Count int `json:"count"`
	}{n})
	if err != nil {
		err = fmt.Errorf("starting %d instances: %w", n, err)
		if errors.As(err, new(*program.CutError)) {
			return nil, &quell.UnsureError{Err: err}
		}
		return nil, err
	}
	if len(bytes.TrimSpace(out)) == 0 {
		return nil, nil
	}
	ids, err := decodeIDs(out)
	if err != nil {
		return nil, &quell.UnsureError{Err: fmt.Errorf("starting %d instances: what %s printed: %w", n, d.opts.Start[0], err)}
	}
	if len(ids) != n {
		return ids, fmt.Errorf("starting %d instances: %s printed %d ids", n, d.opts.Start[0], len(ids))
	}
	return ids, nil
}

// Stop runs the command that stops the instances.
func (d *Driver) Stop(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := d.run(ctx, d.opts.Stop, struct {
		IDs []string `json:"ids"`
	}{ids})
	if err != nil {
		return fmt.Errorf("stopping %s: %w", strings.Join(ids, ", "), err)
	}
	return nil
}

func decodeMembers(out []byte) ([]quell.Member, error) {
	var members []quell.Member
	if err := decodeArray(out, &members); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for i, m := range members {
		if err := check(m, seen); err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		seen[m.ID] = true
	}
	return members, nil
}

// mostID is the longest id of an instance in bytes, as in readings.
const mostID = 256

func check(m quell.Member, seen map[string]bool) error {
	switch {
	case m.ID == "":
		return errors.New("id: missing")
	case len(m.ID) > mostID:
		return fmt.Errorf("id: %q is longer than %d bytes", setting.Shorten(m.ID), mostID)
	case seen[m.ID]:
		return fmt.Errorf("id: %q is given twice", m.ID)
	case !slices.Contains(quell.States, m.State):
		return fmt.Errorf("state of %s: missing", m.ID)
	case m.Address == "" && m.State == quell.Ready:
		return fmt.Errorf("address of %s: missing, though it is ready", m.ID)
	case m.Address != "" && setting.AddressProblem(m.Address, true) != "":
		return fmt.Errorf("address of %s: %s", m.ID, setting.AddressProblem(m.Address, true))
	case m.Probe != "" && setting.AddressProblem(m.Probe, true) != "":
		return fmt.Errorf("probe of %s: %s", m.ID, setting.AddressProblem(m.Probe, true))
	}
	return nil
}

func decodeIDs(out []byte) ([]string, error) {
	var ids []string
	if err := decodeArray(out, &ids); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for i, id := range ids {
		if id == "" || len(id) > mostID || seen[id] {
			return nil, fmt.Errorf("[%d]: id %q is empty, longer than %d bytes, or given twice", i, setting.Shorten(id), mostID)
		}
		seen[id] = true
	}
	return ids, nil
}

// decodeArray accepts an empty array, which means "none", but not empty output or null, which are mistakes.
func decodeArray[T any](out []byte, into *[]T) error {
	if len(out) == 0 {
		return errors.New("nothing: print a JSON array, [] for none")
	}
	if err := strictjson.Decode(out, into); err != nil {
		return fmt.Errorf("%w (it begins with %q)", err, out[:min(len(out), 60)])
	}
	if *into == nil {
		return errors.New("null: print a JSON array, [] for none")
	}
	return nil
}

// run runs a command with v as JSON on its standard input. If v is nil, the input is empty.
func (d *Driver) run(ctx context.Context, argv []string, v any) (out []byte, err error) {
	var input []byte
	if v != nil {
		if input, err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	return program.Run(ctx, argv, input, program.Limits{Time: d.opts.Timeout, OutputMiB: 1})
}
