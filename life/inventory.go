package life

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
)

// Inventory records which instances a scaler lists. This shows for how long each instance has cost, and which ordered ones are not
// listed yet.
// The controller stores it for restarts. Times that are read back have no monotonic part, and must be converted to this process's clock
// with Anchor.
type Inventory struct {
	EndedMS int64           `json:"ended_ms,omitempty"` // sum of the stays that are no longer stored
	Stays   map[string]Stay `json:"stays,omitempty"`    // by instance; ended ones are kept for a while
	Orders  []Order         `json:"orders,omitempty"`   // the oldest first
}

// Stay is the time for which an instance costs: from its start command to its exit.
type Stay struct {
	From  time.Time `json:"from"`
	Until time.Time `json:"until,omitzero"` // zero if the instance still runs
	UID   string    `json:"uid,omitempty"`
	Left  bool      `json:"left,omitempty"` // the scaler was told to stop it: another instance that gets its id was ordered
}

// Order is a command to start instances, of which some are not listed yet.
type Order struct {
	At    time.Time `json:"at"`
	Count int       `json:"count,omitempty"` // number of instances without a name
	IDs   []string  `json:"ids,omitempty"`   // those that the scaler named
	For   string    `json:"for,omitempty"`   // the instance to be replaced; empty: the group grows
	// Overdue says that its instances are no longer waited for. They may still come, so they count against group.max until the order is
	// forgotten.
	Overdue bool `json:"overdue,omitempty"`
}

// leastDoubt is how long an order at least counts against group.max. The lists of some providers are minutes late.
const leastDoubt = 5 * time.Minute

// Doubt returns for how long instances of an order that are not listed count against group.max: for so long they may still come.
func Doubt(startup time.Duration) time.Duration { return max(4*startup, leastDoubt) }

// missing returns how many instances of an order are not listed yet.
func (o *Order) missing() int { return o.Count + len(o.IDs) }

// overdueText says that an order's instances are no longer waited for.
func (o *Order) overdueText(now time.Time, startup time.Duration) string {
	text := fmt.Sprintf("%d instance(s) ordered %v ago", o.missing(), now.Sub(o.At).Round(time.Second))
	if len(o.IDs) > 0 {
		text += " (named: " + strings.Join(o.IDs, ", ") + ")"
	}
	return text + fmt.Sprintf(" never appeared in the scaler's list: they are no longer waited for. "+
		"They may still come, and count against group.max for %v from the order. "+
		"Look at what starts and lists instances; group.startup is %v", Doubt(startup), startup)
}

// NewInventory returns an empty Inventory.
func NewInventory() *Inventory { return &Inventory{Stays: map[string]Stay{}} }

// Anchor converts every stored time to the present clock with the given function.
func (r *Inventory) Anchor(on func(time.Time) time.Time) {
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

// Order records that n instances are about to be ordered. The Inventory must be stored before the scaler is called, so that after a
// crash the next controller waits for these instances. inPlaceOf is the instance that they are to replace, or "" if the group grows.
func (r *Inventory) Order(now time.Time, n int, inPlaceOf string) {
	r.Orders = append(r.Orders, Order{At: now, Count: n, For: inPlaceOf})
}

// Answer records the scaler's answer to the last order: the instances that it named, and its error. It returns how many instances of the
// order are to come, or may come, without having been named. After an error, these are none, unless it is a quell.UnsureError.
func (r *Inventory) Answer(ids []string, err error) (later int) {
	o := &r.Orders[len(r.Orders)-1]
	o.Count = max(0, o.Count-len(ids))
	if err != nil && !errors.As(err, new(*quell.UnsureError)) {
		o.Count = 0
	}
	o.IDs = slices.Clone(ids)
	later = o.Count
	r.dropFilled()
	return later
}

func (r *Inventory) dropFilled() {
	r.Orders = slices.DeleteFunc(r.Orders, func(o Order) bool { return o.missing() == 0 })
}

// Coming returns how many instances that were ordered so that the group grows are not listed yet, and are waited for.
func (r *Inventory) Coming() int { return r.ComingFor("") }

// ComingFor returns how many instances that were ordered to replace the instance old are not listed yet, and are waited for.
func (r *Inventory) ComingFor(old string) int {
	return r.count(func(o *Order) bool { return !o.Overdue && o.For == old })
}

// MayCome returns how many instances that were ordered are not listed, are no longer waited for, and may still come.
func (r *Inventory) MayCome() int { return r.count(func(o *Order) bool { return o.Overdue }) }

// count returns how many instances of these orders are not listed yet.
func (r *Inventory) count(these func(*Order) bool) (n int) {
	for i := range r.Orders {
		if o := &r.Orders[i]; these(o) {
			n += o.missing()
		}
	}
	return n
}

// Release turns orders that were to replace the instance old into orders that let the group grow.
func (r *Inventory) Release(old string) {
	for i := range r.Orders {
		if r.Orders[i].For == old {
			r.Orders[i].For = ""
		}
	}
}

// Overdue ends the waiting for orders whose instances have been missing for longer than startup, and returns these orders. An order whose
// instances can no longer come is forgotten.
func (r *Inventory) Overdue(now time.Time, startup time.Duration) (late []Order) {
	for i := range r.Orders {
		if o := &r.Orders[i]; !o.Overdue && now.Sub(o.At) > startup {
			o.Overdue = true
			late = append(late, *o)
		}
	}
	r.Orders = slices.DeleteFunc(r.Orders, func(o Order) bool { return now.Sub(o.At) > Doubt(startup) })
	return late
}

// remembered is how long the stay of an instance that is no longer listed is kept. So an instance that is missing from the list only for a
// while is not counted twice.
const remembered = time.Hour

// Look records what the scaler lists now. An instance costs from the start that the scaler reports. If it is listed as failed, it costs
// until the exit that the scaler reports, or else until now. If it is no longer listed, it costs until now, which is too long by at most
// the time between two calls of Look. An instance that was not listed before is taken to come from an order: from the order that names it,
// or else from the oldest order that waits for instances without a name. Some scalers use ids again: so is one that gets the id of one that
// was stopped, and one that runs and that an order names although it was listed before. Look returns these instances.
func (r *Inventory) Look(now time.Time, members []quell.Member) (came []Arrival) {
	listed := make(map[string]bool, len(members))
	for i := range members {
		m := &members[i]
		listed[m.ID] = true
		stay, known := r.Stays[m.ID]
		if stay.Left && stay.UID != "" && m.UID != "" && stay.UID != m.UID {
			r.EndedMS += stay.ms(now)
			stay, known = Stay{}, false
		}
		if !known || m.State != quell.Failed && r.named(m.ID) {
			if a, ordered := r.arrived(m.ID); ordered {
				came = append(came, a)
			}
		}
		if !known {
			stay.From = within(time.Time{}, m.Started, now)
		}
		switch runs := m.State != quell.Failed; {
		case runs && !stay.Until.IsZero():
			r.EndedMS += stay.ms(now)
			stay = Stay{From: now}
		case !runs && stay.Until.IsZero():
			stay.Until = within(stay.From, m.Exited, now)
		case known && (m.UID == "" || m.UID == stay.UID):
			continue
		}
		stay.UID = cmp.Or(m.UID, stay.UID)
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

// leaves notes that the scaler was told to stop an instance.
func (r *Inventory) leaves(id string) {
	if stay, known := r.Stays[id]; known && !stay.Left {
		stay.Left = true
		r.Stays[id] = stay
	}
}

// named returns whether the scaler's answer to an order named an instance that the order still waits for.
func (r *Inventory) named(id string) bool {
	return slices.ContainsFunc(r.Orders, func(o Order) bool { return slices.Contains(o.IDs, id) })
}

// within limits the reported time told to the range from earliest to now. If no time is reported, it returns now.
func within(earliest, told, now time.Time) time.Time {
	switch {
	case told.IsZero() || told.After(now):
		return now
	case told.Before(earliest):
		return earliest
	}
	return told
}

// Arrival is an instance that came from an order.
type Arrival struct {
	ID    string
	For   string // the instance that it is to replace; empty: the group grows
	Named bool   // the scaler's answer to the order named it
}

// arrived removes an instance that is listed for the first time from the order that it came from. ordered is false if there is none.
func (r *Inventory) arrived(id string) (a Arrival, ordered bool) {
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

// ms returns the length of the stay in whole milliseconds, so that a sum of stays does not depend on their order.
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
	MS      int64 // instance-milliseconds until that moment
	Running int   // instances that still run
}

// Cost returns the cost of the group until now, from its stays.
func (r *Inventory) Cost(now time.Time) Cost {
	c := Cost{At: now, MS: r.EndedMS}
	for _, s := range r.Stays {
		c.MS += s.ms(now)
		if s.Until.IsZero() {
			c.Running++
		}
	}
	return c
}

// Seconds returns the instance-seconds until now, if the same instances have run since the moment of the Cost.
func (c Cost) Seconds(now time.Time) float64 {
	return float64(c.MS)/1000 + float64(c.Running)*max(0, now.Sub(c.At).Seconds())
}
