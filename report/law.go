package report

import (
	"math"
	"slices"
)

// law is what the recorded periods say of response times. With U the own use and SF the severity,
//
//	log R = a_i - b log(1-U) + c log(1+SF)
//
// for instance i: the law of processor sharing (Kleinrock, Queueing Systems II, 4.4) with free exponents, as in model.Law. Exponents are
// fitted by least squares within instances, with weak priors for periods that hardly vary.
type law struct {
	b, c      float64
	level     []float64 // a_i, by instance; NaN: never measured
	calm      float64   // standard deviation of a period from the instance's recent mean, without interference
	disturbed float64   // and with it
	bias      float64   // standard error of a prediction for other loads that does not average out
}

// Priors of the exponents: their means, and their precision in units of squared residuals.
const (
	priorB, priorC = 0.8, 0.8
	priorSD        = 0.3
	noisePrior     = 0.15 // of a period's log response time, before it is known
	leastBias      = 0.04 // nothing is predicted better
	smoothing      = 0.3  // weight of the newest residual in the recent mean
)

// crowding and stretch are the variables of the law.
func crowding(use float64) float64 { return -math.Log(1 - min(max(use, 0), mostUse)) }

func stretch(severity float64) float64 { return math.Log1p(max(0, severity)) }

// sums of an instance's rows.
type sums struct{ n, l, s, y, ll, ls, ss, ly, sy float64 }

func (x *sums) add(l, s, y float64) {
	x.n, x.l, x.s, x.y = x.n+1, x.l+l, x.s+s, x.y+y
	x.ll, x.ls, x.ss, x.ly, x.sy = x.ll+l*l, x.ls+l*s, x.ss+s*s, x.ly+l*y, x.sy+s*y
}

// leastFree is the part of a resource that is left in periods from which the law can be told. With less, requests come faster than they are
// answered, and their times are those of a growing queue.
const leastFree = 0.1

// full returns whether an instance and its neighbours left next to nothing of the resource.
func (r *row) full() bool {
	return r.severity > 0 && !isNaN(r.use) && (1-r.use)/(1+r.severity) < leastFree
}

// usable returns whether a row has all variables of the law.
func (r *row) usable() bool { return !isNaN(r.log) && !isNaN(r.use) && r.n > 0 }

// fit finds the law of some rows. ok is false if no row has a response time and a use.
func fit(rows []row, instances int) (w law, ok bool) {
	findNeighbours(rows, instances)
	by := make([]sums, instances)
	for i := range rows {
		if r := &rows[i]; r.usable() && r.flags&failing == 0 && !r.full() {
			by[r.instance].add(crowding(float64(r.use)), stretch(float64(r.severity)), float64(r.log))
		}
	}
	var ll, ls, ss, ly, sy, n float64
	for _, x := range by {
		if x.n == 0 {
			continue
		}
		n += x.n
		ll, ls, ss = ll+x.ll-x.l*x.l/x.n, ls+x.ls-x.l*x.s/x.n, ss+x.ss-x.s*x.s/x.n
		ly, sy = ly+x.ly-x.l*x.y/x.n, sy+x.sy-x.s*x.y/x.n
	}
	if n == 0 {
		return w, false
	}
	weight := noisePrior * noisePrior / (priorSD * priorSD)
	ll, ss, ly, sy = ll+weight, ss+weight, ly+weight*priorB, sy+weight*priorC
	det := ll*ss - ls*ls
	w.b, w.c = min(max((ly*ss-sy*ls)/det, 0.1), 3), min(max((sy*ll-ly*ls)/det, 0.1), 2)
	for _, x := range by {
		a := math.NaN()
		if x.n > 0 {
			a = (x.y - w.b*x.l - w.c*x.s) / x.n
		}
		w.level = append(w.level, a)
	}
	w.spread(rows)
	return w, true
}

// at returns the logarithm of an instance's response time.
func (w *law) at(instance int32, use, severity float64) float64 {
	return w.level[instance] + w.b*crowding(use) + w.c*stretch(severity)
}

// spread sets the residuals of the rows and how widely they scatter. The bias is the scatter of what stays the same over a time of
// interference: the mean residuals of such times.
func (w *law) spread(rows []row) {
	recent := make([]float64, len(w.level))
	episode := make([]sums, len(w.level))
	var calm, disturbed []float64
	var between sums
	end := func(e *sums) {
		if e.n >= 3 {
			between.addSquare(e.y / e.n)
		}
		*e = sums{}
	}
	for i := range rows {
		r := &rows[i]
		if r.full() {
			r.smooth = float32(recent[r.instance])
			r.residual = r.smooth
			continue
		}
		if !r.usable() || math.IsNaN(w.level[r.instance]) {
			continue
		}
		residual := float64(r.log) - w.at(r.instance, float64(r.use), float64(r.severity))
		new := residual - recent[r.instance]
		recent[r.instance] += smoothing * new
		r.residual, r.smooth = float32(residual), float32(recent[r.instance])
		switch e := &episode[r.instance]; {
		case r.severity > 0:
			disturbed = append(disturbed, math.Abs(new))
			e.add(0, 0, residual)
		default:
			calm = append(calm, math.Abs(new))
			end(e)
		}
	}
	for i := range episode {
		end(&episode[i])
	}
	w.calm, w.disturbed = scatter(calm, noisePrior), scatter(disturbed, 2*noisePrior)
	w.bias = math.Hypot(leastBias, between.root(noisePrior)/2)
}

func (x *sums) addSquare(v float64) { x.n, x.ss = x.n+1, x.ss+v*v }

// root returns the root mean square of values; with few of them, mostly the prior.
func (x *sums) root(prior float64) float64 {
	const worth = 20 // values that the prior counts for
	return math.Sqrt((x.ss + worth*prior*prior) / (x.n + worth))
}

// within is the part of normally distributed values that are at most one standard deviation from their mean.
const within = 0.6827

// scatter returns the standard deviation of values from their sizes, by a quantile: periods in which a neighbour comes or goes are far off,
// and do not tell how others vary. With few values, it is mostly the prior.
func scatter(sizes []float64, prior float64) float64 {
	const worth = 20 // values that the prior counts for
	if len(sizes) == 0 {
		return prior
	}
	slices.Sort(sizes)
	n, sd := float64(len(sizes)), sizes[int(within*float64(len(sizes)-1))]
	return math.Sqrt((n*sd*sd + worth*prior*prior) / (n + worth))
}
