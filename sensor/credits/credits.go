// Package credits reports the balances of credits that a provider shows of this machine. A driver is a package below this one. Its
// settings and their keys are next to its code, and one line in daemon/drivers.go adds it.
package credits

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/sensor"
	"github.com/quellhq/quell/setting"
)

// Kind describes a driver: its name in agent.credits.kind, a short description, and its settings.
type Kind = setting.Kind[Settings]

// Settings are the configuration of one kind.
type Settings interface {
	// Keys are the kind's own keys below `agent.credits`. Reading them fills the settings.
	Keys() setting.Table
	// New makes the driver.
	New() (Driver, error)
}

// Driver asks a provider for balances.
type Driver interface {
	// Run asks again and again until ctx ends.
	Run(ctx context.Context) error
	// Shown returns the newest balance of each resource, and why there is none or no newer one. It does not wait for the provider.
	Shown() (map[quell.Resource]Balance, error)
}

// Balance is a number of credits, which are never negative.
type Balance struct {
	Credits float64
	At      time.Time // when the balance was true, by this machine's clock
}

// oldest is the age up to which a balance is reported, and for how long uses are remembered.
const oldest = time.Hour

// Sensor adds a driver's balances to observations, and what was used since they were true. It is sampled after the sensors of utilisation.
type Sensor struct {
	driver Driver
	uses   map[quell.Resource][]window
}

// window is a time with one mean use.
type window struct {
	from, to time.Time
	use      float64
}

var _ sensor.Sensor = (*Sensor)(nil)

// NewSensor returns a sensor of its own; several may share a driver.
func NewSensor(d Driver) *Sensor { return &Sensor{driver: d, uses: map[quell.Resource][]window{}} }

// Name is "credits".
func (s *Sensor) Name() string { return "credits" }

// Sample implements sensor.Sensor.
func (s *Sensor) Sample(now time.Time, obs *quell.Observation) error {
	s.remember(now, obs)
	shown, err := s.driver.Shown()
	for r, b := range shown {
		age := now.Sub(b.At)
		if age < 0 || age > oldest {
			if err == nil && age > 0 {
				err = fmt.Errorf("the provider's newest balance of %s credits is %v old", r, age.Round(time.Minute))
			}
			continue
		}
		if obs.Credits == nil {
			obs.Credits, obs.CreditsPast = map[quell.Resource]float64{}, map[quell.Resource]quell.CreditPast{}
		}
		obs.Credits[r], obs.CreditsPast[r] = b.Credits, s.since(r, b.At, age)
	}
	return err
}

// remember keeps what was used in the last window.
func (s *Sensor) remember(now time.Time, obs *quell.Observation) {
	for r, list := range s.uses {
		for len(list) > 0 && now.Sub(list[0].to) > oldest {
			list = list[1:]
		}
		s.uses[r] = list
	}
	if obs.WindowS <= 0 {
		return
	}
	from := now.Add(-time.Duration(obs.WindowS * float64(time.Second)))
	for r, use := range obs.Utilization {
		s.uses[r] = append(s.uses[r], window{from, now, use})
	}
}

// since integrates the use from a time until the end of the last window.
func (s *Sensor) since(r quell.Resource, at time.Time, age time.Duration) quell.CreditPast {
	past := quell.CreditPast{AgeS: age.Seconds()}
	for _, w := range s.uses[r] {
		from := w.from
		if from.Before(at) {
			from = at
		}
		if seconds := w.to.Sub(from).Seconds(); seconds > 0 {
			past.SeenS += seconds
			past.Used += w.use * seconds
		}
	}
	past.SeenS = math.Min(past.SeenS, past.AgeS) // windows may overlap by the precision of clocks
	return past
}
