// Package scaler is what a driver that starts and stops instances declares of itself. A driver is a package below this one: its
// settings with their keys stand beside its code, and one line in daemon/drivers.go names it.
package scaler

import (
	"context"
	"log/slog"
	"os"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config/keys"
)

// Kind is a driver's row: its name in scaler.kind, a few words about it, and its settings.
type Kind = keys.Kind[Settings]

// Settings are what a configuration says of a scaler of one kind. Config and daemon ask them for more through small interfaces of
// their own.
type Settings interface {
	// Keys are the kind's own keys below `scaler`. What is read by them goes into the settings.
	Keys() keys.Table
	// Check reports what keys do not agree on, with each other and with the service.
	Check(d *keys.Decoder, service quell.Service)
	// New makes the driver.
	New(s Surroundings) (Driver, error)
}

// Surroundings are what a driver is told of the process that it works in.
type Surroundings struct {
	Data     string   // folder of what must outlive the process
	Lifeline *os.File // the read end of a pipe that the process inherited, and that breaks when it must end; nil: none
	Logger   *slog.Logger
}

// Driver owns the instances' lives.
type Driver interface {
	// Members returns every known instance; one that exited by itself is failed until it is stopped.
	Members(ctx context.Context) ([]quell.Member, error)
	// Start begins to start n instances and returns the ids that are known already. Without an error the others come too: Members shows
	// them once they have ids. With an error only those were started that it returns.
	Start(ctx context.Context, n int) ([]string, error)
	// Stop ends instances that no longer get requests, and forgets them.
	Stop(ctx context.Context, ids []string) error
}

// Made returns a new driver as a Driver. With an error it is none: a nil pointer in an interface would not be nil.
func Made[D Driver](driver D, err error) (Driver, error) {
	if err != nil {
		return nil, err
	}
	return driver, nil
}
