package lvs

import (
	"context"
	"fmt"

	"github.com/quellhq/quell"
)

// trace is what is known about an instance's real server in one virtual service. A weight of 0 was set by a person, or by a program such as
// keepalived, unless Quell set it. Quell never changes such a weight. When somebody else sets another weight, the hold ends.
type trace struct {
	Out    bool `json:"out,omitempty"`     // Quell set the weight to 0, or has not given it one yet; stored before Quell does so
	ByHand bool `json:"by_hand,omitempty"` // somebody else set it to 0
	weight int  // the last weight that Quell set or left; 0 after a restart
}

// follow updates the trace from the weight in force. idle says that Quell wants the weight 0.
func (tr *trace) follow(weight int, idle bool) {
	switch {
	case weight > 0:
		tr.ByHand = false
		tr.Out = tr.Out && idle
	case !tr.Out && !idle:
		tr.ByHand = true
	}
}

// heldHere describes an instance that was taken out in IPVS, which does not record by whom and when.
func heldHere() *quell.Held { return &quell.Held{By: "lvs"} }

// Release puts an instance back in service that a person took out in IPVS. The next Apply carries it out.
func (d *Driver) Release(_ context.Context, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.entries {
		if e.ID != id {
			continue
		}
		for _, tr := range e.In {
			if tr.ByHand {
				*tr = trace{Out: true}
			}
		}
		d.remember()
		return nil
	}
	return fmt.Errorf("no real server of IPVS stands for %s", id)
}
