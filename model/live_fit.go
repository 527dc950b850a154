package model

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/stats"
)

const (
	minExponent = 0.05
	// minKnown are the windows, with probes and with response times, that a law needs.
	minKnown = 4
	// narrow is the standard error of the fitted times at the mean use of the windows, as a fraction, above which no law is stated.
	narrow = 0.15
	// unknownAt is the half width of the interval of a capacity at which nothing is known.
	unknownAt = 0.16
	// maxProbes bounds the probes that a window is tested against, because the law itself is not exact.
	maxProbes = 2000
	// fitRounds is how often outliers are weighed again.
	fitRounds = 8
)

// What is known of the exponents before the first window: processor sharing has 1, and a balancer that sends requests to idle instances
// makes it less. Another resource is a part of the response time only.
var (
	priorProbe    = stats.Normal{Mean: 0.9, Stddev: 0.2}
	priorExponent = stats.Normal{Mean: 0.7, Stddev: 0.3}
	priorSteep    = stats.Normal{Mean: 0.7, Stddev: 0.8}
	priorSeverity = stats.Normal{Mean: 0.9, Stddev: 0.25}
	priorOther    = stats.Normal{Mean: 0.3, Stddev: 0.3}
	vague         = stats.Normal{Mean: 0, Stddev: 1e3}
)

// minStated is the smallest exponent of use that a law states. Behind a balancer, data at low use shows a smaller one. But
// where there is no data yet, arrivals may be as random as Poisson arrivals, with an exponent of 1. Data at that use then corrects the law.
//
// It is the smallest exponent of severity, too, if no other resource is probed. The severity of a window is known from few probes, whose
// errors make the fitted exponent smaller, and the law would promise too much for an instance beside a neighbour. If several resources are
// probed, each is only a part of the response time, and smaller exponents are right.
const minStated = 1

// fit fits the law to the windows; nil if they tell too little. Interference only ever adds, so the times without load come from the calm
// side: the probe from the lower part of all windows, and the response time from windows whose probes show no neighbours. only says that no
// other resource is probed.
func (r *Record) fit(slo quell.SLO, period int, only bool) *Law {
	w := &Law{N: 0, By: r.By}
	probe, ok := w.fitProbe(r.Windows)
	if !ok || !(probe.middle() <= narrow) {
		return nil
	}
	response, ok := w.fitResponse(r.Windows)
	if !ok || !(response.middle() <= narrow) || !w.fitRatio(r.Windows, slo.Metric) {
		return nil
	}
	if r.Shown = w.SeverityExponent; only {
		w.SeverityExponent = max(w.SeverityExponent, minStated)
	}
	if w.Deaf = w.ProbeExponent < deafBelow && spread(r.Windows) > deafOver; w.Deaf {
		w.ProbeExponent = priorProbe.Mean
	}
	w.PerRequest = perRequest(r.Windows)
	w.refine(r.Windows, slo.Metric)
	w.state(slo, response)
	if r.Drifted > 0 {
		w.PeriodsSinceDrift = period - r.Drifted + 1
	}
	if margin, ok := r.margin(slo.ThresholdMS()); ok {
		margin = round(margin)
		w.Margin = &margin
	}
	for _, e := range r.Errors[max(0, len(r.Errors)-listed):] {
		w.ResidualsMS = append(w.ResidualsMS, round(e.PredictedMS*(math.Exp(e.Ratio)-1)))
	}
	return w
}

// Probes whose exponent is below deafBelow do not respond to load, if the crowding of the windows differs by more than deafOver.
const deafBelow, deafOver = 0.2, 0.25

// spread is the largest crowding of the windows less the smallest.
func spread(windows []Window) float64 {
	least, most := math.Inf(1), 0.0
	for i := range windows {
		least, most = min(least, crowding(windows[i].Use)), max(most, crowding(windows[i].Use))
	}
	return most - least
}

// listed is how many residuals the section lists.
const listed = 32

// lineFit is how well a line was fitted to the logarithms of times over crowding.
type lineFit struct {
	covariance [][]float64 // of the coefficients: level, exponent of use, others
	mean       float64     // of the windows' crowding
}

// at returns the standard error of the line at a crowding of x without interference, as a fraction of the time.
func (f lineFit) at(x float64) float64 {
	c := f.covariance
	return math.Sqrt(max(0, c[0][0]+2*x*c[0][1]+x*x*c[1][1]))
}

// middle returns the standard error where the windows are.
func (f lineFit) middle() float64 { return f.at(f.mean) }

// meanCrowding is the weighted mean of the second column of a fit.
func meanCrowding(a [][]float64, weights []float64) float64 {
	var sum, all float64
	for i := range a {
		sum, all = sum+weights[i]*a[i][1], all+weights[i]
	}
	return sum / all
}

// fitProbe fits P0 and its exponent to windows without interference: it begins with the lowest few of all windows, and takes in those that
// chance explains. Mean times of few probes are skewed: all of them may find the resource idle, and one long queue counts for many. So
// their chance is that of a gamma distribution, and the fit is that of a generalised linear model with this distribution and a logarithmic
// link, by iteratively reweighted least squares (McCullagh and Nelder 1989, section 8.3).
func (w *Law) fitProbe(windows []Window) (f lineFit, ok bool) {
	windows = slices.DeleteFunc(slices.Clone(windows), func(x Window) bool { return x.ProbeN < fewest })
	windows = withoutBursts(windows)
	if len(windows) < minKnown {
		return f, false
	}
	p := newProbeFit(windows)
	w.firstSpread(windows, p.level)
	low, high := calmLevels(p.level, w.probeErrors(windows))
	first := *w
	f, calm, ok := w.fitFrom(p, windows, low)
	if calm < len(windows)/2 {
		if g, more, found := first.fitFrom(p, windows, high); found && float64(more) > manyMore*float64(calm) {
			*w, f, ok = first, g, true
		}
	}
	return f, ok && finite(w.P0MS) && w.P0MS >= minProbeMS && w.P0MS < maxValue
}

const (
	// unused is a use so small that only probes, and no requests, used the resource.
	unused = 0.02
	// burst is the part of the time without load below which an unused resource passed the probes at once.
	burst = 1.0 / 3
)

// withoutBursts leaves out windows of an unused resource whose probes took far less time than windows with use explain: what a link or a
// quota saves up while it is idle (token buckets) lets them pass at once. The fit would begin with them, and take all others for disturbed.
func withoutBursts(windows []Window) []Window {
	var levels []float64
	for i := range windows {
		if w := &windows[i]; w.Use >= unused {
			levels = append(levels, w.ProbeMS*math.Exp(-priorProbe.Mean*crowding(w.Use)))
		}
	}
	if len(levels) < minKnown {
		return windows
	}
	slices.Sort(levels)
	least := burst * stat.Quantile(0.1, stat.Empirical, levels, nil)
	return slices.DeleteFunc(windows, func(w Window) bool { return w.Use < unused && w.ProbeMS < least })
}

// fitFrom fits the line, beginning at a time without load. calm is how many windows chance explains.
func (w *Law) fitFrom(p *probeFit, windows []Window, level float64) (f lineFit, calm int, ok bool) {
	se, wider := w.probeErrors(windows), 1.0
	c := []float64{math.Log(level), priorProbe.Mean}
	for range fitRounds {
		p.along(c)
		explained := p.explain(se, wider)
		if explained < minKnown {
			break
		}
		x, covariance, ok := stats.Regress(p.a, p.y, p.weights, []stats.Normal{vague, priorProbe})
		if !ok {
			return f, 0, false
		}
		calm, c, f = explained, x, lineFit{covariance, meanCrowding(p.a, p.weights)}
		p.along(c)
		w.fitSpread(windows, p.alone, p.weights, 1)
		se = w.probeErrors(windows)
		wider = widerBelow(p.ms, p.alone, se, p.weights)
	}
	if f.covariance == nil {
		return f, 0, false
	}
	w.SE.P0 = f.at(0)
	w.P0MS, w.ProbeExponent = math.Exp(c[0]), min(max(c[1], minExponent), steepestLaw)
	w.fitSpread(windows, p.alone, p.weights, square(wider))
	return f, calm, true
}

// probeFit has the values of each window in a fit of probe times.
type probeFit struct {
	a       [][]float64 // 1, crowding
	ms      []float64
	level   []float64 // times without load, if the exponent is the expected one
	alone   []float64 // times by the line
	y       []float64 // working response
	weights []float64 // 0: chance does not explain the window
}

func newProbeFit(windows []Window) *probeFit {
	n := len(windows)
	p := &probeFit{alone: make([]float64, n), y: make([]float64, n), weights: make([]float64, n)}
	for i := range windows {
		x := &windows[i]
		p.a, p.ms = append(p.a, []float64{1, crowding(x.Use)}), append(p.ms, x.ProbeMS)
		p.level = append(p.level, x.ProbeMS*math.Exp(-priorProbe.Mean*crowding(x.Use)))
	}
	return p
}

// along computes the times by a line.
func (p *probeFit) along(c []float64) {
	for i := range p.alone {
		p.alone[i] = math.Exp(c[0] + c[1]*p.a[i][1])
	}
}

// explain weighs the windows that chance explains, and returns their number. se are the standard errors, as parts; they are multiplied by
// wider.
func (p *probeFit) explain(se []float64, wider float64) (calm int) {
	for i := range p.ms {
		by, times := wider*se[i], p.ms[i]/p.alone[i]
		if p.weights[i] = 0; times > max(byChance(by, minByChance), 1.0/absurd) && times < byChance(by, mostByChance) {
			p.weights[i] = 1 / square(by)
			calm++
		}
		p.y[i] = math.Log(p.alone[i]) + times - 1
	}
	return calm
}

const (
	// A window's mean is taken for chance between these standard deviations of a normal distribution.
	minByChance, mostByChance = -3.5, 2
	// absurd is by what factor a probe time must be below the usual one to be an error of the measurement.
	absurd = 100
)

// byChance is how many times its mean a value of a gamma distribution is that is z standard deviations off in a normal distribution (Wilson
// and Hilferty 1931). stddev is the gamma distribution's, as a part of the mean.
func byChance(stddev, z float64) float64 {
	x := max(1-stddev*stddev/9+z*stddev/3, 0)
	return x * x * x
}

// calmLevels returns where the fit begins. If most windows are disturbed, only the lowest few are calm: low is slightly above these. But
// where windows vary much, the lowest few are those with the luckiest probes: high is in the middle of all. level are the windows' times
// without load; it sorts them.
func calmLevels(level, se []float64) (low, high float64) {
	slices.Sort(level)
	high = level[len(level)/2]
	level = slices.DeleteFunc(level, func(x float64) bool { return x < high/absurd })
	return level[min(len(level)/5, minKnown-1)] / byChance(middle(slices.Clone(se)), lowByChance), high
}

const (
	// lowByChance is where the lower fifth of a normal distribution ends, in standard deviations. The lowest few windows are taken for that:
	// if more are calm than these, the rounds of the fit move upwards to their middle.
	lowByChance = -0.84
	// manyMore is how many times as many windows the fit must explain that begins in the middle of all, to be the better one.
	manyMore = 2.5
)

// firstSpread begins with the spread of single probes of typical windows, compared with the usual time and not with the window's own:
// windows whose probes were lucky have a small mean and a small spread.
func (w *Law) firstSpread(windows []Window, level []float64) {
	sorted := slices.Clone(level)
	slices.Sort(sorted)
	n := len(sorted)
	var spreads []float64
	for i := range windows {
		if level[i] >= sorted[n/4] && level[i] <= sorted[(3*n)/4] {
			spreads = append(spreads, windows[i].Spread*square(level[i]/sorted[n/2]))
		}
	}
	w.SpreadIdle, w.SpreadBusy = min(max(middle(spreads), minSpread), widest), 0
}

// minSpread is the smallest squared coefficient of variation of single probes.
const minSpread = 0.0004

// probeErrors returns by which part probe times vary by chance, for each window. It follows from the spread of all windows' probes, because
// that of a window's own few probes is small when they were lucky.
func (w *Law) probeErrors(windows []Window) (se []float64) {
	for i := range windows {
		x := &windows[i]
		se = append(se, math.Sqrt((w.SpreadIdle+w.SpreadBusy*x.Use)/float64(x.ProbeN)+square(misfit)))
	}
	return se
}

// misfit is the error that a law has even where there is much data, as a fraction.
const misfit = 0.04

// widerBelow returns by how much windows vary more than their single probes explain, because probes of one window meet the same queue. It
// is measured below the line, where no neighbour has an effect. The lower side of a gamma distribution is narrower than the upper one: with
// a mean distance b from the mean, 1 for the mean itself, the standard deviation is about b + b³.
func widerBelow(ms, alone, se, weights []float64) float64 {
	var below, expected float64
	n := 0
	for i := range ms {
		if weights[i] > 0 && ms[i] < alone[i] {
			below, expected, n = below+square(ms[i]/alone[i]-1), expected+square(se[i]), n+1
		}
	}
	if n < minKnown {
		return 1
	}
	b := math.Sqrt(below / float64(n))
	return min(max((b+b*b*b)/math.Sqrt(expected/float64(n)), 1), widestQueue)
}

// widestQueue bounds that factor.
const widestQueue = 3

// fitSpread fits how much single probes vary without interference, compared with the usual times, and multiplies their variance by the
// inflation. alone are the usual times of the windows.
func (w *Law) fitSpread(windows []Window, alone, weights []float64, inflation float64) {
	var a [][]float64
	var b []float64
	probes := 0
	for i := range windows {
		x := &windows[i]
		if weights[i] == 0 {
			continue
		}
		root := math.Sqrt(float64(x.ProbeN))
		a, b = append(a, []float64{root, root * x.Use}), append(b, root*x.Spread*square(x.ProbeMS/alone[i]))
		probes += x.ProbeN
	}
	if fitted, err := stats.LeastSquares(a, b); err == nil {
		w.SpreadIdle, w.SpreadBusy = inflation*fitted[0], inflation*fitted[1]
	}
	w.SpreadIdle, w.SpreadBusy = min(max(w.SpreadIdle, minSpread), widest), min(w.SpreadBusy, widest)
	w.Probes = min(probes, maxProbes)
}

// nearlyFull is by which factor a window weighs less in which hardly anything of the resource was free (minFree).
const nearlyFull = 10

// fitResponse fits R0 and the exponents of use, of severity, and of the severity on other resources. Outliers count less (Huber's weights).
func (w *Law) fitResponse(windows []Window) (f lineFit, ok bool) {
	var a [][]float64
	var y, base []float64
	for i := range windows {
		x := &windows[i]
		if x.ProbeN < fewest || x.N < fewest {
			continue
		}
		felt, weight := w.felt(x), 1/(1/float64(x.N)+square(2*misfit))
		if w.free(x.Use, felt) < minFree {
			weight /= nearlyFull
		}
		by, ms := crowding(x.Use), math.Log(x.MeanMS)
		if x.Alone { // arrivals are as random as the clients', with an exponent of 1
			by, ms = 0, ms-by
		}
		a, y = append(a, []float64{1, by, math.Log1p(felt), x.Other}), append(y, ms)
		base = append(base, weight)
	}
	if w.N = len(y); w.N < minKnown {
		return f, false
	}
	weights, scale := slices.Clone(base), 1.0
	prior := []stats.Normal{vague, priorExponent, priorSeverity, priorOther}
	var c []float64
	for range fitRounds {
		if c, f.covariance, ok = stats.Regress(a, y, weights, prior); !ok {
			return f, false
		}
		z := make([]float64, len(y))
		for i := range y {
			z[i] = math.Abs(y[i]-floats.Dot(c, a[i])) * math.Sqrt(base[i])
		}
		sorted := slices.Clone(z)
		slices.Sort(sorted)
		scale = max(1, sorted[len(sorted)/2]/0.6745)
		for i := range z {
			weights[i] = base[i] / square(scale) * min(1, 1.5*scale/max(z[i], 1e-9))
		}
	}
	w.R0MS = math.Exp(c[0])
	w.Exponent, w.SeverityExponent = min(max(c[1], minStated), steepestLaw), min(max(c[2], minExponent), steepestLaw)
	if w.N >= ownFrom {
		w.Exponent = min(max(w.Exponent, steep(a, y, weights)), steepestLaw)
	}
	if slices.ContainsFunc(windows, func(x Window) bool { return x.Other > 0 }) {
		w.OtherExponent = min(max(c[3], 0), steepestLaw)
	}
	f.mean = meanCrowding(a, weights)
	w.SE.R0, w.SE.Exponent = f.at(0), math.Sqrt(f.covariance[1][1])
	return f, finite(w.R0MS) && w.R0MS >= minProbeMS && w.R0MS < maxValue
}

// steep returns the exponent of use that the windows show if little is known before. Windows at low use alone say less than priorExponent
// does, which would promise too much above that use if response times grow faster than it expects.
func steep(a [][]float64, y, weights []float64) float64 {
	c, _, ok := stats.Regress(a, y, weights, []stats.Normal{vague, priorSteep, priorSeverity, priorOther})
	if !ok {
		return 0
	}
	return c[1]
}

// minRatio is the ratio of a percentile to the mean in an exponential distribution, which times under random arrivals are near. A
// balancer makes slow requests rarer at low use, but that need not hold at higher use.
var minRatio = map[quell.Metric]float64{quell.P50: math.Ln2, quell.P90: math.Log(10), quell.P95: math.Log(20), quell.P99: math.Log(100)}

// fitRatio learns how much larger the objective's metric is than the mean: the median over the windows, but at least minRatio.
func (w *Law) fitRatio(windows []Window, metric quell.Metric) bool {
	if metric == quell.Mean {
		return true
	}
	var ratios []float64
	for i := range windows {
		if x := &windows[i]; x.N >= fewest && x.MetricMS > 0 {
			ratios = append(ratios, x.MetricMS/x.MeanMS)
		}
	}
	if len(ratios) < minKnown {
		return false
	}
	slices.Sort(ratios)
	w.Ratio = map[quell.Metric]float64{metric: max(ratios[len(ratios)/2], minRatio[metric])}
	return true
}

// perRequest is the use that one request per second causes: the median over windows in which requests did not wait for the resource.
func perRequest(windows []Window) float64 {
	var uses []float64
	for i := range windows {
		x := &windows[i]
		if use := x.Use / x.Rate; x.Use > 0.02 && x.Use < 0.85 && use <= maxValue {
			uses = append(uses, use)
		}
	}
	if len(uses) < minKnown {
		return 0
	}
	slices.Sort(uses)
	return uses[len(uses)/2]
}

const (
	// reach is how far, in use and in the logarithm of 1 + severity, a window corrects the law.
	reachUse, reachSeverity = 0.1, 0.3
	// doubt is the weight of the law itself against windows that are slower than it: its error is about 15%. Windows that are faster need
	// much more evidence (about 25 of them for half the way), because a capacity that is stated too large does harm.
	doubt, doubtFaster = 1 / (0.15 * 0.15), 1 / (0.03 * 0.03)
	// maxFaster bounds corrections to shorter response times, as a logarithm. The law is careful where nothing was measured, and many windows
	// would lower it without end.
	maxFaster = 0.1
	// minRefined is the smallest correction that is kept.
	minRefined = 0.01
)

// refine corrects the law on the points of its tables by the windows near them, then makes it rise with use, as response times do.
func (w *Law) refine(windows []Window, metric quell.Metric) {
	ratio, _ := w.ratio(metric)
	type residual struct{ use, severity, log, weight float64 }
	var all []residual
	for i := range windows {
		x := &windows[i]
		if x.ProbeN < fewest || x.N < fewest {
			continue
		}
		felt, weight := w.felt(x), 1/(ratio*ratio/float64(x.N)+0.01)
		if w.free(x.Use, felt) < minFree {
			weight /= nearlyFull
		}
		all = append(all, residual{min(x.Use, lawTop), math.Log1p(felt),
			math.Log(x.MetricMS/w.response(x.Use, felt, ratio)) - w.OtherExponent*x.Other, weight})
	}
	levels := lawLevels()
	least := make([]float64, len(levels)) // of the corrections: beside a neighbour none is below that without one
	for i := range least {
		least[i] = -maxFaster
	}
	for _, severity := range lawSeverities {
		points, plain := make([]stats.Weighted, len(levels)), make([]float64, len(levels))
		touched := false
		for i, u := range levels {
			var sum, weight float64
			for _, x := range all {
				near := min(1-math.Abs(x.use-u)/reachUse, 1-math.Abs(x.severity-math.Log1p(severity))/reachSeverity)
				if near <= 0 {
					continue
				}
				// no window moves the law by more than a factor of 2
				sum, weight = sum+near*x.weight*min(max(x.log, -math.Ln2), math.Ln2), weight+near*x.weight
			}
			touched = touched || weight > 0
			plain[i] = math.Log(w.response(u, severity, ratio))
			own := doubt
			if sum < 0 {
				own = doubtFaster
			}
			shift := max(sum/(weight+own), least[i])
			if severity == 0 {
				least[i] = min(shift, 0)
			}
			points[i] = stats.Weighted{Value: plain[i] + shift, Weight: weight + own}
		}
		if !touched {
			continue
		}
		for i, log := range stats.Isotonic(points) {
			if r := log - plain[i]; math.Abs(r) >= minRefined {
				w.Refined = append(w.Refined, Refinement{levels[i], severity, round(min(max(r, -maxRefined), maxRefined))})
			}
		}
	}
}

// state computes the capacity without neighbours at the objective, the width of its interval, and from that how well it is known.
func (w *Law) state(slo quell.SLO, f lineFit) {
	ratio, _ := w.ratio(slo.Metric)
	room := math.Log(slo.ThresholdMS() / (ratio * w.R0MS)) // k * crowding at the capacity
	if room <= 0 {
		w.Capacity, w.CapacityHalf = 0, 1.96*w.SE.R0/w.Exponent
	} else {
		w.Capacity = min(-math.Expm1(-room/w.Exponent), lawTop)
		slope := (1 - w.Capacity) / w.Exponent
		w.CapacityHalf = 1.96 * slope * math.Hypot(f.at(room/w.Exponent), misfit)
	}
	w.Capacity, w.CapacityHalf = round(w.Capacity), round(min(w.CapacityHalf, 1))
	w.Known = round(min(max(1-w.CapacityHalf/unknownAt, 0), 1))
}
