package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/controller"
)

// leader keeps the service's lease, by writing as seldom as is safe.
type leader struct {
	conn            *bus.Conn
	service, holder string
	now             func() time.Time
	least           time.Duration // of the lease

	mu      sync.Mutex // guards what follows
	ttl     time.Duration
	margin  time.Duration // to lead is to hold the lease for so long at least
	lease   *bus.Lease
	renewed time.Time // the lease is held for ttl from then on
}

// leastLease is how long a lease lasts at least. A cluster of servers elects a new leader within 10 s: a lease that is kept there outlasts
// that.
func leastLease(file *config.File) time.Duration {
	if file.Bus.URL != "" {
		return 20 * time.Second
	}
	return 10 * time.Second
}

// resize fits the lease to a sampling period. One that is held is taken anew, which its holder can at once.
func (l *leader) resize(sampling time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.margin = controller.StepLimit(sampling)
	ttl := max(l.least, 3*sampling)
	if ttl != l.ttl {
		l.ttl, l.lease = ttl, nil
	}
}

// lead says whether the lease is held for the margin at least. While another controller holds it, the error is the
// same every time.
func (l *leader) lead(ctx context.Context) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == nil {
		return l.take(ctx)
	}
	if l.now().Sub(l.renewed) < l.ttl/3 {
		return true, nil
	}
	asked := l.now()
	err := l.lease.Renew(ctx)
	switch {
	case err == nil:
		l.renewed = asked
	case errors.Is(err, bus.ErrLeaseLost):
		l.lease = nil
		return false, err
	}
	return l.now().Sub(l.renewed) <= l.ttl-l.margin, err
}

func (l *leader) take(ctx context.Context) (bool, error) {
	asked := l.now()
	lease, err := l.conn.Lease(ctx, l.service, l.holder, l.ttl)
	if held := new(bus.HeldError); errors.As(err, &held) {
		return false, fmt.Errorf("%w: service %q is held by the controller %s", controller.ErrStandby, l.service, held.Holder)
	}
	if err != nil {
		return false, err
	}
	l.lease, l.renewed = lease, asked
	return true, nil
}

func (l *leader) release() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopWait)
	defer cancel()
	return l.lease.Release(ctx)
}
