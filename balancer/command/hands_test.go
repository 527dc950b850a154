package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/quellhq/quell"
)

// bench is a balancer that keeps its backends in a file, which a person may edit.
type bench struct {
	t   *testing.T
	dir string
	d   *Driver
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, dir: t.TempDir()}
	script(t, b.dir, `case "$1" in
set) sed 's/.*"backends"://; s/}$//; s/}/,"healthy":true,"in_flight":0}/g' >"$DIR/now" ;;
*) cat "$DIR/now" ;;
esac`)
	b.again()
	return b
}

// again makes a driver as a restarted controller does.
func (b *bench) again() {
	path := filepath.Join(b.dir, "script.sh")
	b.d = driver(b.t, Options{Service: "shop", Command: []string{path, "set"}, StateCommand: []string{path, "show"},
		Memory: filepath.Join(b.dir, "serving.json")})
}

func (b *bench) apply(backends ...quell.Backend) {
	b.t.Helper()
	if err := b.d.Apply(b.t.Context(), backends); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) state(id string) quell.BackendState {
	b.t.Helper()
	states, err := b.d.State(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, s := range states {
		if s.ID == id {
			return s
		}
	}
	b.t.Fatalf("no %s in %+v", id, states)
	return quell.BackendState{}
}

// drains changes the file as a person does.
func (b *bench) drains(id string, draining bool) {
	b.t.Helper()
	var now []quell.BackendState
	if err := json.Unmarshal([]byte(read(b.t, filepath.Join(b.dir, "now"))), &now); err != nil {
		b.t.Fatal(err)
	}
	for i := range now {
		if now[i].ID == id {
			now[i].Draining = draining
		}
	}
	data, err := json.Marshal(now)
	if err == nil {
		err = os.WriteFile(filepath.Join(b.dir, "now"), data, 0o600)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func TestADrainByHandIsLeft(t *testing.T) {
	b := newBench(t)
	one, two := quell.Backend{ID: "1", Address: "h:1", Weight: .5}, quell.Backend{ID: "2", Address: "h:2", Weight: .5}
	b.apply(one, two)
	if s := b.state("2"); s.ByHand != nil || s.Draining {
		t.Fatalf("at first %+v", s)
	}
	b.drains("2", true)
	for range 2 {
		if s := b.state("2"); s.ByHand == nil || s.Draining {
			t.Fatalf("drained by hand: %+v", s)
		}
		b.apply(one, two)
	}
	b.again()
	if s := b.state("2"); s.ByHand == nil {
		t.Errorf("with another controller: %+v", s)
	}
	b.apply(one, two)
	b.drains("2", false)
	if s := b.state("2"); s.ByHand != nil || s.Draining {
		t.Errorf("put back: %+v", s)
	}
	b.drains("2", true)
	b.state("2")
	b.apply(one, two)
	if err := b.d.Release(t.Context(), "2"); err != nil {
		t.Fatal(err)
	}
	if s := b.state("2"); s.ByHand != nil || s.Draining || s.Weight != .5 {
		t.Errorf("released: %+v", s)
	}
	// A backend that Quell drains itself is not marked as held.
	two.Draining, two.Weight = true, 0
	b.apply(one, two)
	b.again()
	if s := b.state("2"); s.ByHand != nil || !s.Draining {
		t.Errorf("drained by Quell: %+v", s)
	}
}
