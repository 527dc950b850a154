package command

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
)

// bases fills in the base weights that the state command does not tell, from the weights of before Quell.
func (h *external) bases(states []quell.BackendState) {
	if h.before == nil || slices.ContainsFunc(states, func(s quell.BackendState) bool { return s.Base != nil }) {
		return
	}
	var sum float64
	n, least, most := 0, math.Inf(1), 0.0
	for _, s := range states {
		if w, known := h.before.Weights[s.ID]; known {
			sum, n, least, most = sum+w, n+1, min(least, w), max(most, w)
		}
	}
	if n == 0 || most-least <= quell.SumTolerance*most {
		return
	}
	for i := range states {
		if w, known := h.before.Weights[states[i].ID]; known {
			states[i].Base = new(w * float64(n) / sum)
		}
	}
}

// Restore gives the backends the weights that they had before Quell, by the base weights that the state command tells or by Quell's own
// record, and ends drains of Quell. Without either it changes nothing and says so. If Quell has changed nothing, neither does Restore.
func (d *Driver) Restore(ctx context.Context) (unknown []string, err error) {
	if d.external.clean && !d.external.new {
		return nil, nil
	}
	d.external.new, d.external.clean = false, false // what is in force now may be Quell's, so it is not recorded
	states, err := d.State(ctx)
	if err != nil {
		return nil, err
	}
	if len(states) == 0 {
		return nil, errors.New("balancer command: no backends are known: state_command is needed")
	}
	var sum float64
	list := make([]quell.Backend, len(states))
	for i, s := range states {
		list[i] = s.Backend
		list[i].Draining, list[i].Held = false, false
		switch {
		case s.Base != nil:
			list[i].Weight = *s.Base
		case d.external.before != nil && d.external.before.Weights[s.ID] > 0:
			list[i].Weight = d.external.before.Weights[s.ID]
		default:
			return []string{fmt.Sprintf("state_command tells no base weight of %s, and what it was before Quell is not recorded: nothing was "+
				"changed, set the weights yourself", s.ID)}, nil
		}
		sum += list[i].Weight
	}
	for i := range list {
		list[i].Weight /= sum
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.tell(ctx, list); err != nil {
		return nil, err
	}
	d.external.clean, d.last = true, nil
	return nil, d.external.keep()
}

var _ balancer.Restorer = (*Driver)(nil)
