package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
)

// unlisted is an instance that the scaler no longer lists although the balancer finds it healthy. The list may be wrong, for example if a
// program fails silently, and answered requests prove that the instance works. So it still gets requests. It is given up when its health
// checks fail, too, or, at most one per decision, when it has been missing for missingWait while listed instances get requests. An empty
// list is never believed while the balancer finds an instance healthy.
type unlisted struct {
	member  quell.Member
	since   time.Time
	givenUp bool
}

// Reporter is a scaler that may have problems that a person should know about.
type Reporter interface {
	Report() error
}

// missingWait returns how long a healthy instance may be missing from the scaler's list.
func missingWait(sampling time.Duration) time.Duration { return max(10*sampling, 30*time.Second) }

// keepMissing adds instances to the members that the balancer knows but the scaler does not list, until they are given up.
func (c *Controller) keepMissing(ctx context.Context, v *view) {
	if c.opts.Listed {
		return
	}
	listed := map[string]quell.Member{}
	for _, m := range c.members {
		listed[m.ID] = m // its data when it was last listed
	}
	now := map[string]bool{}
	for _, m := range v.members {
		now[m.ID] = true
	}
	for _, id := range slices.Sorted(maps.Keys(v.backends)) {
		b := v.backends[id]
		_, leaving := c.mem.Draining[id]
		_, ending := c.ending[id]
		if now[id] || leaving || b.Draining || b.Foreign || ending {
			continue
		}
		if c.unlisted[id] == nil && b.Healthy {
			c.miss(ctx, id, listed[id], b)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.unlisted)) {
		switch m, b := c.unlisted[id], v.backends[id]; {
		case now[id]:
			delete(c.unlisted, id)
			c.note(ctx, id+" is listed by the scaler again")
		case b.ID == "":
			delete(c.unlisted, id)
			if !m.givenUp {
				c.note(ctx, id+" is gone: the scaler does not list it and the balancer does not have it any more")
			}
		case !b.Healthy && !m.givenUp:
			delete(c.unlisted, id)
			c.note(ctx, id+" is given up: the scaler does not list it and the balancer does not find it healthy")
		case !m.givenUp:
			v.members = append(v.members, m.member)
		}
	}
}

// miss begins to keep an instance in rotation that the scaler no longer lists.
func (c *Controller) miss(ctx context.Context, id string, was quell.Member, b quell.BackendState) {
	if was.ID == "" {
		was = quell.Member{ID: id, Address: b.Address, Probe: b.Probe, State: quell.Ready}
	}
	if was.Address == "" {
		return // its address is unknown
	}
	c.unlisted[id] = &unlisted{member: was, since: c.now()}
	c.note(ctx, fmt.Sprintf("%s is missing from the scaler's list, and the balancer finds it healthy: it goes on serving", id))
}

// askScaler asks the scaler for problems that it reports, counts them and shows them.
func (c *Controller) askScaler() {
	if r, ok := c.opts.Scaler.(Reporter); ok {
		if err := r.Report(); err != nil {
			c.failed("scaler", err)
		}
	}
}

// judgeMissing reports missing instances, and gives up an instance that has been missing for too long. It runs before a decision.
func (c *Controller) judgeMissing(ctx context.Context, v *view) {
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(c.unlisted)) {
		if !c.unlisted[id].givenUp {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return
	}
	wait := missingWait(c.opts.Service.Sampling)
	others := slices.ContainsFunc(v.members, func(m quell.Member) bool {
		b := v.backends[m.ID]
		return c.unlisted[m.ID] == nil && m.State == quell.Ready && b.Healthy && !b.Draining && !v.holds(m.ID)
	})
	text := "the scaler does not list " + strings.Join(ids, ", ") + ", which the balancer finds healthy: serving on, "
	if others {
		text += fmt.Sprintf("and giving up what is missing for %v, one with each decision. Look at the scaler's list", wait)
	} else {
		text += "because nothing else would be left. Look at the scaler's list"
	}
	c.failed("list", errors.New(text))
	oldest := slices.MinFunc(ids, func(a, b string) int { return c.unlisted[a].since.Compare(c.unlisted[b].since) })
	if m := c.unlisted[oldest]; others && c.acting() && c.now().Sub(m.since) >= wait {
		m.givenUp = true
		v.members = slices.DeleteFunc(v.members, func(m quell.Member) bool { return m.ID == oldest })
		c.note(ctx, fmt.Sprintf("%s is given up: the scaler has not listed it for %v", oldest, c.now().Sub(m.since).Round(time.Second)))
	}
}
