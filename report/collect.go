package report

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/switchback"
)

// Decision is a recorded plan.
type Decision struct {
	Plan    *quell.Plan
	Mode    quell.Mode
	Applied bool // it was carried out, or nothing had to be
}

// row is an instance in one period. What is absent is NaN.
type row struct {
	instance  int32
	resource  int8 // index in quell.Resources; -1: unknown
	flags     uint8
	n         float32 // requests
	use       float32
	severity  float32
	log       float32 // of the response time in milliseconds
	weight    float32 // in force
	planned   float32 // by the plan
	base      float32 // the weight that people gave it
	capacity  float32
	predicted float32 // logarithm of the response time that the plan predicted
	residual  float32 // set by the analysis: what the law leaves unexplained
	smooth    float32 // and its mean over the last periods
	beside    float32 // the use by neighbours, likewise
}

// Flags of a row.
const (
	failing  uint8 = 1 << iota // it answers with errors, or its health check fails
	works                      // its own work is told apart
	felt                       // interference was found there
	stays                      // it is in the plan
	inOrder                    // it is in rotation
	released                   // its requests cost more than before
)

// period is one snapshot.
type period struct {
	at       time.Time
	seconds  float64
	from, to int // rows
	planned  bool
	acts     bool
	limited  bool // the plan was limited by guard.step
	add      int  // instances more or fewer by the plan
	failures bool
}

// mostRows is how many rows are analysed together. More are analysed in several parts, so that memory stays bounded.
const mostRows = 1 << 20

// Collector gathers records. Add must be called in the order in which they were recorded.
type Collector struct {
	o       Options
	ids     []string
	index   map[string]int32
	periods []period
	rows    []row
	totals  totals
	cost    releases
	compare *switchback.Collector
	last    time.Time
	gaps    int
	gapS    float64
	back    int
	begun   bool
	refused int // snapshots of another service
	none    int // snapshots without a plan
}

// New returns an empty collector.
func New(o Options) *Collector {
	o.Currency = cmp.Or(o.Currency, defaultUnit)
	return &Collector{o: o, index: map[string]int32{}, totals: newTotals(), compare: switchback.Collect(switchback.For(o.Service))}
}

// leastGap is how many periods may pass between two snapshots before that counts as a gap.
const leastGap = 3

// Add takes a snapshot, with the decision that was made on it; nil if none was recorded.
func (c *Collector) Add(s *quell.Snapshot, d *Decision) {
	if s.Service != c.o.Service.Name {
		c.refused++
		return
	}
	c.compare.Add(s)
	seconds := c.o.Service.Sampling.Seconds()
	if c.begun {
		passed := s.At.Sub(c.last).Seconds()
		switch {
		case passed <= 0:
			c.back++
			c.cut()
		case passed > leastGap*seconds:
			c.gaps++
			c.gapS += passed - seconds
			c.cut()
		}
	}
	c.begun, c.last = true, s.At
	p := period{at: s.At, seconds: seconds, from: len(c.rows)}
	if d != nil && d.Plan != nil {
		p.planned = true
		p.acts = d.Applied && d.Mode == quell.Act && d.Plan.Authority != quell.AuthorityAdvise && !(s.Turn != nil && s.Turn.Back)
		if g := group(d.Plan); g != nil {
			p.add = g.Add - len(g.Remove)
		}
		p.limited = slices.ContainsFunc(d.Plan.Reasons, func(r quell.Reason) bool { return r.Code == "step" })
	} else {
		c.none++
	}
	for i := range s.Instances {
		in := &s.Instances[i]
		if in.State == quell.Failed {
			p.failures = true
		}
		if in.State == quell.Ready {
			c.rows = append(c.rows, c.row(in, d, seconds))
		}
	}
	p.to = len(c.rows)
	c.cost.follow(c, &p, s)
	c.periods = append(c.periods, p)
	if len(c.rows) >= mostRows {
		c.cut()
	}
}

// group returns the change of the group that the policy wanted.
func group(p *quell.Plan) *quell.GroupChange {
	if p.Would != nil && p.Would.Group != nil {
		return p.Would.Group
	}
	return p.Group
}

// weights returns the shares that the policy wanted.
func weights(p *quell.Plan) map[string]float64 {
	if p.Would != nil && len(p.Would.Weights) > 0 {
		return p.Would.Weights
	}
	return p.Weights
}

var nan = float32(math.NaN())

func isNaN(v float32) bool { return math.IsNaN(float64(v)) }

func orNaN(v *float64) float32 {
	if v == nil {
		return nan
	}
	return float32(*v)
}

func (c *Collector) number(id string) int32 {
	n, ok := c.index[id]
	if !ok {
		n = int32(len(c.ids))
		c.ids = append(c.ids, id)
		c.index[id] = n
	}
	return n
}

// row takes what a snapshot and a plan say of an instance.
func (c *Collector) row(in *quell.Instance, d *Decision, seconds float64) row {
	r := row{instance: c.number(in.ID), resource: -1, n: nan, use: nan, severity: 0, log: nan, weight: orNaN(in.Weight), planned: nan,
		base: float32(in.BaseWeight()), capacity: nan, predicted: nan, residual: nan, smooth: nan}
	resource := c.o.Resource
	if in.Held == nil {
		r.flags |= inOrder
	}
	if d != nil && d.Plan != nil {
		resource = r.judge(in.ID, d.Plan, resource)
	}
	r.observe(in.Observation, resource, seconds, c.o.Service.SLO.Metric)
	if o := in.Observation; in.Health != "" || o != nil && o.ErrorRate != nil && *o.ErrorRate > max(c.o.Service.Guard.ErrorRate, 0.01) {
		r.flags |= failing
	}
	return r
}

// judge takes what a plan says of an instance, and returns the resource that limits it.
func (r *row) judge(id string, p *quell.Plan, resource quell.Resource) quell.Resource {
	if cause, ok := p.Cause[id]; ok {
		resource = cause
		r.flags |= felt
	}
	if w, ok := weights(p)[id]; ok {
		r.planned, r.flags = float32(w), r.flags|stays
	}
	if v, ok := p.Severity[id]; ok {
		r.severity = float32(max(0, v))
	}
	if v, ok := p.Capacity[id]; ok {
		r.capacity = float32(v)
	}
	if v, ok := p.PredictedMS[id]; ok && v > 0 {
		r.predicted = float32(math.Log(v))
	}
	if _, ok := p.OwnWork[id]; ok {
		r.flags |= works
	}
	return resource
}

// observe takes what was measured at an instance.
func (r *row) observe(o *quell.Observation, resource quell.Resource, seconds float64, metric quell.Metric) {
	if o == nil {
		return
	}
	r.resource = int8(slices.Index(quell.Resources, resource))
	if u, ok := o.Utilization[resource]; ok {
		r.use = float32(min(max(u, 0), mostUse))
	}
	if o.WindowS > 0 {
		seconds = o.WindowS
	}
	if o.RequestRate != nil {
		r.n = float32(*o.RequestRate * seconds)
	}
	if ms, ok := o.LatencyMS.Of(metric); ok && ms > 0 {
		r.log = float32(math.Log(ms))
		if o.LatencyMS.N > 0 {
			r.n = float32(o.LatencyMS.N)
		}
	}
}

// mostUse bounds a utilisation: above it a reading says little about what is left.
const mostUse = 0.97

// Report concludes.
func (c *Collector) Report() *Report {
	c.cut()
	return c.conclude()
}
