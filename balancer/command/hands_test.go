package command

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell"
)

// bench is a balancer that keeps its backends in a file, which a person may edit.
type bench struct {
	t      *testing.T
	dir    string
	memory string // its folder
	d      *Driver
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, dir: t.TempDir(), memory: t.TempDir()}
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
		Memory: filepath.Join(b.memory, "serving.json")})
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
	b.edit(id, func(s *quell.BackendState) { s.Draining = draining })
}

func (b *bench) weighs(id string, weight float64) {
	b.t.Helper()
	b.edit(id, func(s *quell.BackendState) { s.Weight = weight })
}

func (b *bench) edit(id string, change func(*quell.BackendState)) {
	b.t.Helper()
	var now []quell.BackendState
	if err := json.Unmarshal([]byte(read(b.t, filepath.Join(b.dir, "now"))), &now); err != nil {
		b.t.Fatal(err)
	}
	for i := range now {
		if now[i].ID == id {
			change(&now[i])
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

// A backend that an operator put back, and that the balancer has not put back yet when Quell drains it, is read back as it is.
func TestADrainAfterARelease(t *testing.T) {
	b := newBench(t)
	one, two := quell.Backend{ID: "1", Address: "h:1", Weight: .5}, quell.Backend{ID: "2", Address: "h:2", Weight: .5}
	b.apply(one, two)
	b.state("2")
	b.drains("2", true)
	b.state("2")
	if err := b.d.Release(t.Context(), "2"); err != nil {
		t.Fatal(err)
	}
	two.Draining, two.Weight = true, 0
	b.apply(one, two)
	if s := b.state("2"); s.ByHand != nil || !s.Draining || s.Address == "" {
		t.Errorf("drained by Quell: %+v", s)
	}
}

// A weight of 0 that Quell did not set is a hold, also with another controller. A share that Quell made so small that the balancer may show
// it as 0 is none.
func TestAZeroByHandIsLeft(t *testing.T) {
	b := newBench(t)
	one, two := quell.Backend{ID: "1", Address: "h:1", Weight: .5}, quell.Backend{ID: "2", Address: "h:2", Weight: .5}
	b.apply(one, two)
	b.state("2")
	b.weighs("2", 0)
	for range 2 {
		if s := b.state("2"); s.ByHand == nil || s.ByHand.Why != "its weight is 0" || s.Draining {
			t.Fatalf("weight 0 by hand: %+v", s)
		}
		b.apply(quell.Backend{ID: "1", Address: "h:1", Weight: 1}, quell.Backend{ID: "2", Address: "h:2"})
		b.apply(one, two)
	}
	b.again()
	if s := b.state("2"); s.ByHand == nil {
		t.Errorf("with another controller: %+v", s)
	}
	b.apply(one, two)
	b.weighs("2", .3)
	if s := b.state("2"); s.ByHand != nil || s.Weight != .3 {
		t.Errorf("put back: %+v", s)
	}
	b.weighs("2", 0)
	b.state("2")
	b.apply(one, two)
	if err := b.d.Release(t.Context(), "2"); err != nil {
		t.Fatal(err)
	}
	if s := b.state("2"); s.ByHand != nil || s.Weight != .5 {
		t.Errorf("released: %+v", s)
	}
	two.Weight = smallShare / 2
	b.apply(one, two)
	b.weighs("2", 0)
	if s := b.state("2"); s.ByHand != nil {
		t.Errorf("a small share, rounded: %+v", s)
	}
}

// What is out when Quell first sees a balancer, somebody took out. The weights of then are base weights, and come back.
func TestBeforeQuell(t *testing.T) {
	b := newBench(t)
	for _, again := range []bool{false, true} {
		if !again {
			if err := os.WriteFile(filepath.Join(b.dir, "now"), []byte(`[{"id":"1","address":"h:1","weight":0.25,"healthy":true},`+
				`{"id":"2","address":"h:2","weight":0.75,"healthy":true},{"id":"3","address":"h:3","weight":0,"healthy":true},`+
				`{"id":"4","address":"h:4","weight":0,"draining":true,"healthy":true}]`), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for id, want := range map[string]float64{"1": 0.5, "2": 1.5} {
			if s := b.state(id); s.Base == nil || *s.Base != want || s.ByHand != nil {
				t.Errorf("%s: %+v, want base %v", id, s, want)
			}
		}
		for _, id := range []string{"3", "4"} {
			if s := b.state(id); s.ByHand == nil {
				t.Errorf("%s is not held: %+v", id, s)
			}
		}
		b.apply(quell.Backend{ID: "1", Address: "h:1", Weight: .9}, quell.Backend{ID: "2", Address: "h:2", Weight: .1},
			quell.Backend{ID: "3", Address: "h:3"}, quell.Backend{ID: "4", Address: "h:4"})
		b.again()
	}
	b.apply(quell.Backend{ID: "1", Address: "h:1", Weight: .9}, quell.Backend{ID: "2", Address: "h:2", Weight: .1})
	b.again() // killed
	unknown, err := b.d.Restore(t.Context())
	if err != nil || len(unknown) > 0 {
		t.Fatalf("%v, %v", unknown, err)
	}
	if one, two := b.state("1"), b.state("2"); one.Weight != .25 || two.Weight != .75 {
		t.Errorf("released: %+v, %+v", one, two)
	}
	b.apply(quell.Backend{ID: "1", Address: "h:1", Weight: .9}, quell.Backend{ID: "2", Address: "h:2", Weight: .1})
	if err := os.Remove(filepath.Join(b.memory, "serving.json")); err != nil {
		t.Fatal(err)
	}
	b.again()
	unknown, err = b.d.Restore(t.Context())
	if err != nil || !strings.Contains(strings.Join(unknown, " "), "is not recorded") || b.state("1").Weight != .9 {
		t.Errorf("the record is lost: %v, %v", unknown, err)
	}
}

// A record that could not be stored is stored as soon as it can be: what Quell drained meanwhile was drained by nobody else.
func TestARecordThatCouldNotBeStored(t *testing.T) {
	b := newBench(t)
	one, two := quell.Backend{ID: "1", Address: "h:1", Weight: .5}, quell.Backend{ID: "2", Address: "h:2", Weight: .5}
	b.apply(one, two)
	b.state("2")
	aside := b.memory + ".aside"
	if err := errors.Join(os.Rename(b.memory, aside), os.WriteFile(b.memory, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	two.Draining, two.Weight = true, 0
	b.apply(one, two)
	if err := errors.Join(os.Remove(b.memory), os.Rename(aside, b.memory)); err != nil {
		t.Fatal(err)
	}
	b.state("2")
	b.again()
	if s := b.state("2"); s.ByHand != nil || !s.Draining {
		t.Errorf("drained by Quell: %+v", s)
	}
}

// The file of earlier versions is read.
func TestAnOldRecord(t *testing.T) {
	b := newBench(t)
	path := filepath.Join(b.memory, "serving.json")
	for content, ok := range map[string]bool{`["1","2"]`: true, `{"serving":["1"]}`: true, `{"servin":["1"]}`: false, `7`: false, ``: false} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if h, err := recall(path); (err == nil) != ok || ok && !h.serving["1"] {
			t.Errorf("%q: %v", content, err)
		}
	}
}
