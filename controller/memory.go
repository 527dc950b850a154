package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/budget"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/life"
	"github.com/quellhq/quell/policy"
)

const memoryKey = "controller"

// memory is what must survive a restart.
type memory struct {
	life.Memory
	policy.Cuts
	Owner     string             `json:"owner,omitempty"` // the id by which a balancer recognises this controller
	State     policy.State       `json:"state"`
	Weights   map[string]float64 `json:"weights,omitempty"` // of the last applied plan
	Paused    bool               `json:"paused,omitempty"`
	PausedBy  string             `json:"paused_by,omitempty"`
	Released  *Released          `json:"released,omitempty"`  // everything goes back to how it was before Quell; it is paused, too
	TakenOver time.Time          `json:"taken_over,omitzero"` // when the last release was that was carried out while no controller ran
	Overrides map[string]float64 `json:"overrides,omitempty"`
	Temporary temporary          `json:"temporary,omitzero"` // what ends by itself
	Orders    int                `json:"orders,omitempty"`   // number of operators' orders so far
	Lost      string             `json:"lost,omitempty"`     // why earlier memory is gone; nothing is changed until an operator resumes
	// PendingReverts are parameters of servers that are still to go back, by instance and parameter. The maps are never changed.
	PendingReverts map[string]map[string]pendingRevert `json:"leftovers,omitempty"`
	Budget         *budget.Ledger                      `json:"budget,omitempty"` // what was missed; nil: no target is set
}

func newMemory() memory {
	return memory{Memory: life.NewMemory()}
}

// damagedError says that the memory exists but is invalid.
type damagedError struct{ err error }

func (e *damagedError) Error() string {
	return "the stored memory of the controller is damaged: " + e.err.Error()
}
func (e *damagedError) Unwrap() error { return e.err }

// restore reads the memory back.
func (c *leadership) restore(ctx context.Context) error {
	data, err := c.opts.Memory.Get(ctx, memoryKey)
	found := err == nil
	if !found && !errors.Is(err, quell.ErrNoData) && (c.opts.Marker == nil || bus.Unavailable(err)) {
		return fmt.Errorf("reading the controller's memory: %w", err)
	}
	if errors.Is(err, quell.ErrNoData) {
		err = nil
	}
	m, ours := newMemory(), found && c.wrote != nil && bytes.Equal(data, c.wrote)
	switch {
	case ours: // nobody else has stored anything, and orders may have come that could not be stored
		m = c.mem
	case found:
		if err = m.read(c.opts.Policies, data); err != nil && c.opts.Marker == nil {
			return &damagedError{err}
		}
	}
	if err != nil {
		m = newMemory()
	} else if found && !ours {
		c.log.Info("continues from the stored state", "policy", c.opts.Service.Policy.Name, "stored_by", m.State.Policy,
			"instances", len(m.State.Instances), "paused", m.Paused)
		if lost := m.State.Unread; lost != nil {
			c.log.Warn("what was learned about the service cannot be read: it is learned again", "error", lost)
		}
	}
	on := func(at time.Time) time.Time { return anchored(at, c.now()) }
	for _, times := range []map[string]time.Time{m.Draining, m.Drained} {
		for id, at := range times {
			times[id] = on(at)
		}
	}
	m.Inventory.Anchor(on)
	m.State.Anchor(on)
	m.Fast.Anchor(on)
	for i := range m.Replacing {
		r := &m.Replacing[i]
		r.Ordered, r.Ready = on(r.Ordered), time.Time{}
	}
	m.Replaced = on(m.Replaced)
	m.Temporary = m.Temporary.retimed(func(t Term) Term { return t.resumed(c.now()) })
	m.Cutting = c.mem.Cutting
	lost := c.remembered(&m, found, err)
	c.fleet.Begin()
	c.mem, c.adopt, c.fleet.Forgot = m, true, !found
	if c.mem.Owner == "" {
		c.mem.Owner = newOwner()
		if err := c.keepOwner(ctx); err != nil {
			c.failed("memory", err) // the memory is stored with the next decision
		}
	}
	if lost != "" {
		c.lose(ctx, lost)
	}
	c.releasedEarlier(ctx)
	return nil
}

// read reads a stored memory.
func (m *memory) read(policies policy.Table, data []byte) error {
	if err := json.Unmarshal(data, m); err != nil {
		return err
	}
	return errors.Join(policies.Restore(&m.State), policies.Restore(&m.Fast))
}

// keepOwner stores the owner's id before the id is sent to a balancer. It stores nothing while it is unknown whether this is a first start.
func (c *leadership) keepOwner(ctx context.Context) error {
	if c.first {
		return nil
	}
	return c.save(ctx)
}

func (c *core) save(ctx context.Context) error {
	c.mem.Temporary = c.mem.Temporary.retimed(func(t Term) Term { return t.measured(c.now()) })
	data, err := json.Marshal(c.mem)
	if err != nil {
		return fmt.Errorf("encoding the controller's memory: %w", err)
	}
	if err := c.opts.Memory.Put(ctx, memoryKey, data); err != nil {
		return fmt.Errorf("storing the controller's memory: %w", err)
	}
	c.wrote = data
	return c.saved()
}
