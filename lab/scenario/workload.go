package scenario

import (
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Kind is the kind of work that clients request.
type Kind string

// The kinds of workloads. The simulator plays all; other rigs play those whose resources their hosts have.
const (
	File    Kind = "file"    // requests for one object of fixed size; open arrivals
	Video   Kind = "video"   // sessions that fetch a video in chunks (PRIMA, Table I); open arrivals
	Classes Kind = "classes" // named kinds of requests, each with its own demands; open arrivals
	Users   Kind = "users"   // the same classes; users think between an answer and their next request
)

// Kinds lists the workloads.
var Kinds = []Kind{File, Video, Classes, Users}

// Arrivals is the process by which requests or sessions arrive.
type Arrivals string

// Poisson has exponential gaps, Deterministic has equal gaps. Ramp is Poisson with a sudden step of the load. Bursty and Synchronised are
// those of loadgen.
const (
	Poisson       Arrivals = "poisson"
	Deterministic Arrivals = "deterministic"
	Ramp          Arrivals = "ramp"
	Bursty        Arrivals = "bursty"
	Synchronised  Arrivals = "synchronised"
)

// ArrivalProcesses lists all arrival processes.
var ArrivalProcesses = []Arrivals{Poisson, Deterministic, Ramp, Bursty, Synchronised}

// Spread is how the demands of a request vary around the mean of its class.
type Spread string

// The kinds of spread.
const (
	Exponential Spread = "exponential"
	Fixed       Spread = "fixed"
)

// Spreads lists all kinds of spread.
var Spreads = []Spread{Exponential, Fixed}

// Workload is what clients request, and how much at the start. Which fields are used depends on the kind; the others are zero.
type Workload struct {
	Kind     Kind
	Arrivals Arrivals // all kinds but Users
	Load     float64  // at the start; all kinds but Users
	Step     *Step    // for Ramp arrivals

	Size    int64         // File: bytes of one response
	Video   VideoSessions // Video
	Classes []Class       // Classes and Users
	// Recorded is a recorded load of Classes, in place of Load: rates of the classes over time.
	Recorded *Recorded `json:",omitempty"`
	// Application is the real application that answers the requests in a lab; empty: the service of dynamic work. For Classes and Users,
	// whose classes are then named after the application's pages, and whose demands say what a page needs on average.
	Application Application `json:",omitempty"`
	Spread      Spread      // Classes and Users
	System      float64     // Classes and Users: the kernel's share of the processors' time
	// CacheStretch is how much neighbours on a host's memory lengthen the processor time of requests: it grows by the factor 1 +
	// CacheStretch * use. For Classes and Users.
	CacheStretch float64
	Users        int           // Users: how many there are at the start
	Think        time.Duration // Users: mean of the exponential time between an answer and the next request
}

// Step sets the load from a moment on.
type Step struct {
	At   time.Duration
	Load float64
}

// Class is a kind of request. Its mean demands are served one after the other: processor, disk, memory, network.
type Class struct {
	Name    string
	Share   float64       // of the requests, relative to the other classes' shares
	CPU     time.Duration // on one core
	Disk    float64       // operations
	Memory  time.Duration // of the reference machine's memory bandwidth
	Network int64         // bytes of the answer
}

// VideoSessions describes sessions. Each fetches a video in chunks: first some chunks without pause, then one chunk per playing time of a
// chunk. If the previous chunk has not arrived by then, the next one is fetched when it has.
type VideoSessions struct {
	Videos   int           // to choose from; their sizes are exponentially distributed
	Zipf     float64       // exponent of their popularity
	Sessions int           // number of different sessions that are drawn beforehand; each arriving session is one of them
	Size     int64         // mean bytes of a session's video
	Rate     float64       // bit/s at which it plays
	Chunk    time.Duration // playing time of one chunk
	Prefetch int           // chunks fetched at the start without pause
}

// DefaultVideo returns the video sessions of PRIMA, Table I.
func DefaultVideo() VideoSessions {
	return VideoSessions{Videos: 100, Zipf: 0.8, Sessions: 160, Size: 11_000_000, Rate: 419e3, Chunk: 10 * time.Second, Prefetch: 3}
}

// ChunkBytes is the size of a whole chunk. The last chunk of a video may be smaller.
func (v VideoSessions) ChunkBytes() float64 { return v.Rate / 8 * v.Chunk.Seconds() }

// Application is a real application.
type Application string

// Calendar is an event calendar: Apache, PHP and PostgreSQL on every instance.
const Calendar Application = "calendar"

// Applications lists all applications, with the names of their pages.
var Applications = map[Application][]string{Calendar: {"HomePage", "TagSearch", "EventDetail"}}

// Demands returns what a request (for video: a session) takes of a host's resources on average, in seconds of the whole resource.
// Resources that it does not use are absent. Bytes are counted without headers.
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

// LoadAt returns the load at time t. For users it is the load that they would offer if answers took no time.
func (s *Scenario) LoadAt(t time.Duration) float64 {
	if s.Workload.Kind == Users {
		offered := float64(s.usersAt(t)) / s.Workload.Think.Seconds()
		return offered / s.RatePerSecond(1)
	}
	if r := s.Workload.Recorded; r != nil {
		return r.at(t).total() / s.RatePerSecond(1)
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

// RatePerSecond returns the rate of requests (for video, of sessions) that makes up a load. A load of 1 fills one resource of the first
// host, on which the first instance runs: the resource that the mean request uses most.
func (s *Scenario) RatePerSecond(load float64) float64 {
	fills := math.Inf(1)
	for _, seconds := range s.Workload.Demands(s.Hosts[0]) {
		fills = math.Min(fills, 1/seconds)
	}
	return load * fills
}

// RateStep sets the rate from a moment on.
type RateStep struct {
	At        time.Duration
	PerSecond float64
}

// Rates returns the rate of requests (for video, of sessions) over the whole run as steps; the first is at 0. If users
// make the requests, there are no such steps, because the rate depends on how fast requests are answered.
func (s *Scenario) Rates() []RateStep {
	if r := s.Workload.Recorded; r != nil {
		var steps []RateStep
		for _, step := range r.Steps {
			steps = append(steps, RateStep{At: step.At, PerSecond: step.total()})
		}
		return steps
	}
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

// UserStep sets the number of users from a moment on.
type UserStep struct {
	At    time.Duration
	Users int
}

// UserSteps returns the number of users over the whole run as steps; the first is at 0.
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

// until returns the events up to and including time t.
func (s *Scenario) until(t time.Duration) []Event {
	n := slices.IndexFunc(s.Timeline, func(e Event) bool { return e.At > t })
	if n < 0 {
		return s.Timeline
	}
	return s.Timeline[:n]
}
