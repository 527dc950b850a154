package scenario

import (
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Kind is the sort of work that clients ask for.
type Kind string

// The workloads. The simulator plays all, machines what their hosts can be loaded with.
const (
	File    Kind = "file"    // requests for one object of fixed size, open arrivals
	Video   Kind = "video"   // sessions that fetch a video in chunks (PRIMA, Table I), open arrivals
	Classes Kind = "classes" // named kinds of requests with demands of their own, open arrivals
	Users   Kind = "users"   // the same, from users who think between an answer and their next request
)

// Kinds lists the workloads.
var Kinds = []Kind{File, Video, Classes, Users}

// Arrivals is the process by which requests or sessions arrive.
type Arrivals string

// Poisson draws exponential gaps, Deterministic leaves equal ones. Ramp is Poisson with a sudden step in the load.
const (
	Poisson       Arrivals = "poisson"
	Deterministic Arrivals = "deterministic"
	Ramp          Arrivals = "ramp"
)

// ArrivalProcesses lists every known arrival process.
var ArrivalProcesses = []Arrivals{Poisson, Deterministic, Ramp}

// Spread is how a request's demands vary around the mean of its class.
type Spread string

// The spreads of demands.
const (
	Exponential Spread = "exponential"
	Fixed       Spread = "fixed"
)

// Spreads lists every known spread.
var Spreads = []Spread{Exponential, Fixed}

// Workload is what clients ask for, and how much of it at the start. Which fields count depends on the kind; the others
// are zero.
type Workload struct {
	Kind     Kind
	Arrivals Arrivals // all kinds but Users
	Load     float64  // at the start; all kinds but Users
	Step     *Step    // of Ramp arrivals

	Size    int64         // File: bytes of one response
	Video   VideoSessions // Video
	Classes []Class       // Classes and Users
	Spread  Spread        // Classes and Users
	System  float64       // Classes and Users: the kernel's share of the processors' time
	// CacheStretch is by how much neighbours on a host's memory lengthen the time on its processors: a demand grows by the
	// factor 1 + CacheStretch * use. Classes and Users.
	CacheStretch float64
	Users        int           // Users: at the start
	Think        time.Duration // Users: mean of the exponential time between an answer and the next request
}

// Step is a load that holds from a moment on.
type Step struct {
	At   time.Duration
	Load float64
}

// Class is a kind of request. Its demands, means, are met one after the other: processor, disk, memory, network.
type Class struct {
	Name    string
	Share   float64       // of the requests; relative to the other classes'
	CPU     time.Duration // on one core
	Disk    float64       // operations
	Memory  time.Duration // of the reference machine's memory bandwidth
	Network int64         // bytes of the answer
}

// VideoSessions describes sessions: each fetches a video in chunks, the first ones without pause, then one for every
// chunk's length of time, or later where the one before is not there yet.
type VideoSessions struct {
	Videos   int           // to choose from, with exponential sizes
	Zipf     float64       // exponent of their popularity
	Sessions int           // drawn beforehand, which those that arrive are chosen from
	Size     int64         // mean bytes of a session's video
	Rate     float64       // bit/s at which it plays
	Chunk    time.Duration // of play in one chunk
	Prefetch int           // chunks at the start without pause
}

// DefaultVideo returns the video sessions of PRIMA, Table I.
func DefaultVideo() VideoSessions {
	return VideoSessions{Videos: 100, Zipf: 0.8, Sessions: 160, Size: 11_000_000, Rate: 419e3, Chunk: 10 * time.Second, Prefetch: 3}
}

// ChunkBytes is the size of a whole chunk.
func (v VideoSessions) ChunkBytes() float64 { return v.Rate / 8 * v.Chunk.Seconds() }

// Demands returns what a request takes of a host's resources on average, in seconds of the whole resource; what it does
// not use is absent. Of a video workload it is what a session takes. Bytes are those of the bodies alone.
func (w *Workload) Demands(h Host) map[quell.Resource]float64 {
	demands := map[quell.Resource]float64{}
	add := func(r quell.Resource, amount, perSecond float64) {
		if amount > 0 {
			demands[r] += amount / perSecond
		}
	}
	switch w.Kind {
	case File:
		add(quell.Network, 8*float64(w.Size), h.Network)
	case Video:
		add(quell.Network, 8*float64(w.Video.Size), h.Network)
	default:
		sum := 0.0
		for _, c := range w.Classes {
			sum += c.Share
		}
		for _, c := range w.Classes {
			part := c.Share / sum
			add(quell.CPU, part*c.CPU.Seconds(), h.Cores)
			add(quell.Disk, part*c.Disk, h.DiskIOPS)
			add(quell.Memory, part*c.Memory.Seconds(), h.Memory)
			add(quell.Network, part*8*float64(c.Network), h.Network)
		}
	}
	return demands
}

// LoadAt returns the load at time t. For users it is what they would offer if answers took no time.
func (s *Scenario) LoadAt(t time.Duration) float64 {
	if s.Workload.Kind == Users {
		offered := float64(s.usersAt(t)) / s.Workload.Think.Seconds()
		return offered / s.RatePerSecond(1)
	}
	load := s.Workload.Load
	if step := s.Workload.Step; step != nil && t >= step.At {
		load = step.Load
	}
	for _, e := range s.until(t) {
		if e.Load != nil {
			load = *e.Load
		}
	}
	return load
}

func (s *Scenario) usersAt(t time.Duration) int {
	users := s.Workload.Users
	for _, e := range s.until(t) {
		if e.Users != nil {
			users = *e.Users
		}
	}
	return users
}

// RatePerSecond returns the rate of requests (for video, of sessions) for a load. Load 1 fills the resource of one host
// that the mean request uses most. The host is the first one, where the first instance runs.
func (s *Scenario) RatePerSecond(load float64) float64 {
	fills := math.Inf(1)
	for _, seconds := range s.Workload.Demands(s.Hosts[0]) {
		fills = math.Min(fills, 1/seconds)
	}
	return load * fills
}

// RateStep is a rate that holds from a moment on.
type RateStep struct {
	At        time.Duration
	PerSecond float64
}

// Rates returns the rate of requests, of a video workload that of sessions, over the whole run, beginning at 0; each
// step changes it. Users have none: it depends on how fast they are answered.
func (s *Scenario) Rates() []RateStep {
	steps := []RateStep{{PerSecond: s.RatePerSecond(s.Workload.Load)}}
	change := func(at time.Duration, load float64) {
		rate, last := s.RatePerSecond(load), &steps[len(steps)-1]
		switch {
		case at == last.At:
			last.PerSecond = rate
		case rate != last.PerSecond:
			steps = append(steps, RateStep{At: at, PerSecond: rate})
		}
	}
	if step := s.Workload.Step; step != nil {
		change(step.At, step.Load)
	}
	for _, e := range s.Timeline {
		if e.Load != nil {
			change(e.At, *e.Load)
		}
	}
	return steps
}

// UserStep is a number of users that holds from a moment on.
type UserStep struct {
	At    time.Duration
	Users int
}

// UserSteps returns the number of users over the whole run, beginning at 0; each step changes it.
func (s *Scenario) UserSteps() []UserStep {
	steps := []UserStep{{Users: s.Workload.Users}}
	for _, e := range s.Timeline {
		last := &steps[len(steps)-1]
		switch {
		case e.Users == nil:
		case e.At == last.At:
			last.Users = *e.Users
		case *e.Users != last.Users:
			steps = append(steps, UserStep{At: e.At, Users: *e.Users})
		}
	}
	return steps
}

// until returns the events that have happened at time t.
func (s *Scenario) until(t time.Duration) []Event {
	n := slices.IndexFunc(s.Timeline, func(e Event) bool { return e.At > t })
	if n < 0 {
		return s.Timeline
	}
	return s.Timeline[:n]
}
