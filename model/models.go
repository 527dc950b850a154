// Package model holds what Quell learns by training: how long a probe takes without neighbours, how response time
// depends on utilisation and severity, and how severity depends on a neighbour's use. It fits these tables to
// training runs, reads and writes them as models.json, and predicts from them. Its functions are pure, except for those that
// take a file's name.
package model

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/stats"
)

// Format is the format name in the models.json that this package reads and writes.
const Format = "quell-models/1"

// Models is everything that was learned for one service on one instance type.
type Models struct {
	Trained  *Trained  // nil if unknown
	Sections []Section // at most one of each kind

	// Kept holds unknown sections by name, as they were read. They are written back unchanged.
	Kept map[string]json.RawMessage
}

// Trained describes where models come from.
type Trained struct {
	At           time.Time                  `json:"at,omitzero"`
	Service      string                     `json:"service,omitempty"`
	InstanceType string                     `json:"instance_type,omitempty"`
	Metric       quell.Metric               `json:"metric,omitempty"`
	Rows         int                        `json:"rows,omitempty"`        // number of training runs used
	PerRequest   map[quell.Resource]float64 `json:"per_request,omitempty"` // utilisation per request per second
	Errors       map[quell.Resource]Errors  `json:"errors,omitempty"`      // the models' errors, as the fit measured them

	By map[quell.Resource]quell.Probing `json:"by,omitempty"` // how the machines were probed
}

// Limits of a table's values, which keep every prediction finite.
const (
	maxValue   = 1e9  // milliseconds or severity; larger than any real value
	minProbeMS = 1e-6 // smallest R_iso; Eq. 1 divides by it
)

// Validate returns an error that joins a *quell.InvalidError for each rule the models break.
func (m *Models) Validate() error {
	var c check
	if t := m.Trained; t != nil {
		c.trained(t)
	}
	for _, s := range m.Sections {
		s.check(&c)
	}
	return c.err()
}

func (c *check) trained(t *Trained) {
	if t.Metric != "" && !slices.Contains(quell.Metrics, t.Metric) {
		c.addf("trained.metric", "unknown metric %q", t.Metric)
	}
	c.atLeast("trained.rows", float64(t.Rows), 0)
	for _, r := range sortedKeys(t.PerRequest) {
		path := "trained.per_request." + string(r)
		c.resource(path, r)
		if v := t.PerRequest[r]; !(v > 0) || v > maxValue {
			c.addf(path, "%v is not a positive number", v)
		}
	}
	for _, r := range sortedKeys(t.By) {
		c.resource("trained.by."+string(r), r)
		if by := t.By[r]; !by.Sound() {
			c.addf("trained.by."+string(r)+".bytes", "%d is no size of a probe", by.Bytes)
		}
	}
	for _, r := range sortedKeys(t.Errors) {
		c.resource("trained.errors."+string(r), r)
	}
}

// hasStatistic returns whether a latency has any statistic that a metric can name.
func hasStatistic(l quell.Latency) bool {
	return slices.ContainsFunc(quell.Metrics, func(m quell.Metric) bool { _, ok := l.Of(m); return ok })
}

// weightOf returns the weight of a row: its number of runs, or 1 if that is not given.
func weightOf(runs int) float64 { return float64(max(runs, 1)) }

// pooled sorts weighted points, and merges points with the same x into one at their weighted mean. So the result does not
// depend on the order of a table's rows.
func pooled(points []point) []point {
	slices.SortStableFunc(points, func(a, b point) int { return cmp.Compare(a.x, b.x) })
	var out []point
	for _, p := range points {
		if n := len(out); n > 0 && out[n-1].x == p.x {
			out[n-1] = merge(out[n-1], p)
			continue
		}
		out = append(out, p)
	}
	return out
}

// point is a table's row as a point of a function.
type point struct{ x, y, weight float64 }

// merge pools two points at their weighted means.
func merge(a, b point) point {
	mean := func(p, q float64) float64 {
		return stats.WeightedMean([]stats.Weighted{{Value: p, Weight: a.weight}, {Value: q, Weight: b.weight}})
	}
	return point{x: mean(a.x, b.x), y: mean(a.y, b.y), weight: a.weight + b.weight}
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
