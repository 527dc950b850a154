package scenario

import (
	"cmp"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Interference sets how much of a host's resource a neighbour uses, until the next interference with that resource of the host. If only
// Use is set, the use is constant, and 0 ends it. One of Ramp, On with Off, Trace and Markov makes the use vary.
type Interference struct {
	Host     string // or the name of a group: then each of the group's hosts has a neighbour of its own
	Resource quell.Resource
	Program  Program `json:",omitempty"` // instead of Resource: a real program that the neighbour runs; in labs only
	Use      float64 // share of the resource, or the program's strength; not with Trace and Markov
	// Own says that a process of the instance itself uses the resource, such as a backup: its agent counts that as the instance's own use.
	Own bool `json:",omitempty"`

	Ramp    time.Duration // the use goes in equal steps from its earlier value to Use within this time
	On, Off time.Duration // mean lengths of the times with Use and without any; they alternate and begin with Use
	Lengths Spread        // how the lengths of On and Off vary
	Trace   []TracePoint  // a recording; the use of the last point stays
	Markov  []Stay        // the states of a random course, which begins with the first
}

// Program is a real program that a neighbour runs. It uses several resources, and as much of them as it gets.
type Program string

// Programs lists all programs.
var Programs = []Program{"compile", "keyvalue", "pgbench", "sort"}

// what is the resource or the program. Interference ends earlier interference of the same with the same host.
func (n *Interference) what() string {
	if n.Program != "" {
		return string(n.Program)
	}
	if n.Own {
		return "own " + string(n.Resource)
	}
	return string(n.Resource)
}

// TracePoint is a use that begins After the event and lasts until the next point.
type TracePoint struct {
	After time.Duration
	Use   float64
}

// Stay is a state of Markov-modulated interference: the use is constant for an exponentially distributed time; then each of the other
// states is equally likely to follow.
type Stay struct {
	Use  float64
	Mean time.Duration
}

// Change sets what neighbours take of one resource of one host from a moment on.
type Change struct {
	At       time.Duration
	Host     string
	Resource quell.Resource
	Program  Program // instead of a resource
	Use      float64
	Own      bool // by a process of the instance itself
}

// rampSteps is the number of steps of a ramp.
const rampSteps = 20

// Disturbances expands the interference of the timeline into changes, in order of time; between changes the uses are constant. Equal
// seeds give equal changes, so that every rig (simulator, emulated hosts, lab) and every run plays the same interference.
func (s *Scenario) Disturbances(seed uint64) []Change {
	var all []Change
	for _, h := range s.Hosts {
		all = append(all, s.changesOf(h, seed)...)
	}
	slices.SortStableFunc(all, func(a, b Change) int { return cmp.Compare(a.At, b.At) })
	return all
}

// InterferenceAt returns what neighbours take of the host's resources at time t, with the scenario's own seed. A resource that no
// neighbour uses is absent.
func (s *Scenario) InterferenceAt(host string, t time.Duration) map[quell.Resource]float64 {
	return s.usesAt(host, t, false)
}

// OwnWorkAt returns what processes of the instance itself, other than its service, take of the host's resources at time t.
func (s *Scenario) OwnWorkAt(host string, t time.Duration) map[quell.Resource]float64 {
	return s.usesAt(host, t, true)
}

func (s *Scenario) usesAt(host string, t time.Duration, own bool) map[quell.Resource]float64 {
	uses := map[quell.Resource]float64{}
	for _, h := range s.Hosts {
		if h.ID != host {
			continue
		}
		for _, c := range s.changesOf(h, s.Seed) {
			switch {
			case c.At > t || c.Program != "" || c.Own != own:
			case c.Use == 0:
				delete(uses, c.Resource)
			default:
				uses[c.Resource] = c.Use
			}
		}
	}
	return uses
}

// ProgramsAt returns the programs that the host's neighbours run at time t, with their strengths.
func (s *Scenario) ProgramsAt(host string, t time.Duration) map[Program]float64 {
	if len(s.Programs()) == 0 {
		return nil
	}
	strengths := map[Program]float64{}
	for _, c := range s.Disturbances(s.Seed) {
		if c.Host == host && c.Program != "" && c.At <= t {
			strengths[c.Program] = c.Use
		}
	}
	maps.DeleteFunc(strengths, func(_ Program, strength float64) bool { return strength == 0 })
	return strengths
}

// Programs lists the programs of the timeline, each once.
func (s *Scenario) Programs() (list []Program) {
	for _, e := range s.Timeline {
		if n := e.Interfere; n != nil && n.Program != "" && !slices.Contains(list, n.Program) {
			list = append(list, n.Program)
		}
	}
	return list
}

// changesOf expands the interference with one host. Changes of one resource are in order of time.
func (s *Scenario) changesOf(h Host, seed uint64) []Change {
	var changes []Change
	last := map[string]float64{}
	for i, e := range s.Timeline {
		if e.Interfere == nil || !h.named(e.Interfere.Host) {
			continue
		}
		n := e.Interfere
		until := s.replaced(i, h) - e.At
		for _, p := range n.course(last[n.what()], until, stream(seed, h.ID, i)) {
			changes = append(changes, Change{e.At + p.After, h.ID, n.Resource, n.Program, p.Use, n.Own})
			last[n.what()] = p.Use
		}
	}
	return changes
}

// named says whether a name in the timeline means this host or its group.
func (h Host) named(name string) bool { return name == h.ID || name == h.Group }

// SetUse sets the use of the timeline's neighbours on a resource, or the strength of those that run a program, wherever it is not 0. It
// returns whether there are such neighbours with a constant use.
func (s *Scenario) SetUse(what string, use float64) (found bool) {
	for i := range s.Timeline {
		e := &s.Timeline[i]
		if e.Interfere == nil || e.Interfere.what() != what || e.Interfere.Use == 0 {
			continue
		}
		n := *e.Interfere
		n.Use, e.Interfere, found = use, &n, true
	}
	return found
}

// replaced is the time at which the interference of event i on a host ends, because another one replaces it or the run ends.
func (s *Scenario) replaced(i int, h Host) time.Duration {
	for _, e := range s.Timeline[i+1:] {
		if n := e.Interfere; n != nil && h.named(n.Host) && n.what() == s.Timeline[i].Interfere.what() {
			return e.At
		}
	}
	return s.Duration
}

// stream returns a random source that only one event on one host uses.
func stream(seed uint64, host string, event int) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(host))
	return rand.New(rand.NewPCG(seed, h.Sum64()+uint64(event)))
}

// course is the use from the event until the given time, as points relative to the event. before is the use before the event.
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

// turns alternates times with and without use.
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

// changes is the expected number of changes of the use in a time of this length.
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

// exponential draws a time that is never 0, because the course would not go on after a time of 0.
func exponential(mean time.Duration, rng *rand.Rand) time.Duration {
	return max(time.Microsecond, time.Duration(rng.ExpFloat64()*float64(mean)))
}

// Stretch changes the scenario's duration to length, and multiplies every time of its timeline by the same factor.
func (s *Scenario) Stretch(length time.Duration) {
	factor := float64(length) / float64(s.Duration)
	scale := func(d *time.Duration) { *d = time.Duration(float64(*d) * factor) }
	if step := s.Workload.Step; step != nil {
		scaled := *step
		scale(&scaled.At)
		s.Workload.Step = &scaled
	}
	s.Workload.Recorded = s.Workload.Recorded.stretch(factor)
	for i := range s.Timeline {
		e := &s.Timeline[i]
		scale(&e.At)
		if e.Release != nil {
			r := *e.Release
			scale(&r.Every)
			e.Release = &r
		}
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
