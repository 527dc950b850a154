package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quellhq/quell/agentless"
	"github.com/quellhq/quell/agentless/look"
	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/internal/namedfile"
	"github.com/quellhq/quell/setup"
)

// watchFlags are the flags of `quell init --agentless`.
type watchFlags struct {
	path, host, memory string
	period, lasts      time.Duration
	threshold          time.Duration
}

func (f *watchFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.path, "path", "/", "with --agentless: a small file that every server has, 1 to 100 kB")
	fl.StringVar(&f.host, "host", "", "with --agentless: the Host header of these downloads")
	fl.StringVar(&f.memory, "memory", "", "with --agentless: file that keeps what is usual, for the next look")
	durationFlag(fl, &f.period, "period", 5*time.Second, "with --agentless: length of a window")
	durationFlag(fl, &f.lasts, "for", 2*time.Minute, "with --agentless: how long to look")
	durationFlag(fl, &f.threshold, "threshold", 0, "with --agentless: the objective; the rates that were carried within it are told")
}

func (f *watchFlags) check() error {
	switch {
	case !strings.HasPrefix(f.path, "/"):
		return userErrorf("--path %q: must begin with /", f.path)
	case f.period < 500*time.Millisecond || f.period > 10*time.Minute:
		return userErrorf("--period %v: must be between 500ms and 10m", f.period)
	case f.lasts < f.period || f.lasts > 30*24*time.Hour:
		return userErrorf("--for %v: must be between one period and 30 days", f.lasts)
	case f.threshold < 0:
		return userErrorf("--threshold %v: must not be negative", f.threshold)
	case f.memory != "":
		if _, err := os.Stat(filepath.Dir(f.memory)); err != nil {
			return userErrorf("--memory %s: %w", f.memory, err)
		}
	}
	return nil
}

// probesPerWindow is how many downloads of each server a window has.
const probesPerWindow = 10

// run watches the servers and says what it finds: changes as they are seen, and everything at the end.
func (f *watchFlags) run(cmd *cobra.Command, facts *setup.Facts, servers []look.Server) error {
	memory, err := f.load(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	var targets []look.Target
	for _, in := range facts.Instances {
		targets = append(targets, look.Target{ID: in.ID, Address: in.Address})
	}
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "looking at %d server(s) from here for %v; nothing is installed or changed there\n", len(targets), f.lasts)
	ctx, cancel := context.WithTimeout(cmd.Context(), f.lasts)
	defer cancel()
	var findings []agentless.Finding
	slowed, seen, windows := map[string]bool{}, map[string]int{}, 0
	for before := time.Now(); ; {
		samples, err := look.Window(ctx, targets,
			look.Options{Path: f.path, Host: f.host, Period: f.period, Count: probesPerWindow, Timeout: 2 * f.period})
		if err != nil {
			break // the time is over
		}
		if facts.Socket != "" {
			servers, before = f.count(ctx, cmd.ErrOrStderr(), facts, samples, servers, before)
		}
		findings, memory = agentless.Judge(memory, time.Now(), samples, float64(f.threshold)/float64(time.Millisecond))
		tellChanges(w, findings, slowed)
		windows++
		for i := range findings {
			if findings[i].Slowed {
				seen[findings[i].ID]++
			}
		}
		if err := f.save(memory); err != nil {
			return err
		}
	}
	if cmd.Context().Err() != nil && findings == nil {
		return cmd.Context().Err()
	}
	return errors.Join(conclude(w, findings), earlier(w, findings, seen, windows))
}

// count adds what HAProxy counted since the last window. If it does not answer, the window is judged without.
func (f *watchFlags) count(ctx context.Context, errs io.Writer, facts *setup.Facts, samples []agentless.Sample, servers []look.Server,
	before time.Time,
) ([]look.Server, time.Time) {
	h, err := look.AskHAProxy(ctx, facts.Socket)
	if err != nil {
		fmt.Fprintln(errs, "quell:", err)
		return nil, time.Now()
	}
	now, err := h.Backend(facts.Backend)
	if err != nil {
		fmt.Fprintln(errs, "quell:", err)
		return nil, time.Now()
	}
	look.Count(samples, servers, now, h.At.Sub(before).Seconds())
	return now, h.At
}

// tellChanges writes which servers began to be slowed, or ended.
func tellChanges(w io.Writer, findings []agentless.Finding, slowed map[string]bool) {
	for i := range findings {
		f := &findings[i]
		if f.Slowed == slowed[f.ID] {
			continue
		}
		slowed[f.ID] = f.Slowed
		fmt.Fprintf(w, "%s  %s\n", time.Now().Format(time.TimeOnly), f.Text())
	}
}

// mostMemory bounds the memory's file: 10,000 servers need 6 MB.
const mostMemory = 64 << 20

// load reads the memory. One that cannot be used is set aside: a look never fails because of an earlier one.
func (f *watchFlags) load(errs io.Writer) (m agentless.Memory, err error) {
	if f.memory == "" {
		return m, nil
	}
	data, err := namedfile.Read(f.memory, mostMemory)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, userErrorf("--memory: %w", err)
	}
	if m, err = agentless.Decode(data); err != nil {
		aside := f.memory + ".damaged"
		if err := os.Rename(f.memory, aside); err != nil {
			return m, fmt.Errorf("--memory: %w", err)
		}
		fmt.Fprintf(errs, "quell: %s: %v. It is now %s, and what is usual is learned again\n", f.memory, err, aside)
	}
	return m, nil
}

func (f *watchFlags) save(m agentless.Memory) error {
	if f.memory == "" {
		return nil
	}
	data, err := m.Encode()
	if err != nil {
		return err
	}
	if err := atomicfile.WriteNamed(f.memory, data, 0o644); err != nil {
		return fmt.Errorf("--memory: %w", err)
	}
	return nil
}
