package scenario

import (
	"cmp"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Interference sets how much of a host's resource a neighbour uses from now on, until the next interference there. Use
// alone is constant, 0 ends it; one of Ramp, On with Off, Trace and Markov makes it vary.
type Interference struct {
	Host     string // or the name of a group: then each of its hosts has a neighbour of its own
	Resource quell.Resource
	Use      float64 // share of the resource; not with Trace and Markov

	Ramp    time.Duration // from the use before to Use over this time, in equal steps
	On, Off time.Duration // mean lengths of times with Use and of times without, in turn, with first
	Lengths Spread        // of On and Off
	Trace   []TracePoint  // recorded; the last one's use stays
	Markov  []Stay        // random states, beginning with the first
}

// TracePoint is a use that holds from After the event on.
type TracePoint struct {
	After time.Duration
	Use   float64
}

// Stay is a state of Markov-modulated interference: a use that holds for an exponential time, after which each of the
// other states is as likely to follow.
type Stay struct {
	Use  float64
	Mean time.Duration
}

// Change is what neighbours take of one resource of one host from a moment on.
type Change struct {
	At       time.Duration
	Host     string
	Resource quell.Resource
	Use      float64
}

// rampSteps is into how many steps a ramp is cut.
const rampSteps = 20

// Disturbances expands the interference of the timeline into uses that are constant between changes, in order of time.
// The same seed always gives the same changes, so that every rig and every run plays the same interference.
func (s *Scenario) Disturbances(seed uint64) []Change {
	var all []Change
	for _, h := range s.Hosts {
		all = append(all, s.changesOf(h, seed)...)
	}
	slices.SortStableFunc(all, func(a, b Change) int { return cmp.Compare(a.At, b.At) })
	return all
}

// InterferenceAt returns what neighbours take of the host's resources at time t, by the scenario's own seed. Resources
// left alone are absent.
func (s *Scenario) InterferenceAt(host string, t time.Duration) map[quell.Resource]float64 {
	uses := map[quell.Resource]float64{}
	for _, h := range s.Hosts {
		if h.ID != host {
			continue
		}
		for _, c := range s.changesOf(h, s.Seed) {
			switch {
			case c.At > t:
			case c.Use == 0:
				delete(uses, c.Resource)
			default:
				uses[c.Resource] = c.Use
			}
		}
	}
	return uses
}

// changesOf expands what the timeline has for one host. Changes of one resource are in order of time.
func (s *Scenario) changesOf(h Host, seed uint64) []Change {
	var changes []Change
	last := map[quell.Resource]float64{}
	for i, e := range s.Timeline {
		if e.Interfere == nil || !h.named(e.Interfere.Host) {
			continue
		}
		n := e.Interfere
		until := s.replaced(i, h) - e.At
		for _, p := range n.course(last[n.Resource], until, stream(seed, h.ID, i)) {
			changes = append(changes, Change{e.At + p.After, h.ID, n.Resource, p.Use})
			last[n.Resource] = p.Use
		}
	}
	return changes
}

// named says whether a name of the timeline means this host.
func (h Host) named(name string) bool { return name == h.ID || name == h.Group }

// replaced is when the interference of event i on a host gives way to another one, or the run ends.
func (s *Scenario) replaced(i int, h Host) time.Duration {
	for _, e := range s.Timeline[i+1:] {
		if n := e.Interfere; n != nil && h.named(n.Host) && n.Resource == s.Timeline[i].Interfere.Resource {
			return e.At
		}
	}
	return s.Duration
}

// stream is a source of random numbers that one event on one host has to itself.
func stream(seed uint64, host string, event int) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(host))
	return rand.New(rand.NewPCG(seed, h.Sum64()+uint64(event)))
}

// course is the use over time since the event, up to a moment.
func (n *Interference) course(before float64, until time.Duration, rng *rand.Rand) []TracePoint {
	var points []TracePoint
	switch {
	case n.Ramp > 0:
		for k := range rampSteps {
			part := (float64(k) + 0.5) / rampSteps
			points = append(points, TracePoint{n.Ramp * time.Duration(k) / rampSteps, before + part*(n.Use-before)})
		}
		points = append(points, TracePoint{n.Ramp, n.Use})
	case n.On > 0:
		points = n.turns(until, rng)
	case len(n.Trace) > 0:
		points = slices.Clone(n.Trace)
	case len(n.Markov) > 0:
		points = n.states(until, rng)
	default:
		return []TracePoint{{0, n.Use}}
	}
	for len(points) > 0 && points[len(points)-1].After >= max(until, 1) {
		points = points[:len(points)-1]
	}
	return points
}

// turns are times with and without use.
func (n *Interference) turns(until time.Duration, rng *rand.Rand) []TracePoint {
	var points []TracePoint
	length := func(mean time.Duration) time.Duration {
		if n.Lengths == Fixed {
			return mean
		}
		return exponential(mean, rng)
	}
	for at := time.Duration(0); at < until; {
		points = append(points, TracePoint{at, n.Use})
		at += length(n.On)
		points = append(points, TracePoint{at, 0})
		at += length(n.Off)
	}
	return points
}

// changes is how often the use is expected to change in so long a time.
func (n *Interference) changes(length time.Duration) float64 {
	switch {
	case n.On > 0 && n.Off > 0:
		return 2 * float64(length) / (float64(n.On) + float64(n.Off))
	case len(n.Markov) > 0:
		mean := 0.0
		for _, state := range n.Markov {
			mean += float64(state.Mean) / float64(len(n.Markov))
		}
		return float64(length) / max(mean, 1)
	case n.Ramp > 0:
		return rampSteps
	}
	return float64(max(1, len(n.Trace)))
}

func (n *Interference) states(until time.Duration, rng *rand.Rand) []TracePoint {
	var points []TracePoint
	state := 0
	for at := time.Duration(0); at < until; {
		points = append(points, TracePoint{at, n.Markov[state].Use})
		at += exponential(n.Markov[state].Mean, rng)
		if others := len(n.Markov) - 1; others > 0 {
			state = (state + 1 + rng.IntN(others)) % len(n.Markov)
		}
	}
	return points
}

// exponential draws a time that is never 0, so that time goes on.
func exponential(mean time.Duration, rng *rand.Rand) time.Duration {
	return max(time.Microsecond, time.Duration(rng.ExpFloat64()*float64(mean)))
}

// Stretch fits the scenario to another length, every moment and every length of its timeline in proportion.
func (s *Scenario) Stretch(length time.Duration) {
	factor := float64(length) / float64(s.Duration)
	scale := func(d *time.Duration) { *d = time.Duration(float64(*d) * factor) }
	if step := s.Workload.Step; step != nil {
		scaled := *step
		scale(&scaled.At)
		s.Workload.Step = &scaled
	}
	for i := range s.Timeline {
		e := &s.Timeline[i]
		scale(&e.At)
		if e.Interfere == nil {
			continue
		}
		n := *e.Interfere
		n.Trace, n.Markov = slices.Clone(n.Trace), slices.Clone(n.Markov)
		scale(&n.Ramp)
		scale(&n.On)
		scale(&n.Off)
		for j := range n.Trace {
			scale(&n.Trace[j].After)
		}
		for j := range n.Markov {
			scale(&n.Markov[j].Mean)
		}
		e.Interfere = &n
	}
	s.Duration = length
}
