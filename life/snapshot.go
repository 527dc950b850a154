package life

import (
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Past is what earlier snapshots saw of an instance's health. The zero value is nothing.
type Past struct {
	Healthy bool      // it has passed a health check
	Known   time.Time // when the balancer was first seen to have it
	Begun   bool      // it was seen before the balancer had it: a share does not prove then that it was ever healthy
}

// Note brings the Past up to date with what scaler and balancer say at present. It is to be called at every look, also between snapshots:
// an instance may be shown to the balancer, and be given a share because nobody else is ready, before the next snapshot.
func (in *Instance) Note() { in.Past.Begun = in.Past.Begun || !in.Known }

// Snapshot is what is known of a group at the end of a sampling period; the rate of arrivals is left out. It brings the Past of each
// instance up to date, which belongs into the group of the next snapshot.
func Snapshot(now time.Time, service *quell.Service, group []Instance) quell.Snapshot {
	s := quell.Snapshot{At: now, Service: service.Name, Instances: make([]quell.Instance, len(group))}
	for i := range group {
		s.Instances[i] = group[i].shown(now, service.Group.Startup)
	}
	awaitTurns(s.Instances)
	wholeWeights(s.Instances)
	return s
}

// awaitTurns keeps instances that are to take another's place out of the group until then. Where the other one has failed, its place is
// free.
func awaitTurns(instances []quell.Instance) {
	for i := range instances {
		in := &instances[i]
		if in.Replaces == "" {
			continue
		}
		old := slices.IndexFunc(instances, func(other quell.Instance) bool { return other.ID == in.Replaces })
		switch {
		case old < 0 || instances[old].State == quell.Failed:
			in.Replaces = ""
		case in.State == quell.Ready:
			in.State = quell.Starting
		}
	}
}

// wholeWeights makes the weights read back sum to 1, and leaves them out where there are none.
func wholeWeights(instances []quell.Instance) {
	var sum float64
	for _, in := range instances {
		if in.Weight != nil {
			sum += *in.Weight
		}
	}
	for i := range instances {
		if instances[i].Weight == nil {
			continue
		}
		if sum == 0 {
			instances[i].Weight = nil
		} else {
			*instances[i].Weight /= sum
		}
	}
}

// shown is the instance as a snapshot shows it.
func (in *Instance) shown(now time.Time, startup time.Duration) quell.Instance {
	m, b := &in.Member, &in.Backend
	s := quell.Instance{
		ID: m.ID, Type: m.Type, State: in.state(now, startup), Held: in.Held, Replaces: in.For,
		Observation: in.Observation, Limits: in.Limits, Settings: in.Settings,
	}
	if !m.Started.IsZero() {
		age := max(0, now.Sub(m.Started)).Seconds()
		s.AgeS = &age
	}
	if in.Held == nil && in.Known && !b.Draining {
		weight := b.Weight
		s.Weight = &weight
	}
	if in.Known && !b.Healthy {
		s.Health = b.Health
	}
	return s
}

// state joins what scaler and balancer say. An instance is ready once the balancer's health check has passed, and
// failed when it no longer does, or has not within the time that instances may take to start. One that a controller finds with a share, and
// has not seen before, was ready.
func (in *Instance) state(now time.Time, startup time.Duration) quell.State {
	in.Note()
	m, b := &in.Member, &in.Backend
	switch {
	case m.State == quell.Failed || m.State == quell.Draining:
		return m.State
	case in.Leaving || in.Known && b.Draining && in.Held == nil:
		return quell.Draining
	case in.Held != nil:
		in.Past = Past{} // once it is put back it may take its time to be healthy, as a new one
		return m.State
	case m.State != quell.Ready || !in.Known:
		return quell.Starting
	}
	if in.Past.Known.IsZero() {
		in.Past.Known = now
	}
	in.Past.Healthy = in.Past.Healthy || b.Healthy
	switch {
	case b.Healthy:
		return quell.Ready
	case in.Past.Healthy || b.Weight > 0 && !in.Past.Begun || now.Sub(in.Past.Known) > startup:
		return quell.Failed
	}
	return quell.Starting
}
