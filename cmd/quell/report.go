package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/chart"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/report"
)

// reportFlags are the flags of `quell report`.
type reportFlags struct {
	path, dir, html, png, currency string
	since                          time.Duration
	price                          float64
	json                           bool
}

func reportCommand() *cobra.Command {
	var f reportFlags
	cmd := &cobra.Command{
		Use:   "report [--since 24h] [--config FILE] [--dir DIR] [--json | --html FILE | --png FILE]",
		Short: "Conclude from the journal: how long the objective was missed and why, what acting would have changed or did, what to do next",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.read(cmd, func(file *config.File, j journal) error {
				r, err := f.conclude(cmd.Context(), file, j, time.Now())
				if err != nil {
					return err
				}
				printable(r)
				return f.write(cmd.OutOrStdout(), r)
			})
		},
	}
	addConfigFlag(cmd, &f.path)
	serviceFlag(cmd)
	durationFlag(cmd.Flags(), &f.since, "since", 24*time.Hour, "how far to look back")
	cmd.Flags().StringVar(&f.dir, "dir", "", "data folder of a controller that does not run; the configuration says the objective")
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	cmd.Flags().StringVar(&f.html, "html", "", "write a page with pictures into this file")
	cmd.Flags().StringVar(&f.png, "png", "", "write the pictures into this file")
	cmd.Flags().Float64Var(&f.price, "machine-hour", 0, "price of an instance for an hour; with it, machine-hours are also told as money")
	cmd.Flags().StringVar(&f.currency, "currency", "USD", "currency of --machine-hour")
	return cmd
}

// longestReport bounds --since.
const longestReport = 366 * 24 * time.Hour

func (f *reportFlags) check() error {
	switch {
	case f.since <= 0 || f.since > longestReport:
		return userErrorf("--since %v: must be above 0 and at most a year; write how far to look back, as in 24h or 7d", f.since)
	case f.json && (f.html != "" || f.png != ""):
		return userErrorf("--json excludes --html and --png")
	case f.price < 0 || math.IsNaN(f.price) || math.IsInf(f.price, 0):
		return userErrorf("--machine-hour %g: must be a price, 0 or more", f.price)
	}
	return nil
}

// read calls fn with the configuration and the journal that the flags name.
func (f *reportFlags) read(cmd *cobra.Command, fn func(*config.File, journal) error) error {
	if err := f.check(); err != nil {
		return err
	}
	if err := findConfig(cmd, &f.path); err != nil {
		return err
	}
	service, err := cmd.Flags().GetString("service")
	if err != nil {
		return err
	}
	file, err := daemon.LoadService(f.path, service)
	if err != nil {
		return err
	}
	j, kept, closeAll, err := f.open(file)
	if err != nil {
		return err
	}
	defer closeAll()
	err = fn(file, j)
	if errors.Is(err, bus.ErrNotConnected) && kept != "" {
		return fmt.Errorf("%w. While no controller runs, add --dir %s", err, kept)
	}
	return err
}

// open also returns the controller's data folder, if it is on this machine.
func (f *reportFlags) open(file *config.File) (j journal, kept string, closeAll func(), err error) {
	if f.dir != "" {
		stored, closeAll, err := openStore(f.dir, file.Service.Name)
		return briefJournal{stored}, "", closeAll, err
	}
	if file.Bus.URL == "" && isDir(file.Bus.StoreDir) {
		kept = filepath.Dir(file.Bus.StoreDir)
	}
	conn, err := daemon.Connect(file)
	if err != nil {
		return nil, "", nil, err
	}
	return briefJournal{conn.History(file.Service.Name)}, kept, conn.Close, nil
}

// briefJournal is a journal of which only what reports use is read.
type briefJournal struct {
	source interface {
		ReadBrief(ctx context.Context, since time.Time, fn func(bus.Entry) error) error
		ReadBriefSnapshots(ctx context.Context, since time.Time, fn func(quell.Snapshot) error) error
	}
}

func (b briefJournal) Read(ctx context.Context, since time.Time, fn func(bus.Entry) error) error {
	return b.source.ReadBrief(ctx, since, fn)
}

func (b briefJournal) ReadSnapshots(ctx context.Context, since time.Time, fn func(quell.Snapshot) error) error {
	return b.source.ReadBriefSnapshots(ctx, since, fn)
}

// conclude reads the journal up to now.
func (f *reportFlags) conclude(ctx context.Context, file *config.File, j journal, now time.Time) (*report.Report, error) {
	engine, err := table.All.NewLearningEngine(file.Service, nil)
	if err != nil {
		return nil, err
	}
	o := report.Options{Service: file.Service, Resource: engine.Resource(), Since: now.Add(-f.since), Until: now, Config: f.path,
		PerMachineHour: f.price, Currency: f.currency}
	c := report.New(o)
	decisions := newDecisions(ctx, j, o.Since)
	defer decisions.stop()
	err = j.ReadSnapshots(ctx, o.Since, func(s quell.Snapshot) error {
		d, err := decisions.of(s.At)
		if err == nil {
			c.Add(&s, d)
		}
		return err
	})
	if err != nil && !errors.Is(err, quell.ErrNoData) {
		return nil, err
	}
	return c.Report(), nil
}

func (f *reportFlags) write(w io.Writer, r *report.Report) error {
	switch {
	case f.json:
		return json.NewEncoder(w).Encode(r)
	case f.html == "" && f.png == "":
		return r.WriteText(w)
	}
	if _, err := fmt.Fprintln(w, r.Sentence); err != nil {
		return err
	}
	if f.html != "" {
		if err := f.writePage(w, r); err != nil {
			return err
		}
	}
	if f.png == "" {
		return nil
	}
	if err := chart.Report(f.png, r); err != nil {
		return userErrorf("--png: %w", err)
	}
	_, err := fmt.Fprintf(w, "written to %s\n", f.png)
	return err
}

func (f *reportFlags) writePage(w io.Writer, r *report.Report) error {
	var page bytes.Buffer
	if err := r.WriteHTML(&page); err != nil {
		return err
	}
	if err := atomicfile.WriteNamed(f.html, page.Bytes(), 0o644); err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	_, err := fmt.Fprintf(w, "written to %s\n", f.html)
	return err
}

// decisions finds the plan of a snapshot. Plans and snapshots are recorded in the same order, and a plan has the time of its snapshot.
type decisions struct {
	next    func() (bus.Entry, error, bool)
	stop    func()
	waiting map[int64]*report.Decision // read ahead, by time
	order   []int64
	ended   bool
}

// mostWaiting bounds the plans whose snapshot was not found yet.
const mostWaiting = 256

var errEnough = errors.New("no more entries are needed")

func newDecisions(ctx context.Context, j journal, since time.Time) *decisions {
	next, stop := iter.Pull2(func(yield func(bus.Entry, error) bool) {
		err := j.Read(ctx, since, func(e bus.Entry) error {
			if !yield(e, nil) {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) && !errors.Is(err, quell.ErrNoData) {
			yield(bus.Entry{}, err)
		}
	})
	return &decisions{next: next, stop: stop, waiting: map[int64]*report.Decision{}}
}

// of returns the decision on the snapshot of that time; nil if none was recorded.
func (d *decisions) of(at time.Time) (*report.Decision, error) {
	key := at.UnixNano()
	for {
		if found := d.waiting[key]; found != nil {
			delete(d.waiting, key)
			return found, nil
		}
		if d.ended {
			return nil, nil
		}
		entry, err, ok := d.next()
		if err != nil || !ok {
			d.ended = true
			return nil, err
		}
		if entry.Plan == nil || entry.Plan.Service == "" {
			continue
		}
		d.keep(entry)
		if entry.Plan.At.After(at) { // the snapshot's own plan was not recorded, or lies further back
			found := d.waiting[key]
			delete(d.waiting, key)
			return found, nil
		}
	}
}

func (d *decisions) keep(e bus.Entry) {
	key := e.Plan.At.UnixNano()
	d.waiting[key] = &report.Decision{Plan: e.Plan, Mode: e.Mode, Applied: e.Applied}
	if d.order = append(d.order, key); len(d.order) > mostWaiting {
		delete(d.waiting, d.order[0])
		d.order = d.order[1:]
	}
}
