package credit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/strictjson"
	"github.com/quellhq/quell/stats"
)

// ProfileRow is one window of a profiling run: a line of a profile. One resource was limited, or none.
type ProfileRow struct {
	Limited   quell.Resource             `json:"limited,omitempty"` // absent: nothing
	Limit     float64                    `json:"limit,omitempty"`   // in processors, operations per second or bit/s
	Load      float64                    `json:"load"`              // requests per second, or what programs report
	LatencyMS float64                    `json:"latency_ms"`        // the objective's percentile in the window
	Use       map[quell.Resource]float64 `json:"use"`               // in the same units as limits
}

// Profile predicts response time and use under limits (MRburst, section 3.2.2). For each limited resource it has two regressions: over the
// limit at one load, and over the load at one limit. Their product covers all other pairs, so that only one row and one column of the grid
// of limits and loads need to be measured. Without a limit there is one regression, over the load.
type Profile struct {
	Cells int // pairs of limit and load that were measured
	Grid  int // pairs of all the limits and all the loads that occur

	limited  map[quell.Resource]*limited
	free     effects[curve] // without a limit, by load
	mostLoad float64        // without a limit
}

// limited is what a profile knows of one resource that was limited. u is the reciprocal of the limit.
type limited struct {
	mostU, leastU float64 // of the tightest and of the loosest limit
	mostLoad      float64
	effects       effects[product]
}

// effects are what follows from limit and load, as curves or as products of them. Response time is a function of u, because a narrower
// resource takes longer in proportion to u. Use is a function of the limit, because it grows with it until it is what is asked for.
type effects[C any] struct {
	latency C
	use     map[quell.Resource]C
}

// Constants of profiles.
const (
	latencyQuantile = 0.9  // of the windows' percentiles: nine windows of ten are at most as slow as predicted
	mostFitted      = 80   // rows of one quantile regression, whose time grows with their cube
	curvePoints     = 33   // of a polynomial
	rowsAtEach      = 2    // on average: so many rows of each limit or load say more than a polynomial
	beyondLoad      = 1.05 // loads up to this many times the largest profiled one are predicted
	mostRows        = 1e5
)

// ReadProfile reads a profile, one row per line. Errors begin with the number of the line.
func ReadProfile(r io.Reader) (*Profile, error) {
	lines := strictjson.NewLines("line", r)
	var rows []ProfileRow
	for {
		var row ProfileRow
		err := lines.Next(&row)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = row.check(lines)
		}
		if err != nil {
			return nil, err
		}
		if rows = append(rows, row); len(rows) > mostRows {
			return nil, lines.Errorf("more than %g rows", float64(mostRows))
		}
	}
	return NewProfile(rows)
}

func (r *ProfileRow) check(at *strictjson.Lines) error {
	if r.Limited == "" != (r.Limit == 0) {
		return at.Errorf("limited and limit go together")
	}
	if r.Limited != "" && !slices.Contains([]quell.Resource{quell.CPU, quell.Network, quell.Disk}, r.Limited) {
		return at.Errorf("limited: %q cannot be limited", r.Limited)
	}
	for _, v := range []struct {
		name  string
		value float64
	}{{"limit", r.Limit}, {"load", r.Load}, {"latency_ms", r.LatencyMS}} {
		if !(v.value >= 0 && v.value <= 1e15) {
			return at.Errorf("%s: %v is not from 0 to 1e15", v.name, v.value)
		}
	}
	if r.Load == 0 || r.LatencyMS == 0 || len(r.Use) == 0 {
		return at.Errorf("load, latency_ms or use is missing")
	}
	for _, resource := range quell.Resources {
		if use := r.Use[resource]; !(use >= 0 && use <= 1e15) {
			return at.Errorf("use.%s: %v is not from 0 to 1e15", resource, use)
		}
	}
	return nil
}

// NewProfile fits a profile. It is an error if there is no row without a limit, or if no resource has rows with two limits.
func NewProfile(rows []ProfileRow) (*Profile, error) {
	p := &Profile{limited: map[quell.Resource]*limited{}}
	free := ofLimited(rows, "")
	if len(free) == 0 {
		return nil, fmt.Errorf("no row without a limit: %w", quell.ErrNoData)
	}
	for i := range free {
		p.mostLoad = math.Max(p.mostLoad, free[i].Load)
	}
	var err error
	if p.free, err = fitEffects(free, func(y func(*ProfileRow) float64, tau float64, _ bool) (curve, error) {
		return fitCurve(free, loadOf, y, tau)
	}); err != nil {
		return nil, fmt.Errorf("without a limit: %w", err)
	}
	for _, r := range quell.Resources {
		of := ofLimited(rows, r)
		if len(of) == 0 {
			continue
		}
		if p.limited[r], err = newLimited(of); err != nil {
			return nil, fmt.Errorf("limits of the %s: %w", r, err)
		}
		cells, limits, loads := pairs(of)
		p.Cells, p.Grid = p.Cells+cells, p.Grid+limits*loads
	}
	if len(p.limited) == 0 {
		return nil, fmt.Errorf("no row has a limit: %w", quell.ErrNoData)
	}
	return p, nil
}

func ofLimited(rows []ProfileRow, r quell.Resource) []ProfileRow {
	return slices.DeleteFunc(slices.Clone(rows), func(row ProfileRow) bool { return row.Limited != r })
}

func loadOf(r *ProfileRow) float64  { return r.Load }
func limitOf(r *ProfileRow) float64 { return r.Limit }
func uOf(r *ProfileRow) float64     { return 1 / r.Limit }

// fitEffects fits response time and uses. fit gets what to fit, a quantile, and whether it is a use.
func fitEffects[C any](
	rows []ProfileRow, fit func(y func(*ProfileRow) float64, tau float64, isUse bool) (C, error),
) (e effects[C], err error) {
	if e.latency, err = fit(func(r *ProfileRow) float64 { return r.LatencyMS }, latencyQuantile, false); err != nil {
		return e, fmt.Errorf("response time: %w", err)
	}
	e.use = map[quell.Resource]C{}
	for _, resource := range quell.Resources {
		if !slices.ContainsFunc(rows, func(r ProfileRow) bool { return r.Use[resource] > 0 }) {
			continue
		}
		if e.use[resource], err = fit(func(r *ProfileRow) float64 { return r.Use[resource] }, 0.5, true); err != nil {
			return e, fmt.Errorf("use of the %s: %w", resource, err)
		}
	}
	return e, nil
}

// pairs counts the different pairs of limit and load, the limits, and the loads.
func pairs(rows []ProfileRow) (cells, limits, loads int) {
	type cell struct{ limit, load float64 }
	seen, limitsSeen, loadsSeen := map[cell]bool{}, map[float64]bool{}, map[float64]bool{}
	for i := range rows {
		limit, load := rows[i].Limit, rows[i].Load
		seen[cell{limit, load}], limitsSeen[limit], loadsSeen[load] = true, true, true
	}
	return len(seen), len(limitsSeen), len(loadsSeen)
}

func newLimited(rows []ProfileRow) (*limited, error) {
	l := &limited{leastU: math.Inf(1)}
	for i := range rows {
		l.mostU, l.leastU = math.Max(l.mostU, uOf(&rows[i])), math.Min(l.leastU, uOf(&rows[i]))
		l.mostLoad = math.Max(l.mostLoad, rows[i].Load)
	}
	if l.leastU == l.mostU {
		return nil, fmt.Errorf("all rows have one limit: add rows with another one: %w", quell.ErrNoData)
	}
	load, limit := mostVaried(rows, loadOf, limitOf), mostVaried(rows, limitOf, loadOf)
	byLimit := slices.DeleteFunc(slices.Clone(rows), func(r ProfileRow) bool { return r.Load != load })
	byLoad := slices.DeleteFunc(slices.Clone(rows), func(r ProfileRow) bool { return r.Limit != limit })
	var err error
	l.effects, err = fitEffects(rows, func(y func(*ProfileRow) float64, tau float64, isUse bool) (product, error) {
		x := uOf
		if isUse {
			x = limitOf
		}
		f, errF := fitCurve(byLimit, x, y, tau)
		g, errG := fitCurve(byLoad, loadOf, y, tau)
		return product{f, g, load}, errors.Join(errF, errG)
	})
	return l, err
}

// mostVaried returns the value of one key at which another one has most different values; the smallest such value.
func mostVaried(rows []ProfileRow, key, other func(*ProfileRow) float64) float64 {
	seen := map[float64]map[float64]bool{}
	for i := range rows {
		at := key(&rows[i])
		if seen[at] == nil {
			seen[at] = map[float64]bool{}
		}
		seen[at][other(&rows[i])] = true
	}
	best, most := math.Inf(1), 0
	for at, values := range seen {
		if n := len(values); n > most || n == most && at < best {
			best, most = at, n
		}
	}
	return best
}

// product is f(x) g(load) / g(load_0), where x follows from the limit, and f was fitted at load_0.
type product struct {
	f, g  curve
	load0 float64
}

func (p product) at(x, load float64) float64 {
	base := p.g.at(p.load0)
	if base <= 0 {
		return p.f.at(x)
	}
	return p.f.at(x) * p.g.at(load) / base
}

// curve is a function that never falls, linear between points and constant beyond them.
type curve struct{ xs, values []float64 }

func (c curve) at(x float64) float64 {
	i, found := slices.BinarySearch(c.xs, x)
	switch {
	case found:
		return c.values[i]
	case i == 0:
		return c.values[0]
	case i == len(c.xs):
		return c.values[i-1]
	}
	part := (x - c.xs[i-1]) / (c.xs[i] - c.xs[i-1])
	return c.values[i-1] + part*(c.values[i]-c.values[i-1])
}

// fitCurve goes through the quantile of the rows of each value of x if there are several of most, as a profiler measures them: far from the
// objective, where queues never settle, response times follow no law that would hold near it. Otherwise it is a polynomial.
func fitCurve(rows []ProfileRow, x, y func(*ProfileRow) float64, tau float64) (curve, error) {
	at := map[float64][]float64{}
	for i := range rows {
		at[x(&rows[i])] = append(at[x(&rows[i])], y(&rows[i]))
	}
	xs := slices.Sorted(maps.Keys(at))
	if len(rows) >= rowsAtEach*len(xs) {
		c := curve{xs: xs}
		for _, x := range xs {
			slices.Sort(at[x])
			c.values = append(c.values, stat.Quantile(tau, stat.LinInterp, at[x], nil))
		}
		return c.rising(), nil
	}
	return fitPolynomial(thinned(rows, x), len(xs), x, y, tau)
}

// rising returns the running maxima.
func (c curve) rising() curve {
	for i := range c.values {
		if c.values[i] = math.Max(0, c.values[i]); i > 0 {
			c.values[i] = math.Max(c.values[i], c.values[i-1])
		}
	}
	return c
}

// fitPolynomial fits a polynomial by quantile regression: of degree 2 if x has at least four values, of degree 1 if it has two. Running
// maxima keep it from falling.
func fitPolynomial(rows []ProfileRow, different int, x, y func(*ProfileRow) float64, tau float64) (curve, error) {
	low, high := math.Inf(1), math.Inf(-1)
	for i := range rows {
		low, high = math.Min(low, x(&rows[i])), math.Max(high, x(&rows[i]))
	}
	degree, span := 0, high-low
	switch {
	case different >= 4:
		degree = 2
	case different >= 2:
		degree = 1
	default:
		span = 1
	}
	a, b := make([][]float64, len(rows)), make([]float64, len(rows))
	for i := range rows {
		a[i], b[i] = powers((x(&rows[i])-low)/span, degree), y(&rows[i])
	}
	coefficients, err := stats.QuantileRegression(a, b, tau)
	if err != nil {
		return curve{}, err
	}
	var c curve
	for i := range curvePoints {
		part, sum := float64(i)/(curvePoints-1), 0.0
		for k, term := range powers(part, degree) {
			sum += coefficients[k] * term
		}
		c.xs, c.values = append(c.xs, low+part*span), append(c.values, sum)
	}
	return c.rising(), nil
}

func powers(x float64, degree int) []float64 { return []float64{1, x, x * x}[:degree+1] }

// thinned returns at most about mostFitted rows, spread evenly over the values of x.
func thinned(rows []ProfileRow, x func(*ProfileRow) float64) []ProfileRow {
	if len(rows) <= mostFitted {
		return rows
	}
	sorted := slices.Clone(rows)
	slices.SortStableFunc(sorted, func(a, b ProfileRow) int { return cmp.Compare(x(&a), x(&b)) })
	kept := make([]ProfileRow, mostFitted)
	for i := range kept {
		kept[i] = sorted[i*(len(sorted)-1)/(mostFitted-1)]
	}
	return kept
}

// Prediction is what is expected under a limit.
type Prediction struct {
	LatencyMS float64
	Use       map[quell.Resource]float64
}

// Predict returns what is expected if a resource is limited at a load; a limit of 0 means none. ok is false if the profile does not cover
// the resource, the limit or the load.
func (p *Profile) Predict(r quell.Resource, limit, load float64) (x Prediction, ok bool) {
	if limit == 0 {
		return p.unlimited(load), load <= beyondLoad*p.mostLoad
	}
	l, u := p.limited[r], 1/limit
	if l == nil || load > beyondLoad*l.mostLoad || u > l.mostU*(1+tiny) || u < l.leastU*(1-tiny) {
		return Prediction{}, false
	}
	return l.predict(r, limit, load), true
}

// unlimited predicts what happens without a limit.
func (p *Profile) unlimited(load float64) Prediction {
	x := Prediction{LatencyMS: p.free.latency.at(load), Use: map[quell.Resource]float64{}}
	for resource, use := range p.free.use {
		x.Use[resource] = use.at(load)
	}
	return x
}

func (l *limited) predict(r quell.Resource, limit, load float64) Prediction {
	x := Prediction{LatencyMS: l.effects.latency.at(1/limit, load), Use: map[quell.Resource]float64{}}
	for resource, use := range l.effects.use {
		x.Use[resource] = use.at(limit, load)
	}
	if use, ok := x.Use[r]; ok {
		x.Use[r] = math.Min(use, limit)
	}
	return x
}

// Situation is what a choice of limits depends on.
type Situation struct {
	Load        float64
	ObjectiveMS float64
	Margin      float64 // the predicted response time must be this fraction below the objective
	Buckets     map[quell.Resource]Bucket
	Balances    map[quell.Resource]float64
	Prices      map[quell.Resource]float64 // unlimited mode: dollars for an hour of one unit of use beyond what is earned; else nil
}

// Choice is a limit with what is expected under it.
type Choice struct {
	Limited quell.Resource // "": no limit
	Limit   float64
	Prediction
	Depleted *float64       // seconds until the first balance is spent; nil: none is
	First    quell.Resource // the resource whose balance that is
	USD      float64        // in an hour, beyond the credits, once they are spent; unlimited mode only
}

// Choose returns the limit under which the credits last longest while the objective is kept (MRburst, Eq. 1): for each resource the
// tightest limit that keeps it, and of these the one with the largest depletion time over all resources. In unlimited mode (Prices) it is
// the cheapest one instead. Of equal ones the fastest is chosen. Only the resources in limitable are limited; if there are none, all. ok is
// false if nothing keeps the objective, or the load is not covered: then nothing should be limited.
func (p *Profile) Choose(s Situation, limitable ...quell.Resource) (best Choice, ok bool) {
	most := s.ObjectiveMS * (1 - s.Margin)
	consider := func(c Choice) {
		c.Depleted, c.First = s.depletion(c.Use)
		c.USD = s.price(c.Use)
		if c.LatencyMS <= most*(1+tiny) && (!ok || s.better(c, best)) {
			best, ok = c, true
		}
	}
	if !(s.Load > 0) {
		return best, false
	}
	if s.Load <= beyondLoad*p.mostLoad {
		consider(Choice{Prediction: p.unlimited(s.Load)})
	}
	for _, r := range quell.Resources {
		if len(limitable) > 0 && !slices.Contains(limitable, r) {
			continue
		}
		if c, known := p.Tightest(r, s.Load, most); known {
			consider(c)
		}
	}
	return best, ok
}

// MostLoad is the highest load without a limit that was profiled.
func (p *Profile) MostLoad() float64 { return p.mostLoad }

// Tightest returns the tightest limit of a resource whose predicted response time at a load is at most most, in milliseconds. ok is false
// if there is none, or the profile does not cover the resource or the load.
func (p *Profile) Tightest(r quell.Resource, load, most float64) (c Choice, ok bool) {
	l := p.limited[r]
	if l == nil || load > beyondLoad*l.mostLoad {
		return c, false
	}
	limit := 1 / l.tightest(load, most)
	c = Choice{Limited: r, Limit: limit, Prediction: l.predict(r, limit, load)}
	return c, c.LatencyMS <= most*(1+tiny)
}

// tightest returns the reciprocal of the tightest limit whose predicted response time is at most most, or of the loosest one if none is.
func (l *limited) tightest(load, most float64) float64 {
	if l.effects.latency.at(l.mostU, load) <= most {
		return l.mostU
	}
	low, high := l.leastU, l.mostU
	for range 60 {
		if middle := (low + high) / 2; l.effects.latency.at(middle, load) <= most {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// depletion returns when the first balance is spent at these uses, and whose it is.
func (s *Situation) depletion(use map[quell.Resource]float64) (seconds *float64, first quell.Resource) {
	for _, r := range quell.Resources {
		b, known := s.Buckets[r]
		if !known {
			continue
		}
		if at, ends := b.Depletion(s.Balances[r], use[r]); ends && (seconds == nil || at < *seconds) {
			seconds, first = &at, r
		}
	}
	return seconds, first
}

// price returns what these uses cost in an hour once all credits are spent, in dollars.
func (s *Situation) price(use map[quell.Resource]float64) (dollars float64) {
	for _, r := range quell.Resources {
		if b, known := s.Buckets[r]; known {
			dollars += s.Prices[r] * math.Max(0, use[r]-b.Baseline)
		}
	}
	return dollars
}

// better returns whether a choice is better than another one.
func (s *Situation) better(a, b Choice) bool {
	order := 0
	switch {
	case s.Prices != nil:
		order = cmp.Compare(a.USD, b.USD)
	case a.Depleted == nil || b.Depleted == nil:
		order = cmp.Compare(never(a.Depleted), never(b.Depleted))
	default:
		order = cmp.Compare(*b.Depleted, *a.Depleted)
	}
	return cmp.Or(order, cmp.Compare(a.LatencyMS, b.LatencyMS)) < 0
}

// never is 0 for a time that never comes, else 1.
func never(seconds *float64) int {
	if seconds == nil {
		return 0
	}
	return 1
}
