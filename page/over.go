package page

import (
	"cmp"
	"slices"
	"time"
)

// Over is an instance that neighbours, or its own work, slowed until not long ago.
type Over struct {
	ID    string `json:"id"`
	What  string `json:"what"`  // what slowed it, as it was seen last
	Since int64  `json:"since"` // milliseconds since 1970
	Until int64  `json:"until"` // of the first decision that no longer noticed it
}

// Limits of what is kept after it has ended.
const (
	overFor  = 15 * time.Minute
	mostOver = 5 // shown
	keptOver = 100
)

// past follows which instances are noisy, from decision to decision. The zero value is ready.
type past struct {
	noisy map[string]Noise // by the last decision
	over  []Over           // in the order in which they ended
}

// follow notes what a decision noticed. What it noticed for the first time may be chance, so the end of that is nothing to tell.
func (p *past) follow(at int64, noisy []Noise) {
	now := map[string]Noise{}
	for _, n := range noisy {
		now[n.ID] = n
	}
	p.over = slices.DeleteFunc(p.over, func(o Over) bool {
		_, again := now[o.ID]
		return again || at-o.Until > overFor.Milliseconds() || at < o.Until // the clock was set back
	})
	var ended []Over
	for id, n := range p.noisy {
		if _, still := now[id]; !still && !n.Once && n.Since > 0 {
			ended = append(ended, Over{id, n.What, n.Since, at})
		}
	}
	slices.SortFunc(ended, func(a, b Over) int { return cmp.Compare(a.ID, b.ID) })
	p.over = append(p.over, ended...)
	p.over = p.over[max(0, len(p.over)-keptOver):]
	p.noisy = now
}

// last is what ended last, the newest first.
func (p *past) last() []Over {
	newest := slices.Clone(p.over[max(0, len(p.over)-mostOver):])
	slices.Reverse(newest)
	return newest
}
