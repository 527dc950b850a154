// Package scaler defines what a driver declares that starts and stops instances. A driver is a package below this one. Its
// settings and their keys are next to its code, and one line in daemon/drivers.go adds it.
package scaler

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/setting"
)

// Kind describes a driver: its name in scaler.kind, a short description, and its settings.
type Kind = setting.Kind[Settings]

// Settings are the configuration of one kind of scaler. Packages config and daemon use more methods, if present, through small
// interfaces.
type Settings interface {
	// Keys are the kind's own keys below `scaler`. Reading them fills the settings.
	Keys() setting.Table
	// Check reports keys that contradict each other or the service.
	Check(d *setting.Decoder, service quell.Service)
	// New makes the driver.
	New(s Env) (Driver, error)
}

// Env is what a driver needs to know about its process.
type Env struct {
	Data     string   // folder for files that must survive the process
	Lifeline *os.File // the read end of a pipe that the process inherited, and that closes when the process must end; nil: none
	Logger   *slog.Logger
}

// Driver starts and stops instances.
type Driver interface {
	// Members returns every known instance. An instance that exited by itself is listed as failed until it is stopped.
	Members(ctx context.Context) ([]quell.Member, error)
	// Start begins to start n instances and returns the ids that are already known. If there is no error, Members lists the remaining
	// instances as soon as they have ids. If there is an error, only the returned instances were started, unless it is a
	// *quell.UnsureError: then the others may have been started, too.
	Start(ctx context.Context, n int) ([]string, error)
	// Stop stops instances that get no more requests, and forgets them.
	Stop(ctx context.Context, ids []string) error
}

// Answer is what the platform answered to one question of `quell config check --online`. Settings of a scaler with a platform behind it
// have the method `Ask(context.Context) []Answer`. Asking changes nothing.
type Answer struct {
	Asked, Got string
	Err        error // what is wrong, and what to do; nil: all is well
}

// Unproved is why what a machine showed does not prove that it is an instance. The machine is told it. See daemon's verifier.
type Unproved struct{ Why string }

func (e *Unproved) Error() string { return e.Why }

// Unprovedf makes an *Unproved.
func Unprovedf(format string, args ...any) error { return &Unproved{fmt.Sprintf(format, args...)} }

// Made returns a new driver as a Driver. If there is an error, it returns nil, because an interface that holds a nil pointer is not nil.
func Made[D Driver](driver D, err error) (Driver, error) {
	if err != nil {
		return nil, err
	}
	return driver, nil
}
