package life

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Memory is what must be remembered of a group over a restart, in the form in which it is stored. Whoever changes it for a command that may
// be undone replaces its maps and lists.
type Memory struct {
	Draining  map[string]time.Time  `json:"draining,omitempty"`  // when each instance that leaves was removed
	Leavers   map[string]Identity   `json:"leavers,omitempty"`   // which instances these are: their ids may be used again
	Drained   map[string]time.Time  `json:"drained,omitempty"`   // since when those of them get no new requests that the balancer drains
	Held      map[string]quell.Held `json:"held,omitempty"`      // taken out with quell drain
	ByHand    map[string]quell.Held `json:"by_hand,omitempty"`   // taken out at the balancer
	Replacing []Replacement         `json:"replacing,omitempty"` // in the order in which they will be carried out
	Replaced  time.Time             `json:"replaced,omitzero"`   // when the last replacement that a plan asked for was accepted
	Inventory *Inventory            `json:"roll,omitempty"`      // which instances are listed and ordered, and what instances cost
}

// NewMemory returns the memory of a group of which nothing is known.
func NewMemory() Memory {
	return Memory{Draining: map[string]time.Time{}, Held: map[string]quell.Held{}, ByHand: map[string]quell.Held{}, Inventory: NewInventory()}
}

// Void forgets what plans and people have begun: drains of instances that the scaler is not ending, and replacements, whose new instances
// stay.
func (m *Memory) Void(ending map[string]time.Time) {
	draining := map[string]time.Time{}
	for id, since := range m.Draining {
		if _, ends := ending[id]; ends {
			draining[id] = since
		}
	}
	inventory := *m.Inventory
	inventory.Orders = slices.Clone(inventory.Orders)
	for i := range m.Replacing {
		inventory.Release(m.Replacing[i].Old)
	}
	m.Draining, m.Replacing, m.Inventory = draining, nil, &inventory
}

// noteDrained notes since when instances that leave get no new requests. If one gets some again, as after a restart of a balancer, its time
// begins anew with the next drain.
func (m *Memory) noteDrained(now time.Time, backends map[string]quell.BackendState) {
	before := m.Drained
	m.Drained = nil
	for id := range m.Draining {
		b, known := backends[id]
		if !known || !away(&b) {
			continue
		}
		quell.Put(&m.Drained, id, cmp.Or(before[id], now))
	}
}

// Fleet follows a group from one look at scaler and balancer to the next. Beside its memory it has what is known only while one process
// looks. It reads no clock, and asks nobody. Its methods are not safe for concurrent use.
type Fleet struct {
	*Memory
	Members []quell.Member         // as of the last look
	Out     map[string]TakenOut    // those that a person took out of rotation, as of the last look
	Missing map[string]*Missing    // those that the scaler no longer lists
	Last    map[string]quell.State // their states in the last snapshot
	Ending  map[string]time.Time   // those that the scaler was told to stop, and when it had done so; zero: not yet
	Stuck   Refusals               // those that the scaler could not stop
	Waits   string                 // what the present replacement waits for
	Forgot  bool                   // the memory was empty: the next look adopts what people took out at the balancer
	Weights SetWeights             // those that were set at the balancer
	gone    map[string]time.Time   // those that are known and no members, and since when; see noteGone
	voided  map[string]bool        // members whose drain at the balancer is not to be continued: they were gone, or are protected now
}

// NewFleet returns a group with this memory, at which nobody has looked yet.
func NewFleet(m *Memory) *Fleet {
	f := &Fleet{Memory: m}
	f.Begin()
	return f
}

// Begin forgets what was noted for the one who acted before: since then another one may have acted.
func (f *Fleet) Begin() {
	f.Missing, f.Ending, f.Stuck, f.Waits = map[string]*Missing{}, map[string]time.Time{}, Refusals{}, ""
	f.gone, f.voided, f.Weights = map[string]time.Time{}, map[string]bool{}, SetWeights{}
}

// Event is something that a person should know.
type Event struct {
	Text    string
	Failure string // the part that does not work; empty: all do
}

// events are collected in their order.
type events []Event

func (e *events) note(format string, args ...any) {
	*e = append(*e, Event{Text: fmt.Sprintf(format, args...)})
}

func (e *events) failed(part, format string, args ...any) {
	*e = append(*e, Event{Text: fmt.Sprintf(format, args...), Failure: part})
}

// View is a group as its scaler and its balancer reported it when they were asked once (a look), with what is remembered of it.
type View struct {
	Members  []quell.Member
	Backends map[string]quell.BackendState
	Leaving  map[string]time.Time   // members that leave, and when they were removed
	Drained  map[string]time.Time   // those of them that get no new requests, and since when
	Out      map[string]TakenOut    // members that a person took out of rotation
	Ending   map[string]time.Time   // members that the scaler was told to stop, and when it had done so; zero: not yet
	Stuck    Refusals               // members that the scaler could not stop
	Coming   int                    // number of instances that were ordered and are not listed yet
	MayCome  int                    // number of ordered instances that are no longer waited for, and may still come
	Places   map[string]string      // members that will replace another one, and the id of that one
	Last     map[string]quell.State // states of members in the last snapshot

	present map[string]bool // the ids of the members
	wait    time.Duration   // how long what is remembered of an instance is kept that is no member
}

// Group returns the members, each with everything that is known about it.
func (v *View) Group() []Instance { return v.Fill(nil) }

// Fill is Group, and reuses the memory of an earlier one.
func (v *View) Fill(group []Instance) []Instance {
	group = group[:0]
	for _, m := range v.Members {
		in := Instance{Member: m, For: v.Places[m.ID], Last: v.Last[m.ID]}
		refused, stuck := v.Stuck[m.ID]
		in.Stuck, in.Again = stuck, refused.again
		in.Backend, in.Known = v.Backends[m.ID]
		_, in.Leaving = v.Leaving[m.ID]
		in.Since = v.Drained[m.ID]
		_, in.Ending = v.Ending[m.ID]
		if h, out := v.Out[m.ID]; out {
			in.Held, in.Ordered = new(h.Held), h.Ordered
		}
		group = append(group, in)
	}
	return group
}

// Holds returns whether a person took the instance out.
func (v *View) Holds(id string) bool {
	_, held := v.Out[id]
	return held
}

// Looking is what a look depends on.
type Looking struct {
	Sampling  time.Duration
	Startup   time.Duration // how long ordered instances may take to be listed
	Protected []string      // ids of instances that are never removed
	Listed    bool          // a person wrote the scaler's list, so it is not wrong
	Leads     bool          // the one who looks ordered the instances, and gives up waiting for them
	Acts      bool          // and sets weights at the balancer
}

// EndWait limits one attempt to stop instances, and the time in which instances are gone from the scaler's list after they were stopped. It
// is long because instances get time to end by themselves.
const EndWait = 5 * time.Minute

// Look takes in what scaler and balancer report, and returns what a person should know of it, in order.
func (f *Fleet) Look(now time.Time, members []quell.Member, states []quell.BackendState, how Looking) (View, []Event) {
	var told events
	for id := range f.Ending {
		f.Inventory.leaves(id)
	}
	f.findLingering(now, members, &told)
	v := View{Members: members, Backends: make(map[string]quell.BackendState, len(states)), Leaving: f.Draining, Ending: f.Ending,
		Stuck: f.Stuck, Last: f.Last, present: make(map[string]bool, len(members)), wait: MissingWait(how.Sampling)}
	for i := range members {
		v.present[members[i].ID] = true
	}
	for _, s := range states {
		v.Backends[s.ID] = s
	}
	findSuccessors(f, &v, &told)
	if !how.Listed {
		f.keepMissing(now, &v, &told)
	}
	f.protect(how.Protected)
	f.noteGone(now, &v)
	f.noteDrained(now, v.Backends)
	v.Drained = f.Drained
	f.Members = v.Members
	f.takeInventory(now, &v, how, &told)
	f.findHolds(now, &v, &told)
	f.Weights.look(now, states, how.Acts, &told)
	return v, told
}

// findLingering finds instances that the scaler stopped without an error and lists all the same. They are stopped again.
func (f *Fleet) findLingering(now time.Time, members []quell.Member, told *events) {
	for _, m := range members {
		at, ending := f.Ending[m.ID]
		if !ending || at.IsZero() || now.Sub(at) < EndWait {
			continue
		}
		delete(f.Ending, m.ID)
		f.Stuck[m.ID] = Refusal{}
		told.failed("apply", "%s was stopped %v ago, and the scaler still lists it: stopping it again", m.ID, EndWait)
	}
}

// protect keeps instances that a plan removed before they were protected, unless the scaler is ending them already. A drain that the
// balancer has of them is of such a plan.
func (f *Fleet) protect(ids []string) {
	for _, id := range ids {
		if _, ending := f.Ending[id]; ending {
			continue
		}
		delete(f.Draining, id)
		delete(f.Stuck, id)
		f.voided[id] = true
	}
}

// takeInventory compares the scaler's list with its previous list and with the orders. It reports orders that produced no instance.
func (f *Fleet) takeInventory(now time.Time, v *View, how Looking, told *events) {
	list := f.Inventory
	for _, a := range list.Look(now, v.Members) {
		f.Name(a.For, a.ID)
		if how.Leads && !a.Named { // the scaler names instances late, or the process that ordered this one was killed
			told.note("started %s: the scaler lists it now, and it was ordered before", a.ID)
		}
	}
	if how.Leads {
		for _, late := range list.Overdue(now, how.Startup) {
			text := late.overdueText(now, how.Startup)
			told.failed("scaler", "%s", text)
			told.note("%s", text)
		}
	}
	v.count(f.Memory)
}

// count updates in a view which instances are ordered and which will replace others.
func (v *View) count(m *Memory) {
	v.Coming, v.MayCome, v.Places = m.Inventory.Coming(), m.Inventory.MayCome(), m.places()
}

// Remove makes an instance drain. It returns false if it drains already.
func (f *Fleet) Remove(now time.Time, id string) (began bool) {
	if _, already := f.Draining[id]; already {
		return false
	}
	drain(f, now, id)
	return true
}

// drain notes that an instance leaves, and which one it is as of the last look: another one may have its id at the next.
func drain(f *Fleet, now time.Time, id string) {
	f.Draining[id] = now
	if i := slices.IndexFunc(f.Members, func(m quell.Member) bool { return m.ID == id }); i >= 0 {
		leavers := map[string]Identity{}
		maps.Copy(leavers, f.Leavers)
		leavers[id] = identity(&f.Members[i])
		f.Leavers = leavers
	}
}

// Follow lists the steps that give a group its shares, and forgets instances that are gone. It continues drains that an earlier process
// began but could not store, except of instances that were gone or are protected. limit has the same meaning as in Instance.Next.
func (f *Fleet) Follow(now time.Time, v *View, group []Instance, weights map[string]float64, limit time.Duration, steps *Steps) {
	for i := range group {
		in := &group[i]
		if in.Orphaned() && !f.voided[in.Member.ID] {
			in.Leaving = true
			drain(f, now, in.Member.ID)
		}
	}
	steps.Refill(now, group, weights, limit)
	f.forgetGone(now, v)
}

// forgetGone forgets what is remembered of instances that are gone: at once if the scaler has stopped them, and otherwise when they have
// been gone for a while, because the list may be wrong. It forgets nothing of one that the scaler is stopping.
func (f *Fleet) forgetGone(now time.Time, v *View) {
	for id, since := range f.gone {
		if _, ending := f.Ending[id]; stopping(f, id) || !ending && now.Sub(since) < v.wait {
			continue
		}
		delete(f.Draining, id)
		delete(f.Ending, id)
		delete(f.Held, id)
		delete(f.ByHand, id)
	}
	maps.DeleteFunc(f.Stuck, func(id string, _ Refusal) bool { return !v.present[id] })
}

// Alive returns how many instances count against group.max.
func (f *Fleet) Alive(v *View) (n int) {
	for i := range v.Members {
		m := &v.Members[i]
		if _, leaving := f.Draining[m.ID]; !leaving && m.State != quell.Failed {
			n++
		}
	}
	return n
}

// Crowded returns whether one instance more could be too many, because of instances that cannot be stopped, or should all orders that are
// not known to have failed have worked. A replacement may exceed the group's bound by one.
func (f *Fleet) Crowded(v *View, bound int) bool {
	list := f.Inventory
	if list.MayCome() == 0 && len(v.Stuck) == 0 {
		return false
	}
	return list.Coming()+list.MayCome()+len(v.Stuck)+f.Alive(v) > bound
}

// NoteStates keeps the states of a snapshot's instances until the next one.
func (f *Fleet) NoteStates(s *quell.Snapshot) {
	f.Last = make(map[string]quell.State, len(s.Instances))
	for i := range s.Instances {
		f.Last[s.Instances[i].ID] = s.Instances[i].State
	}
}
