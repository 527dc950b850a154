package daemon

import (
	"fmt"
	"os"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent/host"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/internal/cgroup"
	"github.com/quellhq/quell/policy/table"
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

// spending returns a sensor of what the machine uses of what costs credits, or none if the policy does not need it.
func spending(file *config.File) []sensor.Sensor {
	own := file.Agent.Policy
	if !table.All.Spends(own.Chosen) {
		return nil
	}
	o := sensor.SpendingOptions{Port: own.Port}
	o.Root, o.Interface, o.Cgroup = os.DirFS(file.Agent.Root), file.Agent.Interface, file.Agent.Cgroup
	if disk, err := cgroup.DiskOf(file.Agent.Root); err == nil { // else its operations are predicted, and cannot be limited
		o.Disk = disk
	}
	return []sensor.Sensor{sensor.NewSpending(o)}
}

// crediting adds the machine's balances of credits, and what it spends, to snapshots of its control groups.
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
