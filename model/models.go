// Package model holds what Quell learns by training: how long the probe takes when an instance is alone, what
// response time follows from utilisation and severity, and how severity follows from a neighbour's use. It fits
// these tables from training runs, reads and writes them as models.json, and predicts from them. Pure, except for
// the functions that name a file.
package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/stats"
)

// Format is the tag of the models.json that this package reads and writes.
const Format = "quell-models/1"

// Models is everything that was learned of one service on one instance type. Sections that are absent are nil.
type Models struct {
	Trained      *Trained
	Isolation    map[quell.Resource][]Isolation
	ResponseTime map[quell.Resource][]ResponseTime
	Interference map[quell.Resource][]Interference

	// The other policies' sections, kept as they were read.
	Dial    json.RawMessage
	Ice     json.RawMessage
	MRBurst json.RawMessage
	ACS     json.RawMessage
}

// Trained tells where models come from.
type Trained struct {
	At           time.Time                  `json:"at,omitzero"`
	Service      string                     `json:"service,omitempty"`
	InstanceType string                     `json:"instance_type,omitempty"`
	Metric       quell.Metric               `json:"metric,omitempty"`
	Rows         int                        `json:"rows,omitempty"`        // training runs used
	PerRequest   map[quell.Resource]float64 `json:"per_request,omitempty"` // utilisation per request per second
	Errors       map[quell.Resource]Errors  `json:"errors,omitempty"`      // as the fit measured them

	By map[quell.Resource]quell.Probing `json:"by,omitempty"` // how the machines were probed
}

// Isolation is the probe time of an instance without neighbours at one utilisation.
type Isolation struct {
	Utilization float64 `json:"utilization"`
	ProbeMS     float64 `json:"probe_ms"`       // R_iso
	StddevMS    float64 `json:"stddev_ms"`      // of single probes
	N           int     `json:"n"`              // single probes
	Runs        int     `json:"runs,omitempty"` // absent counts as one
}

// ResponseTime is what requests took at one utilisation and severity.
type ResponseTime struct {
	Utilization float64       `json:"utilization"`
	Severity    float64       `json:"severity"`
	LatencyMS   quell.Latency `json:"latency_ms"`
	Runs        int           `json:"runs,omitempty"` // absent counts as one
}

// Interference is the severity felt at one utilisation while neighbours used Interfering of the same resource.
type Interference struct {
	Utilization float64 `json:"utilization"`
	Interfering float64 `json:"interfering"`
	Severity    float64 `json:"severity"`
	Runs        int     `json:"runs,omitempty"` // absent counts as one
}

// Bounds of what a table may hold: they keep every prediction finite.
const (
	maxValue   = 1e9  // milliseconds or severity; more than any of them can mean
	minProbeMS = 1e-6 // R_iso divides in Eq. 1
)

// Validate returns an error that joins a *quell.InvalidError for each rule the models break.
func (m *Models) Validate() error {
	var c check
	if t := m.Trained; t != nil {
		c.trained(t)
	}
	checkTable(&c, "isolation", m.Isolation, (*check).isolation, sameUtilization)
	checkTable(&c, "response_time", m.ResponseTime, (*check).responseTime, sameState)
	checkTable(&c, "interference", m.Interference, (*check).interference, sameUse)
	return c.err()
}

func sameUtilization(a, b Isolation) bool { return a.Utilization == b.Utilization }

// sameState lets severity 0 repeat in a level: every run that interfered too little to be felt ends there.
func sameState(a, b ResponseTime) bool {
	return a.Utilization == b.Utilization && a.Severity == b.Severity && a.Severity > 0
}

func sameUse(a, b Interference) bool {
	return a.Utilization == b.Utilization && a.Interfering == b.Interfering
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
		if t.By[r].Bytes < 1 {
			c.addf("trained.by."+string(r)+".bytes", "%d is no size of a probe", t.By[r].Bytes)
		}
	}
	for _, r := range sortedKeys(t.Errors) {
		c.resource("trained.errors."+string(r), r)
	}
}

func (c *check) isolation(path string, r Isolation) {
	c.fraction(path+".utilization", r.Utilization)
	c.between(path+".probe_ms", r.ProbeMS, minProbeMS, maxValue)
	c.between(path+".stddev_ms", r.StddevMS, 0, maxValue)
	c.atLeast(path+".n", float64(r.N), 1)
	c.atLeast(path+".runs", float64(r.Runs), 0)
}

func (c *check) responseTime(path string, r ResponseTime) {
	c.fraction(path+".utilization", r.Utilization)
	c.between(path+".severity", r.Severity, 0, maxValue)
	c.latency(path+".latency_ms", r.LatencyMS)
	if !hasStatistic(r.LatencyMS) {
		c.addf(path+".latency_ms", "holds no statistic; give at least one of mean, p50, p90, p95, p99")
	}
	c.atLeast(path+".runs", float64(r.Runs), 0)
}

func (c *check) interference(path string, r Interference) {
	c.fraction(path+".utilization", r.Utilization)
	c.fraction(path+".interfering", r.Interfering)
	c.between(path+".severity", r.Severity, 0, maxValue)
	if r.Interfering == 0 && r.Severity > 0 {
		c.addf(path+".severity", "%v without interference; interfering 0 means severity 0", r.Severity)
	}
	c.atLeast(path+".runs", float64(r.Runs), 0)
}

// hasStatistic says whether a latency holds any number that a metric can name.
func hasStatistic(l quell.Latency) bool {
	return slices.ContainsFunc(quell.Metrics, func(m quell.Metric) bool { _, ok := l.Of(m); return ok })
}

// weightOf is how much a row counts: its runs, or one where they are not given.
func weightOf(runs int) float64 { return float64(max(runs, 1)) }

// pooled sorts weighted points and merges those that share an x into one at their weighted mean, so that what is
// read from a table never depends on the order of its rows.
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

// point is a table's row seen as one value of a function.
type point struct{ x, y, weight float64 }

// merge pools two points at their weighted means.
func merge(a, b point) point {
	mean := func(p, q float64) float64 {
		return stats.WeightedMean([]stats.Weighted{{Value: p, Weight: a.weight}, {Value: q, Weight: b.weight}})
	}
	return point{x: mean(a.x, b.x), y: mean(a.y, b.y), weight: a.weight + b.weight}
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// missing is the error for a section, or a part of one, that a prediction needs.
func missing(section string, r quell.Resource, what string) error {
	return fmt.Errorf("the models lack %s.%s%s: train and fit that resource: %w", section, r, what, quell.ErrNoData)
}
