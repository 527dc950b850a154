package builtin

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/health"
	"github.com/quellhq/quell/internal/outage"
	"github.com/quellhq/quell/route"
)

// pool holds the backends and chooses among them.
//
//	listed ──> unhealthy <── checks, failed connections ──> healthy
//	               │                                           │
//	               └──> draining, or no longer listed <────────┘
//	                        └── no request left, Drain over ──> removed, if no longer listed
//
// Requests go to healthy backends. If no backend is healthy, they go to all backends that are not draining.
type pool struct {
	metrics  *metrics
	unrouted atomic.Int64 // requests that found no backend
	places   *places      // connections to all backends
	patience atomic.Int64 // Health.Timeout
	slots    chan struct{}
	checks   sync.WaitGroup

	began time.Time

	mu      sync.Mutex
	opts    *Options
	checker interface {
		Run(ctx context.Context, address string, report func(error))
	}
	own     outage.Log // the balancer's own errors
	picker  route.Picker
	learner route.Learner // the picker, if it learns from answers; else nil
	usual   time.Duration // how long good answers take, about
	listed  []*backend    // in the order of the list
	leaving []*backend
	meters  map[string]*meter // by instance; a removed instance's meter is kept until its last window is reported

	// The backends that may get requests now, and the same backends as candidates of the picker.
	eligible   []*backend
	candidates []*route.Candidate
	closed     bool
}

func newPool(o *Options, m *metrics, d descriptors) (*pool, error) {
	p := &pool{
		opts: o, metrics: m, slots: make(chan struct{}, d.checks), began: time.Now(), meters: map[string]*meter{},
		own: outage.Log{Logger: o.Logger, What: "opening connections to instances, for want of the balancer's own means,"},
	}
	p.places = &places{makeRoom: p.closeKept}
	p.places.most.Store(int64(d.upstream))
	p.checker = health.NewChecker(o.Health, o.Upstream.protocols(), p.slots)
	p.patience.Store(int64(o.Health.Timeout))
	return p, p.setScheduling(o.Scheduling)
}

// configure applies changed options. Health checks are restarted, but their results so far are kept.
func (p *pool) configure(o *Options) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := !p.opts.Health.Equal(&o.Health)
	p.opts = o
	p.patience.Store(int64(o.Health.Timeout))
	for _, b := range append(slices.Clone(p.listed), p.leaving...) {
		b.configure(o)
	}
	if !changed || p.closed {
		return
	}
	p.checker = health.NewChecker(o.Health, o.Upstream.protocols(), p.slots)
	for _, b := range p.listed {
		b.unwatch()
		p.watch(b)
	}
}

// closeKept closes every idle connection.
func (p *pool) closeKept() {
	p.mu.Lock()
	all := append(slices.Clone(p.listed), p.leaving...)
	p.mu.Unlock()
	for _, b := range all {
		b.transport.Load().CloseIdleConnections()
	}
}

// apply replaces the pool's backends by the given list, which was checked before.
func (p *pool) apply(desired []quell.Backend, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	had := append(slices.Clone(p.listed), p.leaving...)
	at, held := make(map[place]*backend, len(had)), map[string]*quell.Held{}
	for _, b := range had {
		at[place{b.id, b.address}] = b
		if b.byHand != nil {
			held[b.id] = b.byHand
		}
	}
	p.listed, p.leaving = make([]*backend, 0, len(desired)), nil
	stays := make(map[*backend]bool, len(desired))
	for _, spec := range desired {
		b, known := at[place{spec.ID, spec.Address}]
		if !known {
			b = p.add(spec, held[spec.ID], now)
		}
		if b.spec = spec; !known || b.leaving {
			b.leaving = false
			p.watch(b)
		}
		p.timeDrain(b)
		stays[b] = true
		p.listed = append(p.listed, b)
	}
	for _, b := range had {
		if !stays[b] {
			p.retire(b)
		}
	}
	p.refresh()
}

// place is what makes a backend: an instance at an address.
type place struct{ id, address string }

// add makes a new backend. An instance keeps its hold when it moves to another address.
func (p *pool) add(spec quell.Backend, held *quell.Held, now time.Time) *backend {
	m := p.meters[spec.ID]
	if m == nil {
		m = newMeter(now, p.metrics.instance(spec.ID), p.opts.Classes.Names()...)
		p.meters[spec.ID] = m
	}
	b := newBackend(spec, m, p.opts, p.places)
	b.byHand = held
	return b
}

// hold takes an instance out of rotation, or puts it back if held is nil. It returns whether the instance exists.
func (p *pool) hold(id string, held *quell.Held) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.listed, func(b *backend) bool { return b.id == id })
	if i < 0 {
		return false
	}
	b := p.listed[i]
	if held == nil || b.byHand == nil {
		b.byHand = held
	}
	p.refresh()
	return true
}

// retire lets a backend's open requests finish and then removes it.
func (p *pool) retire(b *backend) {
	if !b.leaving {
		b.leaving = true
		b.unwatch()
		p.timeDrain(b)
	}
	p.leaving = append(p.leaving, b)
	p.forgetIfIdle(b)
}

// timeDrain starts the timer of a backend that is being removed, or stops it if the backend stays.
func (p *pool) timeDrain(b *backend) {
	switch {
	case b.timed() && b.drainEnd == nil:
		b.drains++
		drain := b.drains
		b.drainEnd = time.AfterFunc(p.opts.Drain, func() { p.endDrain(b, drain) })
	case !b.timed() && b.drainEnd != nil:
		b.drainEnd.Stop()
		b.drainEnd = nil
		b.conns.restore()
	}
}

// endDrain cuts the connections of a backend, unless that drain was taken back just before.
func (p *pool) endDrain(b *backend, drain int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.drainEnd != nil && b.drains == drain {
		b.conns.cut()
	}
}

func (p *pool) forgetIfIdle(b *backend) {
	if !b.leaving || b.open() > 0 {
		return
	}
	b.drainEnd.Stop()
	b.transport.Load().CloseIdleConnections()
	p.leaving = slices.DeleteFunc(p.leaving, func(other *backend) bool { return other == b })
}

// refresh computes which backends may get requests. If no backend is healthy, all get requests, because the checks may be wrong.
func (p *pool) refresh() {
	p.eligible, p.candidates = nil, nil
	p.admit(func(b *backend) bool { return b.health.Up })
	if len(p.eligible) == 0 {
		p.admit(func(*backend) bool { return true })
	}
}

func (p *pool) admit(good func(*backend) bool) {
	for _, b := range p.listed {
		b.candidate.Weight = b.spec.Weight
		if !b.draining() && b.spec.Weight > 0 && good(b) {
			p.eligible = append(p.eligible, b)
			p.candidates = append(p.candidates, &b.candidate)
		}
	}
}

// acquire chooses a backend for a request of a class among those not tried yet, or returns nil. met is the number of requests that were
// already open at that backend.
func (p *pool) acquire(now time.Time, class string, tried []*backend) (b *backend, met int64) {
	b, met = p.pick(now, tried)
	if b != nil {
		b.meter.requestSent(now, class)
	}
	return b, met
}

func (p *pool) pick(now time.Time, tried []*backend) (b *backend, met int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.learner != nil {
		p.learner.Advance(now.Sub(p.began))
	}
	eligible, candidates := p.eligible, p.candidates
	if len(tried) > 0 {
		eligible, candidates = without(eligible, tried)
	}
	i, ok := p.picker.Pick(candidates)
	if !ok {
		return nil, 0
	}
	b = eligible[i]
	b.candidate.InFlight++
	return b, b.candidate.InFlight - 1
}

func without(eligible, tried []*backend) (left []*backend, candidates []*route.Candidate) {
	for _, b := range eligible {
		if !slices.Contains(tried, b) {
			left = append(left, b)
			candidates = append(candidates, &b.candidate)
		}
	}
	return left, candidates
}

// ending describes how and when a request ended.
type ending struct {
	route.Answer
	at time.Time
}

// release ends the request that acquire began. e is nil if the result says nothing about the backend.
func (p *pool) release(b *backend, e *ending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.candidate.InFlight--
	if e != nil {
		p.learn(b, e)
	}
	p.forgetIfIdle(b)
}

// learn uses a result for the choice of the next backends.
func (p *pool) learn(b *backend, e *ending) {
	if p.learner != nil {
		p.learner.Advance(e.at.Sub(p.began))
		p.learner.Done(&b.candidate, e.Answer)
	}
	if e.Failed {
		p.withhold(b, p.usual-e.Took)
	} else {
		p.usual += (e.Took - p.usual) / usualOver
	}
}

// usualOver is over how many answers the usual time is averaged, about.
const usualOver = 64

// withhold keeps the place of a request that an instance failed or refused, as long as an answer usually takes. Otherwise the schedulings
// that prefer instances with few open requests would send it more, because it gets rid of them fast.
func (p *pool) withhold(b *backend, rest time.Duration) {
	if rest <= 0 || p.closed {
		return
	}
	b.candidate.InFlight++
	b.withheld++
	time.AfterFunc(rest, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		b.candidate.InFlight--
		b.withheld--
	})
}

// state returns the listed backends, then those that are no longer listed but still draining.
func (p *pool) state() []quell.BackendState {
	p.mu.Lock()
	defer p.mu.Unlock()
	states := make([]quell.BackendState, 0, len(p.listed)+len(p.leaving))
	named := map[string]bool{}
	for _, b := range append(slices.Clone(p.listed), p.leaving...) {
		if named[b.id] {
			continue // the previous address of an instance that moved
		}
		named[b.id] = true
		s := quell.BackendState{Backend: b.spec, Healthy: b.health.Up, InFlight: b.open(), ByHand: b.byHand}
		s.Draining = b.spec.Draining || b.leaving
		if !s.Healthy {
			s.Health = b.checked
		}
		states = append(states, s)
	}
	return states
}

// asked returns the requested backends in their stored form. A pool that is closed has none any more: known is false.
func (p *pool) asked() (list []kept, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list = make([]kept, len(p.listed))
	for i, b := range p.listed {
		list[i] = kept{b.spec, b.byHand}
	}
	return list, !p.closed
}

func (p *pool) setScheduling(s quell.Scheduling) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	picker, err := route.New(s, p.opts.Seed)
	if err != nil {
		return err
	}
	p.picker = picker
	p.learner, _ = picker.(route.Learner)
	return nil
}

// takeMeters returns the meters by instance. It returns a removed instance's meter for the last time.
func (p *pool) takeMeters() map[string]*meter {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := maps.Clone(p.meters)
	present := make(map[string]bool, len(p.listed))
	for _, b := range append(slices.Clone(p.listed), p.leaving...) {
		present[b.id] = true
	}
	for id := range all {
		if !present[id] {
			delete(p.meters, id)
			p.metrics.forget(id)
		}
	}
	return all
}

// close cuts every connection and stops the checks.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, b := range append(slices.Clone(p.listed), p.leaving...) {
		b.unwatch()
		if b.drainEnd != nil {
			b.drainEnd.Stop()
		}
		b.conns.cut()
		b.transport.Load().CloseIdleConnections()
	}
	p.listed, p.leaving = nil, nil
	p.refresh()
}

// watch checks a backend's health until unwatch is called.
func (p *pool) watch(b *backend) {
	ctx, cancel := context.WithCancel(context.Background())
	b.unwatch = cancel
	checker := p.checker
	p.checks.Go(func() { checker.Run(ctx, b.address, func(err error) { p.observeHealth(ctx, b, err) }) })
}

// suspect counts a connection that could not be opened as a failed health check.
func (p *pool) suspect(b *backend, err error) { p.observeHealth(context.Background(), b, err) }

func (p *pool) observeHealth(ctx context.Context, b *backend, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if err != nil && ownFault(err) {
		p.own.Report(err)
		return
	}
	p.own.Report(nil)
	changed := b.health.Observe(err == nil, p.opts.Health.Fall, p.opts.Health.Rise)
	b.checked = ""
	if err != nil {
		b.checked = err.Error()
	}
	if changed {
		p.refresh()
	}
	switch {
	case changed && b.health.Up:
		p.opts.Logger.Info("instance is healthy", "instance", b.id, "address", b.address)
	case changed:
		p.opts.Logger.Warn("instance is unhealthy", "instance", b.id, "address", b.address, "check", b.checked)
	case !b.health.EverUp && b.health.Failures == p.opts.Health.Fall:
		p.opts.Logger.Warn("instance has not passed a health check yet", "instance", b.id, "address", b.address, "check", b.checked)
	}
}
