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
	"github.com/quellhq/quell/middleware"
	"github.com/quellhq/quell/setting"
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
		left := leftOut{why: map[string]error{}}
		driver, err := r.openServer(ctx, i, s, left)
		shared := new(middleware.SharedError)
		switch {
		case errors.As(err, &shared): // an agent of this machine runs already
			return nil, errors.Join(misplaced(r.started, i, err), opened.run())
		case err != nil:
			setters[s.Target()] = unusable{err}
			continue
		}
		left.Driver = driver
		setters[s.Target()] = left
		opened.add(func() error { return restored(driver, r.log) })
	}
	r.setters = setters
	return opened.run, nil
}

// openServer opens the driver of the i-th server. Parameters that cannot be changed are left out and logged, because the agent measures
// whatever is wrong with a server. If no parameter remains, that is an error.
func (r *reporter) openServer(ctx context.Context, i int, s middleware.Server, left leftOut) (*middleware.Driver, error) {
	for {
		driver, err := middleware.Open(ctx, s, r.log)
		if shared := new(middleware.SharedError); err == nil || errors.As(err, &shared) {
			return driver, err
		}
		r.log.Error("parameters of a server are left out: no plan can change them until the agent is restarted",
			"error", misplaced(r.started, i, err))
		bad := new(middleware.ParameterError)
		if !errors.As(err, &bad) || len(bad.Names) >= len(s.Settings.Parameters) {
			return nil, err
		}
		for _, name := range bad.Names {
			left.why[name] = bad
		}
		s = s.Without(bad.Names)
	}
}

// leftOut is a server of which some parameters cannot be changed.
type leftOut struct {
	*middleware.Driver
	why map[string]error // by parameter
}

// Set implements agent.Setter.
func (l leftOut) Set(ctx context.Context, name string, value float64) error {
	if err := l.why[name]; err != nil {
		return fmt.Errorf("%s cannot be changed: %w", name, err)
	}
	return l.Driver.Set(ctx, name, value)
}

// unusable is a server of which no parameter can be changed. There is nothing to report of it.
type unusable struct{ why error }

// Set implements agent.Setter.
func (u unusable) Set(context.Context, string, float64) error { return u.why }

// InForce implements agent.Setter.
func (u unusable) InForce(context.Context) (map[string]float64, error) { return nil, nil }

// Restore implements agent.Setter.
func (u unusable) Restore(context.Context) error { return nil }

// misplaced makes an error about the i-th server one about its place in the configuration.
func misplaced(file *config.File, i int, err error) error {
	at := fmt.Sprintf("agent.middleware[%d]", i)
	return &quell.UserError{Err: setting.Problems{file.Problem(at, at+": "+err.Error())}}
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
