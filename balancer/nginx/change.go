package nginx

import (
	"context"
	"slices"
	"time"

	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/nginx/include"
	"github.com/quellhq/quell/balancer/nginx/record"
)

// target is the wanted line of an entry.
type target struct {
	*record.Entry
	line    *include.Server // its present line; nil: there is none
	foreign bool            // Quell has never managed it
	share   float64
	weight  int
	down    bool
}

// serves returns whether the target gets a share of the requests.
func (t *target) serves() bool { return !t.down && !t.ByHand }

// held returns whether somebody else took the target out, so that its line stays as it is.
func (t *target) held() bool { return t.ByHand && !t.Drain && !t.Leaving }

// wanted returns the wanted lines of all entries. If the weights in force give the shares as precisely as others would, they stay.
func (d *Driver) wanted(ctx context.Context, f *include.File) []target {
	list := make([]target, len(d.entries))
	var shares []float64
	for i, e := range d.entries {
		b := d.asked[e.ID]
		list[i] = target{Entry: e, line: d.find(ctx, f, e.Address), share: b.Weight, down: e.Leaving || e.Drain || b.Weight == 0}
		if list[i].serves() {
			shares = append(shares, b.Weight)
		}
	}
	weights, present := balancer.Lowest(balancer.Whole(shares, mostWeight)), inForce(list)
	if balancer.AsPrecise(present, weights, shares) {
		weights = present
	}
	for i := range list {
		switch t := &list[i]; {
		case t.serves():
			t.weight, weights = weights[0], weights[1:]
		case t.line != nil:
			t.weight = t.line.Weight
		default:
			t.weight = 1
		}
	}
	return list
}

// inForce returns the present weights of the targets that get requests; 0 for those without a line.
func inForce(list []target) (weights []int) {
	for i := range list {
		switch t := &list[i]; {
		case !t.serves():
		case t.line == nil:
			weights = append(weights, 0)
		default:
			weights = append(weights, t.line.Weight)
		}
	}
	return weights
}

// change brings the file and nginx to what is wanted.
func (d *Driver) change(ctx context.Context, f *include.File, list []target) error {
	text, changed, urgent := d.edited(f, list)
	unsure := d.unsure()
	if text == f.Text && !urgent && !unsure {
		d.waiting.Report(nil)
		return nil
	}
	wait, why := d.master.TooSoon(urgent, unsure, time.Now())
	if d.waiting.Report(why); wait {
		return nil
	}
	err := d.load(ctx, f, text, func() {
		for _, t := range changed {
			t.Wrote(t.weight, t.down)
		}
	})
	if err != nil {
		return err
	}
	d.entries = slices.DeleteFunc(d.entries, func(e *record.Entry) bool { return e.Leaving && e.Added })
	d.settled()
	return nil
}

// edited returns the new text, the targets whose lines change, and whether that change can not wait.
func (d *Driver) edited(f *include.File, list []target) (text string, changed []target, urgent bool) {
	edit := f.Edit()
	for i := range list {
		t := &list[i]
		switch {
		case t.held():
			continue
		case t.line == nil && !t.Leaving && t.Added:
			edit.Add(t.Address, t.weight, t.down, d.opts.Server)
			urgent = true
		case t.line == nil:
			continue
		case t.Leaving && t.Added:
			edit.Remove(t.line)
			urgent = true
		case t.line.Weight != t.weight || t.line.Down != t.down:
			edit.Set(t.line, t.weight, t.down)
			urgent = urgent || t.line.Down != t.down
		default:
			continue
		}
		changed = append(changed, *t)
	}
	text, nobody := edit.Text()
	return text, changed, urgent || nobody
}

// unsure returns whether a change may not be in force.
func (d *Driver) unsure() bool {
	return slices.ContainsFunc(d.entries, func(e *record.Entry) bool { return e.Unsure })
}

// settled notes that what was written is in force.
func (d *Driver) settled() {
	for _, e := range d.entries {
		e.Unsure = false
	}
	d.names.Forget()
	d.checks.Follow(d.known())
}

// load brings the file and nginx to a text. wrote notes in the entries what it says. After an error either nginx was not told, and
// everything is as it was, or its new workers did not come in time: it may still reload, so what was noted stays, and is unsure.
func (d *Driver) load(ctx context.Context, f *include.File, text string, wrote func()) error {
	before := make([]record.Entry, len(d.entries))
	for i, e := range d.entries {
		before[i] = *e
	}
	wrote()
	d.memory.Keep(d.entries)
	if err := d.write(ctx, f, text); err != nil {
		for i := range before {
			*d.entries[i] = before[i]
		}
		d.memory.Keep(d.entries)
		return err
	}
	return d.master.Await(ctx)
}

// write puts the text in the file, lets nginx check it, and tells nginx to reload. If nginx refuses it or can not be told, the old text is
// put back.
func (d *Driver) write(ctx context.Context, f *include.File, text string) error {
	return f.Replace(text, func() error {
		if err := d.master.Check(ctx); err != nil {
			return err
		}
		return d.master.Tell(ctx)
	})
}
