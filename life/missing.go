package life

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
)

// Missing is an instance that the scaler no longer lists although the balancer finds it healthy. The list may be wrong, for example if a
// program fails silently, and answered requests prove that the instance works. So it still gets requests. It is given up when its health
// checks fail, too, or, at most one per decision, when it has been missing for MissingWait while listed instances get requests. An empty
// list is never believed while the balancer finds an instance healthy. One that a person took out of rotation stays out as long, healthy or
// not.
type Missing struct {
	Since   time.Time
	member  quell.Member
	givenUp bool
}

// MissingWait returns how long a healthy instance may be missing from the scaler's list.
func MissingWait(sampling time.Duration) time.Duration { return max(10*sampling, 30*time.Second) }

// keepMissing adds instances to the members that the balancer knows but the scaler does not list, until they are given up.
func (f *Fleet) keepMissing(now time.Time, v *View, told *events) {
	for _, id := range slices.Sorted(maps.Keys(v.Backends)) {
		b := v.Backends[id]
		_, leaving := f.Draining[id]
		_, ending := f.Ending[id]
		if v.present[id] || leaving || ending || b.Foreign || f.Missing[id] != nil {
			continue
		}
		if f.holds(id) || b.Healthy && !b.Draining {
			f.miss(now, b, told)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(f.Missing)) {
		switch m, b := f.Missing[id], v.Backends[id]; {
		case v.present[id]:
			delete(f.Missing, id)
			told.note("%s is listed by the scaler again", id)
		case b.ID == "":
			delete(f.Missing, id)
			if !m.givenUp {
				told.note("%s is gone: the scaler does not list it and the balancer does not have it any more", id)
			}
		case !b.Healthy && !m.givenUp && !f.holds(id):
			delete(f.Missing, id)
			told.note("%s is given up: the scaler does not list it and the balancer does not find it healthy", id)
		case !m.givenUp:
			v.Members = append(v.Members, m.member)
			v.present[id] = true
		}
	}
}

// miss begins to keep an instance as it is that the scaler no longer lists.
func (f *Fleet) miss(now time.Time, b quell.BackendState, told *events) {
	was := quell.Member{ID: b.ID, Address: b.Address, Probe: b.Probe, State: quell.Ready}
	if i := slices.IndexFunc(f.Members, func(m quell.Member) bool { return m.ID == b.ID }); i >= 0 {
		was = f.Members[i] // its data when it was last listed
	}
	if was.Address == "" {
		return // its address is unknown
	}
	f.Missing[b.ID] = &Missing{member: was, Since: now}
	if f.holds(b.ID) {
		told.note("%s is missing from the scaler's list, and a person took it out of rotation: it stays out", b.ID)
		return
	}
	told.note("%s is missing from the scaler's list, and the balancer finds it healthy: it goes on serving", b.ID)
}

// noteGone notes which instances are no members although the balancer has them or something is remembered of them, and since when. If one
// is a member again, the drain that the balancer has of it is void for as long as it lasts: that the instance was gone is why it drains.
// While its id is being stopped, it counts as gone, because whether it is another one is judged after that.
func (f *Fleet) noteGone(now time.Time, v *View) {
	gone, voided := map[string]time.Time{}, map[string]bool{}
	note := func(id string, drains bool) {
		since, was := f.gone[id]
		if !v.present[id] || was && stopping(f, id) {
			gone[id] = cmp.Or(since, now)
		}
		if v.present[id] && (was || f.voided[id]) && drains {
			voided[id] = true
		}
	}
	for id, b := range v.Backends {
		if !b.Foreign {
			note(id, b.Draining)
		}
	}
	for _, ids := range []iter.Seq[string]{maps.Keys(f.Draining), maps.Keys(f.Ending), maps.Keys(f.Held), maps.Keys(f.ByHand)} {
		for id := range ids {
			note(id, false)
		}
	}
	f.gone, f.voided = gone, voided
}

// JudgeMissing reports missing instances that serve, and gives up an instance that has been missing for too long, if the one who looks acts
// or it is one that a person took out and that no longer answers. It is called before a decision.
func (f *Fleet) JudgeMissing(now time.Time, v *View, sampling time.Duration, acting bool) []Event {
	var told events
	var serving, held []string
	for _, id := range slices.Sorted(maps.Keys(f.Missing)) {
		switch {
		case f.Missing[id].givenUp:
		case f.holds(id):
			held = append(held, id)
		default:
			serving = append(serving, id)
		}
	}
	if len(serving)+len(held) == 0 {
		return nil
	}
	wait := MissingWait(sampling)
	others := slices.ContainsFunc(v.Members, func(m quell.Member) bool {
		b := v.Backends[m.ID]
		return f.Missing[m.ID] == nil && m.State == quell.Ready && b.Healthy && !b.Draining && !v.Holds(m.ID)
	})
	switch names := strings.Join(serving, ", "); {
	case len(serving) == 0:
	case others:
		told.failed("list", "the scaler does not list %s, which the balancer finds healthy: serving on, and giving up what is missing for %v, "+
			"one with each decision. Look at the scaler's list", names, wait)
	default:
		told.failed("list", "the scaler does not list %s, which the balancer finds healthy: serving on, because nothing else would be left. "+
			"Look at the scaler's list", names)
	}
	oldest := slices.MinFunc(append(serving, held...), func(a, b string) int { return f.Missing[a].Since.Compare(f.Missing[b].Since) })
	m, ended := f.Missing[oldest], f.holds(oldest) && !v.Backends[oldest].Healthy // a person took it out, and ended it
	if (others && acting || ended) && now.Sub(m.Since) >= wait {
		m.givenUp = true
		delete(v.present, oldest)
		v.Members = slices.DeleteFunc(slices.Clone(v.Members), func(m quell.Member) bool { return m.ID == oldest })
		told.note("%s is given up: the scaler has not listed it for %v", oldest, now.Sub(m.Since).Round(time.Second))
	}
	return told
}
