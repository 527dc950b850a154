package builtin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/health"
)

func TestSickInstanceGetsNothingUntilItRecovers(t *testing.T) {
	s := start(t, Options{Scheduling: quell.RoundRobin})
	ill, well := newInstance(t, "ill", nil), newInstance(t, "well", nil)
	applyHealthy(t, s, ill.backend(1), well.backend(1))
	ill.sick.Store(true)
	waitFor(t, "the failed checks", func() bool { return !stateOf(t, s, "ill").Healthy })
	for range 10 {
		if r := get(t, client(t), s); r.instance != "well" {
			t.Fatalf("%+v", r)
		}
	}
	ill.sick.Store(false)
	waitFor(t, "the recovery", func() bool { return stateOf(t, s, "ill").Healthy })
	if a, b := get(t, client(t), s), get(t, client(t), s); a.instance == b.instance {
		t.Errorf("after the recovery both requests went to %s", a.instance)
	}
}

func TestNewInstanceWaitsForItsFirstCheck(t *testing.T) {
	s := start(t, Options{})
	old, fresh := newInstance(t, "old", nil), newInstance(t, "fresh", nil)
	fresh.sick.Store(true)
	applyHealthy(t, s, old.backend(1))
	apply(t, s, old.backend(1), fresh.backend(1000))
	for range 10 {
		if r := get(t, client(t), s); r.instance != "old" {
			t.Fatalf("%s got a request before it was checked", r.instance)
		}
	}
	fresh.sick.Store(false)
	waitFor(t, "the first check", func() bool { return stateOf(t, s, "fresh").Healthy })
	if r := get(t, client(t), s); r.instance != "fresh" {
		t.Errorf("%s got the request, the other weighs 1000 times as much", r.instance)
	}
}

func TestWithoutAPathAConnectionIsACheck(t *testing.T) {
	s := start(t, Options{Health: health.Options{Interval: 5 * time.Millisecond}})
	in := newInstance(t, "i1", nil)
	applyHealthy(t, s, in.backend(1))
	in.kill()
	waitFor(t, "the failed checks", func() bool { return !stateOf(t, s, "i1").Healthy })
}

func TestAllSickIsBetterThanNone(t *testing.T) {
	s := start(t, Options{Scheduling: quell.RoundRobin})
	a, b, out := newInstance(t, "a", nil), newInstance(t, "b", nil), newInstance(t, "out", nil)
	a.sick.Store(true)
	b.sick.Store(true)
	apply(t, s, a.backend(1), b.backend(1), out.backend(0))
	waitFor(t, "the one that does not count", func() bool { return stateOf(t, s, "out").Healthy })
	got := map[string]int{}
	for range 10 {
		got[get(t, client(t), s).instance]++
	}
	if got["a"] != 5 || got["b"] != 5 {
		t.Errorf("of 10 requests where all with a weight are unhealthy: %v", got)
	}
}

func TestDrainLosesNothing(t *testing.T) {
	s := start(t, Options{Scheduling: quell.LeastConn})
	a, b := newInstance(t, "a", nil), newInstance(t, "b", nil)
	applyHealthy(t, s, a.backend(0.5), b.backend(0.5))
	l := startLoad(t, s, 8)
	for range 5 {
		apply(t, s, a.backend(1))
		waitFor(t, "b to be drained", func() bool { return !listed(s, "b") })
		b.kill() // nothing may remain
		l.more(t, 50)
		b.start(t)
		applyHealthy(t, s, a.backend(0.5), b.backend(0.5))
		l.more(t, 50)
	}
	l.finish(t)
	if b.served.Load() == 0 {
		t.Error("b never got a request")
	}
	for _, id := range []string{"a", "b"} {
		waitFor(t, "the end of all requests", func() bool { return stateOf(t, s, id).InFlight == 0 })
	}
}

// held returns an instance whose requests last until release is called.
func held(t *testing.T, id string) (in *instance, release func()) {
	free := make(chan struct{})
	in = newInstance(t, id, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-free:
			io.WriteString(w, "done")
		case <-r.Context().Done():
		}
	})
	return in, func() { close(free) }
}

// openRequest leaves one request open at the instance and returns a channel for its answer.
func openRequest(t *testing.T, s *Server, id string) <-chan answered {
	t.Helper()
	c, answer := client(t), make(chan answered, 1)
	go func() {
		r, err := do(c, http.MethodGet, "http://"+s.Addr()+"/", nil)
		if err != nil {
			r.body = err.Error()
		}
		answer <- r
	}()
	waitFor(t, "the request's arrival", func() bool { return stateOf(t, s, id).InFlight == 1 })
	return answer
}

func TestDrainingInstanceFinishesWhatItHas(t *testing.T) {
	for _, how := range []string{"listed as draining", "not listed"} {
		t.Run(how, func(t *testing.T) {
			s := start(t, Options{})
			old, release := held(t, "old")
			fresh := newInstance(t, "fresh", nil)
			applyHealthy(t, s, old.backend(1))
			answer := openRequest(t, s, "old")
			if how == "not listed" {
				apply(t, s, fresh.backend(1))
			} else {
				leaving := old.backend(1)
				leaving.Draining = true
				apply(t, s, fresh.backend(1), leaving)
			}
			waitFor(t, "the new instance", func() bool { return stateOf(t, s, "fresh").Healthy })
			if r := get(t, client(t), s); r.instance != "fresh" {
				t.Errorf("a new request went to %s", r.instance)
			}
			if state := stateOf(t, s, "old"); !state.Draining || state.InFlight != 1 {
				t.Errorf("state %+v", state)
			}
			release()
			if r := <-answer; r.status != http.StatusOK || r.body != "done" {
				t.Errorf("the open request ended with %+v", r)
			}
			waitFor(t, "the end of the drain", func() bool {
				return !listed(s, "old") || how != "not listed" && stateOf(t, s, "old").InFlight == 0
			})
			if how != "not listed" && !listed(s, "old") {
				t.Error("an instance that is asked for has disappeared")
			}
		})
	}
}

func TestDrainEndsInTime(t *testing.T) {
	s := start(t, Options{Drain: 20 * time.Millisecond})
	in, _ := held(t, "i1")
	applyHealthy(t, s, in.backend(1))
	answer := openRequest(t, s, "i1")
	waitFor(t, "the request at the instance", func() bool { return in.served.Load() == 1 })
	apply(t, s)
	if r := <-answer; r.status != http.StatusBadGateway {
		t.Errorf("the request that would not end ended with %+v", r)
	}
	waitFor(t, "the end of the drain", func() bool { return !listed(s, "i1") })
}

func TestDrainCanBeTakenBack(t *testing.T) {
	s := start(t, Options{Drain: 10 * time.Millisecond})
	in := newInstance(t, "i1", nil)
	draining := in.backend(1)
	draining.Draining = true
	applyHealthy(t, s, draining)
	b := s.pool.listed[0]
	waitFor(t, "the drain's end", func() bool { b.conns.mu.Lock(); defer b.conns.mu.Unlock(); return b.conns.isCut })
	applyHealthy(t, s, in.backend(1))
	if r := get(t, client(t), s); r.status != http.StatusOK {
		t.Errorf("%+v", r)
	}

	gone, release := held(t, "gone")
	applyHealthy(t, s, gone.backend(1))
	answer := openRequest(t, s, "gone")
	s.pool.opts.Drain = time.Hour
	apply(t, s)
	applyHealthy(t, s, gone.backend(1))
	if state := stateOf(t, s, "gone"); state.Draining || state.InFlight != 1 {
		t.Errorf("state %+v, want the same instance with its open request", state)
	}
	release()
	<-answer
	gone.sick.Store(true)
	waitFor(t, "its checks to go on", func() bool { return !stateOf(t, s, "gone").Healthy })
}

// A drain that is taken back in the moment in which its time is over cuts nothing.
func TestADrainIsTakenBackAtItsEnd(t *testing.T) {
	s := start(t, Options{Drain: time.Hour, Health: checkedOnce()})
	in := newInstance(t, "i1", nil)
	drained := in.backend(0)
	drained.Draining = true
	apply(t, s, drained)
	b := s.pool.listed[0]
	apply(t, s, in.backend(1))
	s.pool.endDrain(b, b.drains) // by the timer that could not be stopped any more
	if r := get(t, client(t), s); r.status != http.StatusOK {
		t.Errorf("a request got %d %s", r.status, r.body)
	}
}

func TestInstanceMovesToAnotherAddress(t *testing.T) {
	s := start(t, Options{})
	old, release := held(t, "i1")
	applyHealthy(t, s, old.backend(1))
	answer := openRequest(t, s, "i1")
	moved := newInstance(t, "i1", nil)
	applyHealthy(t, s, moved.backend(1))
	if r := get(t, client(t), s); r.body != "i1" {
		t.Errorf("%+v", r)
	}
	if states := s.Backends(); len(states) != 1 || states[0].Address != moved.address {
		t.Errorf("states %+v", states)
	}
	release()
	if r := <-answer; r.body != "done" {
		t.Errorf("the request at the old address ended with %+v", r)
	}
	waitFor(t, "the old address to be left", func() bool {
		s.pool.mu.Lock()
		defer s.pool.mu.Unlock()
		return len(s.pool.leaving) == 0 && s.pool.listed[0].candidate.InFlight == 0
	})
	if r := s.reporter.readings(time.Now()); len(r) != 1 || r[0].Requests != 2 {
		t.Errorf("readings %+v, want one of two requests", r)
	}
}

// The test compares the pool with a model. Whatever lists are applied while requests begin and end, State must return the last list and the
// backends that still drain.
func TestPoolFollowsItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{Health: health.Options{Interval: time.Hour}, Drain: time.Hour}.withDefaults()
		p, err := newPool(&o, newMetrics(&o), descriptors{checks: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { p.close(); p.checks.Wait() }()
		p.checker = refusing{}
		var held []*backend
		var desired []quell.Backend
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				desired = rapid.SliceOfNDistinct(rapid.Custom(drawBackend), 0, 4, func(b quell.Backend) string { return b.ID }).Draw(t, "desired")
				p.apply(desired, time.Now())
			case 1:
				if b, _ := p.acquire(time.Now(), "", nil); b != nil {
					if i := slices.IndexFunc(desired, func(d quell.Backend) bool { return d == b.spec }); i < 0 || b.spec.Weight == 0 || b.spec.Draining {
						t.Fatalf("%+v got a request; asked for are %+v", b.spec, desired)
					}
					held = append(held, b)
				} else if slices.ContainsFunc(desired, func(d quell.Backend) bool { return d.Weight > 0 && !d.Draining }) {
					t.Fatalf("no backend for a request among %+v", desired)
				}
			case 2:
				if len(held) > 0 {
					p.release(held[0], nil)
					held = held[1:]
				}
			}
			checkModel(t, p, desired, held)
		}
	})
}

func drawBackend(t *rapid.T) quell.Backend {
	return quell.Backend{
		ID:       rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "id"),
		Address:  rapid.SampledFrom([]string{"127.0.0.1:1", "127.0.0.1:2"}).Draw(t, "address"),
		Weight:   rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "weight"),
		Draining: rapid.Bool().Draw(t, "draining"),
	}
}

func checkModel(t *rapid.T, p *pool, desired []quell.Backend, held []*backend) {
	states := p.state()
	for i, d := range desired {
		if states[i].Backend != d {
			t.Fatalf("state %d is %+v, asked for was %+v", i, states[i], d)
		}
	}
	for _, s := range states[len(desired):] {
		if !s.Draining || !slices.ContainsFunc(held, func(b *backend) bool { return b.id == s.ID }) {
			t.Fatalf("%+v is neither asked for nor busy", s)
		}
	}
	for _, b := range held {
		if !slices.ContainsFunc(states, func(s quell.BackendState) bool { return s.ID == b.id }) {
			t.Fatalf("%s has a request and is not in the state", b.id)
		}
	}
}

// refusing fails checks without using the network.
type refusing struct{}

func (refusing) Run(_ context.Context, _ string, report func(error)) {
	report(errors.New("there is no network in this test"))
}
