package sim

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/life"
	"github.com/quellhq/quell/route"
)

// instance is one member of the group, from its start command on.
type instance struct {
	// Every request uses these fields, so they are next to each other in memory.
	candidate route.Candidate // weight and open requests
	place     int             // number among the balancer's candidates; -1: it is not one of them
	meter     meter
	probers   []*prober // one for each resource that is probed; nil until the instance is ready

	id      string
	number  int // how many instances were started before it
	host    int
	state   quell.State // starting, ready or failed; the fleet knows which drain
	started float64

	shown    bool // the balancer knows it
	draining bool // the balancer knows that it leaves
	past     life.Past

	carried  *carriedMark       // at the end of the last sampling period; nil if it could not get requests then
	windowAt float64            // when the present window of machine and prober began
	usedAt   [kinds]float64     // what each resource had carried at that time
	choresAt float64            // processor time of its own work that is not for requests, when its window began
	signsAt  signs              // what the host had counted at that time
	readings []life.Received    // the newest readings that have arrived, of machine and balancer
	fastView *fastView          // what the fast policy sees of it; nil without a fast policy
	monitor  monitor            // what Envoy's outlier detection knows of it
	bucket   *bucket            // its credits; nil if it is not burstable
	settings map[string]float64 // parameters of its server that are in force
}

// meter counts an instance's requests during a window of the balancer.
type meter struct {
	began                     float64
	arrived, finished, failed int64
	answered                  int64 // requests whose answer began, or that ended without one
	latencies                 []time.Duration
	connects                  []float64    // how long connections took, in milliseconds
	classes                   []classMeter // only if the workload's classes have names
	openTime                  float64      // number of open requests, integrated over time
	touched                   float64
}

// classMeter is the part of a meter about one class of requests.
type classMeter struct {
	arrived   int64
	latencies []time.Duration
}

func (m *meter) account(now float64, open int64) {
	m.openTime += float64(open) * (now - m.touched)
	m.touched = now
}

// start starts up to n instances on free machines. It chooses the machines as the process scaler chooses its slots: first those never
// used, then the one that has been free for longest.
func (s *simulation) start(n int) (started int) {
	for ; started < n; started++ {
		host, ok := s.freeHost()
		if !ok {
			break
		}
		in := &instance{
			id: "i" + strconv.Itoa(len(s.instances)+1), number: len(s.instances), host: host, state: quell.Starting, started: s.w.now, place: -1,
		}
		in.bucket = s.newTokenBucket(in)
		s.instances = append(s.instances, in)
		s.members = append(s.members, in)
		s.byID[in.id] = in
		s.w.agenda.add(s.w.now+s.Scenario.Instances.Startup.Seconds(), func() { s.becomeReady(in) })
	}
	alive := 0
	for _, in := range s.members {
		if in.state != quell.Failed {
			alive++
		}
	}
	s.most = max(s.most, alive)
	return started
}

// probes returns the prober of a resource of the instance's host.
func (in *instance) probes(k kind) *prober {
	return in.probers[slices.IndexFunc(in.probers, func(p *prober) bool { return kindOf(p.plan.resource) == k })]
}

func (s *simulation) freeHost() (int, bool) {
	if s.usedHosts < len(s.Scenario.Hosts) {
		s.usedHosts++
		return s.usedHosts - 1, true
	}
	if len(s.freed) == 0 {
		return 0, false
	}
	host := s.freed[0]
	s.freed = s.freed[1:]
	return host, true
}

func (s *simulation) becomeReady(in *instance) {
	if in.state != quell.Starting {
		return
	}
	in.state, in.shown = quell.Ready, true
	in.readings = make([]life.Received, 0, 2)
	in.settings = maps.Clone(s.Settings)
	in.meter.began, in.meter.touched = s.w.now, s.w.now
	if s.fast != nil {
		in.fastView = s.newFastView(in)
	}
	in.meter.classes = make([]classMeter, len(s.Scenario.Workload.Classes))
	in.probers = newProbers(s.w, s.probes[in.host], in.host, int32(in.number), s.seed+uint64(in.number))
	s.watch(in)
	if !s.spreading { // many instances can become ready at one moment: distribute once for all of them
		s.spreading = true
		s.w.agenda.add(s.w.now, func() { s.spreading = false; s.spread() })
	}
}

// exit ends an instance for good. Its open requests fail.
func (s *simulation) exit(in *instance) {
	s.down(in)
	for i, other := range s.members {
		if other == in {
			s.members = append(s.members[:i], s.members[i+1:]...)
			break
		}
	}
	delete(s.byID, in.id)
}

// down stops an instance's process and frees its machine.
func (s *simulation) down(in *instance) {
	if in.state == quell.Failed {
		return
	}
	in.state = quell.Failed
	s.paid += s.overlap(in.started, s.w.now)
	s.freed = append(s.freed, in.host)
	for _, p := range in.probers {
		p.stop()
	}
	s.returnBucket(in)
	if in.candidate.InFlight > 0 {
		s.failOpen(in)
	}
}

// crash ends the instance on a host. The group learns of it at the next sample.
func (s *simulation) crash(f Failure) {
	for _, in := range s.members {
		if s.Scenario.Hosts[in.host].ID == f.Host && in.state != quell.Failed {
			s.down(in)
			s.spread()
			return
		}
	}
}

// overlap is how many of the seconds between two moments belong to the measured part of the run.
func (s *simulation) overlap(from, to float64) float64 {
	return max(0, min(to, s.end)-max(from, s.zero))
}

// instanceSeconds is the cost of the run: the seconds for which each instance ran while the run was measured, added up.
func (s *simulation) instanceSeconds() float64 {
	sum := s.paid
	for _, in := range s.members {
		if in.state != quell.Failed {
			sum += s.overlap(in.started, s.end)
		}
	}
	return sum
}

// Failure ends the instance on a host at a moment of the scenario: its process exits, and its open requests fail.
type Failure struct {
	Host string
	At   time.Duration
}

func hostIndex(sc *scenario.Scenario, id string) int {
	for i, h := range sc.Hosts {
		if h.ID == id {
			return i
		}
	}
	return -1
}
