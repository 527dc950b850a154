package life

import (
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Roll records which instances a scaler lists: what instances cost, and which ordered ones are not listed yet. It is data that is stored
// for restarts. Times read back have no monotonic part and must be converted to this process's clock with Anchor.
type Roll struct {
	EndedMS int64           `json:"ended_ms,omitempty"` // of stays that are no longer stored
	Stays   map[string]Stay `json:"stays,omitempty"`    // by instance; ended ones are kept for a while
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
	Count int       `json:"count,omitempty"` // number of instances without a name
	IDs   []string  `json:"ids,omitempty"`   // those that the scaler named
	For   string    `json:"for,omitempty"`   // the instance to be replaced; empty: the group grows
}

// missing is how many of an order are not listed yet.
func (o *Order) missing() int { return o.Count + len(o.IDs) }

// NewRoll returns an empty one.
func NewRoll() *Roll { return &Roll{Stays: map[string]Stay{}} }

// Anchor converts every stored time to the present clock with the given function.
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

// Order records that n instances are about to be ordered. It is stored before the scaler is called, so that after a crash the next
// controller waits for them. Instances may be ordered to replace another one.
func (r *Roll) Order(now time.Time, n int, inPlaceOf string) {
	r.Orders = append(r.Orders, Order{At: now, Count: n, For: inPlaceOf})
}

// Answer records the scaler's answer to the last order: the named instances, and whether others come later. It returns how many do.
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

// Coming is how many instances that were ordered for the group to grow are not listed yet.
func (r *Roll) Coming() int { return r.ComingFor("") }

// ComingFor is how many were ordered to replace an instance.
func (r *Roll) ComingFor(old string) (n int) {
	for i := range r.Orders {
		if r.Orders[i].For == old {
			n += r.Orders[i].missing()
		}
	}
	return n
}

// Release turns orders for an instance's replacement into orders for the group to grow.
func (r *Roll) Release(old string) {
	for i := range r.Orders {
		if r.Orders[i].For == old {
			r.Orders[i].For = ""
		}
	}
}

// Overdue removes the orders whose instances have been missing for longer than startup, and returns them.
func (r *Roll) Overdue(now time.Time, startup time.Duration) []Order {
	n := 0
	for n < len(r.Orders) && now.Sub(r.Orders[n].At) > startup {
		n++
	}
	late := slices.Clone(r.Orders[:n])
	r.Orders = slices.Delete(r.Orders, 0, n)
	return late
}

// remembered is how long the stay of an instance that is no longer listed is kept, so that one that is only missing from a list for a
// while is not counted twice.
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

// within limits a reported time to the range from the earliest possible one to now; now if none is reported.
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

// ms is the length of the stay in whole milliseconds, so that sums are the same in any order.
func (s *Stay) ms(now time.Time) int64 {
	end := s.Until
	if end.IsZero() {
		end = now
	}
	return max(0, end.Sub(s.From)).Milliseconds()
}

// Cost is the cost of a group at one moment.
type Cost struct {
	At      time.Time
	MS      int64 // instance-milliseconds until then
	Running int   // instances that still run
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
