package model

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/stats"
)

// Together says what the instances of a group carry behind their balancer: the law of Station, fitted to the windows of the running service
// and corrected where there is data.
type Together struct {
	Metric    quell.Metric `json:"metric"`
	R0MS      float64      `json:"r0_ms"`     // mean response time without load and neighbours
	Pooling   float64      `json:"pooling"`   // g
	Exponent  float64      `json:"exponent"`  // k
	Neighbour float64      `json:"neighbour"` // q: R grows with 1/(1-V)^q
	Other     float64      `json:"other"`     // o, as in Law
	Ratio     float64      `json:"ratio"`     // of the metric to the mean without load: where the RatioCurve begins
	Size      float64      `json:"size"`      // usual size of the group
	Held      float64      `json:"held"`      // largest use of the group at which the objective was seen to hold; 0: none yet
	Taken     float64      `json:"taken"`     // typical use by neighbours that are felt
	Disturbed float64      `json:"disturbed"` // share of the windows in which neighbours are felt
	Capacity  float64      `json:"capacity"`  // largest use of a calm group of that size within the objective

	// Busy and Beside are corrections, as logarithms of response times: at the slownesses of busyPoints, and at the neighbours' uses of
	// besidePoints.
	Busy   []float64 `json:"busy,omitempty"`
	Beside []float64 `json:"beside,omitempty"`
}

func (w *Together) check(c *check, path string) {
	if !slices.Contains(quell.Metrics, w.Metric) {
		c.addf(path+".metric", "unknown metric %q", w.Metric)
	}
	c.between(path+".r0_ms", w.R0MS, minProbeMS, maxValue)
	c.between(path+".exponent", w.Exponent, minExponent, steepestLaw)
	c.between(path+".neighbour", w.Neighbour, minExponent, steepestLaw)
	c.between(path+".other", w.Other, 0, steepestLaw)
	c.between(path+".ratio", w.Ratio, minStart, maxValue)
	c.between(path+".size", w.Size, 1, maxValue)
	c.fraction(path+".pooling", w.Pooling)
	c.fraction(path+".held", w.Held)
	c.fraction(path+".taken", w.Taken)
	c.fraction(path+".disturbed", w.Disturbed)
	c.fraction(path+".capacity", w.Capacity)
	for _, x := range slices.Concat(w.Busy, w.Beside) {
		c.between(path+".corrections", x, -maxRefined, maxRefined)
	}
}

// balanced is how the balancer distributes requests.
type balanced struct {
	rule    quell.Scheduling // empty: unknown
	pooling *float64         // told by a person; nil: it is learned
}

// together fits the group's law to the windows; nil if they tell too little.
func (w *Law) together(windows []Window, slo quell.SLO, by balanced) *Together {
	if by.pooling != nil && *by.pooling == 0 {
		return nil // the law of single instances is enough
	}
	t := &Together{Metric: slo.Metric}
	fit, ok := t.fit(w.answers(windows), by)
	if !ok || !(fit.middle() <= narrow) || !t.fitRatio(fit.rows) {
		return nil
	}
	t.refine(fit.rows)
	t.state(fit.rows, slo)
	return t
}

// rule is what a balancer's rule says of pooling and exponent before the first window.
type rule struct{ pooling, exponent stats.Normal }

// priorOf returns what is known of a rule. The values are those of simulated groups (docs/results/group.md). Behind an
// unknown rule, arrivals
// may be random at each instance.
func priorOf(s quell.Scheduling) rule {
	const sure = 0.15
	of := func(pooling, exponent float64) rule {
		return rule{stats.Normal{Mean: pooling, Stddev: sure}, stats.Normal{Mean: exponent, Stddev: sure}}
	}
	switch s {
	case quell.LeastConn, quell.RoundRobin:
		return of(0.9, 1)
	case quell.Random2, quell.EWMA, quell.Prequal:
		return of(0.35, 0.75)
	}
	return of(0, 1)
}

// answered is a window with a response time, as the fit sees it.
type answered struct {
	crowd        Crowd
	taken, other float64
	logMean      float64
	metricMS     float64
	meanMS       float64
	n            float64 // requests
	weight       float64
}

// answers returns the windows that have probes and response times.
func (w *Law) answers(windows []Window) (list []answered) {
	for i := range windows {
		x := &windows[i]
		if x.ProbeN < fewest || x.N < fewest {
			continue
		}
		c, taken := w.crowd(x)
		if taken < SignificantUse { // chance explains it
			taken = 0
		}
		a := answered{crowd: c, taken: taken, other: x.Other, logMean: math.Log(x.MeanMS), meanMS: x.MeanMS, metricMS: x.MetricMS,
			n: float64(x.N)}
		a.weight = 1 / (1/a.n + square(2*misfit))
		if w.free(x.Use, w.felt(x)) < minFree {
			a.weight /= nearlyFull
		}
		list = append(list, a)
	}
	return list
}

// responseFit is a fit of the response time, and the windows that it rests on.
type responseFit struct {
	lineFit
	rows         []answered
	coefficients []float64 // logarithm of R0, exponents: of use, of neighbours, of other resources
	cost         float64   // squared errors, in standard deviations, and distance from the priors
	scale        float64   // by how much windows vary more than their requests explain
}

// priorNeighbour is what is known of the exponent of neighbours: under processor sharing it is 1.
var priorNeighbour = stats.Normal{Mean: 1, Stddev: 0.1}

// poolingSteps are the steps in which pooling is searched, one finer than the other.
var poolingSteps = []float64{0.2, 0.1, 0.05}

// fit fits R0, the pooling, and the exponents of use, of neighbours, and of the severity on other resources. Outliers count less (Huber's
// weights).
func (w *Together) fit(rows []answered, by balanced) (best responseFit, ok bool) {
	prior := priorOf(by.rule)
	if len(rows) < minKnown {
		return best, false
	}
	try := func(pooling, scale float64) responseFit {
		f := fitAt(rows, pooling, prior.exponent, scale)
		f.cost += square((pooling - prior.pooling.Mean) / prior.pooling.Stddev)
		return f
	}
	w.Pooling = prior.pooling.Mean
	if by.pooling != nil {
		w.Pooling = *by.pooling
	}
	best = try(w.Pooling, 0)
	for _, step := range poolingSteps {
		for improves := by.pooling == nil && best.coefficients != nil; improves; {
			improves = false
			for _, pooling := range []float64{max(w.Pooling-step, 0), min(w.Pooling+step, 1)} {
				if f := try(pooling, best.scale); f.coefficients != nil && f.cost < best.cost-1e-6 {
					best, w.Pooling, improves = f, round(pooling), true
					break
				}
			}
		}
	}
	if best.coefficients == nil {
		return best, false
	}
	c := best.coefficients
	w.R0MS = math.Exp(c[0])
	w.Exponent, w.Neighbour = min(max(c[1], minExponent), steepestLaw), min(max(c[2], minExponent), steepestLaw)
	if slices.ContainsFunc(rows, func(a answered) bool { return a.other > 0 }) {
		w.Other = min(max(c[3], 0), steepestLaw)
	}
	return best, finite(w.R0MS) && w.R0MS >= minProbeMS && w.R0MS < maxValue
}

// fitAt fits everything but the pooling. scale is that of an earlier fit, 0 if there is none; costs can be compared only if it is the same.
func fitAt(rows []answered, pooling float64, exponent stats.Normal, scale float64) (f responseFit) {
	prior := []stats.Normal{vague, exponent, priorNeighbour, priorOther}
	a, y, base := make([][]float64, len(rows)), make([]float64, len(rows)), make([]float64, len(rows))
	for i := range rows {
		r := &rows[i]
		use := pooling*r.crowd.Use + (1-pooling)*r.crowd.Own
		a[i] = []float64{1, math.Log1p(WaitFactor(math.Pow(r.crowd.Size, pooling), use)), -math.Log1p(-r.taken), r.other}
		y[i], base[i] = r.logMean, r.weight
	}
	weights, z, fixed := slices.Clone(base), make([]float64, len(rows)), scale > 0
	for range fitRounds {
		c, covariance, ok := stats.Regress(a, y, weights, prior)
		if !ok {
			return responseFit{cost: math.Inf(1), scale: max(scale, 1)}
		}
		f.coefficients, f.covariance = c, covariance
		for i := range y {
			z[i] = math.Abs(y[i]-floats.Dot(c, a[i])) * math.Sqrt(base[i])
		}
		if !fixed {
			sorted := slices.Clone(z)
			slices.Sort(sorted)
			scale = max(1, sorted[len(sorted)/2]/0.6745)
		}
		f.cost = 0
		for i := range z {
			part := min(1, 1.5*scale/max(z[i], 1e-9))
			weights[i] = base[i] / square(scale) * part
			f.cost += part * square(z[i]/scale)
		}
	}
	for i, p := range prior {
		f.cost += square((f.coefficients[i] - p.Mean) / p.Stddev)
	}
	f.rows, f.scale, f.mean = rows, scale, meanCrowding(a, weights)
	return f
}

// fitRatio learns where the ratio of the objective's metric to the mean begins (RatioCurve), by least squares.
func (w *Together) fitRatio(rows []answered) bool {
	if w.Ratio = 1; w.Metric == quell.Mean {
		return true
	}
	const most = 3 // times the exponential's
	end := exponentialRatio[w.Metric]
	var below, squares, ratios float64
	n := 0
	for i := range rows {
		if r := &rows[i]; r.metricMS > 0 {
			bend, ratio := math.Exp(-ratioBend*w.Exponent*w.waits(r)), min(r.metricMS/r.meanMS, most*end)
			below, squares, ratios, n = below+r.weight*bend*(end-ratio), squares+r.weight*bend*bend, ratios+r.weight*ratio, n+1
		}
	}
	if n < minKnown {
		return false
	}
	start := end - below/squares
	if start > end && w.Metric != quell.P50 { // sizes spread more than waiting does: the ratio is the same everywhere
		start = ratios / sumOf(rows, func(r *answered) float64 { return r.weight })
	}
	w.Ratio = round(min(max(start, minStart), most*end))
	return true
}

// minStart is the least ratio of a percentile to the mean.
const minStart = 0.05

func sumOf(rows []answered, of func(*answered) float64) (sum float64) {
	for i := range rows {
		sum += of(&rows[i])
	}
	return sum
}

// waits is the logarithm of 1 + the waiting factor in a window.
func (w *Together) waits(r *answered) float64 {
	use := w.Pooling*r.crowd.Use + (1-w.Pooling)*r.crowd.Own
	return math.Log1p(WaitFactor(math.Pow(r.crowd.Size, w.Pooling), use))
}

const (
	// ownDoubt is the weight of the law itself against windows: its error is about 20%.
	ownDoubt = 1 / (0.2 * 0.2)
	// maxMoved bounds what a single window says of the law: a factor of 2.
	maxMoved = math.Ln2
)

// refine corrects the law where there is data: first by windows without neighbours, then by those with.
func (w *Together) refine(rows []answered) {
	busy, beside := newCorrections(busyPoints), newCorrections(besidePoints)
	s, ratio := w.station(w.Metric), RatioOf(w.Metric, w.Ratio)
	each := func(disturbed bool, to *corrections, at func(r *answered, x float64) float64) {
		for i := range rows {
			r := &rows[i]
			if (r.taken > 0) != disturbed {
				continue
			}
			x := w.Exponent * w.waits(r)
			off := math.Log(r.metricMS) - s.busy.at(x) - s.beside.at(r.taken) - w.Other*r.other
			part := r.weight * (1/r.n + square(2*misfit)) // less than 1 if the resource was nearly full
			to.add(at(r, x), off, part/(square(ratio.At(math.Exp(x)))/r.n+0.01))
		}
	}
	each(false, busy, func(_ *answered, x float64) float64 { return x })
	w.Busy = busy.solve(s.busy.points)
	s = w.station(w.Metric)
	each(true, beside, func(r *answered, _ float64) float64 { return r.taken })
	if w.Beside = beside.solve(s.beside.points); len(w.Beside) > 0 {
		w.Beside[0] = 0 // without neighbours nothing is stretched
	}
}

// corrections gathers by how much windows differ from the law near each of some points.
type corrections struct{ points, sum, weight []float64 }

func newCorrections(points []float64) *corrections {
	return &corrections{points, make([]float64, len(points)), make([]float64, len(points))}
}

// add counts a difference, as a logarithm, at x: in part at each of the two points beside it.
func (c *corrections) add(x, off, weight float64) {
	off = min(max(off, -maxMoved), maxMoved)
	i := 0
	for i+2 < len(c.points) && c.points[i+1] <= x {
		i++
	}
	part := min(max((x-c.points[i])/(c.points[i+1]-c.points[i]), 0), 1)
	c.sum[i], c.weight[i] = c.sum[i]+(1-part)*weight*off, c.weight[i]+(1-part)*weight
	c.sum[i+1], c.weight[i+1] = c.sum[i+1]+part*weight*off, c.weight[i+1]+part*weight
}

// solve returns the correction at each point, so that the line rises; nil if there is none. Beyond the data, responses that are slower than
// the law stay slower by as much, and those that are faster come back to the law.
func (c *corrections) solve(plain []linePoint) []float64 {
	shifts, points := make([]float64, len(c.points)), make([]stats.Weighted, len(c.points))
	last := 0.0
	for i := range c.points {
		shifts[i] = (c.sum[i] + ownDoubt*expected(last)) / (c.weight[i] + ownDoubt)
		last = shifts[i]
		points[i] = stats.Weighted{Value: plain[i].y + shifts[i], Weight: c.weight[i] + ownDoubt}
	}
	touched := false
	for i, y := range stats.Isotonic(points) {
		shifts[i] = round(min(max(y-plain[i].y, -maxRefined), maxRefined))
		touched = touched || math.Abs(shifts[i]) >= minRefined
	}
	if !touched {
		return nil
	}
	return shifts
}

// expected is the correction that is expected beyond a point with the correction last.
func expected(last float64) float64 {
	if last < 0 {
		return last / 2
	}
	return last
}

// state computes the usual size of the group, the use at which the objective was seen to hold, what is known of neighbours, and the largest
// use of a calm group within the objective.
func (w *Together) state(rows []answered, slo quell.SLO) {
	w.Size = usualSize(rows)
	w.Held = round(w.held(rows, slo.ThresholdMS()))
	w.Taken, w.Disturbed = neighbours(rows)
	s := w.station(slo.Metric)
	if waiting, ok := s.Patience(0, slo.ThresholdMS()); ok {
		w.Capacity = round(NewQueue(s.Servers(w.Size)).UseAt(waiting))
	}
}

// usualSize is the mean size of the group in the newest windows.
func usualSize(rows []answered) float64 {
	newest := rows[max(0, len(rows)-ofOneKind):]
	return round(max(sumOf(newest, func(r *answered) float64 { return r.crowd.Size })/float64(len(newest)), 1))
}

// neighbours returns the middle of the neighbours' uses that are felt, and the share of windows in which they are.
func neighbours(rows []answered) (taken, disturbed float64) {
	var uses []float64
	for i := range rows {
		if rows[i].taken > 0 {
			uses = append(uses, rows[i].taken)
		}
	}
	if len(uses) == 0 {
		return 0, 0
	}
	return round(middle(uses)), round(float64(len(uses)) / float64(len(rows)))
}

const (
	// heldIn is in how many windows the objective must have held at a use or above it. One window may be lucky.
	heldIn = 4
	// heldRequests is how many response times such a window needs.
	heldRequests = 10
)

// held returns the largest use at which the objective was seen to hold; 0 if none was.
func (w *Together) held(rows []answered, thresholdMS float64) float64 {
	var uses []float64
	for i := range rows {
		if r := &rows[i]; r.n >= heldRequests && r.metricMS <= thresholdMS {
			uses = append(uses, w.Pooling*r.crowd.Use+(1-w.Pooling)*r.crowd.Own)
		}
	}
	if len(uses) < heldIn {
		return 0
	}
	slices.Sort(uses)
	return min(uses[len(uses)-heldIn], 1)
}

// crowd returns the group of a window as the instance saw it, and the neighbours' use that is felt in it.
func (w *Law) crowd(x *Window) (c Crowd, taken float64) {
	taken = w.interfering(x.Use, w.felt(x))
	own := min(x.Use/(1-taken), maxUse)
	if x.Size <= 1 {
		return Even(1, own), taken
	}
	return Crowd{Size: x.Size, Use: min(x.Crowd, maxUse), Own: own}, taken
}
