package health

import (
	"context"
	"sync"
)

// manyChecks is how many instances are checked at the same time.
const manyChecks = 64

// Checks are the health checks of all instances of a service. Its methods may be called concurrently, and on nil, for which all are well.
type Checks struct {
	opts    Options
	checker *Checker
	ctx     context.Context
	running sync.WaitGroup

	mu    sync.Mutex
	of    map[string]*checked
	begun bool // instances were followed before
}

// checked is what is known of one instance's health.
type checked struct {
	address  string
	name     string // that requests give as their host; empty: the address
	stop     context.CancelFunc
	state    State
	presumed bool   // counts as well until its first check has ended
	failed   string // the last check's request and answer if it failed
}

// NewChecks prepares checks that go on until ctx ends.
func NewChecks(ctx context.Context, o Options) *Checks {
	return &Checks{opts: o, ctx: ctx, checker: NewChecker(o, nil, make(chan struct{}, manyChecks)), of: map[string]*checked{}}
}

// Follow checks exactly these instances from now on. The first ones that are followed served before there were any checks, so they count
// as well until their first check has ended. Later ones may still be starting, and are not well until a check has passed.
func (c *Checks) Follow(addresses map[string]string) { c.FollowNamed(addresses, nil) }

// FollowNamed is Follow for addresses that names stand for at present. Requests give the names as their host.
func (c *Checks) FollowNamed(addresses, names map[string]string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, known := range c.of {
		if addresses[id] != known.address || names[id] != known.name {
			known.stop()
			delete(c.of, id)
		}
	}
	for id, address := range addresses {
		if c.of[id] == nil && c.ctx.Err() == nil {
			c.begin(id, address, names[id])
		}
	}
	c.begun = c.begun || len(addresses) > 0
}

func (c *Checks) begin(id, address, name string) {
	ctx, stop := context.WithCancel(c.ctx)
	k := &checked{address: address, name: name, stop: stop, presumed: !c.begun}
	c.of[id] = k
	c.running.Go(func() {
		c.checker.named(name).Run(ctx, address, func(err error) {
			if ctx.Err() != nil {
				return
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			k.state.Observe(err == nil, c.opts.Fall, c.opts.Rise)
			k.presumed, k.failed = false, ""
			if err != nil {
				k.failed = err.Error()
			}
		})
	})
}

// Of returns whether an instance is well, and what its last check got if not. One that is not followed counts as well.
func (c *Checks) Of(id string) (well bool, failed string) {
	if c == nil {
		return true, ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.of[id]
	if k == nil || k.presumed || k.state.Up {
		return true, ""
	}
	return false, k.failed
}

// Wait returns when no instance is checked any more.
func (c *Checks) Wait() { c.running.Wait() }
