package quell

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrNoData says that required data was never measured or trained. Test for it with errors.Is.
var ErrNoData = errors.New("no data")

// InvalidError says which part of a value breaks which rule.
type InvalidError struct {
	// Path leads to the offending part, as in `instances[2].observation.utilization.network`.
	Path string
	// Problem says what is wrong and what is allowed.
	Problem string
}

func (e *InvalidError) Error() string {
	if e.Path == "" {
		return e.Problem
	}
	return e.Path + ": " + e.Problem
}

// OwnedError says that the balancer obeys another controller, because that controller's lease has not expired.
type OwnedError struct {
	Balancer string        `json:"balancer"` // name of the balancer, for people
	Owner    Owner         `json:"owner"`
	Lease    time.Duration `json:"lease_ns"` // the owner's lease ends this long after its last renewal
}

func (e *OwnedError) Error() string {
	return fmt.Sprintf("%s obeys another controller, %s: stop one of the two. When that one is gone, this one takes over within %v",
		e.Balancer, cmp.Or(e.Owner.Name, e.Owner.ID), e.Lease)
}

// UnsureError says that an action failed, and that it may have been carried out all the same: for example, a program that starts machines
// was killed because it took too long.
type UnsureError struct{ Err error }

func (e *UnsureError) Error() string { return e.Err.Error() }
func (e *UnsureError) Unwrap() error { return e.Err }

// UserError is a user's mistake in a command line or a file. The command ends with status 2.
type UserError struct{ Err error }

func (e *UserError) Error() string { return e.Err.Error() }
func (e *UserError) Unwrap() error { return e.Err }

// problems collects broken rules under a path.
type problems struct {
	path []string
	errs []error
}

func (p *problems) addf(field, format string, args ...any) {
	path := strings.Join(append(p.path[:len(p.path):len(p.path)], field), ".")
	p.errs = append(p.errs, &InvalidError{Path: path, Problem: fmt.Sprintf(format, args...)})
}

func (p *problems) in(step string, check func()) {
	p.path = append(p.path, step)
	check()
	p.path = p.path[:len(p.path)-1]
}

// mostShown limits how many broken rules one message lists, because thousands of instances may have the same mistake.
const mostShown = 20

func (p *problems) err() error {
	if more := len(p.errs) - mostShown; more > 0 {
		return errors.Join(append(p.errs[:mostShown:mostShown], fmt.Errorf("and %d more", more))...)
	}
	return errors.Join(p.errs...)
}
