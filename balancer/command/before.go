package command

import (
	"context"
	"errors"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
)

// Restore gives the backends shares by the base weights that the state command tells, and ends drains of Quell. Without such weights it
// changes nothing and says so.
func (d *Driver) Restore(ctx context.Context) (unknown []string, err error) {
	states, err := d.State(ctx)
	if err != nil {
		return nil, err
	}
	var sum float64
	for _, s := range states {
		if s.Base == nil {
			return []string{"state_command tells no base weight of " + s.ID + ", and no driver knows what the weights were: set them yourself"}, nil
		}
		sum += *s.Base
	}
	if sum == 0 {
		return nil, errors.New("balancer command: no backends are known: state_command is needed")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]quell.Backend, len(states))
	for i, s := range states {
		list[i] = s.Backend
		list[i].Weight, list[i].Draining, list[i].Held = *s.Base/sum, false, false
	}
	return nil, d.tell(ctx, list)
}

var _ balancer.Restorer = (*Driver)(nil)
