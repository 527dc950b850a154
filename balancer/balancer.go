// Package balancer is what a driver of a balancer declares of itself. A driver is a package below this one: its settings with
// their keys stand beside its code, and one line in daemon/drivers.go names it.
package balancer

import (
	"context"
	"log/slog"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config/keys"
)

// Kind is a driver's row: its name in balancer.kind, a few words about it, and its settings.
type Kind = keys.Kind[Settings]

// Settings are what a configuration says of a balancer of one kind. Config and daemon ask them for more through small interfaces of
// their own.
type Settings interface {
	// Keys are the kind's own keys below `balancer`. What is read by them goes into the settings.
	Keys() keys.Table
	// Check reports what keys do not agree on.
	Check(d *keys.Decoder)
	// Where says where the balancer is, for people.
	Where() string
	// New makes the driver. The balancer need not run yet.
	New(s Service) (Driver, error)
}

// Service is what a driver is told of the service that it works for.
type Service struct {
	Name     string
	Balancer string        // balancer.name
	Data     string        // folder of what must outlive the process
	Period   time.Duration // the sampling period
	Fast     time.Duration // the period of a fast policy; 0: there is none
	Drain    time.Duration // how long open requests may take to finish
	Logger   *slog.Logger
}

// Driver spreads traffic over backends.
type Driver interface {
	// Apply makes the balancer's backends exactly these.
	Apply(ctx context.Context, backends []quell.Backend) error
	// State reads back what is in force.
	State(ctx context.Context) ([]quell.BackendState, error)
}

// Made returns a new driver as a Driver. With an error it is none: a nil pointer in an interface would not be nil.
func Made[D Driver](driver D, err error) (Driver, error) {
	if err != nil {
		return nil, err
	}
	return driver, nil
}

// Meter measures a balancer's requests from the controller's process.
type Meter interface {
	// Pace changes how often readings are made, as at a reload: the sampling period, and a fast policy's, 0 if there is none.
	Pace(period, fast time.Duration)
	// Stop ends it, and waits for that.
	Stop()
}

// Part is one process of a balancer, which can be asked by itself for what is in force.
type Part struct {
	About string // such as "balancer at /run/b.sock: backends"
	Open  func() (Driver, error)
}
