package reports

import (
	"context"
	"fmt"
	"sync"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/envoylog"
)

// meter measures by the access log that Envoys send.
type meter struct {
	*envoylog.Intake

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// measure listens for Envoys until the meter is stopped.
func measure(d *Driver, s *envoylog.Settings, in balancer.Service, publish func([]quell.Reading)) (*meter, error) {
	port, err := s.Open("balancer.log", d.opts.Logger)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &meter{Intake: envoylog.NewIntake(s.Clusters, "docs/balancers/reports.md", &d.loads, in, publish), cancel: cancel}
	m.Register(port)
	ready := make(chan struct{})
	close(ready)
	m.running.Go(func() { port.Serve(ctx, ready) })
	m.running.Go(func() {
		m.Run(ctx, d.addresses, func() error { return connected(&d.loads, s.Listen) })
	})
	return m, nil
}

// connected returns an error if no Envoy reports its load.
func connected(loads *envoylog.Loads, listen string) error {
	if loads.Connected() {
		return nil
	}
	return fmt.Errorf("no Envoy sends its load reports to %s: give it the lines of docs/balancers/reports.md, load_stats_config among them",
		listen)
}

// Stop implements balancer.Meter.
func (m *meter) Stop() {
	m.cancel()
	m.running.Wait()
}
