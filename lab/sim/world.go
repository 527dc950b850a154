package sim

import (
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// demand is what a request needs of one resource of its host.
type demand struct {
	resource kind
	amount   amounts // bytes, core-seconds, disk operations, or seconds of the reference machine's memory bandwidth
}

// kind is a resource as its place in quell.Resources.
type kind int

func kindOf(r quell.Resource) kind { return kind(slices.Index(quell.Resources, r)) }

// amounts draws how much a request needs.
type amounts interface{ next() float64 }

// always is the same amount each time.
type always float64

func (a always) next() float64 { return float64(a) }

// class is a kind of request: its demands are met one after the other.
type class []demand

// headerBytes is what the headers of an answer take on the network.
const headerBytes = 160

// The neighbours' flows: on a network as those of the emulated testbed, elsewhere of about the same length.
const (
	neighbourBytes   = 16 << 10
	neighbourSeconds = 0.003
)

// neighbourStream and the places of the resources behind it are the random numbers of a host's neighbours.
const neighbourStream = 3 << 32

// world is machines, the work on them and time. It does not contain groups or policies.
type world struct {
	now      float64
	calendar *calendar
	stations []station
	hosts    []host
	agenda   agenda
	requests []request
	unused   []int32 // of requests
	done     func(ref int32)

	cacheStretch float64 // scenario.Workload.CacheStretch
}

// host is one machine: a station for every resource that the workload uses.
type host struct {
	scenario.Host
	stations  [kinds]int32   // nobody: the workload does not use it
	perSecond [kinds]float64 // how much of a demand one server meets in a second
	stretch   float64        // of the time on processors, by neighbours in the caches
	seed      uint64
}

// kinds is the number of resources.
const kinds = 4

// request is open work of a service or a probe.
type request struct {
	entered  float64
	instance int32
	window   int32   // of the account
	met      int32   // requests that were open at the instance when it came
	life     uint32  // counts the uses of this place, so that an old reference is recognised
	session  int32   // of the clients
	sort     int32   // its class among the workload's
	size     float64 // times the demands of its class
	stage    uint8
	owner    owner
	open     bool
	erring   bool // its answer is an error
	class    class
}

// newWorld makes machines that serve requests of these classes.
func newWorld(hosts []scenario.Host, d Discipline, seed uint64, classes ...class) *world {
	used := resourcesOf(classes)
	w := &world{calendar: newCalendar(len(hosts) * len(used))}
	for i, h := range hosts {
		own := host{Host: h, stretch: 1, seed: seed + uint64(i+1)<<20}
		own.perSecond[kindOf(quell.CPU)] = 1
		own.perSecond[kindOf(quell.Network)] = h.Network / 8
		own.perSecond[kindOf(quell.Disk)] = h.DiskIOPS
		own.perSecond[kindOf(quell.Memory)] = h.Memory
		for k := range own.stations {
			own.stations[k] = nobody
		}
		for _, k := range used {
			own.stations[k] = int32(len(w.stations))
			servers := 1.0
			if k == kindOf(quell.CPU) {
				servers = h.Cores
			}
			w.stations = append(w.stations, newStation(servers, d))
		}
		w.hosts = append(w.hosts, own)
	}
	return w
}

// resourcesOf lists what the classes use, in the order of quell.Resources.
func resourcesOf(classes []class) []kind {
	var used []kind
	for _, c := range classes {
		for _, d := range c {
			used = append(used, d.resource)
		}
	}
	slices.Sort(used)
	return slices.Compact(used)
}

// submit lets a request enter its first station, and returns its reference.
func (w *world) submit(c class, who owner, hostIndex int, instance int32) int32 {
	return w.submitSized(c, 1, who, hostIndex, instance)
}

// submitSized is submit for a request whose demands are size times those of its class.
func (w *world) submitSized(c class, size float64, who owner, hostIndex int, instance int32) int32 {
	var ref int32
	if n := len(w.unused); n > 0 {
		ref, w.unused = w.unused[n-1], w.unused[:n-1]
	} else {
		ref = int32(len(w.requests))
		w.requests = append(w.requests, request{})
	}
	r := &w.requests[ref]
	*r = request{entered: w.now, instance: instance, life: r.life + 1, owner: who, open: true, class: c, size: size, session: alone}
	w.enter(ref, hostIndex)
	return ref
}

func (w *world) enter(ref int32, hostIndex int) {
	r := &w.requests[ref]
	h := &w.hosts[hostIndex]
	d := r.class[r.stage]
	at := h.stations[d.resource]
	work := r.size * d.amount.next() / h.perSecond[d.resource]
	if d.resource == kindOf(quell.CPU) && r.owner != ownProbe { // a processor's probe is held against its own processor time
		work *= h.stretch
	}
	w.stations[at].add(w.now, work, r.owner, ref)
	w.calendar.set(at, w.stations[at].next())
}

// leave frees a request's place.
func (w *world) leave(ref int32) {
	w.requests[ref].open = false
	w.unused = append(w.unused, ref)
}

// abandon takes back a request that is open on the host.
func (w *world) abandon(ref int32, hostIndex int) {
	r := &w.requests[ref]
	at := w.hosts[hostIndex].stations[r.class[r.stage].resource]
	w.stations[at].cancel(w.now, ref)
	w.calendar.set(at, w.stations[at].next())
	w.leave(ref)
}

// nextEvent is when the next station or the agenda has something to do.
func (w *world) nextEvent() float64 {
	_, at := w.calendar.first()
	return min(at, w.agenda.next())
}

// step plays the next event. Of events at one moment, stations go before the agenda.
func (w *world) step() {
	at, next := w.calendar.first()
	if planned := w.agenda.next(); planned < next {
		e := w.agenda.pop()
		w.now = e.at
		e.do()
		return
	}
	w.now = max(w.now, next)
	s := &w.stations[at]
	ref := s.step()
	w.calendar.set(at, s.next())
	if ref == nobody {
		return
	}
	if r := &w.requests[ref]; int(r.stage)+1 == len(r.class) {
		w.done(ref)
		return
	}
	w.requests[ref].stage++
	w.enter(ref, w.hostOf(at))
}

func (w *world) hostOf(station int32) int {
	return int(station) / (len(w.stations) / len(w.hosts))
}

// interfere sets how much of a host's resource neighbours use. It has no effect if the workload does not use the
// resource, except for memory: neighbours in the caches lengthen new work on the processors in proportion to their use.
func (w *world) interfere(hostIndex int, r quell.Resource, use float64, fluid bool) {
	h := &w.hosts[hostIndex]
	k := kindOf(r)
	if r == quell.Memory {
		h.stretch = 1 + w.cacheStretch*use
	}
	at := h.stations[k]
	if at == nobody {
		return
	}
	s := &w.stations[at]
	if fluid {
		s.setFluid(w.now, use)
	} else {
		work := neighbourSeconds
		if r == quell.Network {
			work = neighbourBytes / h.perSecond[k]
		}
		s.setNeighbours(w.now, use, work, h.seed, neighbourStream+uint64(k))
	}
	w.calendar.set(at, s.next())
}

// carried is what an owner's work used of a host's resource so far, in seconds of the whole resource.
func (w *world) carried(hostIndex int, r quell.Resource, who owner) float64 {
	s := &w.stations[w.hosts[hostIndex].stations[kindOf(r)]]
	s.advance(w.now)
	return s.carried(who) / s.servers
}

// peek is carried of the resource of a kind, without bringing its station up to now: what only looks leaves no rounding behind.
func (w *world) peek(hostIndex int, k kind, who owner) float64 {
	s := w.stations[w.hosts[hostIndex].stations[k]]
	s.advance(w.now)
	return s.carried(who) / s.servers
}

func duration(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
