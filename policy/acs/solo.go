package acs

import (
	"fmt"
	"time"

	"github.com/quellhq/quell"
)

// The slowdown of a group that reports progress is its rate of work alone over its present one. If nobody gives the rate alone, the best
// one that was seen counts, which is too small if the group always had neighbours. In a solo run, the other groups
// get a small cap for two periods, and the rate of the second one counts.

// acsSolo is the group that runs nearly alone.
type acsSolo struct {
	Group   string `json:"group,omitempty"` // "": none
	Periods int    `json:"periods,omitempty"`
}

// acsAlone is what a group did when it ran nearly alone.
type acsAlone struct {
	Rate float64   `json:"rate,omitempty"` // units of work per second; 0: not known
	At   time.Time `json:"at,omitzero"`    // of the last solo run, with or without a result
}

const acsSoloPeriods = 2

// solo reads the result of a solo run that ends, and begins the next one. While one goes on, alone is true, and the weights are those of
// the solo run.
func (d *hostCaps) solo(now time.Time) (why quell.Reason, alone bool) {
	if d.set.Solo == 0 || !d.weighs || !d.mem.Capping {
		d.mem.Solo = acsSolo{}
		return why, false
	}
	if t := d.tenant(d.mem.Solo.Group); t != nil {
		if d.mem.Solo.Periods < acsSoloPeriods {
			d.mem.Solo.Periods++
			return d.alone(t), true
		}
		t.next.Alone = acsAlone{At: now}
		if t.periods < acsSoloPeriods+0.5 { // else it is a rate of periods before, too
			t.next.Alone.Rate = t.rate
		}
	}
	d.mem.Solo = acsSolo{}
	for i := range d.tenants {
		if t := &d.tenants[i]; t.rate > 0 && t.active() && (t.next.Alone.At.IsZero() || now.Sub(t.next.Alone.At) >= d.set.Solo) {
			d.mem.Solo = acsSolo{t.id, 1}
			return d.alone(t), true
		}
	}
	return why, false
}

func (d *hostCaps) tenant(id string) *tenant {
	for i := range d.tenants {
		if d.tenants[i].id == id {
			return &d.tenants[i]
		}
	}
	return nil
}

// alone gives a group nearly all processors. The others keep their weights.
func (d *hostCaps) alone(only *tenant) quell.Reason {
	for i := range d.tenants {
		t := &d.tenants[i]
		if t.next.Cap = acsIdle; t.next.Held > 0 {
			t.next.Cap = min(t.next.Held, acsIdle)
		}
		if t == only {
			t.next.Cap = 0
		}
	}
	return quell.Reason{Code: "acs_solo", Text: fmt.Sprintf("%s runs nearly alone for %d periods: its rate of work is then that without "+
		"neighbours", only.id, acsSoloPeriods)}
}
