package daemon

import (
	"errors"
	"log/slog"
	"maps"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/sensor"
)

// misses adds to the readings of control groups how many accesses of the last cache miss, where the processors count that for groups.
type misses struct {
	log      *slog.Logger
	said     bool                        // why nothing is counted was logged
	counters map[string]*sensor.Counters // by the group's path
}

// add counts for the groups of a snapshot. path returns a group's path by its id. What is counted of other groups ends.
func (m *misses) add(now time.Time, s *quell.Snapshot, path func(id string) string, o sensor.Options) (failures []sensor.Failure) {
	kept := make(map[string]*sensor.Counters, len(s.Instances))
	for _, in := range s.Instances {
		if in.Observation == nil {
			continue
		}
		o.Cgroup = path(in.ID)
		c := m.counters[o.Cgroup]
		if c == nil {
			c = sensor.NewCounters(o, sensor.Cache)
		}
		kept[o.Cgroup] = c
		err := c.Sample(now, in.Observation)
		if missing := new(sensor.Unavailable); errors.As(err, &missing) {
			m.tell(missing)
		} else if err != nil {
			failures = append(failures, sensor.Failure{Sensor: "cache misses of " + in.ID, Err: err})
		}
	}
	maps.DeleteFunc(m.counters, func(path string, _ *sensor.Counters) bool { return kept[path] != nil })
	m.close()
	m.counters = kept
	return failures
}

func (m *misses) tell(why *sensor.Unavailable) {
	if !m.said {
		m.log.Info("cache misses of control groups are not counted", "because", why.Why, "possible", why.Do)
	}
	m.said = true
}

func (m *misses) close() {
	for _, c := range m.counters {
		_ = c.Close() // it was only read
	}
}
