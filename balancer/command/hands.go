package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/atomicfile"
)

// hands distinguishes drains by somebody else from Quell's own. A backend counts as held by a person if it drains although it was in
// service before and Quell has not drained it since.
type hands struct {
	path     string          // file that keeps the field serving over restarts of the controller; empty: none
	serving  map[string]bool // backends seen in service since Quell last took them out
	held     map[string]bool // backends held by a person
	released map[string]bool // put back by an operator, but not yet seen in service
}

func recall(path string) (*hands, error) {
	h := &hands{path: path, serving: map[string]bool{}, held: map[string]bool{}, released: map[string]bool{}}
	if path == "" {
		return h, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return h, nil
	}
	var ids []string
	if err == nil {
		err = quell.DecodeStrict(data, &ids)
	}
	if err != nil {
		return nil, fmt.Errorf("reading which backends were in service: delete %s if it is damaged: %w", path, err)
	}
	for _, id := range ids {
		h.serving[id] = true
	}
	return h, nil
}

// asked records what Quell is about to apply, before it is applied. It returns the list with the held backends out of service.
func (h *hands) asked(backends []quell.Backend) ([]quell.Backend, error) {
	before := maps.Clone(h.serving)
	list, listed := slices.Clone(backends), map[string]bool{}
	for i := range list {
		b := &list[i]
		listed[b.ID] = true
		switch {
		case b.Draining:
			delete(h.serving, b.ID)
		case h.held[b.ID]:
			b.Weight, b.Draining, b.Held = 0, true, true
		}
	}
	for _, ids := range []map[string]bool{h.serving, h.held, h.released} {
		maps.DeleteFunc(ids, func(id string, _ bool) bool { return !listed[id] })
	}
	return list, h.keep(before)
}

// found learns what is in force, and marks backends that somebody else drained.
func (h *hands) found(states []quell.BackendState) error {
	before := maps.Clone(h.serving)
	for i := range states {
		s := &states[i]
		switch {
		case !s.Draining:
			h.serving[s.ID] = true
			delete(h.held, s.ID)
			delete(h.released, s.ID)
		case h.released[s.ID]: // the balancer has not put it back yet: it will be told again
			s.Draining, s.Address = false, ""
		case h.serving[s.ID]:
			h.held[s.ID] = true
			s.Weight, s.Draining, s.Held, s.ByHand = 0, false, false, &quell.Held{By: "balancer"}
		}
	}
	return h.keep(before)
}

// keep stores which backends are in service, if that changed.
func (h *hands) keep(before map[string]bool) error {
	if h.path == "" || maps.Equal(before, h.serving) {
		return nil
	}
	data, err := json.Marshal(slices.Sorted(maps.Keys(h.serving)))
	if err == nil {
		err = atomicfile.Write(h.path, append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("storing which backends are in service: %w", err)
	}
	return nil
}

// Release puts a backend back in service that somebody else drained. It runs the command at once.
func (d *Driver) Release(ctx context.Context, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.hands.held[id] {
		return fmt.Errorf("nobody holds %s", id)
	}
	delete(d.hands.held, id)
	delete(d.hands.serving, id)
	d.hands.released[id] = true
	if d.last == nil {
		return nil // the next Apply puts it back
	}
	return d.tell(ctx, d.last)
}
