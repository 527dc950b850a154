package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/haproxy"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/controller"
)

// newHAProxy makes the driver that a configuration asks for. HAProxy need not run yet.
func newHAProxy(file *config.File, log *slog.Logger, stop *cleanups) (*haproxy.Driver, error) {
	h := file.Balancer.HAProxy
	driver, err := haproxy.New(haproxy.Options{
		Sockets: h.Sockets, Backend: h.Backend, Slots: h.Slots, Server: serverParameters(file.Balancer),
		Memory: filepath.Join(file.Data, "haproxy.json"), StateFile: h.StateFile, Drain: file.Balancer.Drain, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	stop.add(func() error { driver.Close(); return nil })
	return driver, nil
}

// serverParameters are what a server that is added at run time gets: HAProxy takes nothing from default-server.
func serverParameters(b config.Balancer) string {
	checks := fmt.Sprintf("check inter %d fall %d rise %d", b.Health.Interval.Milliseconds(), b.Health.Fall, b.Health.Rise)
	return strings.TrimSpace(checks + " " + b.HAProxy.Server)
}

// measureHAProxy hands what HAProxy logs and counts to the controller of this process.
func measureHAProxy(ctx context.Context, file *config.File, driver *haproxy.Driver, c *controller.Controller, log *slog.Logger, stop *cleanups) error {
	o := haproxy.MonitorOptions{
		Service: file.Service.Name, Sender: file.Balancer.Name, Period: file.Service.Sampling, Logger: log,
		Publish: func(_ context.Context, readings []quell.Reading) {
			for _, r := range readings {
				c.Observe(r, time.Now())
			}
		},
	}
	if address := file.Balancer.HAProxy.Log; address != "" {
		var err error
		if o.Log, err = haproxy.Listen(address); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	monitor := haproxy.NewMonitor(driver, o)
	go func() {
		monitor.Run(ctx)
		close(done)
	}()
	stop.add(func() error { cancel(); <-done; return nil })
	return nil
}
