package sim

import "time"

// clientTimeout is how long a client waits for an answer.
const clientTimeout = 10

// deadline is when the client of a request gives up.
type deadline struct {
	at   float64
	ref  int32
	life uint32
}

// deadlines are in order of time, because all clients wait equally long. The queue drops the deadline of an ended request only when it
// reaches the front.
type deadlines struct {
	items []deadline
	head  int
}

func (d *deadlines) push(x deadline) { d.items = append(d.items, x) }

func (d *deadlines) front() (deadline, bool) {
	if d.head == len(d.items) {
		return deadline{}, false
	}
	return d.items[d.head], true
}

func (d *deadlines) pop() {
	d.head++
	if d.head > 1024 && d.head > len(d.items)/2 {
		d.items = append(d.items[:0], d.items[d.head:]...)
		d.head = 0
	}
}

// traffic counts all requests of the run, including those of the warm-up.
type traffic struct {
	arrived, finished, failed int64
	routed, reported          int64 // sent to an instance: so far, and up to the last report
	open                      int64
	area                      float64 // number of open requests, integrated over time
	sojourns                  float64 // sum of the times for which ended requests were open
	touched                   float64
}

func (t *traffic) account(now float64) {
	t.area += float64(t.open) * (now - t.touched)
	t.touched = now
}

// ask sends a request that a client makes now to an instance.
func (s *simulation) ask(o order) {
	at := s.w.now
	s.intended = max(s.intended, duration(at-s.zero)) // rounding must not break the order
	s.traffic.account(at)
	s.traffic.arrived++
	window := s.account.arrive(s.intended)
	in := s.route(o)
	if in == nil {
		s.traffic.failed++
		s.account.end(window, 0, 0, true)
		s.clients.answered(o.session)
		return
	}
	s.traffic.routed++
	s.traffic.open++
	in.meter.account(at, in.candidate.InFlight-1)
	in.meter.arrived++
	if len(in.meter.classes) > 0 {
		in.meter.classes[o.class].arrived++
	}
	if ms, ok := s.w.connectMS(in.host); ok {
		in.meter.connects = append(in.meter.connects, ms)
	}
	erring := s.errs(in.host)
	if erring {
		o.work, o.size = errorClass(), 1
	}
	ref := s.w.submitSized(o.work, o.size, ownService, in.host, int32(in.number))
	r := &s.w.requests[ref]
	r.erring = erring
	r.session, r.sort = o.session, o.class
	r.window, r.met = int32(window), int32(in.candidate.InFlight-1)
	s.pass(ref, r.life)
}

// route chooses the instance for a request. With cookies, a user's requests go to one instance until the session ends or the instance
// leaves the balancer, whatever its weight is. Only the first request of a session is balanced.
func (s *simulation) route(o order) *instance {
	if s.Sticky == 0 || o.session == alone {
		return s.balancer.pick(s.w.now)
	}
	for len(s.cookies) <= int(o.session) {
		s.cookies = append(s.cookies, nil)
	}
	in := s.cookies[o.session]
	if ends := s.rng.Float64() < 1/float64(s.Sticky); in != nil && in.place >= 0 && !ends {
		s.balancer.open(in, 1)
		return in
	}
	s.cookies[o.session] = s.balancer.pick(s.w.now)
	return s.cookies[o.session]
}

// pass adds a request's deadline to the queue. It also drops the deadlines of ended requests at the front, and makes sure that giveUp is
// called at the first deadline.
func (s *simulation) pass(ref int32, life uint32) {
	for d, ok := s.deadlines.front(); ok && !s.waits(d); d, ok = s.deadlines.front() {
		s.deadlines.pop()
	}
	s.deadlines.push(deadline{s.w.now + s.patience, ref, life})
	if !s.patrol {
		s.patrol = true
		s.w.agenda.add(s.w.now+s.patience, s.giveUp)
	}
}

func (s *simulation) waits(d deadline) bool {
	r := &s.w.requests[d.ref]
	return r.open && r.life == d.life
}

// giveUp ends the requests that clients, or the balancer, no longer wait for.
func (s *simulation) giveUp() {
	for {
		d, ok := s.deadlines.front()
		switch {
		case !ok:
			s.patrol = false
			return
		case !s.waits(d):
		case d.at > s.w.now:
			s.w.agenda.add(d.at, s.giveUp)
			return
		default:
			in := s.instances[s.w.requests[d.ref].instance]
			s.fail(d.ref)
			if s.timesOut() {
				s.heard(in, true)
			}
		}
		s.deadlines.pop()
	}
}

// answers is called by the world when a request's answer begins.
func (s *simulation) answers(ref int32) {
	if r := &s.w.requests[ref]; !r.answered {
		r.answered = true
		s.instances[r.instance].meter.answered++
	}
}

// done is called by the world when all demands of a request are served.
func (s *simulation) done(ref int32) {
	r := &s.w.requests[ref]
	in := s.instances[r.instance]
	if r.owner == ownProbe {
		in.probes(r.class[0].resource).arrived(ref)
		return
	}
	if r.erring {
		s.failed(in, r)
		s.w.leave(ref)
		s.heard(in, true)
		return
	}
	latency := duration(s.w.now - r.entered)
	in.meter.latencies = append(in.meter.latencies, latency)
	if len(in.meter.classes) > 0 {
		c := &in.meter.classes[r.sort]
		c.latencies = append(c.latencies, latency)
	}
	s.traffic.finished++
	s.ended(in, r, latency, false)
	s.w.leave(ref)
	s.heard(in, false)
}

// fail ends a request before it is done.
func (s *simulation) fail(ref int32) {
	r := &s.w.requests[ref]
	in := s.instances[r.instance]
	s.failed(in, r)
	s.w.abandon(ref, in.host)
}

// failed records that a request fails now.
func (s *simulation) failed(in *instance, r *request) {
	in.meter.failed++
	s.traffic.failed++
	s.ended(in, r, 0, true)
}

func (s *simulation) ended(in *instance, r *request, latency time.Duration, failed bool) {
	now := s.w.now
	s.traffic.account(now)
	s.traffic.open--
	s.traffic.sojourns += now - r.entered
	in.meter.account(now, in.candidate.InFlight)
	in.meter.finished++
	if !r.answered {
		in.meter.answered++
	}
	s.balancer.close(now, in, r, failed)
	s.account.end(int(r.window), in.number, latency, failed)
	s.clients.answered(r.session)
}

// failOpen ends every open request at an instance.
func (s *simulation) failOpen(in *instance) {
	for ref := range s.w.requests {
		if r := &s.w.requests[ref]; r.open && r.owner == ownService && int(r.instance) == in.number {
			s.fail(int32(ref))
			s.heard(in, true)
		}
	}
}
