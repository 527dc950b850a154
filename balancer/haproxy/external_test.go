package haproxy

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// drained is a HAProxy with two instances, one of which a person takes out of rotation.
type drained struct {
	*lab
	d       *Driver
	a, b    *instance
	slots   string
	restore bool // HAProxy reads the state file when it starts
	names   map[string]string
}

// fleets are the ways in which HAProxy's configuration may declare instances: a fixed fleet, slots, slots with a state file, and servers
// added at run time.
var fleets = []string{"declared", "slots", "slots and state file", "added"}

func newDrained(t *testing.T, fleet string) *drained {
	t.Helper()
	h := &drained{lab: newLab(t, ""), a: newInstance(t, time.Millisecond), b: newInstance(t, time.Millisecond)}
	h.names = map[string]string{"a": "a", "b": "b"}
	switch fleet {
	case "declared":
		h.configure(declared("a", h.a.address(), "b", h.b.address()), "")
	case "slots", "slots and state file":
		h.slots, h.restore = "slot", fleet != "slots"
		global := ""
		if h.restore {
			global = "server-state-file " + h.stateFile()
		}
		h.configure("server-template slot 1-3 127.0.0.1:1 check inter 200ms disabled", global)
		h.names = map[string]string{"a": "slot1", "b": "slot2"}
	}
	h.start()
	h.again()
	settle(t, h.d, h.want()...)
	return h
}

func (h *drained) stateFile() string { return filepath.Join(h.dir, "state") }

// again makes a driver as a restarted controller does.
func (h *drained) again() {
	h.t.Helper()
	h.d = h.driver(func(o *Options) {
		o.Slots, o.Memory = h.slots, filepath.Join(h.dir, "memory.json")
		if h.restore {
			o.StateFile = h.stateFile()
		}
	})
}

func (h *drained) want() []quell.Backend {
	return []quell.Backend{backend("a", h.a, 0.5), backend("b", h.b, 0.5)}
}

// set sends the commands that a person would send.
func (h *drained) set(id, what string) {
	h.t.Helper()
	if answer := h.ask("set server app/" + h.names[id] + " " + what)[0]; answer != "" {
		h.t.Fatal(answer)
	}
}

// restart ends HAProxy and starts it again.
func (h *drained) restart() { h.kill(); h.start() }

// byHand lists the instances that a person took out, after the driver has read the state several times and applied commands
// if needed.
func (h *drained) byHand() []string {
	h.t.Helper()
	for range 4 {
		if _, err := step(h.d, h.want()); err != nil {
			h.t.Fatal(err)
		}
	}
	states, err := h.d.State(context.Background())
	if err != nil {
		h.t.Fatal(err)
	}
	held := []string{}
	for _, s := range states {
		if s.ByHand != nil {
			held = append(held, s.ID)
			if s.ByHand.By != "haproxy" || s.Draining || s.Weight != 0 {
				h.t.Errorf("%+v", s)
			}
		}
	}
	return held
}

// wantOut checks that b stays in the state that was set, and that a gets requests.
func (h *drained) wantOut(when, state string) {
	h.t.Helper()
	if held := h.byHand(); !slices.Equal(held, []string{"b"}) {
		h.t.Fatalf("%s: held are %v, want b", when, held)
	}
	servers := h.servers()
	a, b := servers[h.names["a"]], servers[h.names["b"]]
	if b.forced() != state || a.forced() != "" || a.inMaint() {
		h.t.Fatalf("%s: a has admin state %#x, b %#x, which should be %s", when, a.admin, b.admin, state)
	}
}

func (h *drained) wantNobodyOut(when string) {
	h.t.Helper()
	if held := h.byHand(); len(held) > 0 {
		h.t.Fatalf("%s: held are %v", when, held)
	}
	settle(h.t, h.d, h.want()...)
	for _, name := range h.names {
		if s := h.servers()[name]; s.forced() != "" {
			h.t.Fatalf("%s: %s has admin state %#x", when, name, s.admin)
		}
	}
}

// TestAStateSetByHandIsLeft checks that a state that a person set survives restarts of both programs until somebody sets the server ready.
func TestAStateSetByHandIsLeft(t *testing.T) {
	for _, fleet := range fleets {
		for _, state := range []string{drainState, maintState} {
			t.Run(fleet+"/"+state, func(t *testing.T) {
				t.Parallel()
				h := newDrained(t, fleet)
				h.set("b", "state "+state)
				h.wantOut("at once", state)
				h.again()
				h.wantOut("with another controller", state)
				h.reload()
				h.wantOut("after a reload", state)
				h.restart()
				h.wantOut("after a restart", state)
				h.kill()
				h.again()
				h.start()
				h.wantOut("after a restart of both", state)
				h.set("b", "state ready")
				h.wantNobodyOut("set ready")
				h.restart()
				h.wantNobodyOut("set ready and restarted")
			})
		}
	}
}

// TestASetWhileNobodyLooks sets and ends a server's state while no controller runs.
func TestASetWhileNobodyLooks(t *testing.T) {
	for _, fleet := range fleets {
		t.Run(fleet, func(t *testing.T) {
			t.Parallel()
			h := newDrained(t, fleet)
			h.wantNobodyOut("at first")
			h.d.Close()
			h.set("b", "state maint")
			h.again()
			h.wantOut("set meanwhile", maintState)
			h.d.Close()
			h.set("b", "state ready")
			h.again()
			h.wantNobodyOut("taken back meanwhile")
		})
	}
}

// TestQuellsOwnStatesAreNobodysHand checks that servers that Quell itself drains or removes do not count as set by a person, whichever
// program restarts.
func TestQuellsOwnStatesAreNobodysHand(t *testing.T) {
	for _, fleet := range fleets {
		t.Run(fleet, func(t *testing.T) {
			t.Parallel()
			h := newDrained(t, fleet)
			draining := []quell.Backend{backend("a", h.a, 1), {ID: "b", Address: h.b.address(), Draining: true, Held: true}}
			for name, event := range map[string]func(){
				"nothing": func() {}, "another controller": h.again, "a reload": h.reload, "both": func() { h.reload(); h.again() },
			} {
				settle(t, h.d, draining...)
				event()
				settle(t, h.d, draining...)
				h.wantNobodyOut("no longer drained, after " + name)
			}
			// After a restart, a server's initial state does not count as set by a person.
			h.restart()
			h.wantNobodyOut("restarted")
			h.kill()
			h.again()
			h.start()
			states, err := h.d.State(context.Background())
			for _, s := range states {
				if s.ByHand != nil || s.Draining {
					t.Errorf("both restarted: %+v, %v", s, err)
				}
			}
			h.wantNobodyOut("both restarted")
		})
	}
}

// TestAReusedServerIsNotHeld checks that a state set for an instance does not apply to the next instance in its slot.
func TestAReusedServerIsNotHeld(t *testing.T) {
	for _, state := range []string{drainState, maintState} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			h := newDrained(t, "slots")
			h.set("b", "state "+state)
			h.wantOut("at once", state)
			settle(t, h.d, backend("a", h.a, 1))
			c := newInstance(t, 0)
			for range 2 { // its slot is free after the next read
				settle(t, h.d, backend("a", h.a, 0.5), backend("c", c, 0.5))
			}
			states, err := h.d.State(context.Background())
			if err != nil || len(states) != 2 || states[1].ID != "c" || states[1].ByHand != nil {
				t.Fatalf("%+v, %v", states, err)
			}
			if got := h.weights(); len(got) != 2 {
				t.Errorf("in service are %v", got)
			}
			h.again()
			settle(t, h.d, backend("a", h.a, 0.5), backend("c", c, 0.5))
		})
	}
}

// TestWeightsByHandArePutBack checks that Quell restores weights while another server is held.
func TestWeightsByHandArePutBack(t *testing.T) {
	h := newDrained(t, "declared")
	c := newInstance(t, 0)
	h.configure(declared("a", h.a.address(), "b", h.b.address(), "c", c.address()), "")
	h.reload()
	want := []quell.Backend{backend("a", h.a, 0.5), backend("b", h.b, 0), backend("c", c, 0.5)}
	settle(t, h.d, want...)
	h.set("b", "state drain")
	h.set("a", "weight 1")
	await(t, "equal weights", func() (bool, any) {
		_, err := step(h.d, want)
		got := h.weights()
		return err == nil && got["a"] == got["c"] && len(got) == 2, got
	})
}

// TestReleased checks that an operator may use Quell to put back an instance that was taken out in HAProxy.
func TestReleased(t *testing.T) {
	for _, fleet := range fleets {
		t.Run(fleet, func(t *testing.T) {
			t.Parallel()
			h := newDrained(t, fleet)
			h.set("b", "state maint")
			h.wantOut("set", maintState)
			h.again()
			if _, err := h.d.State(context.Background()); err != nil {
				t.Fatal(err)
			}
			if err := h.d.Release(context.Background(), "b"); err != nil {
				t.Fatal(err)
			}
			states, err := h.d.State(context.Background())
			if err != nil || len(states) != 2 || states[1].ByHand != nil || states[1].Draining {
				t.Fatalf("at once after the release: %+v, %v", states, err)
			}
			h.wantNobodyOut("released")
			if err := h.d.Release(context.Background(), "x"); err == nil {
				t.Error("an unknown instance was released")
			}
		})
	}
}

// TestWhatWasOutBeforeQuellCame checks that a server stays out of service if the configuration disables it or if it was drained before
// Quell began.
func TestWhatWasOutBeforeQuellCame(t *testing.T) {
	h := &drained{lab: newLab(t, ""), a: newInstance(t, 0), b: newInstance(t, 0), names: map[string]string{"a": "a", "b": "b"}}
	h.configure(strings.TrimSuffix(declared("a", h.a.address(), "b", h.b.address()), "\n")+" disabled", "")
	h.start()
	h.again()
	states, err := h.d.State(context.Background())
	if err != nil || len(states) != 2 || states[1].ByHand == nil || states[1].Draining {
		t.Fatalf("before anything was applied: %+v, %v", states, err)
	}
	h.wantOut("disabled in the configuration", maintState)
	h.set("b", "state ready")
	h.wantNobodyOut("set ready")
	h.set("b", "state drain")
	h.wantOut("drained", drainState)
	h.d.Close()
	if err := os.Remove(filepath.Join(h.dir, "memory.json")); err != nil {
		t.Fatal(err)
	}
	h.again()
	h.wantOut("drained, and the memory is lost", drainState)
}

// TestOutOfOneOfSeveral checks that a server that was taken out of one HAProxy stays out there, and still gets requests from the other
// HAProxy.
func TestOutOfOneOfSeveral(t *testing.T) {
	a, b := newInstance(t, 0), newInstance(t, 0)
	one, two := newLab(t, declared("a", a.address(), "b", b.address())), newLab(t, declared("a", a.address(), "b", b.address()))
	one.start()
	two.start()
	d := one.driver(func(o *Options) { o.Sockets = append(o.Sockets, two.socket) })
	want := []quell.Backend{backend("a", a, 0.75), backend("b", b, 0.25)}
	settle(t, d, want...)
	one.ask("set server app/b state drain")
	for range 4 {
		if same, err := step(d, want); err != nil || !same {
			t.Fatalf("%v, %v: nothing is to be done", same, err)
		}
	}
	if b := one.servers()["b"]; b.forced() != drainState {
		t.Errorf("the drain was undone: %+v", b)
	}
	if got := two.weights(); got["a"] != 3*got["b"] {
		t.Errorf("behind the other the weights are %v", got)
	}
	if n := one.said.count("took a server out here and not in the other"); n != 1 {
		t.Errorf("reported %d times", n)
	}
	two.ask("set server app/b state maint")
	if _, err := step(d, want); err != nil {
		t.Fatal(err)
	}
	states, err := d.State(context.Background())
	if err != nil || states[1].ByHand == nil {
		t.Errorf("out of both: %+v, %v", states, err)
	}
	first, second := one.servers()["b"], two.servers()["b"]
	if first.forced() != drainState || second.forced() != maintState {
		t.Errorf("the states are %s and %s", first.forced(), second.forced())
	}
}
