package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/life"
	"github.com/quellhq/quell/policy"
)

// endings ends what is in force for a time, and puts back what was before.
type endings struct{ *group }

// temporary is what is in force for a time and then ends by itself, also if the command that asked for it is gone or another controller has
// taken over. Maps and what pointers lead to are never changed.
type temporary struct {
	Overrides  map[string]TemporaryOverride `json:"overrides,omitempty"`
	Before     map[string]float64           `json:"before,omitempty"`  // the shares before the first of these overrides
	GoBack     bool                         `json:"go_back,omitempty"` // the last override has ended, the shares of before are due
	Authority  *TemporaryAuthority          `json:"authority,omitempty"`
	Holds      map[string]Term              `json:"holds,omitempty"` // of instances in memory.Held
	Comparison *Comparison                  `json:"comparison,omitempty"`
	Tested     []Tested                     `json:"tested,omitempty"` // the last red-line test by night of each instance, the oldest first
}

// TemporaryOverride is a share that a person or a command set for a time. It takes precedence over one without an end.
type TemporaryOverride struct {
	Term
	Weight float64 `json:"weight"`
	By     string  `json:"by"`
}

// TemporaryAuthority is how far the policy may go for a time. What the policy has earned is kept meanwhile.
type TemporaryAuthority struct {
	Term
	Trust policy.Trust `json:"trust"`
}

// Text says what is set, by whom, and until when.
func (a *TemporaryAuthority) Text() string {
	return fmt.Sprintf("%s, set by %s until %s UTC", a.Trust.Level, a.Trust.ByHand, a.Until.UTC().Format(time.TimeOnly))
}

// retimed returns a copy in which next has replaced each term.
func (t temporary) retimed(next func(Term) Term) temporary {
	overrides, holds := maps.Clone(t.Overrides), maps.Clone(t.Holds)
	for id, o := range overrides {
		o.Term = next(o.Term)
		overrides[id] = o
	}
	for id, h := range holds {
		holds[id] = next(h)
	}
	t.Overrides, t.Holds = overrides, holds
	if t.Authority != nil {
		a := *t.Authority
		a.Term = next(a.Term)
		t.Authority = &a
	}
	if t.Comparison != nil {
		x := *t.Comparison
		x.Term = next(x.Term)
		t.Comparison = &x
	}
	t.Tested = slices.Clone(t.Tested)
	for i := range t.Tested {
		t.Tested[i].Rest = next(t.Tested[i].Rest)
	}
	return t
}

// with returns a copy of a map in which one entry is set.
func with[T any](m map[string]T, id string, v T) map[string]T {
	next := map[string]T{}
	maps.Copy(next, m)
	next[id] = v
	return next
}

// without returns a copy of a map that lacks one entry.
func without[T any](m map[string]T, id string) map[string]T {
	next := maps.Clone(m)
	delete(next, id)
	return next
}

// overrides returns the shares that people set, with an end or without.
func (m *memory) overrides() map[string]float64 {
	if len(m.Temporary.Overrides) == 0 {
		return m.Overrides
	}
	all := map[string]float64{}
	maps.Copy(all, m.Overrides)
	for id, o := range m.Temporary.Overrides {
		all[id] = o.Weight
	}
	return all
}

// overrideFor sets a share for a time. If it is the first, the shares of before are kept, to be put back at its end.
func (c *orders) overrideFor(cmd bus.Command) error {
	if why := c.idle(); why != "" {
		return fmt.Errorf("a share can be set for a time only while Quell acts, and nothing is changed now: %s", why)
	}
	t := &c.mem.Temporary
	if t.Comparison != nil {
		return fmt.Errorf("a comparison is in progress until %s UTC, and needs the same shares in all its turns: quell compare stop ends it",
			t.Comparison.Until.UTC().Format(time.DateTime))
	}
	c.mem.setFor(cmd.Instance, TemporaryOverride{newTerm(c.now(), cmd.For()), *cmd.Weight, cmd.By})
	return nil
}

// setFor sets a share for a time.
func (m *memory) setFor(id string, o TemporaryOverride) {
	t := &m.Temporary
	if len(t.Overrides) == 0 && !t.GoBack {
		t.Before = m.Weights
	}
	t.Overrides, t.GoBack = with(t.Overrides, id, o), false
}

// endOverride ends a temporary override. After the last one, the shares of before are to be put back.
func (t *temporary) endOverride(id string) {
	t.Overrides = without(t.Overrides, id)
	t.GoBack = len(t.Overrides) == 0
}

// withShare returns shares in which one has this value, and the others what is left, in the same proportions. Shares without this instance
// are returned as they are.
func withShare(shares map[string]float64, id string, share float64) map[string]float64 {
	own, known := shares[id]
	if !known {
		return shares
	}
	next, sum := map[string]float64{}, 0.0
	for _, other := range shares {
		sum += other
	}
	for other, v := range shares {
		switch {
		case other == id:
			next[other] = share
		case sum > own:
			next[other] = v * max(0, sum-share) / (sum - own)
		default:
			next[other] = max(0, sum-share) / float64(len(shares)-1)
		}
	}
	return next
}

// due returns the shares that temporary overrides are to be followed by, nil if there is none.
func (t *temporary) due() map[string]float64 {
	if len(t.Overrides) == 0 && !t.GoBack {
		return nil
	}
	return t.Before
}

// expire ends what has been in force for its time. The caller holds c.work.
func (c *endings) expire(ctx context.Context) {
	if !c.leading {
		return
	}
	now, t := c.now(), &c.mem.Temporary
	ended := false
	for _, id := range slices.Sorted(maps.Keys(t.Overrides)) {
		if o := t.Overrides[id]; o.over(now) {
			t.endOverride(id)
			c.event(ctx, fmt.Sprintf("weight of %s no longer set to %.3f: the time that %s set is over", id, o.Weight, o.By))
			ended = true
		}
	}
	if a := t.Authority; a != nil && a.over(now) {
		t.Authority = nil
		c.event(ctx, fmt.Sprintf("authority no longer set to %s: the time that %s set is over", a.Trust.Level, a.Trust.ByHand))
		ended = true
	}
	if x := t.Comparison; x != nil && x.over(now) {
		t.Comparison = nil
		c.event(ctx, "the comparison that "+x.By+" began is over: quell compare says what it found")
		ended = true
	}
	for _, id := range slices.Sorted(maps.Keys(t.Holds)) {
		if t.Holds[id].over(now) {
			ended = c.endHold(ctx, id) || ended
		}
	}
	if c.goBack(ctx); ended {
		c.remember(ctx)
	}
}

// mayGoBack returns whether this controller may undo what it did itself, also in a pause or in advise mode.
func (c *core) mayGoBack() bool {
	return c.leading && c.refused == nil && !c.first && c.mem.Lost == "" && c.mem.Released == nil
}

// goBack puts back the shares of before, after the last temporary override. It does so at once and also in a pause, because a pause must
// not make a temporary share a lasting one. If it fails, it is tried again.
func (c *endings) goBack(ctx context.Context) {
	t := &c.mem.Temporary
	if !t.GoBack || !c.mayGoBack() {
		return
	}
	if err := c.putShares(ctx, t.Before); err != nil {
		c.failed("apply", err)
		return
	}
	if t.Before != nil {
		c.mem.Weights = t.Before
	}
	t.Before, t.GoBack = nil, false
}

// putShares sets the weights of backends that are in rotation, and leaves everything else as the balancer has it.
func (c *endings) putShares(ctx context.Context, shares map[string]float64) error {
	v, err := c.look(ctx)
	if err != nil {
		return err
	}
	backends := v.Altered(func(b *quell.Backend) {
		if share, known := shares[b.ID]; known && !b.Draining && !v.Holds(b.ID) {
			b.Weight = share
		}
	})
	if !life.Differs(backends, v.Backends) {
		return nil
	}
	return c.setBackends(ctx, backends)
}

// endHold puts an instance back in rotation whose time is over. It returns false if that must be tried again.
func (c *endings) endHold(ctx context.Context, id string) bool {
	held, was := c.mem.Held[id]
	if was && !c.mayGoBack() {
		return false
	}
	term := c.mem.Temporary.Holds[id]
	c.mem.Held, c.mem.Temporary.Holds = without(c.mem.Held, id), without(c.mem.Temporary.Holds, id)
	if !was {
		return true
	}
	v, err := c.look(ctx)
	if err == nil && !c.acting() { // if it acts, the next call of keep does it
		err = c.setOne(ctx, v, id)
	}
	if err != nil {
		c.failed("apply", err)
		c.mem.Held, c.mem.Temporary.Holds = with(c.mem.Held, id, held), with(c.mem.Temporary.Holds, id, term)
		return false
	}
	c.event(ctx, fmt.Sprintf("%s put back: the time for which %s took it out is over", id, held.By))
	return true
}

// authorizeFor sets for a time how far the policy may go, and ends the watching of its last change.
func (m *memory) authorizeFor(now time.Time, cmd bus.Command) {
	m.State.Trust.Change, m.State.Trust.Undone = nil, nil // it is not watched meanwhile, and much else may have changed by then
	m.Temporary.Authority = &TemporaryAuthority{newTerm(now, cmd.For()),
		policy.Trust{Level: cmd.Level, ByHand: cmd.By, Doubt: m.State.Trust.Doubt}}
}

// lent decides with the authority that is in force for a time. What the policy has earned is in the state before and after; another policy
// has earned nothing. If a change is taken back, the temporary authority ends, and what that costs the policy stays.
func (m *memory) lent(s policy.State, decide func(policy.State) (quell.Plan, policy.State)) (quell.Plan, policy.State) {
	t := m.Temporary.Authority
	if t == nil {
		return decide(s)
	}
	s.Trust, s.Earned = t.Trust, new(s.Trust)
	plan, next := decide(s)
	own := *next.Earned
	if next.Earned = nil; next.Trust.ByHand == "" {
		m.Temporary.Authority = nil
		next.Trust.Harms += own.Harms
		return plan, next
	}
	m.Temporary.Authority = &TemporaryAuthority{t.Term, next.Trust}
	own.Measure, own.Doubt = next.Trust.Measure, next.Trust.Doubt
	next.Trust = own
	return plan, next
}

// trust returns the authority in force.
func (m *memory) trust() *policy.Trust {
	if t := m.Temporary.Authority; t != nil {
		return &t.Trust
	}
	return &m.State.Trust
}
