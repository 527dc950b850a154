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
	// Back says that somebody else ended the 0, and Quell has not applied a list since. Until then the state shows the 0 of the last list as
	// being in force, so that nobody sets it again: that would hide a 0 that a checker sets in the meantime.
	Back   bool `json:"back,omitempty"`
	weight int  // the last weight that Quell set or left; 0 after a restart
}

// follow updates the trace from the weight in force. idle says that Quell wants the weight 0, leaves that the instance drains.
func (tr *trace) follow(weight int, idle, leaves bool) {
	switch {
	case weight > 0:
		tr.Back = idle && !leaves && (tr.Back || tr.ByHand)
		tr.ByHand = false
		tr.Out = tr.Out && idle
	case !tr.Out && !idle || tr.Back:
		tr.ByHand, tr.Back = true, false
	}
}

// ZeroMeans says what a weight of 0 means that Quell did not set. IPVS does not record who set it.
type ZeroMeans string

// The meanings: a person took the server out, or a checker found it failing, like that of keepalived with inhibit_on_failure.
const (
	ZeroHeld   ZeroMeans = "held"
	ZeroFailed ZeroMeans = "failed"
)

// text says what becomes of an instance whose weight somebody else set to 0.
func (z ZeroMeans) text() string {
	if z == ZeroFailed {
		return "the instance has failed until the weight is another one (balancer.lvs.zero: failed)"
	}
	return "the instance is held until the weight is another one, and neither replaced nor stopped. If a checker did it, as keepalived with " +
		"inhibit_on_failure does, set balancer.lvs.zero to failed"
}

// outByOthers describes in a state that somebody else set the weight 0.
func (d *Driver) outByOthers(s *quell.BackendState) {
	s.Weight = 0
	if d.opts.Zero == ZeroFailed {
		s.Healthy, s.Health = false, "its weight in IPVS was set to 0, which balancer.lvs.zero takes for a failed check"
		return
	}
	s.ByHand = &quell.Held{By: "lvs"}
}

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
		d.memory.Keep(d.entries)
		return nil
	}
	return fmt.Errorf("no real server of IPVS stands for %s", id)
}
