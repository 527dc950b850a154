package nginx

import (
	"context"
	"sync"

	"github.com/quellhq/quell/balancer/health"
)

// manyChecks is how many instances are checked at the same time.
const manyChecks = 64

// checks are the health checks of all instances. nginx itself only notices failing requests, and tells nobody.
type checks struct {
	opts    health.Options
	checker *health.Checker
	ctx     context.Context
	running sync.WaitGroup

	mu sync.Mutex
	of map[string]*checked
}

// checked is what is known of one instance's health.
type checked struct {
	address string
	stop    context.CancelFunc
	state   health.State
	asked   bool   // a check has ended
	failed  string // the last check's request and answer if it failed
}

// newChecks prepares checks that go on until ctx ends.
func newChecks(ctx context.Context, o health.Options) *checks {
	return &checks{opts: o, ctx: ctx, checker: health.NewChecker(o, nil, make(chan struct{}, manyChecks)), of: map[string]*checked{}}
}

// follow checks exactly these instances from now on.
func (c *checks) follow(addresses map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, known := range c.of {
		if addresses[id] != known.address {
			known.stop()
			delete(c.of, id)
		}
	}
	for id, address := range addresses {
		if c.of[id] == nil && c.ctx.Err() == nil {
			c.begin(id, address)
		}
	}
}

func (c *checks) begin(id, address string) {
	ctx, stop := context.WithCancel(c.ctx)
	k := &checked{address: address, stop: stop}
	c.of[id] = k
	c.running.Go(func() {
		c.checker.Run(ctx, address, func(err error) {
			if ctx.Err() != nil {
				return
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			k.state.Observe(err == nil, c.opts.Fall, c.opts.Rise)
			k.asked, k.failed = true, ""
			if err != nil {
				k.failed = err.Error()
			}
		})
	})
}

// health returns whether an instance is well, and what its last check got if not. Before its first check it counts as well.
func (c *checks) health(id string) (well bool, failed string) {
	if c == nil {
		return true, ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.of[id]
	if k == nil || !k.asked || k.state.Up {
		return true, ""
	}
	return false, k.failed
}

// watch checks the health of all instances until ctx ends.
func (d *Driver) watch(ctx context.Context, o health.Options) (wait func()) {
	c := newChecks(ctx, o)
	d.mu.Lock()
	d.checks = c
	d.mu.Unlock()
	c.follow(d.addresses())
	return func() { c.follow(nil); c.running.Wait() }
}
