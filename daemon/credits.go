package daemon

import (
	"fmt"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent/host"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/sensor"
	"github.com/quellhq/quell/sensor/credits"
)

// shownCredits makes what asks the provider for the machine's balances of credits; nil if a configuration names no provider.
func shownCredits(file *config.File) (credits.Driver, error) {
	if file.Agent.Credits.Kind == "" {
		return nil, nil
	}
	driver, err := file.Agent.Credits.Settings.New()
	if err != nil {
		return nil, fmt.Errorf("agent.credits: %w", err)
	}
	return driver, nil
}

// creditSensors returns a sensor of the balances, or none without a provider.
func creditSensors(driver credits.Driver) []sensor.Sensor {
	if driver == nil {
		return nil
	}
	return []sensor.Sensor{credits.NewSensor(driver)}
}

// crediting adds the machine's balances of credits to snapshots of its control groups.
type crediting struct {
	host.Reader
	sensors []sensor.Sensor
}

// Sample implements host.Reader.
func (c crediting) Sample(now time.Time) (quell.Snapshot, []sensor.Failure) {
	s, failures := c.Reader.Sample(now)
	if s.Machine == nil {
		return s, failures
	}
	for _, one := range c.sensors {
		if err := one.Sample(now, s.Machine); err != nil {
			failures = append(failures, sensor.Failure{Sensor: one.Name(), Err: err})
		}
	}
	return s, failures
}
