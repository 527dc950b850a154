package daemon

import (
	"time"

	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/sensor"
	"github.com/quellhq/quell/sensor/served"
)

// requests reads the service's own metrics; nil does not.
type requests struct{ *served.Sensor }

// ownRequests makes the sensor of the service's own metrics, if a configuration has one. It is read once per period.
func ownRequests(file *config.File, period time.Duration) (*requests, error) {
	r := &file.Agent.Requests
	if r.URL == "" {
		return nil, nil
	}
	const patience = 2 * time.Second
	s, err := served.New(served.Options{Settings: *r, Timeout: min(patience, period/2)})
	return &requests{s}, err
}

func (r *requests) sensors() []sensor.Sensor {
	if r == nil {
		return nil
	}
	return []sensor.Sensor{r.Sensor}
}

func (r *requests) counted() func() (requests, failed int64, latencyHDR []byte) {
	if r == nil {
		return nil
	}
	return r.Counted
}
