package model

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/quellhq/quell"
)

// check collects the broken rules of a value, each with its path.
type check struct{ errs []error }

func (c *check) addf(path, format string, args ...any) {
	c.errs = append(c.errs, &quell.InvalidError{Path: path, Problem: fmt.Sprintf(format, args...)})
}

func (c *check) err() error { return errors.Join(c.errs...) }

// within adds the broken rules of a part of the value, whose path is given.
func (c *check) within(path string, err error) {
	for _, broken := range unjoined(err) {
		if invalid := new(quell.InvalidError); errors.As(broken, &invalid) {
			broken = &quell.InvalidError{Path: join(path, invalid.Path), Problem: invalid.Problem}
		}
		c.errs = append(c.errs, broken)
	}
}

func (c *check) between(path string, v, low, high float64) {
	if !(v >= low && v <= high) {
		c.addf(path, "%v is outside %v to %v", v, low, high)
	}
}

func (c *check) fraction(path string, v float64) { c.between(path, v, 0, 1) }

func (c *check) atLeast(path string, v, low float64) {
	if !(v >= low) || !finite(v) {
		c.addf(path, "%v is below %v", v, low)
	}
}

func (c *check) resource(path string, r quell.Resource) {
	if !slices.Contains(quell.Resources, r) {
		c.addf(path, "unknown resource %q", r)
	}
}

func (c *check) latency(path string, l quell.Latency) {
	for _, m := range quell.Metrics {
		if v, ok := l.Of(m); ok {
			c.between(path+"."+string(m), v, 0, maxValue)
		}
	}
	c.atLeast(path+".n", float64(l.N), 0)
}

// checkTable checks every row of a table, and that no two rows of a resource describe the same point.
func checkTable[R any](c *check, section string, tables map[quell.Resource][]R,
	row func(*check, string, R), same func(a, b R) bool) {
	if tables != nil && len(tables) == 0 {
		c.addf(section, "is empty; leave the section out or give rows")
	}
	for _, r := range sortedKeys(tables) {
		path := section + "." + string(r)
		c.resource(path, r)
		rows := tables[r]
		if len(rows) == 0 {
			c.addf(path, "is empty; leave the resource out or give rows")
		}
		for i := range rows {
			at := fmt.Sprintf("%s[%d]", path, i)
			row(c, at, rows[i])
			if j := slices.IndexFunc(rows[:i], func(o R) bool { return same(o, rows[i]) }); j >= 0 {
				c.addf(at, "repeats row [%d]", j)
			}
		}
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
