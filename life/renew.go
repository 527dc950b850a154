package life

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// RulesOf returns the conditions of a service under which a new instance may take over. probed says whether an instance was probed, if the
// policy feels: if it decides by probes.
func RulesOf(service *quell.Service, feels bool, probed func(id string) bool) *Replacing {
	return &Replacing{Startup: service.Group.Startup, SlowStart: service.Guard.SlowStart, Patience: Patience(service),
		Probed: func(id string) bool { return !feels || probed(id) }, Bound: service.Group.Max, Protected: service.Group.Protected}
}

// Replace makes the next step of the present replacement. There is only one at a time, so that the group has at most one instance more than
// its bound. It is called before a decision, so that the decision sees its effects. If turn is Renew, an instance is to be ordered in place
// of the one of r.Old, because of text; otherwise text says that the replacement has ended, and how, "" if it has not.
func (f *Fleet) Replace(now time.Time, v *View, rules *Replacing) (turn Turn, r Replacement, text string) {
	last := f.Waits
	if f.Waits = ""; len(f.Replacing) == 0 {
		return Await, r, ""
	}
	first := &f.Replacing[0]
	turn, why := first.Next(now, v.Group(), f.Inventory.ComingFor(first.Old) > 0, rules)
	switch turn {
	case Await:
		f.Waits = why
		return Await, *first, ""
	case Renew:
		return f.renew(now, v, first, why, rules)
	case TakeOver:
		text = f.takeOver(now, first)
	case Over:
		text = fmt.Sprintf("replacement of %s is over: %s", first.Old, why)
		f.Inventory.Release(first.Old)
	case CallOff:
		if first.New == "" && last != "" {
			why += " (" + last + ")"
		}
		f.drop(now, first.New)
		f.Inventory.Release(first.Old)
		text = fmt.Sprintf("replacement of %s is called off: %s", first.Old, why)
	}
	r = *first
	f.Replacing = slices.Clone(f.Replacing[1:])
	v.count(f.Memory)
	return turn, r, text
}

// renew prepares the order of a new instance. If an earlier attempt ordered an instance that did not work, it removes that instance.
func (f *Fleet) renew(now time.Time, v *View, r *Replacement, why string, rules *Replacing) (Turn, Replacement, string) {
	f.drop(now, r.New)
	if f.Crowded(v, rules.Bound) {
		f.Waits = "instances that were ordered before may still come, or some cannot be stopped, and with another one the group could " +
			"exceed group.max"
		return Await, *r, ""
	}
	r.Order(now)
	why = cmp.Or(why, "asked for by "+r.By)
	f.Waits = "a fresh instance was ordered: " + why
	return Renew, *r, why
}

// takeOver makes the old instance leave, or takes it out of rotation as quell drain does.
func (f *Fleet) takeOver(now time.Time, r *Replacement) string {
	if r.Keep {
		f.TakeOut(r.Old, quell.Held{By: r.By, Since: now, Why: "replaced by " + r.New + ", and kept for a look"})
		return fmt.Sprintf("%s takes the place of %s, which goes on running out of rotation", r.New, r.Old)
	}
	drain(f, now, r.Old)
	return fmt.Sprintf("%s takes the place of %s, which drains", r.New, r.Old)
}

// drop removes a new instance that will not take over, unless a person holds it out of rotation.
func (f *Fleet) drop(now time.Time, fresh string) {
	if fresh != "" && !f.holds(fresh) {
		f.Remove(now, fresh)
	}
}

// places returns which instances will replace which other ones.
func (m *Memory) places() map[string]string {
	places := map[string]string{}
	for i := range m.Replacing {
		if r := &m.Replacing[i]; r.New != "" {
			places[r.New] = r.Old
		}
	}
	return places
}

// Name records which new instance will take the place of an old one.
func (m *Memory) Name(old, fresh string) {
	for i := range m.Replacing {
		if r := &m.Replacing[i]; r.Old == old && r.New == "" {
			r.New = fresh
		}
	}
}

// Freed returns how many instances are coming because those of a snapshot that they were to replace have failed: they join the group like
// other new instances.
func (m *Memory) Freed(s *quell.Snapshot) (coming int) {
	for i := range m.Replacing {
		old := m.Replacing[i].Old
		failed := func(in quell.Instance) bool { return in.ID == old && in.State == quell.Failed }
		if slices.ContainsFunc(s.Instances, failed) {
			coming += m.Inventory.ComingFor(old)
		}
	}
	return coming
}

// AskToReplace adds a replacement to those that will be carried out.
func (m *Memory) AskToReplace(r Replacement) { m.Replacing = append(slices.Clone(m.Replacing), r) }

// Replaceable returns why an instance cannot be replaced, nil if it can. fixed says that the scaler cannot change the group.
func (f *Fleet) Replaceable(v *View, id string, group *quell.Group, fixed bool) error {
	listed := slices.ContainsFunc(v.Members, func(m quell.Member) bool { return m.ID == id })
	under := func(r Replacement) bool { return r.Old == id || r.New == id }
	_, leaving := f.Draining[id]
	switch h, held := v.Out[id]; {
	case !listed:
		return fmt.Errorf("no instance %q; `quell status` lists them", id)
	case fixed:
		return fmt.Errorf("the fleet is fixed (scaler.kind): Quell neither starts nor stops its instances. `quell drain %s` takes this one out "+
			"of rotation", id)
	case leaving:
		return fmt.Errorf("%s is being removed already", id)
	case slices.Contains(group.Protected, id):
		return fmt.Errorf("%s is protected (group.protected): it is never replaced", id)
	case held:
		return fmt.Errorf("%s is held by %s: it is not replaced until `quell undrain %s`", id, h.By, id)
	case slices.ContainsFunc(f.Replacing, under):
		return fmt.Errorf("%s is part of a replacement already; `quell status` shows it", id)
	}
	return nil
}

// fresh returns the instances that a plan wants replaced and that are not being replaced yet.
func (m *Memory) fresh(plan *quell.Plan) (ids []string) {
	for _, id := range plan.Replace {
		_, leaving := m.Draining[id]
		known := slices.ContainsFunc(m.Replacing, func(r Replacement) bool { return r.Old == id })
		if !known && !leaving {
			ids = append(ids, id)
		}
	}
	return ids
}

// WouldReplace describes which replacements a plan asks for, and why an instance cannot be replaced.
func (f *Fleet) WouldReplace(v *View, plan *quell.Plan, group *quell.Group, fixed bool) (words []string) {
	for _, id := range f.fresh(plan) {
		if err := f.Replaceable(v, id, group, fixed); err != nil {
			words = append(words, fmt.Sprintf("not replace %s: %v", id, err))
		} else {
			words = append(words, "replace "+id)
		}
	}
	return words
}

// TakeUp begins the replacements that a plan asks for, one at a time, with at least group.Replace.Every in between. An instance that a
// person holds out of rotation is not replaced by a plan.
func (f *Fleet) TakeUp(now time.Time, v *View, plan *quell.Plan, group *quell.Group, fixed bool) (changes []string, err error) {
	var errs []error
	for _, id := range f.fresh(plan) {
		switch err := f.Replaceable(v, id, group, fixed); {
		case v.Holds(id):
		case err != nil:
			errs = append(errs, fmt.Errorf("replace: %w", err))
		case now.Sub(f.Replaced) >= group.Replace.Every:
			f.Replaced = now
			f.AskToReplace(Replacement{Old: id, By: "policy " + plan.Policy, At: now})
			changes = append(changes, "replace "+id)
		}
	}
	return changes, errors.Join(errs...)
}

// Replacements describes how far the replacements have come.
func (f *Fleet) Replacements() (words []string) {
	for i := range f.Replacing {
		r := &f.Replacing[i]
		text := fmt.Sprintf("replace %s (asked for by %s)", r.Old, r.By)
		switch {
		case i > 0:
			text += ": after " + f.Replacing[0].Old
		case f.Waits != "":
			text += ": " + f.Waits
		}
		words = append(words, text)
	}
	return words
}
