package life

import (
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Roll follows who is listed by a scaler: what instances cost, and which of those that were ordered have not come yet. It is data, to be
// kept over restarts. Times without a monotonic part, as they are read back, are to be brought to this process's clock with Anchor.
type Roll struct {
	EndedMS int64           `json:"ended_ms,omitempty"` // of stays that are no longer remembered
	Stays   map[string]Stay `json:"stays,omitempty"`    // by instance; those that ended for a while longer
	Orders  []Order         `json:"orders,omitempty"`   // the oldest first
}

// Stay is the time for which an instance costs: from its start command to its exit.
type Stay struct {
	From  time.Time `json:"from"`
	Until time.Time `json:"until,omitzero"` // zero: it runs
}

// Order is a command to start instances, of which some are not listed yet.
type Order struct {
	At    time.Time `json:"at"`
	Count int       `json:"count,omitempty"` // of those without a name
	IDs   []string  `json:"ids,omitempty"`   // of those that the scaler named
	For   string    `json:"for,omitempty"`   // the instance whose place it is to take; empty: the group grows
}

// missing is how many of an order are not listed yet.
func (o *Order) missing() int { return o.Count + len(o.IDs) }

// NewRoll is that of a group that nobody has seen yet.
func NewRoll() *Roll { return &Roll{Stays: map[string]Stay{}} }

// Anchor replaces every time by one on the present clock, by a function that says which.
func (r *Roll) Anchor(on func(time.Time) time.Time) {
	if r.Stays == nil {
		r.Stays = map[string]Stay{}
	}
	for id, s := range r.Stays {
		s.From = on(s.From)
		if !s.Until.IsZero() {
			s.Until = on(s.Until)
		}
		r.Stays[id] = s
	}
	for i := range r.Orders {
		r.Orders[i].At = on(r.Orders[i].At)
	}
}

// Order notes that n instances are about to be ordered. It is to be stored before the scaler hears of it: whoever goes on after a crash
// then waits for them. One may be for the place of another instance.
func (r *Roll) Order(now time.Time, n int, inPlaceOf string) {
	r.Orders = append(r.Orders, Order{At: now, Count: n, For: inPlaceOf})
}

// Answer notes what the scaler said to the last order: the instances that it named, and whether the others come later. It says how many do.
func (r *Roll) Answer(ids []string, failed bool) (later int) {
	o := &r.Orders[len(r.Orders)-1]
	o.Count = max(0, o.Count-len(ids))
	if failed {
		o.Count = 0
	}
	o.IDs = slices.Clone(ids)
	later = o.Count
	r.dropFilled()
	return later
}

func (r *Roll) dropFilled() {
	r.Orders = slices.DeleteFunc(r.Orders, func(o Order) bool { return o.missing() == 0 })
}

// Coming is how many instances were ordered for the group to grow and are not listed yet.
func (r *Roll) Coming() int { return r.ComingFor("") }

// ComingFor is how many were ordered to take an instance's place.
func (r *Roll) ComingFor(old string) (n int) {
	for i := range r.Orders {
		if r.Orders[i].For == old {
			n += r.Orders[i].missing()
		}
	}
	return n
}

// Release makes orders for an instance's place ones by which the group grows.
func (r *Roll) Release(old string) {
	for i := range r.Orders {
		if r.Orders[i].For == old {
			r.Orders[i].For = ""
		}
	}
}

// Overdue forgets the orders of which something is missing for longer than startup, and returns them.
func (r *Roll) Overdue(now time.Time, startup time.Duration) []Order {
	n := 0
	for n < len(r.Orders) && now.Sub(r.Orders[n].At) > startup {
		n++
	}
	late := slices.Clone(r.Orders[:n])
	r.Orders = slices.Delete(r.Orders, 0, n)
	return late
}

// remembered is for how long the stay of an instance that is no longer listed is kept: one that a list only lacked for a while is not
// counted twice.
const remembered = time.Hour

// Look takes in what the scaler lists now. An instance costs from the start that the scaler tells; one that was listed as failed costs
// until the exit that it tells, or until now. One that is gone costs until now: its end is late by the time between two looks at most.
// Whoever was not listed before has come of an order: of the one that names it, or else of the oldest that waits for any. Those are
// returned.
func (r *Roll) Look(now time.Time, members []quell.Member) (came []Arrival) {
	listed := make(map[string]bool, len(members))
	for i := range members {
		m := &members[i]
		listed[m.ID] = true
		stay, known := r.Stays[m.ID]
		if !known {
			if a, ordered := r.arrived(m.ID); ordered {
				came = append(came, a)
			}
			stay.From = within(time.Time{}, m.Started, now)
		}
		switch runs := m.State != quell.Failed; {
		case runs && !stay.Until.IsZero():
			r.EndedMS += stay.ms(now)
			stay = Stay{From: now}
		case !runs && stay.Until.IsZero():
			stay.Until = within(stay.From, m.Exited, now)
		case known:
			continue
		}
		r.Stays[m.ID] = stay
	}
	for id, stay := range r.Stays {
		switch {
		case listed[id]:
		case stay.Until.IsZero():
			stay.Until = now
			r.Stays[id] = stay
		case now.Sub(stay.Until) > remembered:
			r.EndedMS += stay.ms(now)
			delete(r.Stays, id)
		}
	}
	return came
}

// within is a time that a scaler tells, not before the earliest that is possible and not after now; now where it tells none.
func within(earliest, told, now time.Time) time.Time {
	switch {
	case told.IsZero() || told.After(now):
		return now
	case told.Before(earliest):
		return earliest
	}
	return told
}

// Arrival is an instance that came of an order.
type Arrival struct {
	ID    string
	For   string // the instance whose place it is to take; empty: the group grows
	Named bool   // the scaler's answer to the order named it
}

// arrived takes an instance that is listed for the first time off an order, if it has come of one.
func (r *Roll) arrived(id string) (a Arrival, ordered bool) {
	a.ID = id
	i := slices.IndexFunc(r.Orders, func(o Order) bool { return slices.Contains(o.IDs, id) })
	if a.Named = i >= 0; !a.Named {
		i = slices.IndexFunc(r.Orders, func(o Order) bool { return o.Count > 0 })
	}
	if i < 0 {
		return a, false
	}
	o := &r.Orders[i]
	a.For = o.For
	if a.Named {
		o.IDs = slices.DeleteFunc(o.IDs, func(other string) bool { return other == id })
	} else {
		o.Count--
	}
	r.dropFilled()
	return a, true
}

// ms is how long the stay has been, in whole milliseconds: sums of them are the same in any order.
func (s *Stay) ms(now time.Time) int64 {
	end := s.Until
	if end.IsZero() {
		end = now
	}
	return max(0, end.Sub(s.From)).Milliseconds()
}

// Cost is what a group has cost at one moment.
type Cost struct {
	At      time.Time
	MS      int64 // instance-milliseconds until then
	Running int   // instances that go on
}

// Cost sums the stays.
func (r *Roll) Cost(now time.Time) Cost {
	c := Cost{At: now, MS: r.EndedMS}
	for _, s := range r.Stays {
		c.MS += s.ms(now)
		if s.Until.IsZero() {
			c.Running++
		}
	}
	return c
}

// Seconds are the instance-seconds at a later moment, if nothing has changed since.
func (c Cost) Seconds(now time.Time) float64 {
	return float64(c.MS)/1000 + float64(c.Running)*max(0, now.Sub(c.At).Seconds())
}
