// Package managed has what drivers of balancers remember of instances in the same way: what was asked for each, which drains are kept over
// a restart of the controller, and what is read back of it. A driver embeds Entry, or Given, in what it stores.
package managed

import (
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
)

// Entry is what the controller asked for an instance.
type Entry struct {
	ID      string `json:"id"`
	Address string `json:"address"` // as it was given
	Probe   string `json:"probe,omitempty"`
	Leaving bool   `json:"leaving,omitempty"` // no longer requested, but the balancer may still have it
	Drain   bool   `json:"drain,omitempty"`   // was requested to drain
	Held    bool   `json:"held,omitempty"`    // because a person asked Quell for it
}

// Of makes the entry of an instance.
func Of(b quell.Backend) Entry {
	e := Entry{ID: b.ID, Address: b.Address}
	e.Ask(b)
	return e
}

// OfMember makes the entry of an instance of a fixed group, for which nothing was asked yet.
func OfMember(m quell.Member) Entry { return Entry{ID: m.ID, Address: m.Address, Probe: m.Probe} }

// Asked returns the entry, so that functions take everything that embeds one.
func (e *Entry) Asked() *Entry { return e }

// Ask notes what is asked for an instance. Its address is the driver's: a new one may be of another server.
func (e *Entry) Ask(b quell.Backend) {
	e.Probe, e.Drain, e.Held, e.Leaving = b.Probe, b.Draining, b.Held, false
}

// Backend returns the instance as it is read back, with a share. A hold counts only while the instance drains.
func (e *Entry) Backend(share float64) quell.Backend {
	return quell.Backend{ID: e.ID, Address: e.Address, Probe: e.Probe, Weight: share, Draining: e.Drain, Held: e.Drain && e.Held}
}

// Remembered is a pointer to what a driver stores of an instance.
type Remembered interface{ Asked() *Entry }

// ByID returns entries by the instance's ID.
func ByID[E Remembered](entries []E) map[string]E {
	byID := make(map[string]E, len(entries))
	for _, e := range entries {
		byID[e.Asked().ID] = e
	}
	return byID
}

// Leave marks all entries as no longer requested, until something is asked for them, and returns them by the instance's ID.
func Leave[E Remembered](entries []E) map[string]E {
	for _, e := range entries {
		e.Asked().Leaving = true
	}
	return ByID(entries)
}

// Addresses returns the address of each instance.
func Addresses[E Remembered](entries []E) map[string]string {
	at := make(map[string]string, len(entries))
	for _, e := range entries {
		at[e.Asked().ID] = e.Asked().Address
	}
	return at
}

// Fixed returns whether an instance is one of a fixed group. Then its server was there before Quell: if it is out, a person took it out.
func Fixed(members []quell.Member, id string) bool {
	return slices.ContainsFunc(members, func(m quell.Member) bool { return m.ID == id })
}

// Sort sorts states by the instance's ID.
func Sort(states []quell.BackendState) {
	slices.SortFunc(states, func(a, b quell.BackendState) int { return strings.Compare(a.ID, b.ID) })
}

// Given is an instance of a balancer that has no memory of its own: what the driver remembers is what the balancer gets.
type Given struct {
	Entry
	Share float64   `json:"share"`
	Since time.Time `json:"since,omitzero"` // when the drain began
}

// Give returns what an instance gets. before is what it got until now, the zero value for a new one: a drain goes on from when it began.
func Give(b quell.Backend, before Given, now time.Time) Given {
	g := Given{Entry: Of(b), Share: b.Weight}
	if !g.Drain {
		return g
	}
	g.Share, g.Since = 0, now
	if before.Drain {
		g.Since = before.Since
	}
	return g
}

// Valid returns whether a stored value is one that Give makes.
func (g *Given) Valid() bool { return g.ID != "" && g.Address != "" && g.Share >= 0 && g.Share <= 1 }

// InFlight returns the requests in progress, given what the balancer reports. If it reports nothing, a drain is open for its whole time.
func (g *Given) InFlight(open int64, reported bool, drain time.Duration, now time.Time) int64 {
	if !reported && g.Drain && now.Sub(g.Since) < drain {
		return 1
	}
	return open
}
