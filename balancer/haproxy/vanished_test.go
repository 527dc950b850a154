package haproxy

import (
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/life"
)

// TestADeletedServer deletes a server of a running HAProxy. A controller that only advises shows the instance as failed; one that acts adds
// the server again.
func TestADeletedServer(t *testing.T) {
	a, b := newInstance(t, 0), newInstance(t, 0)
	l := newLab(t, "")
	l.start()
	d := l.driver(nil)
	want := []quell.Backend{backend("i1", a, 0.5), backend("i2", b, 0.5)}
	settle(t, d, want...)
	past := map[string]life.Past{}
	seen := func(after time.Duration) []quell.Instance {
		t.Helper()
		states, err := d.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		group := make([]life.Instance, len(want))
		for i, w := range want {
			group[i] = life.Instance{Member: quell.Member{ID: w.ID, Address: w.Address, State: quell.Ready}, Past: past[w.ID]}
			for _, s := range states {
				if s.ID == w.ID {
					group[i].Backend, group[i].Known = s, true
				}
			}
		}
		s := life.Snapshot(time.Unix(0, 0).Add(after), &quell.Service{Sampling: time.Second}, group)
		for _, in := range group {
			past[in.Member.ID] = in.Past
		}
		return s.Instances
	}
	await(t, "both to be ready", func() (bool, any) {
		s := seen(0)
		return s[0].State == quell.Ready && s[1].State == quell.Ready, s
	})
	l.ask("set server app/i2 state maint; shutdown sessions server app/i2; del server app/i2")
	now := time.Duration(0)
	await(t, "the deleted one to be failed", func() (bool, any) {
		now += time.Second
		s := seen(now)
		return s[0].State == quell.Ready && s[1].State == quell.Failed && s[1].Gone, s
	})
	settle(t, d, want...)
	if s := seen(now + time.Second); s[1].Gone || s[1].Held != nil {
		t.Errorf("added again: %+v", s)
	}
}
