package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/config/keys"
	"github.com/quellhq/quell/middleware"
)

// openServers opens the drivers of the servers whose parameters plans may set, and adds them to those that tests set. The returned function
// restores what was changed.
func (r *reporter) openServers(ctx context.Context) (restore func() error, err error) {
	var opened cleanups
	setters := maps.Clone(r.setters)
	if setters == nil {
		setters = map[string]agent.Setter{}
	}
	for i, s := range r.started.Agent.Servers {
		driver, err := middleware.Open(ctx, s, r.log)
		if err != nil {
			return nil, errors.Join(misplaced(r.started, i, err), opened.run())
		}
		setters[s.Target()] = driver
		opened.add(func() error { return restored(driver, r.log) })
	}
	r.setters = setters
	return opened.run, nil
}

// misplaced makes an error about the i-th server one about its place in the configuration.
func misplaced(file *config.File, i int, err error) error {
	at := fmt.Sprintf("agent.middleware[%d]", i)
	return &quell.UserError{Err: keys.Problems{file.Problem(at, at+": "+err.Error())}}
}

// restored restores what a driver changed, although the agent is stopping.
func restored(driver *middleware.Driver, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopWait)
	defer cancel()
	err := driver.Close(ctx)
	if err != nil {
		log.Error("restoring the servers' settings failed", "error", err)
	}
	return err
}
