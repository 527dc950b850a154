package life

import (
	"fmt"
	"maps"
	"time"

	"github.com/quellhq/quell"
)

// TakenOut describes an instance that a person took out of rotation.
type TakenOut struct {
	quell.Held
	Ordered bool  // by the command quell drain, not at the balancer
	Open    int64 // number of open requests
	Empty   bool  // the balancer has it out of rotation, and no request is open
}

// findHolds finds the members that a person took out of rotation, either with quell drain or at the balancer itself. It tells what changed
// since the last look.
func (f *Fleet) findHolds(now time.Time, v *View, told *events) {
	v.Out = map[string]TakenOut{}
	for i := range v.Members {
		id := v.Members[i].ID
		b, known := v.Backends[id]
		f.seeByHand(now, id, b, known, told)
		if f.Forgot && b.Held {
			f.Held[id] = quell.Held{By: "an earlier controller", Since: now}
		}
		held, ordered := f.Held[id]
		byHand, taken := f.ByHand[id]
		if !ordered {
			held = byHand
		}
		if !ordered && !taken {
			continue
		}
		h := TakenOut{Held: held, Ordered: ordered, Open: b.InFlight, Empty: known && (b.Draining || b.ByHand != nil) && b.InFlight == 0}
		if h.Empty && !f.Out[id].Empty {
			told.note("%s is empty: no request is open there", id)
		}
		v.Out[id] = h
	}
	f.Out, f.Forgot = v.Out, false
}

// seeByHand tells when a person takes one instance out, or puts it back, at the balancer.
func (f *Fleet) seeByHand(now time.Time, id string, b quell.BackendState, known bool, told *events) {
	was, before := f.ByHand[id]
	switch {
	case b.ByHand != nil && !before:
		held := *b.ByHand
		if held.Since.IsZero() {
			held.Since = now
		}
		f.ByHand[id] = held
		told.note("%s", takenOutText(id, held))
	case b.ByHand != nil && b.ByHand.Why != was.Why:
		was.Why = b.ByHand.Why
		f.ByHand[id] = was
		told.note("%s", takenOutText(id, was))
	case before && known && b.ByHand == nil:
		delete(f.ByHand, id)
		told.note("%s was put back at %s after %s", id, was.By, now.Sub(was.Since).Round(time.Second))
	}
}

// takenOutText says that an instance was taken out at the balancer, or took itself out.
func takenOutText(id string, held quell.Held) string {
	if held.Why != "" {
		return fmt.Sprintf("%s is out of rotation at %s: %s. It gets no requests until that ends, and is neither stopped nor replaced", id,
			held.By, held.Why)
	}
	return fmt.Sprintf("%s was taken out of rotation by hand at %s: it gets no requests until it is put back there or with `quell undrain %s`",
		id, held.By, id)
}

// TakeOut takes an instance out of rotation, until somebody puts it back.
func (m *Memory) TakeOut(id string, by quell.Held) {
	m.Held = maps.Clone(m.Held)
	m.Held[id] = by
}

// holds returns whether a person took an instance out of rotation.
func (m *Memory) holds(id string) bool {
	_, ordered := m.Held[id]
	_, byHand := m.ByHand[id]
	return ordered || byHand
}

// PutBack puts an instance back in rotation, whoever took it out.
func (m *Memory) PutBack(id string) {
	m.Held, m.ByHand = maps.Clone(m.Held), maps.Clone(m.ByHand)
	delete(m.Held, id)
	delete(m.ByHand, id)
}
