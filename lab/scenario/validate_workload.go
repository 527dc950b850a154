package scenario

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// The limits of accepted values. Beyond them a run would only use up memory and time.
const (
	mostLoad    = 10 // times the capacity of all hosts
	mostUsers   = 1_000_000
	mostVideos  = 1_000_000
	mostClasses = 100
	mostWindows = 1_000_000
	mostChanges = 1_000_000 // expected changes of interference, for all hosts and events together

	mostRequests = 1_000_000_000 // expected number in a run
	leastBytes   = 1_000         // bytes of an answer; in a smaller one, headers matter, which the definition of load leaves out
	leastThink   = time.Millisecond
	mostDuration = 1000 * time.Hour
	mostWait     = 24 * time.Hour // for start-up and warm-up

	mostHosts    = 100_000
	mostServices = 10_000
)

func (c *checker) workload(s *Scenario) {
	w := &s.Workload
	c.need(slices.Contains(Kinds, w.Kind), "workload.kind", "unknown kind %q", w.Kind)
	if w.Kind != Users {
		c.need(slices.Contains(ArrivalProcesses, w.Arrivals), "workload.arrivals", "unknown arrival process %q", w.Arrivals)
	}
	switch w.Kind {
	case File:
		c.need(w.Size >= leastBytes, "workload.size", "must be at least %d bytes, is %d", leastBytes, w.Size)
	case Video:
		c.video(w.Video)
	case Classes, Users:
		c.classes(w)
		c.application(w)
	}
	if w.Kind == Users {
		c.users(w.Users, "workload.users")
		c.need(w.Think >= leastThink, "workload.think", "must be at least %v, is %v", leastThink, w.Think)
		return
	}
	if w.Recorded != nil {
		c.recorded(s)
		return
	}
	c.load(s, w.Load, "workload.load")
	c.step(s)
}

// recorded checks that a recorded load has the workload's classes, and rates that rigs can play.
func (c *checker) recorded(s *Scenario) {
	r, path := s.Workload.Recorded, "workload.recorded"
	c.need(s.Workload.Arrivals != Ramp, "workload.arrivals", "a recorded load has no step: use poisson or deterministic")
	c.need(len(r.Steps) > 0, path, "must have rates")
	for _, class := range s.Workload.Classes {
		c.need(slices.Contains(r.Classes, class.Name), path, "has no class %q", class.Name)
	}
	if len(s.Hosts) == 0 || !positive(s.RatePerSecond(1)) {
		return
	}
	for _, step := range r.Steps {
		c.load(s, step.total()/s.RatePerSecond(1), path)
	}
}

// application checks that the classes are pages of the application.
func (c *checker) application(w *Workload) {
	if w.Application == "" {
		return
	}
	pages, known := Applications[w.Application]
	c.need(known, "workload.application", "unknown application %q", w.Application)
	for i, class := range w.Classes {
		c.need(!known || slices.Contains(pages, class.Name), fmt.Sprintf("workload.classes[%d].name", i), "%s has the pages %s, not %s",
			w.Application, strings.Join(pages, ", "), class.Name)
	}
}

// step checks the step that Ramp arrivals have.
func (c *checker) step(s *Scenario) {
	step := s.Workload.Step
	c.need((step != nil) == (s.Workload.Arrivals == Ramp), "workload.ramp", "goes with arrivals: ramp, and that with it")
	if step == nil {
		return
	}
	c.load(s, step.Load, "workload.ramp.load")
	c.need(step.At >= 0, "workload.ramp.at", "must not be negative, is %v", step.At)
	c.need(s.Duration <= 0 || step.At <= s.Duration, "workload.ramp.at", "%v is after the end of the scenario (%v)", step.At, s.Duration)
}

// load refuses loads that no rig can play. Ten times the capacity of all hosts is enough overload for every test.
func (c *checker) load(s *Scenario, load float64, path string) {
	if !notNegative(load) {
		c.need(false, path, "must be finite and not negative, is %v", load)
		return
	}
	most := mostLoad * s.capacity()
	c.need(load <= most, path, "%v is more than %d times what all %d hosts carry: at most %.4g", load, mostLoad, len(s.Hosts), most)
}

// capacity is the load that fills all hosts; infinite if hosts or demands are not known.
func (s *Scenario) capacity() float64 {
	if len(s.Hosts) == 0 {
		return math.Inf(1)
	}
	unit := busiest(s.Workload.Demands(s.Hosts[0]))
	sum := 0.0
	for _, h := range s.Hosts {
		sum += unit / busiest(s.Workload.Demands(h))
	}
	if !positive(sum) {
		return math.Inf(1)
	}
	return sum
}

func busiest[K comparable](demands map[K]float64) float64 {
	most := 0.0
	for _, seconds := range demands {
		most = math.Max(most, seconds)
	}
	return most
}

func (c *checker) users(n int, path string) {
	c.need(n >= 0 && n <= mostUsers, path, "must be between 0 and %d, is %d", mostUsers, n)
}

func (c *checker) classes(w *Workload) {
	c.need(len(w.Classes) > 0, "workload.classes", "must define at least one class")
	c.need(len(w.Classes) <= mostClasses, "workload.classes", "must not be more than %d", mostClasses)
	c.need(slices.Contains(Spreads, w.Spread), "workload.spread", "unknown spread %q", w.Spread)
	c.need(notNegative(w.System) && w.System <= 1, "workload.system", "must be between 0 and 1, is %v", w.System)
	c.need(notNegative(w.CacheStretch), "workload.cache_stretch", "must be finite and not negative, is %v", w.CacheStretch)
	seen := map[string]bool{}
	for i, class := range w.Classes {
		path := fmt.Sprintf("workload.classes[%d]", i)
		c.need(class.Name != "", path+".name", "must name the class")
		c.need(!seen[class.Name], path+".name", "class %q is defined twice", class.Name)
		seen[class.Name] = true
		c.need(positive(class.Share), path+".share", "must be above zero and finite, is %v", class.Share)
		c.need(class.CPU >= 0, path+".cpu", "must not be negative, is %v", class.CPU)
		c.need(class.Memory >= 0, path+".memory", "must not be negative, is %v", class.Memory)
		c.need(class.Network >= 0, path+".network", "must not be negative, is %d", class.Network)
		c.need(notNegative(class.Disk), path+".disk", "must be finite and not negative, is %v", class.Disk)
		wants := class.CPU > 0 || class.Memory > 0 || class.Network > 0 || class.Disk > 0
		c.need(wants, path, "wants nothing: give it cpu, disk, memory or network")
	}
}

func (c *checker) video(v VideoSessions) {
	c.need(v.Videos >= 1 && v.Videos <= mostVideos, "workload.video.videos", "must be between 1 and %d, is %d", mostVideos, v.Videos)
	c.need(v.Sessions >= 1 && v.Sessions <= mostVideos, "workload.video.sessions", "must be between 1 and %d, is %d", mostVideos, v.Sessions)
	c.need(notNegative(v.Zipf), "workload.video.zipf", "must be finite and not negative, is %v", v.Zipf)
	c.need(v.Size > 0, "workload.video.size", "must be above zero, is %d", v.Size)
	c.need(positive(v.Rate), "workload.video.rate", "must be above zero and finite, is %v", v.Rate)
	c.need(v.Chunk > 0, "workload.video.chunk", "must be above zero, is %v", v.Chunk)
	c.need(v.Prefetch >= 1, "workload.video.prefetch", "must be at least 1, is %d", v.Prefetch)
	if v.Size > 0 && positive(v.Rate) && v.Chunk > 0 {
		const mostChunks = 100_000
		c.need(float64(v.Size) <= mostChunks*v.ChunkBytes(), "workload.video.chunk", "%v cuts a video into more than %d chunks", v.Chunk,
			mostChunks)
		c.need(v.ChunkBytes() >= leastBytes, "workload.video.chunk", "%v is less than %d bytes of play", v.Chunk, leastBytes)
	}
}

func (c *checker) stations(s *Scenario) {
	d, n := s.Stations.Discipline, s.Stations.Neighbours
	c.need(d == "" || slices.Contains(Disciplines, d), "stations.discipline", "unknown discipline %q", d)
	c.need(n == "" || slices.Contains(NeighbourKinds, n), "stations.neighbours", "unknown kind of neighbours %q", n)
	c.need(s.Probing.Count == 0 || s.Probing.Count >= LeastProbes, "probing.count",
		"must be at least %d, to tell interference from chance, is %d", LeastProbes, s.Probing.Count)
	c.need(notNegative(s.Probing.Budget) && s.Probing.Budget <= 1, "probing.budget", "must be between 0 and 1, is %v", s.Probing.Budget)
	c.need(s.Services >= 0 && s.Services <= mostServices, "services", "must be between 1 and %d, is %d", mostServices, s.Services)
}

func (c *checker) readings(s *Scenario) {
	share := func(x float64) bool { return notNegative(x) && x <= 1 }
	c.need(share(s.Readings.Noise), "readings.noise", "must be between 0 and 1, is %v", s.Readings.Noise)
	c.need(share(s.Readings.Lost), "readings.lost", "must be between 0 and 1, is %v", s.Readings.Lost)
	c.need(s.Readings.Late >= 0, "readings.late", "must not be negative, is %v", s.Readings.Late)
	c.wait(s.WarmUp, "warm_up")
}

func (c *checker) wait(d time.Duration, path string) {
	c.need(d >= 0, path, "must not be negative, is %v", d)
	c.need(d <= mostWait, path, "must be at most %v, is %v", mostWait, d)
}

// requests refuses runs with more requests than anybody would wait for.
func (c *checker) requests(s *Scenario) {
	path, expected := "workload.load", s.expected()
	if s.Workload.Kind == Users {
		path = "workload.users"
	}
	c.need(expected <= mostRequests, path,
		"brings about %.2g requests in %v: at most %d are played; shorten duration, or let less come, or larger requests",
		expected, s.Duration, mostRequests)
}

// expected is the expected number of requests in a run if answers take no time.
func (s *Scenario) expected() (sum float64) {
	add := func(perSecond float64, from, to time.Duration) { sum += perSecond * (to - from).Seconds() }
	if s.Workload.Kind == Users {
		steps := s.UserSteps()
		for i, step := range steps {
			to := s.Duration
			if i+1 < len(steps) {
				to = steps[i+1].At
			}
			add(float64(step.Users)/s.Workload.Think.Seconds(), step.At, to)
		}
		return sum
	}
	steps := s.Rates()
	for i, step := range steps {
		to := s.Duration
		if i+1 < len(steps) {
			to = steps[i+1].At
		}
		add(step.PerSecond, step.At, to)
	}
	if v := s.Workload.Video; s.Workload.Kind == Video {
		sum *= max(1, float64(v.Size)/v.ChunkBytes())
	}
	return sum
}
