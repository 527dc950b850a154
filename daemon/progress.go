package daemon

import (
	"os"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/progress"
	"github.com/quellhq/quell/sensor"
)

// reporting adds to the readings of control groups what their programs report of their work, and what may explain it.
type reporting struct {
	*sensor.Groups
	server *progress.Server
	paces  map[string]*progress.Pace // by the group's path
	misses *misses                   // nil: cache misses are not counted
	events sensor.Options            // how they are counted
}

// reader returns the reader of a configuration's groups. It listens for progress if that is configured.
func (p *hostPolicy) reader(file *config.File, groups *sensor.Groups) (*reporting, error) {
	r := &reporting{Groups: groups, paces: map[string]*progress.Pace{}}
	path := file.Agent.Policy.Progress
	if path == "" {
		return r, nil
	}
	if p.servers[path] == nil {
		server, err := progress.Listen(os.DirFS(file.Agent.Root), path, p.log)
		if err != nil {
			return nil, &quell.UserError{Err: err}
		}
		p.servers[path] = server
	}
	r.server = p.servers[path]
	if file.Agent.Counters {
		r.misses, r.events = &p.misses, sensor.Options{Root: os.DirFS(file.Agent.Root), Events: sensor.KernelEvents(file.Agent.Root)}
	}
	return r, nil
}

// Sample implements host.Reader. A group has progress after its second report.
func (r *reporting) Sample(now time.Time) (quell.Snapshot, []sensor.Failure) {
	s, failures := r.Groups.Sample(now)
	if r.server == nil {
		return s, failures
	}
	units, err := r.server.Take()
	if err != nil {
		failures = append(failures, sensor.Failure{Sensor: "progress", Err: err})
	}
	kept := make(map[string]*progress.Pace, len(s.Instances))
	for i := range s.Instances {
		path, entry, ok := r.Named(s.Instances[i].ID)
		if !ok {
			continue
		}
		pace := r.paces[path]
		if pace == nil {
			pace = &progress.Pace{}
		}
		kept[path] = pace
		sum, reported := progress.Within(units, path)
		rate, span, ok := pace.Next(now, sum, reported)
		if obs := s.Instances[i].Observation; ok && obs != nil {
			enter(obs, rate, span, entry.Alone)
		}
	}
	r.paces = kept
	if r.misses != nil {
		failures = append(failures, r.misses.add(now, &s, r.pathOf, r.events)...)
	}
	return s, failures
}

// pathOf returns the path of a group of the last sample.
func (r *reporting) pathOf(id string) string {
	path, _, _ := r.Named(id)
	return path
}

// enter enters a rate of work over a time into an observation and, if the rate of the group alone is given, the slowdown.
func enter(obs *quell.Observation, rate float64, span time.Duration, alone float64) {
	quell.Put(&obs.Counters, quell.CounterProgress, rate)
	quell.Put(&obs.Counters, quell.CounterProgressSpan, span.Seconds())
	if alone > 0 {
		slowdown := min(alone/rate, 1e6) // what is larger would be refused as a reading
		obs.Slowdown = &slowdown
	}
}
