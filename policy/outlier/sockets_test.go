package outlier

import (
	"testing"

	"github.com/quellhq/quell"
)

// Five hundred WebSockets on the oldest instance say nothing of how fast it answers: they are no requests that wait. Where no request
// finishes anywhere, nothing is judged. An instance beside them that is stuck is cut all the same.
func TestSocketsAreNoWaiting(t *testing.T) {
	for why, c := range map[string]struct {
		change func([]shown)
		want   string // the instance that is cut
	}{
		"beside many requests":     {func(w []shown) { w[0].open = 500 }, ""},
		"beside few requests":      {func(w []shown) { few(w); w[0].open = 500 }, ""},
		"nothing finishes there":   {func(w []shown) { few(w); w[0] = shown{open: 500} }, ""},
		"nothing finishes at all":  {func(w []shown) { clear(w); w[0].open = 500 }, ""},
		"another instance is slow": {func(w []shown) { w[0].open = 500; w[3].ms = 400 }, "i4"},
	} {
		c5 := newFlock(t, 5, func(*Settings) {})
		for i := range c5.Windows { // the sockets are there from the first window on
			c5.Windows[i].open = 1
		}
		c5.Windows[0].open = 500
		for range 10 {
			if plan := c5.Second(); len(plan.Factor) > 0 {
				t.Fatalf("%s: before anything happens: %+v %v", why, plan.Factor, plan.Reasons)
			}
		}
		c.change(c5.Windows)
		_, plan := c5.after(60)
		if len(plan.Factor) > 1 || c.want == "" && len(plan.Factor) > 0 || c.want != "" && plan.Factor[c.want] == (quell.Factor{}) {
			t.Errorf("%s: %+v, want a cut of %q; %v", why, plan.Factor, c.want, plan.Reasons)
		}
	}
}

// few makes every instance answer two requests a second.
func few(windows []shown) {
	for i := range windows {
		windows[i].n = 2
	}
}
