package managed

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/strictjson"
)

// stored is what a driver stores.
type stored struct {
	Given
	Numeric string `json:"numeric"`
}

func TestADrainIsKept(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b := quell.Backend{ID: "a", Address: "10.0.0.1:80", Probe: "p", Weight: .5, Draining: true, Held: true}
	first := Give(b, Given{}, at)
	if first.Share != 0 || first.Since != at || !first.Held {
		t.Errorf("%+v", first)
	}
	next := Give(b, first, at.Add(time.Minute))
	if next.Since != at {
		t.Errorf("the drain began at %v, want %v", next.Since, at)
	}
	for _, c := range []struct {
		open     int64
		reported bool
		after    time.Duration
		want     int64
	}{{0, false, 30 * time.Second, 1}, {0, false, time.Hour, 0}, {0, true, 0, 0}, {3, true, time.Hour, 3}} {
		if got := next.InFlight(c.open, c.reported, time.Minute, at.Add(c.after)); got != c.want {
			t.Errorf("%+v: %d requests in progress", c, got)
		}
	}
	b.Draining = false
	back := Give(b, next, at)
	if back.Share != .5 || !back.Since.IsZero() || back.Backend(.5).Held {
		t.Errorf("it is back: %+v", back)
	}
	b.Draining = true
	if again := Give(b, back, at.Add(time.Hour)); again.Since != at.Add(time.Hour) {
		t.Errorf("another drain began at %v", again.Since)
	}
}

// What earlier versions stored is read as it was.
func TestStored(t *testing.T) {
	text := `{"id":"a","address":"x:80","numeric":"10.0.0.1:80","probe":"p","share":0.25,"drain":true,"held":true,"since":"2026-01-01T00:00:00Z"}`
	var s stored
	if err := strictjson.Decode([]byte(text), &s); err != nil || !s.Valid() {
		t.Fatalf("%v, %+v", err, s)
	}
	if s.ID != "a" || s.Numeric != "10.0.0.1:80" || s.Share != .25 || !s.Drain || !s.Held || s.Since.IsZero() {
		t.Errorf("%+v", s)
	}
	again, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var copied stored
	if err := strictjson.Decode(again, &copied); err != nil || copied != s {
		t.Errorf("%v, %s", err, again)
	}
	for _, bad := range []Given{{}, {Entry: Entry{ID: "a"}}, {Entry: Entry{ID: "a", Address: "x"}, Share: 1.1},
		{Entry: Entry{ID: "a", Address: "x"}, Share: -1}} {
		if bad.Valid() {
			t.Errorf("%+v is valid", bad)
		}
	}
}

func TestLeave(t *testing.T) {
	a, b := &stored{Given: Give(quell.Backend{ID: "a", Address: "x"}, Given{}, time.Time{})}, &stored{Given: Given{Entry: OfMember(
		quell.Member{ID: "b", Address: "y", Probe: "p"})}}
	byID := Leave([]*stored{a, b})
	if byID["a"] != a || byID["b"] != b || !a.Leaving || !b.Leaving {
		t.Errorf("%+v", byID)
	}
	byID["b"].Ask(quell.Backend{ID: "b", Probe: "q", Draining: true})
	if b.Leaving || !b.Drain || b.Probe != "q" || Addresses([]*stored{a, b})["b"] != "y" {
		t.Errorf("%+v", b)
	}
	if !Fixed([]quell.Member{{ID: "b"}}, "b") || Fixed(nil, "b") {
		t.Error("a fixed group")
	}
	states := []quell.BackendState{{Backend: b.Backend(.5)}, {Backend: a.Backend(0)}}
	Sort(states)
	if states[0].ID != "a" || states[1].Weight != .5 || !states[1].Draining {
		t.Errorf("%+v", states)
	}
}
