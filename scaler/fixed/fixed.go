// Package fixed is the scaler for machines that somebody else runs: the instances are those of the configuration, and
// their number never changes.
package fixed

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/setting"
)

// ErrFixed is what Start and Stop return.
var ErrFixed = errors.New("the group is fixed: its instances are those of the configuration")

// Driver lists the configured instances. It is safe for concurrent use.
type Driver struct{ members []quell.Member }

// New checks the configured members. Started is zero if it is unknown. All mistakes are returned together, as
// *quell.UserError.
func New(members []quell.Member) (*Driver, error) {
	d := &Driver{members: slices.Clone(members)}
	var errs []error
	seen := map[string]bool{}
	for i := range d.members {
		m := &d.members[i]
		if err := check(*m, seen); err != nil {
			errs = append(errs, fmt.Errorf("instances[%d]: %w", i, err))
		}
		seen[m.ID] = true
		m.State = quell.Ready
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &quell.UserError{Err: fmt.Errorf("fixed group: %w", err)}
	}
	return d, nil
}

func check(m quell.Member, seen map[string]bool) error {
	if m.ID == "" {
		return errors.New("id: missing")
	}
	if seen[m.ID] {
		return fmt.Errorf("id: %q is given twice", m.ID)
	}
	if problem := setting.AddressProblem(m.Address, true); problem != "" {
		return fmt.Errorf("address of %s: %s", m.ID, problem)
	}
	if problem := setting.AddressProblem(m.Probe, true); m.Probe != "" && problem != "" {
		return fmt.Errorf("probe of %s: %s", m.ID, problem)
	}
	return nil
}

// Members lists every instance as ready: the balancer's health checks decide whether it gets requests.
func (d *Driver) Members(context.Context) ([]quell.Member, error) {
	return slices.Clone(d.members), nil
}

// Start returns ErrFixed.
func (d *Driver) Start(context.Context, int) ([]string, error) { return nil, ErrFixed }

// Stop returns ErrFixed.
func (d *Driver) Stop(context.Context, []string) error { return ErrFixed }
