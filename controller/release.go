package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/life"
)

// releases put everything back as it was before Quell.
type releases struct{ *orders }

// Restorer is a balancer that can put back what it had before Quell.
type Restorer interface {
	// Restore puts back weights, and takes away what Quell added. It returns, for people, what it cannot know.
	Restore(ctx context.Context) (unknown []string, err error)
}

// Released is what became of a release. It stays until an operator resumes.
type Released struct {
	By string    `json:"by"`
	At time.Time `json:"at"`
	// Left is what is still to be put back, and why that failed: "balancer", or the id of an instance whose settings are meant.
	Left    map[string]string `json:"left,omitempty"`
	Unknown []string          `json:"unknown,omitempty"` // what cannot be known
}

// Text says what became of a release.
func (r *Released) Text() string {
	text := "released by " + r.By + ": as it was before Quell, until quell resume"
	if len(r.Left) == 0 {
		return text
	}
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(r.Left)) {
		parts = append(parts, id+": "+r.Left[id])
	}
	return text + "; tried again each period: " + strings.Join(parts, "; ")
}

// Earlier is a release that was carried out while no controller ran.
type Earlier interface {
	// Released returns it, nil if there was none.
	Released() (*Released, error)
	// Taken forgets it, because the stored memory has it.
	Taken() error
}

// theBalancer is the balancer's name in Released.Left.
const theBalancer = "balancer"

// releaseAll puts everything back as it was before Quell, and changes nothing from then on, until an operator resumes. What cannot be
// reached is tried again in each period. No decision comes between writing it down and carrying it out.
func (c *releases) releaseAll(ctx context.Context, cmd bus.Command) bus.Reply {
	c.work.Lock()
	defer c.release()
	var shares map[string]float64
	reply := c.changeNow(ctx, "released by "+cmd.By, func(context.Context) error {
		if c.refused != nil {
			return c.refused
		}
		shares = c.mem.Temporary.due()
		c.isReleased(&Released{By: cmd.By, At: c.now(), Left: map[string]string{theBalancer: "not yet"}})
		return nil
	})
	if reply.Error != "" {
		return reply
	}
	ctx, cancel := c.limit(ctx)
	defer cancel()
	if shares != nil { // where the balancer has no record of the weights before Quell, they are those that stay
		if err := c.putShares(ctx, shares); err != nil {
			c.failed("release", err)
		}
	}
	c.putBack(ctx)
	return withRelease(reply, c.mem.Released)
}

// isReleased changes the memory for a release. What agents may have changed is left to be put back. What was planned before is void.
func (c *releases) isReleased(r *Released) {
	for _, id := range c.adjusted() {
		r.Left[id] = "not yet"
	}
	m := &c.mem
	m.Released = r
	m.Paused, m.PausedBy = true, r.By
	m.Overrides, m.Weights, m.Factors, m.Temporary = nil, nil, nil, temporary{}
	m.Held, m.PendingReverts = maps.Clone(m.Held), nil
	clear(m.Held)
	m.Void(c.fleet.Ending)
	clear(c.fleet.Stuck) // whether they can be stopped is seen when something is to be stopped again
}

// releasedEarlier takes over a release that was carried out while no controller ran, unless it was taken over before and could not be
// forgotten. One that cannot be read is one, too: it says that an operator wanted nothing to be changed.
func (c *releases) releasedEarlier(ctx context.Context) {
	if c.opts.Earlier == nil {
		return
	}
	r, err := c.opts.Earlier.Released()
	if err != nil {
		c.log.Warn("a release cannot be read; nothing is changed until quell resume", "error", err)
		r = &Released{By: "somebody", At: c.now()}
	}
	if r == nil {
		return
	}
	c.untaken = true
	if last := c.mem.TakenOver; !last.IsZero() && r.At.Equal(last) {
		return
	}
	r.Left = map[string]string{}
	c.isReleased(r)
	c.mem.TakenOver = r.At
	c.mem.Orders++
	c.event(ctx, "released by "+r.By+" while no controller ran: nothing is changed until quell resume")
	if err := c.save(ctx); err != nil {
		c.failed("memory", err) // the memory is stored with the next decision
	}
}

// forgetEarlier forgets, once the memory is stored, a release that was taken over. If that fails, it is tried again after the next save.
func (c *core) forgetEarlier() {
	if !c.untaken {
		return
	}
	err := c.opts.Earlier.Taken()
	if c.untaken = err != nil; err != nil {
		c.failed("memory", fmt.Errorf("a release is taken over, and what tells of it cannot be removed: %w", err))
	}
}

// withRelease adds what became of a release to the reply to its command.
func withRelease(reply bus.Reply, r *Released) bus.Reply {
	var body struct {
		Done     string    `json:"done"`
		Released *Released `json:"released"`
	}
	if err := json.Unmarshal(reply.Body, &body); err != nil {
		return bus.Reply{Error: err.Error()}
	}
	body.Released = r
	return replyWith(body)
}

// adjusted lists the instances whose agents may have changed settings: those that report any, and those that a policy changed.
func (c *releases) adjusted() []string {
	if c.opts.Agents == nil {
		return nil
	}
	ids := map[string]bool{}
	for _, in := range c.status.Instances {
		if len(in.Settings) > 0 {
			ids[in.ID] = true
		}
	}
	for _, changed := range []changes{c.mem.State.Changed(), c.mem.Fast.Changed()} {
		for id := range changed {
			ids[id] = true
		}
	}
	for id := range c.mem.PendingReverts {
		ids[id] = true
	}
	return slices.Sorted(maps.Keys(ids))
}

// putBack puts back what a release has left. The caller holds c.work.
func (c *releases) putBack(ctx context.Context) {
	r := c.mem.Released
	if r == nil || len(r.Left) == 0 || !c.leading {
		return
	}
	next := &Released{By: r.By, At: r.At, Left: map[string]string{}, Unknown: r.Unknown}
	if _, left := r.Left[theBalancer]; left {
		unknown, err := c.restoreBalancer(ctx)
		next.Unknown = append(slices.Clone(next.Unknown), unknown...)
		if err != nil {
			next.Left[theBalancer] = err.Error()
		}
	}
	c.restoreInside(ctx, r, next)
	c.mem.Released = next
	if maps.Equal(r.Left, next.Left) {
		return
	}
	for id, why := range next.Left {
		c.failed("release", errors.New(id+": "+why))
	}
	if len(next.Left) == 0 {
		text := "everything is as it was before Quell"
		if len(next.Unknown) > 0 {
			text += "; not known: " + strings.Join(next.Unknown, "; ")
		}
		c.event(ctx, text)
	}
	c.remember(ctx)
}

func (c *releases) restoreBalancer(ctx context.Context) (unknown []string, err error) {
	restorer, ok := c.opts.Balancer.(Restorer)
	if !ok {
		return []string{"this balancer has no weights but those that Quell sets: they stay"}, c.endHolds(ctx)
	}
	unknown, err = restorer.Restore(ctx)
	if err != nil {
		return unknown, err
	}
	if owner, ok := c.opts.Balancer.(Ownable); ok {
		err = owner.Disown(ctx)
	}
	return unknown, err
}

// endHolds puts instances back in rotation that quell drain, a training or a plan took out, at a balancer that restores nothing by itself.
func (c *releases) endHolds(ctx context.Context) error {
	v, err := c.look(ctx)
	if err != nil {
		return err
	}
	void := map[string]bool{} // drains of plans
	for _, in := range v.Group() {
		void[in.Member.ID] = in.Orphaned()
	}
	backends := v.Altered(func(b *quell.Backend) {
		if _, held := c.mem.Held[b.ID]; b.Held && !held || void[b.ID] {
			b.Draining, b.Held, b.Weight = false, false, v.LikeOthers(b.ID)
		}
	})
	if !life.Differs(backends, v.Backends) {
		return nil
	}
	return c.setBackends(ctx, backends)
}

// restoreInside lets agents put back settings, all at once. An instance that is gone is forgotten.
func (c *releases) restoreInside(ctx context.Context, r, next *Released) {
	ctx, cancel := context.WithTimeout(ctx, agentWait(c.samplingNow()))
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	for id := range r.Left {
		gone := c.looked && !slices.ContainsFunc(c.fleet.Members, func(m quell.Member) bool { return m.ID == id })
		if id == theBalancer || gone {
			continue
		}
		all.Go(func() {
			if err := c.opts.Agents.Order(ctx, id, bus.Orders{Release: true}); err != nil {
				mu.Lock()
				defer mu.Unlock()
				next.Left[id] = fmt.Sprintf("settings: %v", err)
			}
		})
	}
	all.Wait()
}
