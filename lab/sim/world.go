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
	amount   amounts // in bytes, core-seconds, disk operations, or seconds of the reference machine's memory bandwidth
}

// kind is a resource, as its index in quell.Resources.
type kind int

func kindOf(r quell.Resource) kind { return kind(slices.Index(quell.Resources, r)) }

// amounts draws how much a request needs.
type amounts interface{ next() float64 }

// always draws the same amount each time.
type always float64

func (a always) next() float64 { return float64(a) }

// class is a kind of request. Its demands are served one after the other.
type class []demand

// headerBytes is the size of an answer's headers.
const headerBytes = 160

// The size of a piece of neighbours' work: on a network it is that of the emulated testbed; on other resources a piece takes about as long.
const (
	neighbourBytes   = 16 << 10
	neighbourSeconds = 0.003
)

// neighbourStream plus the number of a resource selects the random numbers of a host's neighbours on that resource.
const neighbourStream = 3 << 32

// choreStream is the same for the instance's own work that is not for requests.
const choreStream = 6 << 32

// world is the machines, the work on them, and the time. It knows nothing of groups and policies.
type world struct {
	now      float64
	calendar *calendar
	stations []station
	hosts    []host
	agenda   agenda
	requests []request
	unused   []int32 // free places in requests
	done     func(ref int32)
	answers  func(ref int32) // told when the answer of a request begins; nil: nobody asks

	cacheStretch float64 // scenario.Workload.CacheStretch

	proberLink func(now float64) float64 // seconds that a probe waits on the prober's own link; nil: none
}

// host is one machine. It has a station for every resource that the workload uses.
type host struct {
	scenario.Host
	stations  [kinds]int32   // number of the station; nobody if the workload does not use the resource
	perSecond [kinds]float64 // how much of a demand one server does in a second
	demand    float64        // factor of the service's demands: that of the release on the host
	stretch   float64        // factor by which neighbours in the caches lengthen processor time
	asked     float64        // processor time of the service's requests so far, in seconds, if no neighbours lengthened it
	ran       float64        // the same as it was
	lost      float64        // segments of the service's answers that were sent again; see lost
	seed      uint64
}

// kinds is the number of resources.
const kinds = 4

// request is an open request of a client or a prober.
type request struct {
	entered  float64
	instance int32
	window   int32   // number of the judge window
	met      int32   // requests that were open at the instance when this one arrived
	life     uint32  // counts how often the place was used, so that an outdated reference is recognised
	session  int32   // the client's session
	sort     int32   // its class, as an index in the workload's classes
	size     float64 // factor by which the demands of its class are multiplied
	stage    uint8
	owner    owner
	open     bool
	erring   bool // its answer is an error
	answered bool // its answer has begun
	class    class
}

// newWorld makes machines that can serve requests of these classes.
func newWorld(hosts []scenario.Host, d Discipline, seed uint64, classes ...class) *world {
	used := resourcesOf(classes)
	w := &world{calendar: newCalendar(len(hosts) * len(used))}
	for i, h := range hosts {
		own := host{Host: h, demand: 1, stretch: 1, seed: seed + uint64(i+1)<<20}
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

// resourcesOf lists the resources that the classes use, in the order of quell.Resources.
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

// submit gives a request to its first station, and returns its reference.
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
	if who == ownService {
		size *= w.hosts[hostIndex].demand
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
	asked := r.size * d.amount.next()
	work := asked / h.perSecond[d.resource]
	if d.resource == kindOf(quell.CPU) && r.owner != ownProbe { // probes are excepted: they are compared with their own processor time
		if r.owner == ownService {
			h.asked, h.ran = h.asked+work, h.ran+work*h.stretch
		}
		work *= h.stretch
	}
	if d.resource == kindOf(quell.Network) && r.owner == ownService {
		h.lost += lost(asked, w.stations[at].pieces())
		if w.answers != nil {
			w.answers(ref)
		}
	}
	w.stations[at].add(w.now, work, r.owner, ref)
	w.calendar.set(at, w.stations[at].next())
}

// leave frees the place of a request.
func (w *world) leave(ref int32) {
	w.requests[ref].open = false
	w.unused = append(w.unused, ref)
}

// abandon removes an open request from its host.
func (w *world) abandon(ref int32, hostIndex int) {
	r := &w.requests[ref]
	at := w.hosts[hostIndex].stations[r.class[r.stage].resource]
	w.stations[at].cancel(w.now, ref)
	w.calendar.set(at, w.stations[at].next())
	w.leave(ref)
}

// nextEvent is the time of the next event of a station or of the agenda.
func (w *world) nextEvent() float64 {
	_, at := w.calendar.first()
	return min(at, w.agenda.next())
}

// step plays the next event. If several are due at one moment, stations go before the agenda.
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

// interfere sets how much of a host's resource neighbours use. It has no effect if the workload does not use the resource. Memory is an
// exception: neighbours there lengthen the processor time of new work in proportion to their use.
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
		s.setNeighbours(w.now, use, h.piece(k), h.seed, neighbourStream+uint64(k))
	}
	w.calendar.set(at, s.next())
}

// piece is the size of a piece of work that is not for requests, in seconds of one server.
func (h *host) piece(k kind) float64 {
	if quell.Resources[k] == quell.Network {
		return neighbourBytes / h.perSecond[k]
	}
	return neighbourSeconds
}

// chore sets how much of a host's resource its instance uses beside its requests. It has no effect if the workload does not use the
// resource.
func (w *world) chore(hostIndex int, r quell.Resource, use float64) {
	h, k := &w.hosts[hostIndex], kindOf(r)
	if at := h.stations[k]; at != nobody {
		s := &w.stations[at]
		s.setChores(w.now, use, h.piece(k), h.seed, choreStream+uint64(k))
		w.calendar.set(at, s.next())
	}
}

// limit slows a host's resource down to a share of its speed; 1: not at all.
func (w *world) limit(hostIndex int, k kind, share float64) {
	at := w.hosts[hostIndex].stations[k]
	w.stations[at].setLimit(w.now, share)
	w.calendar.set(at, w.stations[at].next())
}

// carried is how much of a host's resource the work of an owner has used so far, in seconds of the whole resource.
func (w *world) carried(hostIndex int, r quell.Resource, who owner) float64 {
	s := &w.stations[w.hosts[hostIndex].stations[kindOf(r)]]
	s.advance(w.now)
	return s.carried(who) / s.servers
}

// usedBy is how much of a host's resource its instance has used so far, for requests and for other work of its own.
func (w *world) usedBy(hostIndex int, r quell.Resource) float64 {
	return w.carried(hostIndex, r, ownService) + w.carried(hostIndex, r, ownChores)
}

// peek returns the same as carried, but does not advance the station. So reading a value does not change how later values are rounded.
func (w *world) peek(hostIndex int, k kind, who owner) float64 {
	s := w.stations[w.hosts[hostIndex].stations[k]]
	s.advance(w.now)
	return s.carried(who) / s.servers
}

func duration(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
