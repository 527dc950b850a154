package haproxy

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// Weights that people gave are told as base weights, are left while the shares agree with them, and come back: also after the controller
// was killed, and, as far as HAProxy's configuration tells them, without the memory.
func TestWeightsOfBeforeComeBack(t *testing.T) {
	a, b, c := newInstance(t, time.Millisecond), newInstance(t, time.Millisecond), newInstance(t, time.Millisecond)
	l := newLab(t, "")
	l.configure("balance leastconn\nserver a "+a.address()+" weight 30\nserver b "+b.address()+" weight 60", "")
	l.start()
	given := map[string]int{"a": 30, "b": 60}
	third, memory := 1./3, filepath.Join(t.TempDir(), "haproxy.json")
	keep := func(o *Options) { o.Memory = memory }
	for _, lost := range []bool{false, true} {
		d := l.driver(keep)
		own(t, d)
		for range 2 {
			states, err := d.State(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range []float64{2 * third, 4 * third} {
				if base := states[i].Base; base == nil || math.Abs(*base-want) > 1e-9 {
					t.Fatalf("the base weight of %s is %v, want %.3f", states[i].ID, base, want)
				}
			}
			apply(t, d, backend("a", a, third), backend("b", b, 2*third))
		}
		if got := l.weights(); !maps.Equal(got, given) {
			t.Fatalf("shares by base weight changed the weights to %v", got)
		}
		apply(t, d, backend("a", a, 0.8), backend("b", b, 0.1), backend("c", c, 0.1))
		if got := l.weights(); maps.Equal(got, given) {
			t.Fatalf("weights are still %v", got)
		}
		if lost { // what Quell added stays, because nobody knows of it
			apply(t, d, backend("a", a, 0.8), backend("b", b, 0.2))
			apply(t, d, backend("a", a, 0.8), backend("b", b, 0.2))
			if err := os.Remove(d.opts.Memory); err != nil {
				t.Fatal(err)
			}
		}
		d = l.driver(keep) // the other was killed
		unknown, err := d.Restore(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(strings.Join(unknown, " "), "the record of what HAProxy"); said != lost {
			t.Errorf("memory lost: %v; not known: %v", lost, unknown)
		}
		if got := l.weights(); !maps.Equal(got, given) {
			t.Errorf("memory lost: %v; after the release the weights are %v, want %v", lost, got, given)
		}
	}
}

func own(t *testing.T, d *Driver) {
	t.Helper()
	if err := d.Own(t.Context(), quell.Owner{ID: "controller", Name: "here"}); err != nil {
		t.Fatal(err)
	}
}

// Where Quell changed nothing, a release changes nothing, and what people set after a release is theirs: it is what the next release puts
// back. A controller that comes after a release does not wait.
func TestAReleaseLeavesWhatPeopleSet(t *testing.T) {
	a, b := newInstance(t, time.Millisecond), newInstance(t, time.Millisecond)
	l := newLab(t, "")
	l.configure("server a "+a.address()+" weight 30\nserver b "+b.address()+" weight 60", "")
	l.start()
	memory := filepath.Join(t.TempDir(), "haproxy.json")
	keep := func(o *Options) { o.Memory = memory }
	set := func(server, weight string) { l.ask("set server app/" + server + " weight " + weight) }
	release := func() {
		t.Helper()
		if _, err := l.driver(keep).Restore(t.Context()); err != nil { // the controller was killed
			t.Fatal(err)
		}
	}
	want := func(when string, weights map[string]int) {
		t.Helper()
		if got := l.weights(); !maps.Equal(got, weights) {
			t.Fatalf("%s the weights are %v, want %v", when, got, weights)
		}
	}
	set("a", "40")
	d := l.driver(keep)
	for range 2 { // advise mode
		if _, err := d.State(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	release()
	want("after the release of what Quell never changed", map[string]int{"a": 40, "b": 60})
	for i, by := range []string{"one", "two"} { // a second controller would wait for the lease of the first
		d := l.driver(keep)
		if err := d.Own(t.Context(), quell.Owner{ID: by, Name: by}); err != nil {
			t.Fatal(err)
		}
		apply(t, d, backend("a", a, 0.9), backend("b", b, 0.1))
		release()
		want("after a release", map[string]int{"a": 40 + 5*i, "b": 60})
		set("a", "45")
		release()
		want("after a person set a weight", map[string]int{"a": 45, "b": 60})
	}
}

// A weight of 0 that a person set while Quell ran stays 0 at a release.
func TestAReleaseLeavesAWeightOfZero(t *testing.T) {
	a, b := newInstance(t, time.Millisecond), newInstance(t, time.Millisecond)
	l := newLab(t, "server a "+a.address()+" weight 30\nserver b "+b.address()+" weight 60")
	l.start()
	d := l.driver(func(o *Options) { o.Memory = filepath.Join(t.TempDir(), "haproxy.json") })
	own(t, d)
	want := []quell.Backend{backend("a", a, 0.5), backend("b", b, 0.5)}
	settle(t, d, want...)
	l.ask("set server app/a weight 0")
	settle(t, d, want...)
	if unknown, err := d.Restore(t.Context()); err != nil || len(unknown) > 0 {
		t.Errorf("%v, %v", unknown, err)
	}
	if got := l.weights(); !maps.Equal(got, map[string]int{"a": 0, "b": 60}) {
		t.Errorf("after the release the weights are %v", got)
	}
}

// A HAProxy that cannot be reached is put back by a later call, which leaves alone what a person has set at the other one meanwhile.
func TestAReleaseGoesOnWhereHAProxyWasDead(t *testing.T) {
	a, b := newInstance(t, time.Millisecond), newInstance(t, time.Millisecond)
	servers := "server a " + a.address() + " weight 30\nserver b " + b.address() + " weight 60"
	one, two := newLab(t, servers), newLab(t, servers)
	one.start()
	two.start()
	d := one.driver(func(o *Options) { o.Sockets = append(o.Sockets, two.socket) })
	own(t, d)
	apply(t, d, backend("a", a, 0.9), backend("b", b, 0.1))
	two.stop()
	if _, err := d.Restore(t.Context()); err == nil || !strings.Contains(err.Error(), two.socket) {
		t.Fatalf("one HAProxy is dead, and the release says %v", err)
	}
	one.ask("set server app/a weight 7")
	two.start()
	two.ask("set server app/a weight 99") // as its file of states would
	if _, err := d.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	for l, want := range map[*lab]map[string]int{one: {"a": 7, "b": 60}, two: {"a": 30, "b": 60}} {
		if got := l.weights(); !maps.Equal(got, want) {
			t.Errorf("the weights are %v, want %v", got, want)
		}
	}
}

// An hour of lists with the same shares sends no command: HAProxy is only asked.
func TestTheSameSharesSendNoCommand(t *testing.T) {
	state := strings.Split(stateText, "\n")
	servers := strings.Join(append(state[:2:2], "3 app 1 a 10.0.0.1 2 0 30 30 1 6 3 4 6 0 0 0 - 80 - 0 0 - - 0",
		"3 app 2 b 10.0.0.2 2 0 60 60 1 6 3 4 6 0 0 0 - 80 - 0 0 - - 0"), "\n")
	stat := "# svname,scur,stot\na,0,0\nb,0,0\n"
	var mu sync.Mutex
	var sent []string
	path := fake(t, func(command string) (string, bool) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case command == "show info":
			return "Pid: 7\nVersion: 2.6\n", true
		case command == "show servers state app":
			return servers + "\n", true
		case strings.HasPrefix(command, "show stat"):
			return stat + "\n", true
		case command != "prompt":
			sent = append(sent, command)
		}
		return "", true
	})
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	d, err := New(Options{Sockets: []string{path}, Backend: "app", Memory: filepath.Join(t.TempDir(), "m"),
		Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for end := now.Add(time.Hour); now.Before(end); now = now.Add(10 * time.Second) {
		states, err := d.State(t.Context())
		if err != nil || len(states) != 2 || *states[1].Base != 2**states[0].Base {
			t.Fatalf("%+v, %v", states, err)
		}
		apply(t, d, quell.Backend{ID: "a", Address: "10.0.0.1:80", Weight: 1. / 3},
			quell.Backend{ID: "b", Address: "10.0.0.2:80", Weight: 2. / 3})
	}
	if len(sent) > 0 {
		t.Errorf("sent %q", sent)
	}
}
