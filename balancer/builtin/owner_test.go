package builtin

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

var (
	one   = quell.Owner{ID: "one", Name: "east:/data"}
	other = quell.Owner{ID: "other", Name: "west:/data"}
)

func mustOwn(t *testing.T, c *Client, owner quell.Owner) {
	t.Helper()
	if err := c.Own(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
}

func mustApply(t *testing.T, c *Client, backends ...quell.Backend) {
	t.Helper()
	if err := c.Apply(t.Context(), backends); err != nil {
		t.Fatal(err)
	}
}

// wantRefused checks that a controller is refused, and that the error names the balancer's owner.
func wantRefused(t *testing.T, err error, owner quell.Owner) {
	t.Helper()
	var owned *quell.OwnedError
	if !errors.As(err, &owned) || owned.Owner != owner || owned.Lease == 0 {
		t.Errorf("got %v, want a refusal that names %s", err, owner.Name)
	}
}

// A second controller changes nothing while the first one's lease is valid, even if the balancer is restarted.
func TestOneControllerAtATime(t *testing.T) {
	path := socketPath(t)
	s := start(t, Options{Admin: path, Lease: time.Hour})
	in := newInstance(t, "i1", nil)
	first, second := NewClient(path), NewClient(path)
	mustOwn(t, first, one)
	mustApply(t, first, in.backend(1))
	wantRefused(t, second.Own(t.Context(), other), one)
	second.owner.Store(&other) // as if this controller had owned the balancer before
	wantRefused(t, second.Apply(t.Context(), []quell.Backend{in.backend(.5)}), one)
	if b := stateOf(t, s, "i1"); b.Weight != 1 {
		t.Errorf("the refused list is in force: %+v", b)
	}
	mustOwn(t, NewClient(path), one) // the same controller after a restart
	stop(t, s)
	start(t, Options{Admin: path, Lease: time.Hour})
	wantRefused(t, second.Own(t.Context(), other), one)
	mustOwn(t, first, one)
	if status, err := first.Status(t.Context()); err != nil || status.Owner == nil || *status.Owner != one {
		t.Errorf("%+v, %v", status.Owner, err)
	}
	if err := first.Disown(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustOwn(t, second, other)
	mustApply(t, second, in.backend(.5))
	wantRefused(t, first.Own(t.Context(), one), other)
}

func TestALeaseEnds(t *testing.T) {
	path := socketPath(t)
	start(t, Options{Admin: path, Lease: 20 * time.Millisecond})
	mustOwn(t, NewClient(path), one)
	second := NewClient(path)
	waitFor(t, "the lease of a controller that fell silent to end", func() bool { return second.Own(t.Context(), other) == nil })
}

// An instance that a person takes out stays out, whatever a controller applies, until it is put back or released.
func TestHeldByHand(t *testing.T) {
	path := socketPath(t)
	s := start(t, Options{Admin: path, Drain: time.Millisecond})
	a, b := newInstance(t, "a", nil), newInstance(t, "b", nil)
	controller, person := NewClient(path), NewClient(path)
	mustOwn(t, controller, one)
	applyHealthy(t, s, a.backend(.5), b.backend(.5))
	drained := b.backend(.5)
	drained.Draining = true
	for name, take := range map[string]struct{ out, back func() error }{
		"by the list": {
			func() error { return person.Apply(t.Context(), []quell.Backend{a.backend(.5), drained}) },
			func() error { return person.Apply(t.Context(), []quell.Backend{a.backend(.5), b.backend(.5)}) },
		},
		"by name": {func() error { return person.Hold(t.Context(), "b") }, func() error { return controller.Release(t.Context(), "b") }},
	} {
		t.Run(name, func(t *testing.T) {
			if err := take.out(); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				state := stateOf(t, s, "b")
				if state.ByHand == nil || state.ByHand.By != "balancer" || state.ByHand.Since.IsZero() || state.Draining {
					t.Fatalf("%+v", state)
				}
				mustApply(t, controller, a.backend(.5), b.backend(.5))
			}
			served := b.served.Load()
			for range 20 {
				if got := get(t, client(t), s); got.status != http.StatusOK || got.instance != "a" {
					t.Fatalf("%+v", got)
				}
			}
			if b.served.Load() != served {
				t.Error("b got requests")
			}
			if err := take.back(); err != nil {
				t.Fatal(err)
			}
			if state := stateOf(t, s, "b"); state.ByHand != nil {
				t.Errorf("put back: %+v", state)
			}
			waitFor(t, "b to serve", func() bool { return get(t, client(t), s).instance == "b" })
		})
	}
	if err := person.Hold(t.Context(), "x"); err == nil {
		t.Error("an unknown instance is held")
	}
}

// A hold survives a restart of the balancer, moves with the instance, and ends with it.
func TestAHoldOutlivesTheBalancer(t *testing.T) {
	path := socketPath(t)
	s := start(t, Options{Admin: path})
	a := newInstance(t, "a", nil)
	apply(t, s, a.backend(1))
	if err := NewClient(path).Hold(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	since := stateOf(t, s, "a").ByHand.Since
	stop(t, s)
	s = start(t, Options{Admin: path})
	if h := stateOf(t, s, "a").ByHand; h == nil || !h.Since.Equal(since) {
		t.Fatalf("after a restart %+v", h)
	}
	moved := newInstance(t, "a", nil)
	apply(t, s, moved.backend(1))
	if stateOf(t, s, "a").ByHand == nil {
		t.Error("the instance moved, and its hold is gone")
	}
	apply(t, s)
	waitFor(t, "the instance to go", func() bool { return !listed(s, "a") })
	apply(t, s, a.backend(1))
	if stateOf(t, s, "a").ByHand != nil {
		t.Error("a later instance of the same name is held")
	}
}

// Requests to an instance that a person drains are not cut after Options.Drain, because it is not being removed.
func TestHeldRequestsAreNotCut(t *testing.T) {
	release := make(chan struct{})
	in := newInstance(t, "a", func(w http.ResponseWriter, r *http.Request) { <-release })
	s := start(t, Options{Drain: time.Millisecond})
	applyHealthy(t, s, in.backend(1))
	answered := make(chan error, 1)
	go func() {
		resp, err := http.Get("http://" + s.Addr() + "/")
		if err == nil && resp.StatusCode != http.StatusOK {
			err = errors.New(resp.Status)
		}
		answered <- err
	}()
	waitFor(t, "a request", func() bool { return stateOf(t, s, "a").InFlight == 1 })
	held := in.backend(0)
	held.Draining, held.Held = true, true
	apply(t, s, held)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // many times Options.Drain
	defer cancel()
	select {
	case err := <-answered:
		t.Errorf("cut: %v", err)
	case <-ctx.Done():
	}
	close(release)
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
