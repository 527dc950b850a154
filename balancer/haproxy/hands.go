package haproxy

import (
	"context"
	"fmt"

	"github.com/quellhq/quell"
)

// trace is what is known of an instance's server in one HAProxy: who took it out, if anybody did.
//
// A server that is out is out by hand, unless Quell took it out, or HAProxy began with it so: slots and servers added at
// run time begin in maintenance with every new process. What was set by hand is never undone, and done again in a process
// that forgot it at a restart. A server that is put in service in the same process has been put back by hand.
type trace struct {
	Process string `json:"process,omitempty"` // in which it was last seen in service
	Out     bool   `json:"out,omitempty"`     // Quell took it out, or has not put it in service yet; kept before that is done
	ByHand  string `json:"by_hand,omitempty"` // drain or maint: the state that somebody else set
	Seen    string `json:"seen,omitempty"`    // the process in which that was last seen
}

// States of a server that are set by hand, as `set server ... state` calls them.
const (
	drainState = "drain"
	maintState = "maint"
)

// forced is the state that was set through the runtime API or the configuration; empty where none was.
func (s *server) forced() string {
	switch {
	case s.admin&forcedMaint != 0:
		return maintState
	case s.admin&forcedDrain != 0:
		return drainState
	}
	return ""
}

// follow brings the trace up to a look at the server.
func (tr *trace) follow(process string, s *server, t *target) {
	state := s.forced()
	switch {
	case tr.forgotten(process, state, t): // it is done again
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

// forgotten says whether a new process lacks the state that was set by hand in the one before.
func (tr *trace) forgotten(process, state string, t *target) bool {
	return tr.ByHand != "" && tr.Seen != process && (state == "" || t.begins && state != tr.ByHand)
}

// traceAt is the trace in a HAProxy; nil for a server that stands for no instance.
func (t *target) traceAt(v *view) *trace {
	if v.index >= len(t.traces) {
		return nil
	}
	return t.traces[v.index]
}

// byHand is the state that somebody else set in a HAProxy.
func (t *target) byHand(v *view) string {
	if tr := t.traceAt(v); tr != nil {
		return tr.ByHand
	}
	return ""
}

// held says whether somebody else's state is in force, or about to be again.
func (t *target) held(v *view) bool { return t.serves() && t.byHand(v) != "" }

// notice follows all servers of a view, and says whether anything is new.
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

// noticeAll follows the servers of all views and keeps what is new.
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

// disclaim notes, before it is done, what Quell itself takes out.
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

// tracesOf are an entry's, in the order of the sockets.
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

// unborn marks a server that is out because Quell has not put it in service yet.
func (d *Driver) unborn(e *entry) {
	for _, tr := range d.tracesOf(e) {
		*tr = trace{Out: true}
	}
}

// heldHere is what is told of an instance that somebody took out in HAProxy. Since when is not known there.
func heldHere() *quell.Held { return &quell.Held{By: "haproxy"} }

// outEverywhere says whether a server that Quell was never told about is out of service in every HAProxy that has it.
func outEverywhere(name string, views []*view) bool {
	for _, v := range views {
		if v != nil && v.servers[name] != nil && v.servers[name].forced() == "" {
			return false
		}
	}
	return true
}

// Release puts an instance back that somebody took out in HAProxy: the next Apply does it.
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
