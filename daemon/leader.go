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

// leader holds the service's lease and renews it as rarely as is safe. Callers wait for the bus only briefly, because a lease stays
// valid until its end whether or not the bus answers.
type leader struct {
	conn            *bus.Conn
	service, holder string
	now             func() time.Time
	least           time.Duration // shortest lease

	exchange sync.Mutex // held during an exchange with the bus

	mu      sync.Mutex // guards what follows
	ttl     time.Duration
	margin  time.Duration // how long the lease must still be valid for this controller to lead
	lease   *bus.Lease
	renewed time.Time // when the lease was last renewed; it lasts for ttl from then
	asking  *asking   // the present exchange
}

// asking is one exchange with the bus.
type asking struct {
	begun time.Time
	done  chan struct{}
	err   error // set when done
}

// leastLease is the shortest duration of a lease. A cluster elects a new leader within 10 s, so the lease lasts longer than an election.
func leastLease(file *config.File) time.Duration {
	if file.Bus.URL != "" {
		return 20 * time.Second
	}
	return 10 * time.Second
}

const (
	askingWait   = time.Second     // how long a decision waits for a renewal
	longestAsked = 5 * time.Second // limit of one exchange
	renewEvery   = 4 * time.Second // longest time between renewals: the earlier they are, the longer an outage of the bus may last
)

// resize adapts the lease's duration to a sampling period. If the duration changes, this controller takes its lease again; because
// it holds the lease, it need not wait.
func (l *leader) resize(sampling time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.margin = controller.StepLimit(sampling)
	ttl := max(l.least, 3*sampling)
	if ttl != l.ttl {
		l.ttl, l.lease = ttl, nil
	}
}

// lead returns true if the lease is valid for at least the margin. While another controller holds the lease, every call returns the
// same error.
func (l *leader) lead(ctx context.Context) (bool, error) {
	a := l.ask(ctx)
	if a == nil {
		return true, nil
	}
	select {
	case <-a.done:
		return l.holds(), a.err
	case <-time.After(askingWait - time.Since(a.begun)):
	}
	return l.holds(), nil
}

// holds returns whether the lease is valid for at least the margin, without asking the bus.
func (l *leader) holds() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lease != nil && l.now().Sub(l.renewed) <= l.ttl-l.margin
}

// ask returns the present exchange, or begins one to take or renew the lease; nil if there is nothing to do.
func (l *leader) ask(ctx context.Context) *asking {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asking != nil {
		return l.asking
	}
	if l.lease != nil && l.now().Sub(l.renewed) <= min(l.ttl/3, renewEvery) {
		return nil
	}
	a := &asking{begun: time.Now(), done: make(chan struct{})}
	if err := ctx.Err(); err != nil && (l.lease == nil || l.lease.Valid()) {
		a.err = err
		close(a.done)
		return a
	}
	l.asking = a
	lease, ttl := l.lease, l.ttl
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestAsked)
		defer cancel()
		l.exchange.Lock()
		defer l.exchange.Unlock()
		if lease == nil {
			l.take(ctx, a, ttl)
		} else {
			l.renew(ctx, a, lease)
		}
	}()
	return a
}

func (l *leader) renew(ctx context.Context, a *asking, lease *bus.Lease) {
	asked := l.now()
	err := lease.Renew(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.lease != lease: // the lease was released meanwhile
	case err == nil:
		l.renewed = asked
	case errors.Is(err, bus.ErrLeaseLost):
		l.lease = nil
	}
	l.end(a, err)
}

func (l *leader) take(ctx context.Context, a *asking, ttl time.Duration) {
	asked := l.now()
	lease, err := l.conn.Lease(ctx, l.service, l.holder, ttl)
	l.mu.Lock()
	defer l.mu.Unlock()
	if held := new(bus.HeldError); errors.As(err, &held) {
		err = fmt.Errorf("%w: service %q is held by the controller %s", controller.ErrStandby, l.service, held.Holder)
	}
	if err == nil && ttl == l.ttl {
		l.lease, l.renewed = lease, asked
	}
	l.end(a, err)
}

func (l *leader) end(a *asking, err error) {
	l.asking, a.err = nil, err
	close(a.done)
}

// release releases the lease after the present exchange has ended.
func (l *leader) release() error {
	l.exchange.Lock()
	defer l.exchange.Unlock()
	l.mu.Lock()
	lease := l.lease
	l.lease = nil
	l.mu.Unlock()
	if lease == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopWait)
	defer cancel()
	return lease.Release(ctx)
}
