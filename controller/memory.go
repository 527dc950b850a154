package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

const memoryKey = "controller"

// memory is what must survive a restart.
type memory struct {
	State     policy.State         `json:"state"`
	Draining  map[string]time.Time `json:"draining,omitempty"` // since when
	Paused    bool                 `json:"paused,omitempty"`
	PausedBy  string               `json:"paused_by,omitempty"`
	Overrides map[string]float64   `json:"overrides,omitempty"`
}

// restore reads the memory back. One that cannot be read is an error: going on without it would forget a pause.
func (c *Controller) restore(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	data, err := c.opts.Memory.Get(ctx, memoryKey)
	if errors.Is(err, quell.ErrNoData) {
		c.mem = memory{Draining: map[string]time.Time{}}
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the controller's memory: %w", err)
	}
	var m memory
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("reading the controller's memory: %w", err)
	}
	if m.Draining == nil {
		m.Draining = map[string]time.Time{}
	}
	c.mem = m
	c.log.Info("went on from the stored state", "policy", m.State.Policy, "instances", len(m.State.Instances), "paused", m.Paused)
	return nil
}

func (c *Controller) save(ctx context.Context) error {
	data, err := json.Marshal(c.mem)
	if err != nil {
		return fmt.Errorf("encoding the controller's memory: %w", err)
	}
	if err := c.opts.Memory.Put(ctx, memoryKey, data); err != nil {
		return fmt.Errorf("storing the controller's memory: %w", err)
	}
	return nil
}
