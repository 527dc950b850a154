package haproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/quellhq/quell"
)

// trace is what is known about an instance's server in one HAProxy: whether somebody took it out of service, or gave it the weight 0, and
// who.
//
// A server that is out of service was taken out by a person, unless Quell took it out or HAProxy started with it out of service: in every
// new process, slots and servers added at run time begin in maintenance. A state that a person set is never undone. If a process lost it at
// a restart, it is set again there. If a server is put in service in the same process, a person has put it back.
type trace struct {
	Process string `json:"process,omitempty"` // the process in which it was last seen in service
	Out     bool   `json:"out,omitempty"`     // Quell took it out, or has not put it in service yet; stored before Quell does so
	ByHand  string `json:"by_hand,omitempty"` // drain or maint: the state that a person set
	Seen    string `json:"seen,omitempty"`    // the process in which that state was last seen
	Idle    bool   `json:"idle,omitempty"`    // Quell set the weight to 0, or has not given it one yet; stored before Quell does so
	Zero    bool   `json:"zero,omitempty"`    // a person set the weight to 0
	ZeroIn  string `json:"zero_in,omitempty"` // the process in which that weight was last seen
}

// States that a person can set, as `set server ... state` calls them.
const (
	drainState = "drain"
	maintState = "maint"
)

// forced returns the state that was set through the runtime API or the configuration, "" if none was.
func (s *server) forced() string {
	switch {
	case s.admin&forcedMaint != 0:
		return maintState
	case s.admin&forcedDrain != 0:
		return drainState
	}
	return ""
}

// follow updates the trace from the server's present state and weight.
func (tr *trace) follow(process string, s *server, t *target) {
	tr.followWeight(process, s.weight, t)
	state := s.forced()
	switch {
	case t.placeless(s): // it is out of service because it has no address
	case tr.forgotten(process, state, t): // the person's state must be set again
	case state == "":
		tr.ByHand, tr.Seen, tr.Process = "", "", process
		tr.Out = tr.Out && !t.serves()
	case tr.ByHand != "":
		tr.ByHand, tr.Seen = state, process
	case tr.Out || !t.serves():
	case state == maintState && t.begins && tr.Process != process:
	default:
		tr.ByHand, tr.Seen = state, process
	}
}

// followWeight updates the trace from the server's present weight. A weight of 0 was set by a person, unless Quell set it. When somebody
// sets another weight in the same process, the hold ends.
func (tr *trace) followWeight(process string, weight int, t *target) {
	switch {
	case tr.Zero && tr.ZeroIn != process && weight > 0: // the person's weight must be set again
	case weight > 0:
		tr.Zero, tr.ZeroIn, tr.Idle = false, "", tr.Idle && t.idle()
	case tr.Zero, !tr.Idle && !t.idle():
		tr.Zero, tr.ZeroIn = true, process
	}
}

// forgotten returns whether a person set a state in the previous process that the new process does not have.
func (tr *trace) forgotten(process, state string, t *target) bool {
	return tr.ByHand != "" && tr.Seen != process && (state == "" || t.begins && state != tr.ByHand)
}

// traceAt returns the trace of the target's server in a HAProxy, nil if the server belongs to no instance.
func (t *target) traceAt(v *view) *trace {
	if v.index >= len(t.traces) {
		return nil
	}
	return t.traces[v.index]
}

// byHand returns the state that a person set in a HAProxy, "" if none did.
func (t *target) byHand(v *view) string {
	if tr := t.traceAt(v); tr != nil {
		return tr.ByHand
	}
	return ""
}

// zeroed returns whether a person set the weight to 0 in a HAProxy.
func (t *target) zeroed(v *view) bool {
	tr := t.traceAt(v)
	return tr != nil && tr.Zero
}

// taken returns whether a state or a weight of 0 that a person set is in force, or will be set again.
func (t *target) taken(v *view) bool { return t.serves() && (t.byHand(v) != "" || t.zeroed(v)) }

// held returns whether a HAProxy gives the server no new requests for a reason that is not Quell's.
func (t *target) held(v *view) bool { return t.taken(v) || t.serves() && t.outside(v) != "" }

// outside returns why a HAProxy gives the server no new requests although nobody took it out there, "" if it is not so. A server without an
// address counts only if HAProxy resolves its name; any other gets its address from Quell.
func (t *target) outside(v *view) string {
	s := v.servers[t.server]
	if s == nil || s.admin&noAddress != 0 && s.admin&(inheritedMaint|inheritedDrain) == 0 && !t.isAt(s) {
		return ""
	}
	return s.outside()
}

// outside returns why a server gets no new requests although nobody took it out in this HAProxy, "" if it is not so.
func (s *server) outside() string {
	switch {
	case s.admin&inheritedMaint != 0:
		return "it tracks " + s.followed() + ", which is in maintenance"
	case s.admin&inheritedDrain != 0:
		return "it tracks " + s.followed() + ", which drains"
	case s.admin&noAddress != 0:
		return "HAProxy has no address for its name " + s.fqdn
	case s.soft && s.tracks != "":
		return "it tracks " + s.tracks + ", which took itself out: its health check is answered with 404"
	case s.soft:
		return "it took itself out: its health check is answered with 404"
	}
	return ""
}

func (s *server) followed() string { return cmp.Or(s.tracks, "another server") }

// notice updates the traces from all servers of a view, and returns whether any trace changed.
func notice(v *view, targets []target) (changed bool) {
	for i := range targets {
		t := &targets[i]
		s, tr := v.servers[t.server], t.traceAt(v)
		if s == nil || tr == nil {
			continue
		}
		before := *tr
		tr.follow(v.info.process(), s, t)
		changed = changed || *tr != before
	}
	return changed
}

// noticeAll updates the traces from all views and stores changes.
func (d *Driver) noticeAll(targets []target, views []*view) {
	for i, v := range views {
		if v == nil {
			continue
		}
		d.changed = notice(v, targets) || d.changed
		for k := range targets {
			if t := &targets[k]; t.taken(v) && d.inServiceElsewhere(t, views) {
				d.once(i, t.server,
					"somebody took a server out here and not in the other HAProxies: it is left so, and its instance goes on behind the others")
			}
		}
	}
	d.remember()
}

func (d *Driver) inServiceElsewhere(t *target, views []*view) bool {
	return slices.ContainsFunc(views, func(v *view) bool { return v != nil && v.servers[t.server] != nil && !t.held(v) })
}

// disclaim records which servers Quell itself is about to take out of service, or to give the weight 0.
func (d *Driver) disclaim(targets []target) {
	for i := range targets {
		t := &targets[i]
		for _, tr := range t.traces {
			if !t.serves() && !tr.Out && tr.ByHand == "" {
				tr.Out, d.changed = true, true
			}
			if (t.serves() || t.added) && t.idle() && !tr.Idle && !tr.Zero { // a draining server may have to be added again, without a weight
				tr.Idle, d.changed = true, true
			}
		}
	}
	d.remember()
}

// tracesOf returns an entry's traces, in the order of the sockets.
func (d *Driver) tracesOf(e *entry) []*trace {
	if e.At == nil {
		e.At = map[string]*trace{}
	}
	traces := make([]*trace, len(d.opts.Sockets))
	for i, socket := range d.opts.Sockets {
		if e.At[socket] == nil {
			e.At[socket] = &trace{}
		}
		traces[i] = e.At[socket]
	}
	return traces
}

// unborn marks a server that is out of service only because Quell has not put it in service yet.
func (d *Driver) unborn(e *entry) {
	for _, tr := range d.tracesOf(e) {
		*tr = trace{Out: true, Idle: true}
	}
}

// adopt notes that a server that was there before Quell has the weight 0.
func (d *Driver) adopt(e *entry, views []*view) {
	traces := d.tracesOf(e)
	for _, v := range views {
		if v != nil && v.servers[e.Server] != nil && v.servers[e.Server].weight == 0 {
			traces[v.index].Zero, traces[v.index].ZeroIn = true, v.info.process()
		}
	}
}

// heldHere describes an instance that is out of service in HAProxy. HAProxy does not record the time.
func heldHere(why string) *quell.Held { return &quell.Held{By: "haproxy", Why: why} }

// zeroWeight is why a server with the weight 0 is out of service.
const zeroWeight = "its weight is 0"

// outEverywhere returns whether a server that Quell never managed is out of service in every HAProxy that has it, and why if no command
// took it out.
func outEverywhere(name string, views []*view) (why string, out bool) {
	for _, v := range views {
		if v == nil || v.servers[name] == nil {
			continue
		}
		s := v.servers[name]
		switch other := s.outside(); {
		case s.forced() != "":
		case other != "":
			why = cmp.Or(why, other)
		case s.weight == 0:
			why = cmp.Or(why, zeroWeight)
		default:
			return "", false
		}
	}
	return why, true
}

// Release puts an instance back in service that a person took out in HAProxy. The next Apply carries it out. It cannot put back an instance
// that something else keeps out.
func (d *Driver) Release(_ context.Context, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.entries {
		if e.ID != id {
			continue
		}
		found := false
		for _, tr := range d.tracesOf(e) {
			if tr.ByHand != "" || tr.Zero {
				*tr, found = trace{Process: tr.Process, Out: true, Idle: true}, true
			}
		}
		if why := d.away[id]; why != "" && !found {
			return errors.New(why + ": it gets requests as soon as that ends")
		}
		d.remember()
		return nil
	}
	return fmt.Errorf("no server of HAProxy stands for %s", id)
}
