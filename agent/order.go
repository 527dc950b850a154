package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/outage"
)

// Setter sets the parameters of one server on this machine. Its methods may be called concurrently. InForce must not wait for Set, because
// readings would wait, too: Set may take as long as the server's own check.
type Setter interface {
	// Set applies a parameter.
	Set(ctx context.Context, name string, value float64) error
	// InForce reads the parameters back, by name.
	InForce(ctx context.Context) (map[string]float64, error)
	// Restore puts back what was there before the first Set.
	Restore(ctx context.Context) error
}

// Order applies settings, one order after the other. Readings go on meanwhile. Settings without a driver are refused; the others are
// applied. The error says which are not in force, and why.
func (a *Agent) Order(ctx context.Context, settings []quell.Setting) error {
	a.ordering.Lock()
	defer a.ordering.Unlock()
	var errs []error
	for _, s := range settings {
		if err := a.set(ctx, s); err != nil {
			errs = append(errs, fmt.Errorf("setting %s: %w", s.Key(), err))
		}
	}
	return errors.Join(errs...)
}

// Release puts back what all settings were before Quell, as far as this agent has changed them.
func (a *Agent) Release(ctx context.Context) error {
	a.ordering.Lock()
	defer a.ordering.Unlock()
	var errs []error
	for _, target := range slices.Sorted(maps.Keys(a.opts.Setters)) {
		if err := a.opts.Setters[target].Restore(ctx); err != nil {
			errs = append(errs, fmt.Errorf("settings of %s: %w", target, err))
		}
	}
	if len(errs) == 0 {
		a.opts.Logger.Info("settings are as they were before Quell")
	}
	return errors.Join(errs...)
}

func (a *Agent) set(ctx context.Context, s quell.Setting) error {
	if s.Instance != a.opts.Instance {
		return fmt.Errorf("it is for %q, and this is %q", s.Instance, a.opts.Instance)
	}
	driver := a.opts.Setters[s.Target]
	if driver == nil {
		return fmt.Errorf("this agent has no driver that sets %s", s.Target)
	}
	if err := driver.Set(ctx, s.Name, s.Value); err != nil {
		return err
	}
	a.opts.Logger.Info("setting changed", "setting", s.Key(), "value", s.Value)
	return nil
}

// inForce reads back all settings. What cannot be read is left out and logged.
func (a *Agent) inForce(ctx context.Context) (settings map[string]float64) {
	for _, target := range slices.Sorted(maps.Keys(a.opts.Setters)) {
		values, err := a.opts.Setters[target].InForce(ctx)
		a.readBack("settings of "+target, err)
		if err != nil {
			continue
		}
		if settings == nil {
			settings = map[string]float64{}
		}
		for name, value := range values {
			settings[(&quell.Setting{Target: target, Name: name}).Key()] = value
		}
	}
	return settings
}

// readBack logs when reading back fails and when it works again.
func (a *Agent) readBack(what string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reading[what] == nil {
		a.reading[what] = &outage.Log{Logger: a.opts.Logger, What: "reading back " + what}
	}
	a.reading[what].Report(err)
}
