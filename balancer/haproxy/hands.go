package haproxy

import (
	"context"
	"fmt"

	"github.com/quellhq/quell"
)

// trace is what is known about an instance's server in one HAProxy: whether somebody took it out of service, and who.
//
// A server that is out of service was taken out by a person, unless Quell took it out or HAProxy started with it out of service: in every
// new process, slots and servers added at run time begin in maintenance. A state that a person set is never undone. If a process lost it at
// a restart, it is set again there. If a server is put in service in the same process, a person has put it back.
type trace struct {
	Process string `json:"process,omitempty"` // the process in which it was last seen in service
	Out     bool   `json:"out,omitempty"`     // Quell took it out, or has not put it in service yet; stored before Quell does so
	ByHand  string `json:"by_hand,omitempty"` // drain or maint: the state that a person set
	Seen    string `json:"seen,omitempty"`    // the process in which that state was last seen
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

// follow updates the trace from the server's present state.
func (tr *trace) follow(process string, s *server, t *target) {
	state := s.forced()
	switch {
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

// held returns whether a state that a person set is in force, or will be set again.
func (t *target) held(v *view) bool { return t.serves() && t.byHand(v) != "" }

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
			if t := &targets[k]; t.held(v) && d.inServiceElsewhere(t, views) {
				d.once(i, t.server,
					"somebody took a server out here and not in the other HAProxies: it is left so, and its instance goes on behind the others")
			}
		}
	}
	d.remember()
}

func (d *Driver) inServiceElsewhere(t *target, views []*view) bool {
	for _, v := range views {
		if v != nil && v.servers[t.server] != nil && !t.held(v) {
			return true
		}
	}
	return false
}

// disclaim records which servers Quell itself is about to take out of service.
func (d *Driver) disclaim(targets []target) {
	for i := range targets {
		for _, tr := range targets[i].traces {
			if !targets[i].serves() && !tr.Out && tr.ByHand == "" {
				tr.Out, d.changed = true, true
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
		*tr = trace{Out: true}
	}
}

// heldHere describes an instance that a person took out in HAProxy. HAProxy does not record the time.
func heldHere() *quell.Held { return &quell.Held{By: "haproxy"} }

// outEverywhere returns whether a server that Quell never managed is out of service in every HAProxy that has it.
func outEverywhere(name string, views []*view) bool {
	for _, v := range views {
		if v != nil && v.servers[name] != nil && v.servers[name].forced() == "" {
			return false
		}
	}
	return true
}

// Release puts an instance back in service that a person took out in HAProxy. The next Apply carries it out.
func (d *Driver) Release(_ context.Context, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.entries {
		if e.ID != id {
			continue
		}
		for _, tr := range d.tracesOf(e) {
			if tr.ByHand != "" {
				*tr = trace{Process: tr.Process, Out: true}
			}
		}
		d.remember()
		return nil
	}
	return fmt.Errorf("no server of HAProxy stands for %s", id)
}
