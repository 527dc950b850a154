// Package balancer defines what a driver of a balancer declares. A driver is a package below this one. Its settings and their
// keys are next to its code, and one line in daemon/drivers.go adds it.
package balancer

import (
	"context"
	"log/slog"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/setting"
)

// Kind describes a driver: its name in balancer.kind, a short description, and its settings.
type Kind = setting.Kind[Settings]

// Settings are the configuration of one kind of balancer. Packages config and daemon use more methods, if present, through small
// interfaces.
type Settings interface {
	// Keys are the kind's own keys below `balancer`. Reading them fills the settings.
	Keys() setting.Table
	// Check reports keys that contradict each other.
	Check(d *setting.Decoder)
	// Where returns the balancer's address or path, as text for people.
	Where() string
	// New makes the driver. The balancer need not be running yet.
	New(s Service) (Driver, error)
}

// Service is what a driver needs to know about its service.
type Service struct {
	Name     string
	Balancer string        // balancer.name
	Data     string        // folder for files that must survive the process
	Period   time.Duration // the sampling period
	Fast     time.Duration // the period of a fast policy; 0: there is none
	Metric   quell.Metric  // the objective's
	// FirstByte says that the objective is about the time to the first byte of a response.
	FirstByte bool
	Drain     time.Duration  // how long open requests may take to finish
	Classes   Classes        // the classes of requests that are measured apart; none: all are measured together
	Members   []quell.Member // the instances of a fixed group; nil if the group's size changes
	Logger    *slog.Logger
	// Tell tells the agent of an instance what to report to balancers; nil where there is no bus.
	Tell func(ctx context.Context, instance string, r quell.LoadReport) error
}

// Driver spreads traffic over backends.
type Driver interface {
	// Apply replaces the balancer's backends by exactly these.
	Apply(ctx context.Context, backends []quell.Backend) error
	// State reads back the backends in force.
	State(ctx context.Context) ([]quell.BackendState, error)
}

// Restorer is a driver that can put back what its balancer had before Quell.
type Restorer interface {
	// Restore puts back weights, and takes away what Quell added. It returns, for people, what it cannot know.
	Restore(ctx context.Context) (unknown []string, err error)
}

// Made returns a new driver as a Driver. If there is an error, it returns nil, because an interface that holds a nil pointer is not nil.
func Made[D Driver](driver D, err error) (Driver, error) {
	if err != nil {
		return nil, err
	}
	return driver, nil
}

// Meter measures a balancer's requests. It runs in the controller's process.
type Meter interface {
	// Pace changes how often readings are made, for example after a reload: every sampling period and, unless fast is 0, every period of a
	// fast policy.
	Pace(period, fast time.Duration)
	// Err returns why not all requests of the last period were measured, nil if they were.
	Err() error
	// Stop ends the measuring and returns when it has ended.
	Stop()
}

// Part is one process of a balancer. It can be asked on its own which backends are in force.
type Part struct {
	About string // for example "balancer at /run/b.sock: backends"
	Open  func() (Driver, error)
}
