package daemon

import (
	"testing"
	"time"

	"github.com/quellhq/quell/bus"
)

func TestReachable(t *testing.T) {
	for listen, want := range map[string]string{
		"0.0.0.0:4222": "127.0.0.1:4222", ":4222": "127.0.0.1:4222", "[::]:4222": "127.0.0.1:4222",
		"10.0.0.1:4222": "10.0.0.1:4222", "bus.internal:4222": "bus.internal:4222",
	} {
		if got := reachable(listen); got != want {
			t.Errorf("%s is reached at %s, want %s", listen, got, want)
		}
	}
}

// TestResize checks that a longer sampling period leads to a longer lease, and that a controller with a shorter lease takes it
// again.
func TestResize(t *testing.T) {
	l := &leader{least: 10 * time.Second}
	l.resize(time.Second)
	if l.ttl != 10*time.Second || l.margin >= l.ttl {
		t.Errorf("for 1s: ttl %s, margin %s", l.ttl, l.margin)
	}
	l.lease = &bus.Lease{}
	if l.resize(2 * time.Second); l.lease == nil {
		t.Error("nothing changed, and the lease was given up")
	}
	if l.resize(time.Minute); l.lease != nil || l.ttl != 3*time.Minute || l.margin > l.ttl/2 {
		t.Errorf("for 1m: ttl %s, margin %s, lease kept: %v", l.ttl, l.margin, l.lease != nil)
	}
}
