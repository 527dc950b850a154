package nginx

import (
	"context"
	"sync"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/health"
	"github.com/quellhq/quell/balancer/managed"
	"github.com/quellhq/quell/balancer/nginx/accesslog"
)

// meter makes readings of a driver's instances from nginx's log, and checks their health.
type meter struct {
	*accesslog.Log
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// Measure makes readings of the driver's instances from nginx's log and publishes them until the meter is stopped. Without a log there are
// none.
func (s *Settings) Measure(driver balancer.Driver, in balancer.Service, publish func([]quell.Reading)) (balancer.Meter, error) {
	log, err := accesslog.Listen(s.Log, s.Upstream, in, publish)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	d, m := driver.(*Driver), &meter{Log: log, cancel: cancel}
	checks := d.watch(ctx, s.Health)
	m.running.Go(func() {
		defer checks.Wait()
		log.Run(ctx, func(ctx context.Context) map[string][]string { return d.names.Numeric(ctx, d.addresses()) },
			func(ctx context.Context) bool { return d.names.Busy(ctx, d.addresses()) })
	})
	return m, nil
}

// Stop implements balancer.Meter.
func (m *meter) Stop() { m.cancel(); m.running.Wait() }

// watch checks the health of all instances until ctx ends: nginx itself only notices failing requests, and tells nobody.
func (d *Driver) watch(ctx context.Context, o health.Options) *health.Checks {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.checks = health.NewChecks(ctx, o)
	d.checks.Follow(d.known())
	return d.checks
}

// addresses returns the addresses of all instances as they were given.
func (d *Driver) addresses() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known()
}

// known returns where the instances are that nginx may have requests for.
func (d *Driver) known() map[string]string {
	at := managed.Addresses(d.entries)
	for _, m := range d.opts.Members {
		if _, known := at[m.ID]; !known {
			at[m.ID] = m.Address
		}
	}
	for _, e := range d.entries {
		if e.Left() && !managed.Fixed(d.opts.Members, e.ID) {
			delete(at, e.ID)
		}
	}
	return at
}
