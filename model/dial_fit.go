package model

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/stats"
)

// Constants of the fit.
const (
	detectConfidence = 0.95 // confidence that a window of an undisturbed instance stays below the bound
	leastQueueing    = 4    // least number of rows from which the coefficients of Eq. 1 are fitted
	leastUses        = 3    // least number of different uses in these rows
	leastSamples     = 10   // least number of samples for the classifier
	leafSamples      = 3
	dialFolds        = 10
	dialSeed         = 1
	byClassGain      = 0.8 // classes are fitted separately if that lowers the residual variance to at most this fraction
)

// dialFit is the state of the fit of DIAL's section.
type dialFit struct {
	Dial
	rows, calm []TrainingRow // rows: those with an observation and a p90; calm: those of rows without interference
	report     DialReport
}

// fitDial fits DIAL's section to the rows that have the measurements that its classifier uses. If no row has them, it returns no section.
func fitDial(in fitting) (Section, SectionReport, error) {
	var f dialFit
	for _, r := range in.rows {
		if _, ok := p90Of(&r); !ok || r.Observation == nil || !tells(r.Observation) {
			continue
		}
		if f.rows = append(f.rows, r); r.isolated() {
			f.calm = append(f.calm, r)
		}
	}
	if len(f.rows) == 0 {
		return nil, nil, nil
	}
	f.report.Rows, f.report.Calm = len(f.rows), len(f.calm)
	f.peakRate()
	f.tail()
	f.detection()
	f.expectations()
	f.curves()
	f.queueing()
	if err := f.classifier(in.Unscored); err != nil {
		return nil, nil, fmt.Errorf("dial: %w", err)
	}
	f.report.Dial = &f.Dial
	return &f.Dial, &f.report, nil
}

// tells returns whether an observation has the measurements that the classifier uses.
func tells(o *quell.Observation) bool {
	_, retransmits := o.TCP[retransmitRate]
	_, connects := o.TCP[connectP90]
	_, queues := waits(o.Sched)
	return o.CPU != nil || retransmits || connects || queues
}

func p90Of(r *TrainingRow) (float64, bool) {
	ms, ok := r.LatencyMS.Of(quell.P90)
	return ms, ok && ms > 0
}

// peakRate finds the resource that requests fill first, and the rate at which it is full.
func (f *dialFit) peakRate() {
	most := 0.0
	for _, resource := range quell.Resources {
		var rates, uses []float64
		for _, r := range f.calm {
			if use, ok := useOf(&r, resource); ok && r.RequestRate > 0 {
				rates, uses = append(rates, r.RequestRate), append(uses, use)
			}
		}
		if len(rates) > 0 {
			_, slope := stat.LinearRegression(rates, uses, nil, true)
			most = math.Max(most, slope)
		}
	}
	if most > 0 {
		f.PeakRate = 1 / most
	} else {
		f.leave("peak_rate", "no calm row has requests and a utilization")
	}
}

func (f *dialFit) leave(part, why string) { f.report.Missing = append(f.report.Missing, part+": "+why) }

// useOf returns the instance's own use of a resource, and whether it is known.
func useOf(r *TrainingRow, resource quell.Resource) (float64, bool) {
	if r.Resource == resource {
		return r.Utilization, true
	}
	use, ok := r.Observation.Utilization[resource]
	return use, ok
}

// detection finds the bounds of calm response times: a one-sided prediction bound for one window. Response times are first divided by those
// that their load explains, because otherwise a varying load would widen the bound.
func (f *dialFit) detection() {
	var points []point
	rates := make([]float64, 0, len(f.calm))
	for _, r := range f.calm {
		ms, _ := p90Of(&r)
		points, rates = append(points, point{x: r.RequestRate, y: ms, weight: float64(r.LatencyMS.N)}), append(rates, r.RequestRate)
	}
	if len(rates) == 0 {
		f.leave("detect_ms", "no row is calm (interfering 0)")
		return
	}
	slices.Sort(rates)
	f.DetectRate = stat.Quantile(0.5, stat.Empirical, rates, nil)
	if q, ok := f.calmCurve(points); ok {
		f.Calm = q
	}
	var ok bool
	if f.DetectMS, ok = f.bound(allClasses, points, f.Calm); !ok {
		f.leave("detect_ms", fmt.Sprintf("%d calm rows do not tell how response times scatter", len(points)))
		return
	}
	for class, points := range f.byClass() {
		f.detectClass(class, points)
	}
}

// calmCurve fits calm p90s over rates of requests. It returns false if they do not show how the p90 grows.
func (f *dialFit) calmCurve(points []point) (Queueing, bool) {
	if f.PeakRate <= 0 {
		return nil, false
	}
	scaled := slices.Clone(points)
	for i := range scaled {
		scaled[i].x /= f.PeakRate
	}
	q, ok := fitQueueing(scaled, true)
	return q, ok && q.MS(0) > 0
}

// byClass returns the p90s of each class in calm rows, over the rate of all requests.
func (f *dialFit) byClass() map[string][]point {
	points := map[string][]point{}
	for _, r := range f.calm {
		for class, l := range r.Observation.LatencyByClassMS {
			if ms, ok := l.Of(quell.P90); ok && ms > 0 {
				points[class] = append(points[class], point{x: r.RequestRate, y: ms, weight: float64(l.N)})
			}
		}
	}
	return points
}

// detectClass finds the bound of a class, and how its response times grow with the load. Each class needs a curve of its own: if its
// response times were compared with the growth of all, the difference would count as scatter, and the bound would be too high.
func (f *dialFit) detectClass(class string, points []point) {
	curve, ok := f.calmCurve(points)
	if ok {
		put(&f.CalmByClass, class, curve)
	} else {
		curve = f.Calm
	}
	if bound, ok := f.bound(class, points, curve); ok {
		put(&f.DetectByClassMS, class, bound)
	} else {
		delete(f.CalmByClass, class)
	}
}

// bound returns the bound of one window's p90 at DetectRate, for a window with many requests. The curve is the one by which the response
// times of the class grow.
func (f *dialFit) bound(class string, points []point, curve Queueing) (float64, bool) {
	values, chance := make([]float64, len(points)), 0.0
	for i, p := range points {
		values[i] = p.y / f.growth(class, p.x)
		if p.weight > 0 {
			sd := values[i] * sampling(f.tailOf(class), int(p.weight))
			chance += sd * sd / float64(len(points))
		}
	}
	return predictionBound(values, chance, max(1, len(curve)))
}

// predictionBound returns the bound that one more value of the same kind stays below with detectConfidence, if it does not scatter by
// chance. chance is the part of the values' variance that is due to their few requests: a window has scatter of its own, which must not
// count twice. fitted is how many parameters were fitted to the values.
func predictionBound(values []float64, chance float64, fitted int) (float64, bool) {
	n, free := float64(len(values)), float64(len(values)-fitted)
	if free < 1 {
		return 0, false
	}
	mean := stat.Mean(values, nil)
	squares := 0.0
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	variance := squares / free
	return mean + stats.TQuantile(detectConfidence, free)*math.Sqrt(math.Max(0, variance-chance)+variance/n), true
}

// tail finds how much longer than their p90 the longest response times of undisturbed instances are: those of all requests, and of each
// class.
func (f *dialFit) tail() {
	var all tails
	classes := map[string]tails{}
	for _, r := range f.calm {
		all.add(r.LatencyMS)
		for class, l := range r.Observation.LatencyByClassMS {
			of := classes[class]
			of.add(l)
			classes[class] = of
		}
	}
	if all.n == 0 {
		f.leave("tail", "no calm row has a p95")
		return
	}
	f.Tail = all.sum / all.n
	for class, of := range classes {
		if of.n > 0 {
			put(&f.TailByClass, class, of.sum/of.n)
		}
	}
}

// tails sums up how much longer than their p90 response times are. A request exceeds the p90 with probability 0.1 and the p95 with 0.05, so
// p95 = p90 * (1 + Tail * ln 2).
type tails struct{ sum, n float64 }

func (t *tails) add(l quell.Latency) {
	p90, known := l.Of(quell.P90)
	if p95, ok := l.Of(quell.P95); ok && known && p90 > 0 && p95 >= p90 {
		t.sum, t.n = t.sum+(p95/p90-1)/math.Ln2, t.n+1
	}
}

// curves fits the features that grow with the own use of a resource to the calm rows, and keeps the mean values of all features.
func (f *dialFit) curves() {
	values := make([]map[string]float64, len(f.calm))
	for i, r := range f.calm {
		values[i] = f.Features(r.Observation)
	}
	for _, c := range curves {
		var points []point
		for i, r := range f.calm {
			use, known := useOf(&r, c.over)
			if v := values[i][c.feature]; known && v > 0 {
				points = append(points, point{x: use, y: v})
			}
		}
		q, ok := fitQueueing(points, true)
		if !ok || slices.ContainsFunc(points, func(p point) bool { return q.MS(p.x) <= 0 }) {
			continue // it is used as it was measured
		}
		if f.Curves == nil {
			f.Curves = map[string]Queueing{}
		}
		f.Curves[c.feature] = q
	}
	sums, counts := map[string]float64{}, map[string]float64{}
	for _, r := range f.calm {
		for name, v := range f.Features(r.Observation) {
			sums[name], counts[name] = sums[name]+v, counts[name]+1
		}
	}
	for name, sum := range sums {
		if f.Usual == nil {
			f.Usual = map[string]float64{}
		}
		f.Usual[name] = sum / counts[name]
	}
}

// expectations fits the processor times of undisturbed machines to their requests.
func (f *dialFit) expectations() {
	for _, name := range dialExpectations {
		var rows []TrainingRow
		var uses []float64
		for _, r := range f.calm {
			switch c := r.Observation.CPU; {
			case c == nil:
			case name == expectedUser:
				rows, uses = append(rows, r), append(uses, c.User)
			default:
				rows, uses = append(rows, r), append(uses, c.System)
			}
		}
		if e, ok := expect(rows, uses); ok {
			if f.Expected == nil {
				f.Expected = map[string]Expected{}
			}
			f.Expected[name] = e
		} else {
			f.leave("expected."+name, "too few calm rows with processor times")
		}
	}
}

// expect fits uses to the rates of requests. It fits each class separately if that explains clearly more than their sum does.
func expect(rows []TrainingRow, uses []float64) (Expected, bool) {
	total, left, ok := regress(rows, uses, nil)
	if !ok {
		return Expected{}, false
	}
	mix, requests := map[string]float64{}, 0.0
	for _, r := range rows {
		requests += r.RequestRate
		for class, rate := range r.Observation.RequestRates {
			mix[class] += rate
		}
	}
	classes := sortedKeys(mix)
	if len(classes) < 2 {
		return total, true
	}
	by, leftBy, ok := regress(rows, uses, classes)
	if !ok || leftBy >= byClassGain*left {
		return total, true
	}
	if _, told := by.PerRequest[OtherClasses]; !told { // a class without training costs what a request cost in training
		for _, class := range classes {
			by.PerRequest[OtherClasses] += by.PerRequest[class] * mix[class] / requests
		}
	}
	return by, true
}

// regress fits uses to the rates of each class and to the rate of requests without a class. left is the residual variance.
func regress(rows []TrainingRow, uses []float64, classes []string) (e Expected, left float64, ok bool) {
	a, others := make([][]float64, len(rows)), 0.0
	for i, r := range rows {
		rest := r.RequestRate
		a[i] = []float64{1}
		for _, class := range classes {
			a[i] = append(a[i], r.Observation.RequestRates[class])
			rest -= r.Observation.RequestRates[class]
		}
		a[i] = append(a[i], math.Max(rest, 0))
		others = math.Max(others, rest/math.Max(r.RequestRate, math.SmallestNonzeroFloat64))
	}
	columns := len(classes) + 2
	if len(rows) <= columns {
		return e, 0, false
	}
	x, err := stats.LeastSquares(a, uses)
	if err != nil {
		return e, 0, false
	}
	e = Expected{Intercept: x[0], PerRequest: map[string]float64{}}
	for j, class := range classes {
		e.PerRequest[class] = x[1+j]
	}
	if others > 1e-6 || len(classes) == 0 {
		e.PerRequest[OtherClasses] = x[columns-1]
	}
	for i := range a {
		gap := uses[i] - floats.Dot(a[i], x)
		left += gap * gap
	}
	return e, left / float64(len(rows)-columns), true
}

// queueing fits Eq. 1 for each trained resource to what its total use, by the service and the interferer, adds to the calm p90; see
// Dial.Predict.
func (f *dialFit) queueing() {
	for _, resource := range resourcesOf(f.rows) {
		rows := slices.DeleteFunc(ofResource(f.rows, resource), func(r TrainingRow) bool { return r.Utilization+r.Interfering >= saturated })
		if resource == quell.Memory && f.stretched(rows) {
			continue
		}
		q, ok := f.fitTo(rows, true)
		if !ok {
			f.leave("queueing."+string(resource), "response times do not grow with its use, or rows are too few")
			continue
		}
		linear, _ := f.fitTo(rows, false)
		put(&f.Queueing, resource, q)
		put(&f.Errors, resource, f.errorsOf(rows, resource, q, linear))
	}
}

// errorsOf returns how well coefficients predict the response times of the rows of a resource. linear are the coefficients of Eq. 1 without
// the square term.
func (f *dialFit) errorsOf(rows []TrainingRow, resource quell.Resource, q, linear Queueing) QueueingError {
	e := QueueingError{Rows: len(rows)}
	e.MeanRelative, e.MaxRelative = f.off(rows, resource, q)
	e.Linear, _ = f.off(rows, resource, linear)
	return e
}

// stretched fits what neighbours on the memory do to the processors (Dial.Stretch), and Eq. 1 over the use of the processors. It returns
// false if the rows do not show that processor time grows with the neighbours' use, or if Eq. 1 over the use of the memory fits better.
func (f *dialFit) stretched(rows []TrainingRow) bool {
	if f.Calm == nil {
		return false
	}
	rows = slices.DeleteFunc(slices.Clone(rows), func(r TrainingRow) bool {
		use, known := r.Observation.Utilization[quell.CPU]
		return !known || use >= saturated
	})
	stretch := f.stretch(rows)
	if stretch < leastStretch || stretch > mostStretch {
		return false
	}
	plain := math.Inf(1)
	if q, ok := f.fitTo(rows, true); ok {
		plain, _ = f.off(rows, quell.Memory, q)
	}
	f.Stretch = stretch
	q, ok := f.fitStretched(rows, true)
	linear, _ := f.fitStretched(rows, false)
	if e := f.errorsOf(rows, quell.Memory, q, linear); ok && e.MeanRelative < plain {
		put(&f.Queueing, quell.Memory, q)
		put(&f.Errors, quell.Memory, e)
		return true
	}
	f.Stretch = 0
	return false
}

// leastStretch is the least value of Stretch that is told from none.
const leastStretch = 0.05

// stretch returns by which part of itself the processor time of requests grows beside neighbours that use all of the memory: the least
// squares of use = calm use * (1 + stretch * interfering). It is 0 if the rows do not tell.
func (f *dialFit) stretch(rows []TrainingRow) float64 {
	var rates, uses []float64
	for _, r := range f.calm {
		if use, known := r.Observation.Utilization[quell.CPU]; known {
			rates, uses = append(rates, r.RequestRate), append(uses, use)
		}
	}
	if len(rates) < 2 {
		return 0
	}
	idle, perRequest := stat.LinearRegression(rates, uses, nil, false)
	var grown, square float64
	for _, r := range rows {
		calm := idle + perRequest*r.RequestRate
		grown += (r.Observation.Utilization[quell.CPU] - calm) * calm * r.Interfering
		square += calm * calm * r.Interfering * r.Interfering
	}
	if !(square > 0) {
		return 0
	}
	return grown / square
}

// fitStretched fits c1 and c2 to what neighbours on the memory add to calm response times (Queueing.stretched), and c0 as fitTo does.
func (f *dialFit) fitStretched(rows []TrainingRow, square bool) (Queueing, bool) {
	var a [][]float64
	var b []float64
	for _, r := range rows {
		if r.isolated() {
			continue
		}
		ms, _ := p90Of(&r)
		use, sigma := r.Observation.Utilization[quell.CPU], 1+f.Stretch*r.Interfering
		row := []float64{(Queueing{0, 1, 0}).stretched(use, sigma) / ms}
		if square {
			row = append(row, (Queueing{0, 0, 1}).stretched(use, sigma)/ms)
		}
		a, b = append(a, row), append(b, (ms-f.CalmMS(r.RequestRate))/ms)
	}
	if len(a) < leastQueueing {
		return Queueing{0, 0, 0}, false
	}
	c, err := stats.LeastSquares(a, b)
	if err != nil {
		return Queueing{0, 0, 0}, false
	}
	q := append(append(Queueing{0}, c...), 0)[:3]
	for _, r := range rows {
		use := r.Observation.Utilization[quell.CPU] / (1 + f.Stretch*r.Interfering)
		q[0] += (f.CalmMS(r.RequestRate) - (Queueing{0, q[1], q[2]}).MS(use)) / float64(len(rows))
	}
	return q, q[1] > 0 || q[2] > 0
}

// fitTo fits Eq. 1 to rows of one resource, with the square term or without. Without a curve of calm response times it is fitted to
// response times themselves. With it, c1 and c2 are fitted to how much longer than calm ones they are, and c0 so that Eq. 1 gives the mean
// calm response time.
func (f *dialFit) fitTo(rows []TrainingRow, square bool) (Queueing, bool) {
	if f.Calm == nil {
		points := make([]point, len(rows))
		for i, r := range rows {
			points[i].x = r.Utilization + r.Interfering
			points[i].y, _ = p90Of(&r)
		}
		return fitQueueing(points, square)
	}
	var a [][]float64
	var b []float64
	uses := map[float64]bool{}
	for _, r := range rows {
		if r.isolated() {
			continue
		}
		ms, _ := p90Of(&r)
		own, total := 1/(1-r.Utilization), 1/(1-math.Min(r.Utilization+r.Interfering, fullest))
		row := []float64{(total - own) / ms}
		if square {
			row = append(row, (total*total-own*own)/ms)
		}
		a, b = append(a, row), append(b, (ms-f.CalmMS(r.RequestRate))/ms)
		uses[r.Utilization+r.Interfering] = true
	}
	if len(a) < leastQueueing || len(uses) < leastUses {
		return nil, false
	}
	c, err := stats.LeastSquares(a, b)
	if err != nil {
		return nil, false
	}
	q := append(append(Queueing{0}, c...), 0)[:3]
	for _, r := range rows {
		q[0] += (f.CalmMS(r.RequestRate) - (Queueing{0, q[1], q[2]}).MS(r.Utilization)) / float64(len(rows))
	}
	return q, q[1] > 0 || q[2] > 0
}

// off returns the mean and the largest relative error of the response times that Eq. 1 predicts for the rows of a resource.
func (f *dialFit) off(rows []TrainingRow, resource quell.Resource, q Queueing) (mean, largest float64) {
	d := Dial{Calm: f.Calm, PeakRate: f.PeakRate, Stretch: f.Stretch, Queueing: map[quell.Resource]Queueing{resource: q}}
	for _, r := range rows {
		ms, _ := p90Of(&r)
		own, _ := useOf(&r, d.Over(resource))
		gap := math.Abs(d.Predict(resource, r.RequestRate, own, r.Interfering)-ms) / ms
		mean += gap / float64(len(rows))
		largest = math.Max(largest, gap)
	}
	return mean, largest
}

// fitQueueing fits Eq. 1 to uses and p90s, with the square term or without. It minimises relative errors, because longer response times
// scatter more. It returns false if the response times do not grow with use.
func fitQueueing(points []point, square bool) (Queueing, bool) {
	uses := map[float64]bool{}
	a, b := make([][]float64, len(points)), make([]float64, len(points))
	for i, p := range points {
		x := 1 / (1 - math.Min(p.x, fullest))
		uses[p.x] = true
		if a[i], b[i] = []float64{1 / p.y, x / p.y}, 1; square {
			a[i] = append(a[i], x*x/p.y)
		}
	}
	if len(points) < leastQueueing || len(uses) < leastUses {
		return nil, false
	}
	c, err := stats.LeastSquares(a, b, 0)
	if err != nil {
		return nil, false
	}
	q := append(Queueing(c), 0)[:3]
	return q, q[1] > 0 || q[2] > 0
}

// felt returns whether the response times of a row are above one of their bounds.
func (f *dialFit) felt(r *TrainingRow) bool {
	ms, _ := p90Of(r)
	return ms > f.Bounds(r.RequestRate).All || len(f.Exceeded(r.Observation, r.RequestRate)) > 0
}

// classifier fits the tree. Rows without interference have the class NotContended. Rows with interference have the class of their resource,
// and are used only if the instance was slower because of it.
func (f *dialFit) classifier(unscored bool) error {
	var samples []stats.Sample
	var classes []string
	for _, r := range f.rows {
		class := string(r.Resource)
		if r.isolated() {
			class = NotContended
		} else if !f.felt(&r) {
			f.report.Unfelt++
			continue
		}
		samples = append(samples, stats.Sample{Features: f.Features(r.Observation), Class: class})
		classes = append(classes, class)
	}
	if len(samples) < leastSamples || len(slices.Compact(slices.Sorted(slices.Values(classes)))) < 2 {
		f.leave("classifier", fmt.Sprintf("%d rows are calm, or slowed by interference; at least %d of both kinds are needed",
			len(samples), leastSamples))
		return nil
	}
	fit := func(samples []stats.Sample) (*stats.Tree, error) {
		return stats.FitTree(samples, stats.TreeOptions{Criterion: stats.GainRatio, MinLeaf: leafSamples,
			Folds: min(dialFolds, len(samples)), Seed: dialSeed})
	}
	var err error
	if f.Classifier, err = fit(samples); err != nil || unscored {
		return err
	}
	folds, err := stats.StratifiedFolds(classes, min(dialFolds, len(samples)), dialSeed)
	if err != nil {
		return err
	}
	f.Validated, err = stats.CrossValidate(samples, folds, fit)
	return err
}
