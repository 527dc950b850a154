package model

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Learner learns the section live from the snapshots of a running service. It is a value: Learn returns a new one and leaves the old one
// as it is. Its size is bounded, and equal snapshots give equal learners. The zero value has learned nothing.
type Learner struct {
	Metric  quell.Metric                          `json:"metric,omitempty"`
	Periods int                                   `json:"periods,omitempty"` // snapshots so far
	Last    map[string]time.Time                  `json:"last,omitempty"`    // by instance, the newest observation that was used
	Seen    map[quell.Resource]map[string]*Record `json:"seen,omitempty"`    // by resource and type of instance
}

// Record is what was measured of a resource on instances of one type, and the law fitted to it.
type Record struct {
	Windows []Window       `json:"windows"` // oldest first
	By      *quell.Probing `json:"by,omitempty"`
	Law     *Law           `json:"law,omitempty"` // nil: too little is known
	Off     int            `json:"off,omitempty"` // consecutive periods outside the band of the predictions; negative: faster than predicted
	Drifted int            `json:"drifted,omitempty"`

	Errors  []Miss  `json:"errors,omitempty"`  // the newest predictions and what was measured, oldest first
	Judged  float64 `json:"judged,omitempty"`  // windows for which a margin was predicted; old ones fade
	Covered float64 `json:"covered,omitempty"` // how many of them stayed within it
}

// Window is what was measured at one instance in one period. ProbeN or N is 0 if there was no probe or no response time.
type Window struct {
	At       int     `json:"t"` // the period
	Use      float64 `json:"u"`
	ProbeMS  float64 `json:"p,omitempty"`
	Spread   float64 `json:"s,omitempty"` // squared coefficient of variation of the window's single probes
	ProbeN   int     `json:"pn,omitempty"`
	MeanMS   float64 `json:"m,omitempty"`
	MetricMS float64 `json:"q,omitempty"`
	N        int     `json:"n,omitempty"`
	Rate     float64 `json:"r,omitempty"` // requests per second
	Cell     int     `json:"c,omitempty"` // kind of window: similar use and severity
}

// Miss is a prediction and what was measured: Ratio is the logarithm of measured over predicted.
type Miss struct {
	PredictedMS float64 `json:"p"`
	Ratio       float64 `json:"r"`
}

const (
	// ofOneKind is how many windows of similar use and severity are kept; newer ones replace older ones of the same kind. So a day
	// without traffic does not erase what a busy hour taught.
	ofOneKind = 16
	// mostWindows bounds a record; when there are more, the oldest goes.
	mostWindows = 400
	// mostTypes bounds the types of instances that are told apart.
	mostTypes = 4
	// perPeriod is how many instances of a type teach in one period. In larger groups they take turns.
	perPeriod = 32
	// mostErrors bounds the predictions that are kept to measure their errors.
	mostErrors = 256
	// widest bounds the squared coefficient of variation of a window's probes, which then say nothing.
	widest = 100
	// fewest is how many response times and probes a window must have.
	fewest = 2
)

// NewLearner returns a learner that begins with the tables of trained models as if they had been measured in place. What is measured later
// replaces them. prior may be nil.
func NewLearner(prior *Models, slo quell.SLO) *Learner {
	l := &Learner{Metric: slo.Metric}
	if prior == nil {
		return l
	}
	for _, r := range sortedKeys(prior.Prima().ResponseTime) {
		record := trainedRecord(prior, r, slo)
		if record == nil {
			continue
		}
		if l.Seen == nil {
			l.Seen = map[quell.Resource]map[string]*Record{}
		}
		l.Seen[r] = map[string]*Record{AnyType: record}
		if prior.Trained != nil && prior.Trained.InstanceType != "" {
			l.Seen[r][prior.Trained.InstanceType] = record
		}
	}
	return l
}

// trainedRequests is how many response times, and trainedProbes how many probes, a row of a table counts for.
const trainedRequests, trainedProbes = 100, 40

// trainedRecord returns the rows of a resource's tables as windows; nil if they lack the objective's metric.
func trainedRecord(m *Models, r quell.Resource, slo quell.SLO) *Record {
	if len(m.Prima().Isolation[r]) == 0 {
		return nil
	}
	alone := newBaseline(m.Prima().Isolation[r], untested)
	record := &Record{}
	perRequest := 0.0
	if m.Trained != nil {
		perRequest = m.Trained.PerRequest[r]
		if by, ok := m.Trained.By[r]; ok {
			record.By = &by
		}
	}
	for _, row := range m.Prima().ResponseTime[r] {
		ms, ok := row.LatencyMS.Of(slo.Metric)
		if !ok || !(ms > minProbeMS) {
			continue
		}
		iso, spread, _ := alone.Isolation(row.Utilization)
		w := Window{Use: row.Utilization, ProbeMS: iso * (1 + row.Severity), Spread: square(spread / iso), ProbeN: trainedProbes,
			MeanMS: ms, MetricMS: ms, N: trainedRequests}
		if mean, ok := row.LatencyMS.Of(quell.Mean); ok && mean > minProbeMS {
			w.MeanMS = mean
		}
		if perRequest > 0 {
			w.Rate = row.Utilization / perRequest
		}
		record.add(w)
	}
	record.Law = record.fit(slo, 0)
	return record
}

// Learn returns what is known after one more snapshot. slo is the objective at which capacities are stated. An observation is used once.
func (l *Learner) Learn(s *quell.Snapshot, slo quell.SLO) *Learner {
	if l == nil || l.Metric != slo.Metric {
		l = &Learner{Metric: slo.Metric}
	}
	next := &Learner{Metric: l.Metric, Periods: l.Periods + 1, Last: map[string]time.Time{}, Seen: maps.Clone(l.Seen)}
	if next.Seen == nil {
		next.Seen = map[quell.Resource]map[string]*Record{}
	}
	fresh := next.news(l, s)
	for _, r := range sortedKeys(fresh) {
		records := maps.Clone(next.Seen[r])
		if records == nil {
			records = map[string]*Record{}
		}
		for _, instanceType := range sortedKeys(fresh[r]) {
			old, known := records[instanceType]
			if !known && len(records) >= mostTypes {
				continue
			}
			records[instanceType] = old.with(fresh[r][instanceType], next.Periods, slo)
		}
		next.Seen[r] = records
	}
	return next
}

// news lists what the snapshot has that is new, by resource and type.
func (l *Learner) news(before *Learner, s *quell.Snapshot) map[quell.Resource]map[string][]seenBy {
	out := map[quell.Resource]map[string][]seenBy{}
	for i := range s.Instances {
		in := &s.Instances[i]
		o := in.Observation
		if o == nil {
			continue
		}
		last, again := before.Last[in.ID]
		l.Last[in.ID] = o.At
		if in.State != quell.Ready || again && !o.At.After(last) {
			continue
		}
		for _, r := range sortedKeys(o.Probe) {
			w, ok := windowOf(o, r, l.Metric, l.Periods)
			if !ok {
				continue
			}
			if out[r] == nil {
				out[r] = map[string][]seenBy{}
			}
			t := cmp.Or(in.Type, AnyType)
			out[r][t] = append(out[r][t], seenBy{w, o.Probe[r].By})
		}
	}
	for _, types := range out {
		for t, list := range types {
			types[t] = inTurn(list, l.Periods)
		}
	}
	return out
}

// seenBy is a window and how its probes were made.
type seenBy struct {
	Window
	by *quell.Probing
}

// inTurn chooses at most perPeriod of the windows, other ones in each period.
func inTurn(list []seenBy, period int) []seenBy {
	stride := (len(list) + perPeriod - 1) / perPeriod
	if stride <= 1 {
		return list
	}
	var out []seenBy
	for i := period % stride; i < len(list); i += stride {
		out = append(out, list[i])
	}
	return out
}

// windowOf returns the part of an observation that teaches about a resource. Without a probe nobody knows what neighbours did, so such a
// window teaches nothing.
func windowOf(o *quell.Observation, r quell.Resource, metric quell.Metric, period int) (w Window, ok bool) {
	use, hasUse := o.Utilization[r]
	p := o.Probe[r]
	if !hasUse || p.N < fewest || !(p.MeanMS > minProbeMS) || p.MeanMS > maxValue || use < 0 {
		return w, false
	}
	w = Window{At: period, Use: round(min(use, 1)), ProbeMS: round(p.MeanMS), ProbeN: p.N}
	w.Spread = round(min(square(p.StddevMS/p.MeanMS), widest))
	if o.RequestRate != nil && finite(*o.RequestRate) {
		w.Rate = round(*o.RequestRate)
	}
	ms, has := o.LatencyMS.Of(metric)
	if has && o.LatencyMS.N >= fewest && ms > minProbeMS && ms < maxValue {
		w.N, w.MetricMS, w.MeanMS = o.LatencyMS.N, round(ms), round(ms)
		if mean, ok := o.LatencyMS.Of(quell.Mean); ok && mean > minProbeMS {
			w.MeanMS = round(mean)
		}
	}
	return w, true
}

func square(x float64) float64 { return x * x }

// round keeps five digits, which is more than was measured, so that the stored memory is small.
func round(x float64) float64 {
	if x == 0 || !finite(x) {
		return 0
	}
	scale := math.Pow(10, 4-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}

// with returns the record after the windows of one more period.
func (r *Record) with(news []seenBy, period int, slo quell.SLO) *Record {
	next := &Record{}
	if r != nil {
		*next = *r
		next.Windows, next.Errors = slices.Clone(r.Windows), slices.Clone(r.Errors)
	}
	for _, w := range news {
		if !next.By.Alike(w.by) {
			next = &Record{} // times of other probes cannot be compared
		}
		if w.by != nil {
			next.By = w.by
		}
	}
	windows := make([]Window, len(news))
	for i, w := range news {
		windows[i] = w.Window
	}
	next.judge(windows, slo)
	if next.departs(windows, period) {
		next.beginAgain(period)
	}
	for _, w := range windows {
		next.add(w)
	}
	next.Law = next.fit(slo, period)
	return next
}

// add puts a window into its cell.
func (r *Record) add(w Window) {
	w.Cell = r.cell(&w)
	oldest, alike := -1, 0
	for i := range r.Windows {
		if r.Windows[i].Cell == w.Cell {
			if alike++; oldest < 0 {
				oldest = i
			}
		}
	}
	switch {
	case alike >= ofOneKind:
		r.Windows = slices.Delete(r.Windows, oldest, oldest+1)
	case len(r.Windows) >= mostWindows:
		r.Windows = slices.Delete(r.Windows, 0, 1)
	}
	r.Windows = append(r.Windows, w)
}

// cell numbers windows by steps of use and of severity.
func (r *Record) cell(w *Window) int {
	cell := int(min(w.Use, lawTop)/lawStep) * 4
	if r.Law == nil {
		return cell
	}
	switch stretch := w.ProbeMS / r.Law.probe(w.Use); {
	case stretch < 1.15:
		return cell
	case stretch < 1.5:
		return cell + 1
	case stretch < 2.2:
		return cell + 2
	}
	return cell + 3
}

// predict returns the response time that the law gives for a window, in milliseconds; false if it is unknown.
func (r *Record) predict(w *Window, metric quell.Metric) (float64, bool) {
	if r.Law == nil {
		return 0, false
	}
	ratio, ok := r.Law.ratio(metric)
	if !ok {
		return 0, false
	}
	severity := r.Law.felt(w)
	return r.Law.response(w.Use, severity, ratio) * math.Exp(r.Law.correction(w.Use, severity)), true
}

// felt is the severity of a window, 0 if chance explains its probes.
func (w *Law) felt(x *Window) float64 {
	alone := w.probe(x.Use)
	se := math.Sqrt((w.SpreadIdle + w.SpreadBusy*x.Use) / float64(x.ProbeN))
	if x.ProbeMS < alone*(1+1.64*se) {
		return 0
	}
	return x.ProbeMS/alone - 1
}

// correction is the refinement at the nearest point of the grid.
func (w *Law) correction(u, severity float64) float64 {
	level := math.Round(min(u, lawTop)/lawStep) * lawStep
	nearest, best := math.Inf(1), 0.0
	for _, r := range w.Refined {
		if math.Abs(r.Utilization-level) > lawStep/2 {
			continue
		}
		if d := math.Abs(math.Log1p(r.Severity) - math.Log1p(severity)); d < nearest {
			nearest, best = d, r.LogRatio
		}
	}
	return best
}

// judge compares the predictions with the windows that were measured since, and counts how many stayed within the margin.
func (r *Record) judge(windows []Window, slo quell.SLO) {
	for i := range windows {
		w := &windows[i]
		ms, ok := r.predict(w, slo.Metric)
		if !ok || w.N < fewest {
			continue
		}
		miss := Miss{PredictedMS: round(ms), Ratio: round(math.Log(w.MetricMS / ms))}
		if margin, ok := r.Margin(ms, CoverageGoal); ok {
			r.Judged, r.Covered = fading*r.Judged+1, fading*r.Covered
			if miss.Ratio <= margin {
				r.Covered++
			}
		}
		if r.Errors = append(r.Errors, miss); len(r.Errors) > mostErrors {
			r.Errors = slices.Delete(r.Errors, 0, 1)
		}
	}
}

const (
	// CoverageGoal is the share of windows that a margin must cover.
	CoverageGoal = 0.9
	// fading is the weight that each window leaves to the earlier ones when coverage is measured: a memory of about 1,000 windows.
	fading = 0.999
	// leastErrors is the smallest number of errors that a margin can be taken from.
	leastErrors = 20
	// mostAlike is how many errors of the most similar predictions a margin is taken from.
	mostAlike = 100
)

// Margin returns the logarithm of the factor by which the response time may exceed a prediction of ms, so that the given share of windows
// stays within it. It is the conformal quantile of recent errors of the most similar predictions (Vovk, Gammerman and Shafer 2005,
// section 2.2). It returns false if there are too few errors.
func (r *Record) Margin(ms, share float64) (float64, bool) {
	if r == nil || len(r.Errors) < leastErrors {
		return 0, false
	}
	alike := slices.Clone(r.Errors)
	slices.SortStableFunc(alike, func(a, b Miss) int {
		return cmp.Compare(math.Abs(math.Log(a.PredictedMS/ms)), math.Abs(math.Log(b.PredictedMS/ms)))
	})
	alike = alike[:min(len(alike), mostAlike)]
	ratios := make([]float64, len(alike))
	for i, m := range alike {
		ratios[i] = m.Ratio
	}
	slices.Sort(ratios)
	rank := int(math.Ceil(share * float64(len(ratios)+1)))
	return ratios[min(rank, len(ratios))-1], true
}

const (
	// band is how far the median of a period's response times may be from similar earlier windows: a quarter.
	band = 0.22
	// driftAfter is how many periods in a row must be outside the band before what was learned is dropped.
	driftAfter = 4
	// leastRequests is how many response times a period needs for that judgement.
	leastRequests = 20
)

// departs counts periods whose response times differ from those of similar earlier windows, and returns whether there were so many in a
// row that the service must have changed: a release, other requests, other machines. Single disturbed instances do not count.
func (r *Record) departs(windows []Window, period int) bool {
	if r.Law == nil {
		return false
	}
	var gaps []float64
	requests := 0
	for i := range windows {
		w := &windows[i]
		if gap, ok := r.gap(w, period); ok && w.N >= fewest {
			gaps = append(gaps, gap)
			requests += w.N
		}
	}
	if requests < leastRequests {
		return false
	}
	slices.Sort(gaps)
	switch median := gaps[len(gaps)/2]; {
	case median > band:
		r.Off = max(r.Off, 0) + 1
	case median < -band:
		r.Off = min(r.Off, 0) - 1
	default:
		r.Off = 0
	}
	return max(r.Off, -r.Off) >= driftAfter
}

// gap returns by how much a window's response time differs from earlier windows of similar use and severity, as a logarithm, after
// the law's difference between them. It returns false if there are too few.
func (r *Record) gap(w *Window, period int) (float64, bool) {
	felt := r.Law.felt(w)
	var others []float64
	for i := range r.Windows {
		o := &r.Windows[i]
		if o.N < fewest || o.At >= period-driftAfter || math.Abs(o.Use-w.Use) > 2*lawStep {
			continue
		}
		severity := r.Law.felt(o)
		if math.Abs(math.Log1p(severity)-math.Log1p(felt)) > 0.3 {
			continue
		}
		law := r.Law.Exponent*(crowding(w.Use)-crowding(o.Use)) + r.Law.SeverityExponent*(math.Log1p(felt)-math.Log1p(severity))
		others = append(others, math.Log(o.MeanMS)+law)
	}
	if len(others) < driftAfter {
		return 0, false
	}
	slices.Sort(others)
	return math.Log(w.MeanMS) - others[len(others)/2], true
}

// beginAgain drops the response times from before a change of the service. Probes are kept, because machines stayed the same.
func (r *Record) beginAgain(period int) {
	for i := range r.Windows {
		if w := &r.Windows[i]; w.At < period-driftAfter+1 {
			w.N, w.MeanMS, w.MetricMS, w.Rate = 0, 0, 0, 0
		}
	}
	r.Off, r.Drifted = 0, period
	r.Errors, r.Judged, r.Covered = nil, 0, 0
}

// Live returns the section that can be used now: a law for each resource and type of which enough is known. Types with little data of
// their own get the law of their kin.
func (l *Learner) Live() Live {
	live := Live{}
	if l == nil {
		return live
	}
	for _, r := range sortedKeys(l.Seen) {
		for _, t := range sortedKeys(l.Seen[r]) {
			if law := l.Seen[r][t].Law; law != nil {
				if live[r] == nil {
					live[r] = map[string]*Law{}
				}
				live[r][t] = law
			}
		}
	}
	return live
}

// Models returns what was learned as models; other sections are those of prior, which may be nil.
func (l *Learner) Models(prior *Models) *Models {
	m := &Models{}
	if prior != nil {
		*m = *prior
		m.Sections = slices.DeleteFunc(slices.Clone(prior.Sections), is[Live])
	}
	if live := l.Live(); len(live) > 0 {
		m.Sections = append(m.Sections, live)
	}
	return m
}

// Coverage returns the share of windows whose response time stayed within the predicted margin, and how many windows were judged.
func (l *Learner) Coverage() (share, windows float64) {
	var judged, covered float64
	if l == nil {
		return 0, 0
	}
	for _, types := range l.Seen {
		for _, t := range sortedKeys(types) {
			judged, covered = judged+types[t].Judged, covered+types[t].Covered
		}
	}
	if judged == 0 {
		return 0, 0
	}
	return covered / judged, judged
}

// Count returns how many windows are stored of a resource, and how many of them have a response time.
func (l *Learner) Count(r quell.Resource) (windows, answered int) {
	if l == nil {
		return 0, 0
	}
	for _, record := range l.Seen[r] {
		for i := range record.Windows {
			windows++
			if record.Windows[i].N > 0 {
				answered++
			}
		}
	}
	return windows, answered
}
