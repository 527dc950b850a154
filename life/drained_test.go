package life

import (
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// The time for open requests begins when the balancer drains an instance, not when a plan removed it. It begins anew if the balancer has
// lost the drain meanwhile.
func TestTheTimeToDrainBeginsWithTheDrain(t *testing.T) {
	g, limit := newDuo(), 10*time.Second
	g.at(epoch, "a", "b")
	g.Remove(epoch, "b")
	g.b.InFlight = 5
	step := func(second float64) Step {
		g.at(sec(second), "a", "b")
		in := View{Members: g.Members, Leaving: g.Draining, Drained: g.Drained}
		in.Backends = map[string]quell.BackendState{"a": g.a, "b": g.b}
		return in.Group()[1].Next(sec(second), limit)
	}
	for _, at := range []struct {
		second float64
		drains bool
		want   Step
	}{
		{60, false, Drain}, {61, true, Drain}, {70, true, Drain}, {72, true, Stop}, {73, false, Drain}, {74, true, Drain}, {85, true, Stop},
	} {
		g.b.Draining = at.drains
		if got := step(at.second); got != at.want {
			t.Errorf("after %v s: step %d, want %d", at.second, got, at.want)
		}
	}
}
