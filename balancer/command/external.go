package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/internal/strictjson"
)

// external distinguishes what somebody else did from Quell's own work. A backend counts as held by a person if it drains, or has the
// weight 0,
// although it was in service before and Quell has not taken it out since; or if it was so before Quell first changed anything.
type external struct {
	path     string          // file that keeps what restarts of the controller must not lose; empty: none
	kept     []byte          // the record that is in the file
	new      bool            // Quell has never changed or seen this balancer
	clean    bool            // Quell has changed nothing since it first saw this balancer, or since a release
	serving  map[string]bool // backends seen in service since Quell last took them out
	idle     map[string]bool // backends whose weight of 0 is Quell's, or the rounding of a small share that Quell gave
	before   *before         // what the balancer had before Quell; nil: there was nothing, or it is not known
	held     map[string]state
	released map[string]bool // put back by an operator, but not yet seen in service
}

// before is what a balancer had before Quell first changed it.
type before struct {
	At      time.Time          `json:"at"`
	Weights map[string]float64 `json:"weights"` // above 0
}

// state is how a person took a backend out.
type state int

const (
	drained state = iota
	zeroed        // its weight is 0
)

// smallShare is a share that a balancer may round to 0.
const smallShare = 0.01

// record is the content of the file. Earlier versions kept the list of ids only.
type record struct {
	Serving []string `json:"serving"`
	Idle    []string `json:"idle,omitempty"`
	Before  *before  `json:"before,omitempty"`
	Clean   bool     `json:"clean,omitempty"`
}

func recall(path string) (*external, error) {
	h := &external{path: path, serving: map[string]bool{}, idle: map[string]bool{}, held: map[string]state{}, released: map[string]bool{}}
	if path == "" {
		return h, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		h.new, h.clean = true, true
		h.kept = h.encoded()
		return h, nil
	}
	var r record
	if err == nil && bytes.HasPrefix(data, []byte("[")) {
		err = strictjson.Decode(data, &r.Serving)
	} else if err == nil {
		err = strictjson.Decode(data, &r)
	}
	if err != nil {
		return nil, fmt.Errorf("reading which backends were in service: delete %s if it is damaged: %w", path, err)
	}
	for _, id := range r.Serving {
		h.serving[id] = true
	}
	for _, id := range r.Idle {
		h.idle[id] = true
	}
	h.before, h.clean = r.Before, r.Clean
	h.kept = h.encoded()
	return h, nil
}

// asked records what Quell is about to apply, before it is applied. It returns the list with the held backends out of service.
func (h *external) asked(backends []quell.Backend) ([]quell.Backend, error) {
	h.clean = false
	list, listed := slices.Clone(backends), map[string]bool{}
	for i := range list {
		b := &list[i]
		listed[b.ID] = true
		how, held := h.held[b.ID]
		switch {
		case b.Draining:
			delete(h.serving, b.ID)
			delete(h.released, b.ID) // it is not to be put back any more
		case held && how == drained:
			b.Weight, b.Draining, b.Held = 0, true, true
		case held:
			b.Weight = 0
		case b.Weight < smallShare:
			h.idle[b.ID] = true
		}
	}
	gone := func(id string) bool { return !listed[id] }
	for _, ids := range []map[string]bool{h.serving, h.idle, h.released} {
		maps.DeleteFunc(ids, func(id string, _ bool) bool { return gone(id) })
	}
	maps.DeleteFunc(h.held, func(id string, _ state) bool { return gone(id) })
	return list, h.keep()
}

// found learns what is in force, and marks backends that somebody else took out. If all weights are 0, the balancer does not tell them.
func (h *external) found(states []quell.BackendState, now time.Time) error {
	weighed := slices.ContainsFunc(states, func(s quell.BackendState) bool { return s.Weight > 0 })
	h.adopt(states, now)
	for i := range states {
		s := &states[i]
		zero := weighed && s.Weight == 0 && !s.Draining
		switch {
		case !s.Draining && !zero:
			h.serving[s.ID] = true
			delete(h.idle, s.ID)
			delete(h.held, s.ID)
			delete(h.released, s.ID)
		case h.released[s.ID]: // the balancer has not put it back yet: it will be told again
			s.Draining, s.Address = false, ""
		case zero && h.isHeld(s.ID, drained): // put back: the weight of 0 came with the drain
			delete(h.held, s.ID)
			h.idle[s.ID] = true
		case zero && h.idle[s.ID]:
		case h.serving[s.ID]:
			h.held[s.ID] = drained
			by := &quell.Held{By: "balancer"}
			if zero {
				h.held[s.ID], by.Why = zeroed, "its weight is 0"
			}
			s.Weight, s.Draining, s.Held, s.ByHand = 0, false, false, by
		}
	}
	return h.keep()
}

func (h *external) isHeld(id string, how state) bool {
	is, held := h.held[id]
	return held && is == how
}

// adopt records what the balancer has before Quell changes anything. Whatever is out then, somebody else took out.
func (h *external) adopt(states []quell.BackendState, now time.Time) {
	if !h.clean || len(states) == 0 {
		return
	}
	weights := map[string]float64{}
	for _, s := range states {
		if h.new {
			h.serving[s.ID] = true
		}
		if s.Weight > 0 && !s.Draining {
			weights[s.ID] = s.Weight
		}
	}
	if h.new = false; h.before == nil || !maps.Equal(h.before.Weights, weights) {
		h.before = &before{now.UTC(), weights}
	}
}

// encoded returns the content of the file.
func (h *external) encoded() []byte {
	data, _ := json.Marshal(record{slices.Sorted(maps.Keys(h.serving)), slices.Sorted(maps.Keys(h.idle)), h.before, h.clean})
	return append(data, '\n')
}

// keep stores the record if the file has another one. If that fails, it is tried again at the next call.
func (h *external) keep() error {
	h.new = false
	now := h.encoded()
	if h.path == "" || bytes.Equal(now, h.kept) {
		return nil
	}
	err := atomicfile.Write(h.path, now, 0o600)
	atomicfile.LikeFolder(h.path) // `quell release` may run as root
	if err != nil {
		return fmt.Errorf("storing which backends are in service: %w", err)
	}
	h.kept = now
	return nil
}

// Release puts a backend back in service that somebody else drained. It runs the command at once.
func (d *Driver) Release(ctx context.Context, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, held := d.external.held[id]; !held {
		return fmt.Errorf("nobody holds %s", id)
	}
	delete(d.external.held, id)
	delete(d.external.serving, id)
	d.external.released[id] = true
	if d.last == nil {
		return nil // the next Apply puts it back
	}
	return d.tell(ctx, d.last)
}
