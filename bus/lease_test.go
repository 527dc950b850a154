package bus

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quellhq/quell/internal/strictjson"
	"github.com/quellhq/quell/internal/wallclock"
)

const ttl = 9 * time.Second

// clock is a clock that the test moves.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// rivals returns two controllers whose clocks disagree by a day.
func rivals(t *testing.T) (a, b *Conn, advance func(time.Duration)) {
	s := startServer(t, ServerOptions{})
	clockA, clockB := &clock{at: epoch}, &clock{at: epoch.Add(24 * time.Hour)}
	a, b = connect(t, Options{Server: s, Now: clockA.now}), connect(t, Options{Server: s, Now: clockB.now})
	return a, b, func(d time.Duration) { clockA.advance(d); clockB.advance(d) }
}

// A lease lasts its full time, and nobody else gets it earlier, even if the clock of its holder or of a rival is changed.
func TestALeaseOverlooksThatAClockIsSet(t *testing.T) {
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		s := startServer(t, ServerOptions{})
		clockA, clockB := wallclock.New(), wallclock.New()
		a, b := connect(t, Options{Server: s, Now: clockA.Now}), connect(t, Options{Server: s, Now: clockB.Now})
		l := lease(t, a, "host-a")
		held := func() time.Duration {
			t.Helper()
			_, err := b.Lease(t.Context(), "video", "host-b", ttl)
			if held := new(HeldError); errors.As(err, &held) && held.Holder == "host-a" {
				return held.RetryIn
			}
			t.Fatalf("got %v, want it held by host-a", err)
			return 0
		}
		before := held()
		clockA.Set(by)
		clockB.Set(by)
		if !l.Valid() {
			t.Errorf("set by %v: the holder has lost it", by)
		}
		if after := held(); after > before {
			t.Errorf("set by %v: to be had in %v, before in %v", by, after, before)
		}
		if err := l.Renew(t.Context()); err != nil || !l.Valid() {
			t.Errorf("set by %v: renewing: %v", by, err)
		}
	}
}

func lease(t *testing.T, c *Conn, holder string) *Lease {
	t.Helper()
	l, err := c.Lease(t.Context(), "video", holder, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func wantHeld(t *testing.T, c *Conn, holder, by string, retryIn time.Duration) {
	t.Helper()
	_, err := c.Lease(t.Context(), "video", holder, ttl)
	var held *HeldError
	if !errors.As(err, &held) {
		t.Fatalf("got %v, want it held", err)
	}
	if held.Holder != by || held.RetryIn != retryIn {
		t.Errorf("held by %s, retry in %s; want %s, %s", held.Holder, held.RetryIn, by, retryIn)
	}
}

func TestOneControllerAService(t *testing.T) {
	a, b, _ := rivals(t)
	l := lease(t, a, "host-a")
	wantHeld(t, b, "host-b", "host-a", ttl)
	if _, err := b.Lease(t.Context(), "other", "host-b", ttl); err != nil {
		t.Errorf("another service: %v", err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l.Valid() {
		t.Error("a released lease is valid")
	}
	lease(t, b, "host-b")
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("releasing again: %v", err)
	}
	wantHeld(t, a, "host-a", "host-b", ttl) // the lease that expired was not the other's
}

func TestTakeoverAfterTheTimeToLive(t *testing.T) {
	a, b, advance := rivals(t)
	l := lease(t, a, "host-a")
	wantHeld(t, b, "host-b", "host-a", ttl)
	advance(ttl - 1)
	if !l.Valid() {
		t.Error("invalid before its time")
	}
	wantHeld(t, b, "host-b", "host-a", 1)
	if err := l.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	advance(1)
	wantHeld(t, b, "host-b", "host-a", ttl) // the holder renewed its lease, so the rival's waiting time starts again
	advance(ttl)
	if l.Valid() {
		t.Error("valid when another may take it")
	}
	lease(t, b, "host-b")
	if err := l.Renew(t.Context()); !errors.Is(err, ErrLeaseLost) {
		t.Errorf("the old holder renews: %v", err)
	}
	wantHeld(t, a, "host-a", "host-b", ttl)
}

func TestARestartedHolderNeedNotWait(t *testing.T) {
	a, b, _ := rivals(t)
	first := lease(t, a, "host-a")
	second := lease(t, b, "host-a")
	if err := first.Renew(t.Context()); !errors.Is(err, ErrLeaseLost) || first.Valid() {
		t.Errorf("two hold it: %v", err)
	}
	if err := second.Renew(t.Context()); err != nil {
		t.Errorf("the new one does not: %v", err)
	}
}

func TestLeaseArguments(t *testing.T) {
	c := embedded(t)
	for _, bad := range []struct {
		service, holder string
		ttl             time.Duration
	}{{"", "h", ttl}, {"s", "", ttl}, {"s", "h", time.Millisecond}} {
		if _, err := c.Lease(t.Context(), bad.service, bad.holder, bad.ttl); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

// memoryLeases is a leaseStore whose answers can be lost.
type memoryLeases struct {
	mu      sync.Mutex
	record  *leaseRecord
	next    uint64
	deaf    bool // nothing arrives
	mute    bool // writes arrive, their answers do not
	writes  int
	removes int
}

var errAway = errors.New("away")

func (m *memoryLeases) read(context.Context, string) (leaseRecord, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.deaf {
		return leaseRecord{}, errAway
	}
	if m.record == nil {
		return leaseRecord{}, errLeaseFree
	}
	return *m.record, nil
}

func (m *memoryLeases) write(_ context.Context, _ string, value []byte, revision uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.deaf {
		return 0, errAway
	}
	if m.record == nil && revision != 0 || m.record != nil && m.record.revision != revision {
		return 0, errLeaseChanged
	}
	m.writes++
	m.next++
	m.record = &leaseRecord{revision: m.next}
	if err := strictjson.Decode(value, &m.record.leaseValue); err != nil {
		return 0, err
	}
	if m.mute {
		return 0, errAway
	}
	return m.next, nil
}

func (m *memoryLeases) remove(context.Context, string, uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removes++
	m.record = nil
	return nil
}

func (m *memoryLeases) set(deaf, mute bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deaf, m.mute = deaf, mute
}

func (m *memoryLeases) counts() (writes, removes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writes, m.removes
}

func taken(t *testing.T, store leaseStore) *Lease {
	t.Helper()
	l := &Lease{store: store, now: time.Now, service: "video", value: leaseValue{"me", "id", ttl}}
	if err := l.take(t.Context(), func(string, uint64) time.Time { return time.Now() }); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestKeepRenewsAndReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memoryLeases{}
		l := taken(t, store)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Keep(ctx) }()
		for range 10 {
			time.Sleep(ttl - 1)
			if !l.Valid() {
				t.Fatal("not renewed in time")
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("ended with %v", err)
		}
		if _, removes := store.counts(); removes != 1 || l.Valid() {
			t.Error("not released")
		}
	})
}

func TestKeepOutlastsShortSilence(t *testing.T) {
	for name, silence := range map[string]struct{ deaf, mute bool }{"requests are lost": {deaf: true}, "answers are lost": {mute: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &memoryLeases{}
				l := taken(t, store)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- l.Keep(ctx) }()
				store.set(silence.deaf, silence.mute)
				time.Sleep(ttl * 3 / 4)
				store.set(false, false)
				time.Sleep(ttl * 10)
				if !l.Valid() {
					t.Error("lost although the silence was short")
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestKeepEndsWhenTheLeaseIsLost(t *testing.T) {
	tests := map[string]func(*memoryLeases){
		"silence": func(m *memoryLeases) { m.deaf = true },
		"another": func(m *memoryLeases) { m.record = &leaseRecord{leaseValue{"you", "other", ttl}, 99} },
	}
	for name, happens := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &memoryLeases{}
				l := taken(t, store)
				happens(store)
				if err := l.Keep(t.Context()); !errors.Is(err, ErrLeaseLost) || l.Valid() {
					t.Errorf("ended with %v", err)
				}
				if time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) > ttl+ttl/renewals {
					t.Error("noticed too late")
				}
			})
		})
	}
}

func TestALeaseWhoseRecordVanishedIsWrittenAgain(t *testing.T) {
	store := &memoryLeases{}
	l := taken(t, store)
	store.record = nil // as if an external bus lost its store
	if err := l.Renew(t.Context()); err != nil || store.record == nil {
		t.Errorf("not written again: %v", err)
	}
}
