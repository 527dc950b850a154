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
		if said := strings.Contains(strings.Join(unknown, " "), "record of this backend is missing"); said != lost {
			t.Errorf("memory lost: %v; not known: %v", lost, unknown)
		}
		if got := l.weights(); !maps.Equal(got, given) {
			t.Errorf("memory lost: %v; after the release the weights are %v, want %v", lost, got, given)
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
