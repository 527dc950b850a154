package life

import (
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Past is what is remembered of an instance's health. The zero value means that nothing is known.
type Past struct {
	Healthy bool      // it has passed a health check
	Known   time.Time // when it was first seen at the balancer
	Begun   bool      // it was seen before it was at the balancer, so having a share does not prove that it was ever healthy
	Gone    time.Time // since when the balancer no longer has it, although it was healthy there; zero if it has it
}

// Note updates the Past from the present reports of scaler and balancer. It must be called whenever these are read, also between snapshots,
// because an instance may be added to the balancer and get a share between two snapshots if no other is ready.
func (in *Instance) Note(now time.Time) {
	in.Past.Begun = in.Past.Begun || !in.Known
	switch {
	case in.Known:
		in.Past.Gone = time.Time{}
	case in.Past.Healthy && in.Past.Gone.IsZero():
		in.Past.Gone = now
	}
}

// Snapshot builds the snapshot of a group at the end of a sampling period, without the arrival rate. It updates the Past of each
// instance, which must be kept for the next snapshot.
func Snapshot(now time.Time, service *quell.Service, group []Instance) quell.Snapshot {
	s := quell.Snapshot{At: now, Service: service.Name, Scheduling: service.Scheduling, Instances: make([]quell.Instance, len(group))}
	view := &times{now: now, startup: service.Group.Startup, watch: Watch(service.Sampling)}
	view.empty = !slices.ContainsFunc(group, func(in Instance) bool { return in.Known })
	for i := range group {
		s.Instances[i] = group[i].shown(view)
	}
	awaitTurns(s.Instances)
	wholeWeights(s.Instances)
	measureShares(s.Instances)
	return s
}

// measureShares sets which part of the requests of the last window each instance got. Balancers that look for an idle server give an
// instance more than its weight says.
func measureShares(instances []quell.Instance) {
	var sum float64
	for i := range instances {
		if rate := requestRate(&instances[i]); rate != nil {
			sum += *rate
		}
	}
	for i := range instances {
		if rate := requestRate(&instances[i]); rate != nil && sum > 0 {
			instances[i].Share = new(*rate / sum)
		}
	}
}

func requestRate(in *quell.Instance) *float64 {
	if in.Observation == nil {
		return nil
	}
	return in.Observation.RequestRate
}

// awaitTurns keeps each instance that is to replace another one out of the group until it takes the other's place. If the instance to be
// replaced has failed, the new one takes its place at once.
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

// wholeWeights scales the weights that were read back to sum 1, and removes them if all are zero.
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

// times are what states depend on beside the instances themselves.
type times struct {
	now     time.Time
	startup time.Duration // how long an instance may take to become ready
	watch   time.Duration // how often the group is checked, and the balancer corrected
	empty   bool          // the balancer has no instance of the group, which says nothing about the instances
}

// shown returns the instance as it appears in a snapshot.
func (in *Instance) shown(at *times) quell.Instance {
	m, b := &in.Member, &in.Backend
	s := quell.Instance{
		ID: m.ID, Type: m.Type, State: in.state(at), Held: in.Held, Stuck: in.Stuck, Replaces: in.For,
		Observation: in.Observation, Settings: in.Settings,
	}
	s.Gone = s.State == quell.Failed && m.State == quell.Ready && !in.Known
	if !m.Started.IsZero() {
		s.AgeS = new(max(0, at.now.Sub(m.Started)).Seconds())
	}
	if in.Known {
		s.Base = b.Base
	}
	if in.Held == nil && in.Known && !b.Draining {
		s.Weight = new(b.Weight)
	}
	if in.Known && !b.Healthy {
		s.Health = b.Health
	}
	return s
}

// state combines the reports of scaler and balancer. An instance is ready when the balancer's health check has passed. It is failed when
// the check no longer passes, has not passed within the time that instances may take to start, or if the balancer no longer has it although
// the check had passed. An instance that a controller first sees with a share is assumed to have been ready.
func (in *Instance) state(at *times) quell.State {
	in.Note(at.now)
	m, b := &in.Member, &in.Backend
	switch {
	case m.State == quell.Failed || m.State == quell.Draining:
		return m.State
	case in.Leaving || in.Known && b.Draining && in.Held == nil:
		return quell.Draining
	case in.Held != nil:
		in.Past = Past{} // after it is put back, it may take as long to become healthy as a new instance
		return m.State
	case m.State != quell.Ready:
		in.Past = Past{Begun: true} // if it was ready before, it starts again
		return quell.Starting
	case in.vanished(at):
		return quell.Failed
	case !in.Known:
		return quell.Starting
	}
	if in.Past.Known.IsZero() {
		in.Past.Known = at.now
	}
	in.Past.Healthy = in.Past.Healthy || b.Healthy
	switch {
	case b.Healthy:
		return quell.Ready
	case in.Past.Healthy || b.Weight > 0 && !in.Past.Begun || at.now.Sub(in.Past.Known) > at.startup:
		return quell.Failed
	}
	return quell.Starting
}

// vanished returns whether somebody else removed a healthy instance from the balancer, as keepalived does when its checks fail. Just after
// it disappeared, the balancer may only have restarted, and is told about the instance again.
func (in *Instance) vanished(at *times) bool {
	return !in.Past.Gone.IsZero() && !at.empty && at.now.Sub(in.Past.Gone) >= at.watch
}
