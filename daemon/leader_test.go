package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/config"
)

// clock moves only when the test moves it.
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

// leaders returns two leaders that compete for the lease of one service on one bus.
func leaders(t *testing.T) (a, b *leader, c *clock) {
	t.Helper()
	ring := auth.Keyring{Dir: t.TempDir()}
	server, err := bus.StartServer(bus.ServerOptions{StoreDir: t.TempDir(), Listen: "127.0.0.1:0", Keyring: &ring})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Shutdown() })
	c = &clock{at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	join := func(holder string) *leader {
		conn, err := bus.Connect(bus.Options{URL: server.URL(), Now: c.now, Identify: func() (auth.Identity, error) {
			text, err := ring.Find(auth.Grant{Role: auth.Controller, Service: "shop", ID: holder})
			return auth.Identity{Credential: text}, err
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		return &leader{conn: conn, service: "shop", holder: holder, ttl: 15 * time.Second, margin: 5 * time.Second, now: c.now}
	}
	return join("a"), join("b"), c
}

func (l *leader) want(t *testing.T, leads bool, because string) {
	t.Helper()
	got, err := l.lead(t.Context())
	if got != leads || (err == nil) != (because == "") || err != nil && !strings.Contains(err.Error(), because) {
		t.Fatalf("%s leads: %v, %v; want %v, %q", l.holder, got, err, leads, because)
	}
}

func TestOneLeads(t *testing.T) {
	a, b, c := leaders(t)
	const standing = `standing by: service "shop" is held by the controller a`
	a.want(t, true, "")
	for range 20 { // twice as long as the lease lasts without renewal
		b.want(t, false, standing)
		c.advance(2 * time.Second)
		a.want(t, true, "")
	}
	if err := a.release(); err != nil {
		t.Fatal(err)
	}
	b.want(t, true, "")
}

// TestMachinesWithOneName lets controllers compete that have the same host name and the same path to their data, each on a machine of its
// own.
func TestMachinesWithOneName(t *testing.T) {
	file := &config.File{}
	file.Data = filepath.Join(t.TempDir(), "data")
	on := func(machine string) string {
		t.Helper()
		if err := os.Symlink(machine, file.Data); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.Remove(file.Data) }()
		holder, _, err := holderOf(file, "boot")
		if err != nil || !strings.HasPrefix(holder, nameOf(file)+" (") {
			t.Fatalf("the holder is %q, %v", holder, err)
		}
		return holder
	}
	one, other := t.TempDir(), t.TempDir()
	a, b, _ := leaders(t)
	a.holder, b.holder = on(one), on(other)
	a.want(t, true, "")
	b.want(t, false, "is held by the controller "+a.holder)
	if again := on(one); again != a.holder {
		t.Errorf("after a restart it is %s, was %s", again, a.holder)
	}
	if err := os.WriteFile(filepath.Join(one, "holder.id"), []byte("\x00\x01"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := on(one); again == a.holder || again != on(one) {
		t.Errorf("with a damaged id it is %q", again)
	}
}

// A data folder that was cloned with its machine, and so has the same name, path and id there, gets an id of its own when it is used: only
// one of the two leads.
func TestAClonedMachine(t *testing.T) {
	file := &config.File{}
	file.Data = t.TempDir()
	on := func(boot string, moved bool) string {
		t.Helper()
		holder, cloned, err := holderOf(file, boot)
		if err != nil || cloned != moved {
			t.Errorf("on %s: cloned %v, %v", boot, cloned, err)
		}
		return holder
	}
	path := filepath.Join(file.Data, "holder.id")
	original := on("one", false)
	if again := on("one", false); again != original {
		t.Errorf("after a restart it is %s, was %s", again, original)
	}
	clone := on("other", true)
	if again := on("other", false); again != clone {
		t.Errorf("after a restart the clone is %s, was %s", again, clone)
	}
	a, b, _ := leaders(t)
	a.holder, b.holder = original, clone
	a.want(t, true, "")
	b.want(t, false, "is held by the controller "+original)
	if err := os.WriteFile(path, []byte("ABCDEFGHIJ\n"), 0o600); err != nil { // as earlier versions wrote it
		t.Fatal(err)
	}
	if adopted := on("one", false); adopted != on("one", false) || strings.Contains(adopted, "ABCDEFGHIJ") {
		t.Errorf("of an earlier version it is %s", adopted)
	}
}

// An id that cannot be stored keeps no controller from starting.
func TestAnIDThatCannotBeStored(t *testing.T) {
	file := &config.File{}
	file.Data = t.TempDir()
	if err := os.MkdirAll(filepath.Join(file.Data, "holder.id", "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	holder, _, err := holderOf(file, "boot")
	if err == nil || !strings.HasPrefix(holder, nameOf(file)+" (") || holder == nameOf(file)+" ()" {
		t.Errorf("the holder is %q, %v", holder, err)
	}
}

func TestASilentLeaderIsFollowed(t *testing.T) {
	a, b, c := leaders(t)
	a.want(t, true, "")
	b.want(t, false, "standing by")
	c.advance(16 * time.Second)
	b.want(t, true, "")
	a.want(t, false, "lost")
	a.want(t, false, "held by the controller b")
}

// A leader that cannot renew stops while the lease is still valid, early enough to finish its present step.
func TestALeaderThatCannotRenewStopsInTime(t *testing.T) {
	a, _, c := leaders(t)
	a.want(t, true, "")
	silent, cancel := context.WithCancel(t.Context()) // the bus does not answer until it is cancelled
	cancel()
	for _, s := range []struct {
		after time.Duration
		leads bool
		err   error
	}{
		{4 * time.Second, true, nil}, // no renewal was due yet
		{2 * time.Second, true, context.Canceled},
		{4 * time.Second, true, context.Canceled},
		{time.Millisecond, false, context.Canceled},
		{5 * time.Second, false, bus.ErrLeaseLost},
	} {
		c.advance(s.after)
		if leads, err := a.lead(silent); leads != s.leads || !errors.Is(err, s.err) {
			t.Fatalf("%v later it leads: %v, %v; want %v, %v", s.after, leads, err, s.leads, s.err)
		}
	}
	a.want(t, true, "")
}
