package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
)

// play lets Quell watch the fleet, first alone and then beside neighbours.
func (f *strangerFleet) play(ctx context.Context) (*strangerRecord, error) {
	if err := f.serve(); err != nil {
		return nil, err
	}
	if err := f.awaitFront(ctx); err != nil {
		return nil, err
	}
	var load strangerLoad
	stop := f.startUsers(ctx, &load)
	defer stop()
	r := &strangerRecord{Settings: f.set, Machines: f.names}
	alone, err := f.meter()
	if err == nil {
		err = wait(ctx, f.set.Before)
	}
	if err == nil {
		r.Alone, err = alone.cost()
	}
	if err != nil {
		return nil, err
	}
	r.Began = time.Now()
	if err := f.watch(); err != nil {
		return nil, err
	}
	if err := f.awaitKnowing(ctx, r); err != nil {
		return nil, err
	}
	beside, err := f.meter()
	if err != nil {
		return nil, err
	}
	if err := wait(ctx, f.set.Calm); err != nil {
		return nil, err
	}
	r.Calm = time.Now()
	for i, use := range f.set.Uses {
		if err := f.visit(ctx, r, i%len(f.names), use); err != nil {
			return nil, err
		}
	}
	if r.Beside, err = beside.cost(); err != nil {
		return nil, err
	}
	stop()
	r.Requests, r.Failed = int(load.requests.Load()), int(load.failed.Load())
	if r.Predictions, err = f.predictions(); err != nil {
		return nil, err
	}
	return r, f.told(r)
}

// told reads what all plans said.
func (f *strangerFleet) told(r *strangerRecord) error {
	entries, err := f.journal()
	if err != nil {
		return err
	}
	for i := range entries {
		if entries[i].Plan != nil {
			r.Told = append(r.Told, toldBy(&entries[i]))
		}
	}
	return nil
}

// strangerMeter is how much processor time each of the fleet's programs had used at a time.
type strangerMeter struct {
	fleet *strangerFleet
	at    time.Time
	used  map[string]int // clock ticks, by name
}

func (f *strangerFleet) meter() (m strangerMeter, err error) {
	m = strangerMeter{fleet: f, at: time.Now(), used: map[string]int{}}
	for _, p := range f.running {
		if m.used[p.name], err = ticks(p.cmd.Process.Pid); err != nil {
			return m, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return m, nil
}

// cost is what was used since.
func (m strangerMeter) cost() (strangerCost, error) {
	now, err := m.fleet.meter()
	return strangerCostOf(m.used, now.used, now.at.Sub(m.at)), err
}

// awaitKnowing waits until each machine has a severity.
func (f *strangerFleet) awaitKnowing(ctx context.Context, r *strangerRecord) error {
	var entries []bus.Entry
	for time.Since(r.Began) < f.set.Patience {
		if err := wait(ctx, max(2*time.Second, f.set.Sampling)); err != nil {
			return err
		}
		var err error
		if entries, err = f.journal(); err != nil {
			continue // the controller is starting
		}
		at, ok := knowing(entries, len(f.names))
		if ok {
			fmt.Fprintf(os.Stderr, "stranger: each machine has a severity after %v\n", at.Sub(r.Began).Round(time.Second))
			r.Knows = at
			return nil
		}
	}
	said, _ := os.ReadFile(filepath.Join(f.dir, "controller.log"))
	return fmt.Errorf("not every machine has a severity within %v; %d entries in the journal; the controller said:\n%s", f.set.Patience,
		len(entries), said)
}

// visit lets a neighbour use a machine's link for some time.
func (f *strangerFleet) visit(ctx context.Context, r *strangerRecord, n int, use float64) error {
	machine := f.lab.Machine(hostOf(n))
	v := strangerVisit{Instance: f.names[n], Use: use, From: time.Now()}
	_, before, err := machine.Carried()
	if err != nil {
		return err
	}
	if err := machine.Interfere(map[quell.Resource]float64{quell.Network: use}); err != nil {
		return err
	}
	if err := wait(ctx, f.set.Present); err != nil {
		return err
	}
	_, after, err := machine.Carried()
	if err != nil {
		return err
	}
	v.To = time.Now()
	v.True = (after - before) / v.To.Sub(v.From).Seconds()
	r.Visits = append(r.Visits, v)
	fmt.Fprintf(os.Stderr, "stranger: a neighbour used %.2f of the link of %s\n", v.True, v.Instance)
	if err := machine.Interfere(nil); err != nil {
		return err
	}
	return wait(ctx, f.set.Away)
}
