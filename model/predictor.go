package model

import (
	"fmt"
	"math"
	"slices"

	"github.com/quellhq/quell"
)

// Spec says which tables of the models a predictor uses, and how.
type Spec struct {
	Resource          quell.Resource
	InstanceType      string // of what was learned in place; types without a law of their own get that of their kin
	Metric            quell.Metric
	InterferenceModel quell.InterferenceModel
	Confidence        float64 // confidence level of the one-sided test in Eq. 1, a fraction
}

// Predictor makes PRIMA's predictions for one resource from the models. It is immutable, so goroutines may share it.
// Its methods allocate nothing and return finite numbers for finite arguments. Utilisations are fractions, response
// times milliseconds.
type Predictor struct {
	Baseline
	rtm        *surface // response time by utilisation and severity
	felt       severities
	perRequest float64  // 0 if unknown
	margin     *float64 // of a law that was learned in place; nil if unknown
	deaf       bool
	learned    bool     // in place
	station    *Station // of a law that was learned in place; nil if there is none
}

// severities is an interference model: severity as a function of utilisation and interfering utilisation.
type severities struct {
	total curve    // severity by total utilisation; nil in the joint model
	joint *surface // severity by utilisation and interfering utilisation; nil in the total model
	edges []float64
}

// Compile prepares the models for prediction. If they lack the section isolation, response_time or interference of the
// resource, or the metric, the error wraps quell.ErrNoData and names the section. Any other error is a broken rule.
func Compile(m *Models, s Spec) (*Predictor, error) {
	if !slices.Contains(quell.Metrics, s.Metric) {
		return nil, &quell.InvalidError{Path: "metric", Problem: fmt.Sprintf("unknown metric %q", s.Metric)}
	}
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("models: %w", err)
	}
	law := m.Live().of(s.Resource, s.InstanceType)
	m = m.tabulated(s.Resource, s.InstanceType)
	baseline, err := compileBaseline(m, s.Resource, s.Confidence)
	if err != nil {
		return nil, err
	}
	p := &Predictor{Baseline: *baseline, learned: law != nil}
	if p.learned {
		p.margin, p.deaf = law.Margin, law.Deaf
		if law.Together != nil {
			p.station = law.Together.station(s.Metric)
		}
	}
	if p.rtm = responseSurface(m.Prima().ResponseTime[s.Resource], s.Metric); p.rtm == nil {
		return nil, missing("response_time", s.Resource, " with the "+string(s.Metric))
	}
	if p.felt, err = compileSeverities(m.Prima().Interference[s.Resource], s); err != nil {
		return nil, err
	}
	if m.Trained != nil {
		p.perRequest = m.Trained.PerRequest[s.Resource]
	}
	return p, nil
}

// responseSurface returns RTM, the response-time model, for a metric. It returns nil if no row has that metric.
func responseSurface(rows []ResponseTime, metric quell.Metric) *surface {
	levels := map[float64][]point{}
	for _, r := range rows {
		if ms, ok := r.LatencyMS.Of(metric); ok {
			levels[r.Utilization] = append(levels[r.Utilization], point{r.Severity, ms, weightOf(r.Runs)})
		}
	}
	if len(levels) == 0 {
		return nil
	}
	return newSurface(levels)
}

func compileSeverities(rows []Interference, s Spec) (severities, error) {
	if len(rows) == 0 {
		return severities{}, missing("interference", s.Resource, "")
	}
	switch s.InterferenceModel {
	case quell.Joint:
		joint := jointSurface(rows)
		return severities{joint: joint, edges: joint.levels}, nil
	case quell.Total:
		total := totalCurve(rows)
		if total == nil {
			return severities{}, missing("interference", s.Resource, " with a severity above 0")
		}
		felt := severities{total: total}
		for _, k := range total {
			felt.edges = append(felt.edges, k.x)
		}
		return felt, nil
	}
	return severities{}, &quell.InvalidError{Path: "interference_model", Problem: fmt.Sprintf("unknown model %q", s.InterferenceModel)}
}

// jointSurface returns the joint interference model SF = IM2(U, U_int). It is built like a response-time surface, but every
// level starts at severity 0.
func jointSurface(rows []Interference) *surface {
	levels := map[float64][]point{}
	for _, r := range rows {
		if _, ok := levels[r.Utilization]; !ok {
			levels[r.Utilization] = []point{{x: 0, y: 0, weight: 1}}
		}
		levels[r.Utilization] = append(levels[r.Utilization], point{r.Interfering, r.Severity, weightOf(r.Runs)})
	}
	return newSurface(levels)
}

// ResponseTime returns RTM(U, SF), Eq. 2, in milliseconds. Above MaxUtilization nothing was trained; there it returns the
// value at MaxUtilization, which is a lower bound.
func (p *Predictor) ResponseTime(u, sf float64) float64 {
	return p.rtm.at(u, min(max(sf, 0), maxValue))
}

// SeverityAt returns the severity that the interference model gives at utilisation u if neighbours use the fraction interfering. If u
// is above the highest level of the joint model, that level is used.
func (p *Predictor) SeverityAt(u, interfering float64) float64 {
	if !(interfering > 0) {
		return 0
	}
	return p.felt.at(u, interfering)
}

func (s *severities) at(u, interfering float64) float64 {
	if s.joint != nil {
		return s.joint.at(u, interfering)
	}
	return s.total.at(u + interfering)
}

// Interfering is the inverse of SeverityAt: it returns the neighbours' use, in [0, 1-u], for which the severity at utilisation
// u is sf. If there are several such values, it returns the largest. For severity 0 it returns 0.
func (p *Predictor) Interfering(u, sf float64) float64 {
	if !(sf > 0) {
		return 0
	}
	sf = min(sf, maxValue)
	var use float64
	if joint := p.felt.joint; joint != nil {
		st := joint.strip(u)
		use = st.largest(st.share(u), sf)
	} else {
		use = p.felt.total.inverse(sf) - u
	}
	return max(0, min(use, 1-u))
}

// othersExponent is how probe times grow with the use of a resource by neighbours whose traffic nobody knows: as its free part to the power
// of minus this. Random arrivals have 1. Paced packets beside a service of bursts had about 0.7 on real links.
const othersExponent = 0.8

// Supposed returns the neighbours' use that is to be told to people, in [0, 1-u]. It is Interfering for trained models. A law that was
// learned in place only knows how the service's own traffic lengthens probes, and neighbours' traffic need not be as bursty: there the
// exponent is othersExponent.
func (p *Predictor) Supposed(u, sf float64) float64 {
	if !p.learned || !(sf > 0) {
		return p.Interfering(u, sf)
	}
	return max(0, 1-u) * (1 - math.Pow(1+min(sf, maxValue), -1/othersExponent))
}

// SeverityExplaining returns the lowest severity at which the response time at utilisation u is responseMS (PRIMA,
// section IV). It returns 0 if the response time is that long even without interference, and the highest trained severity
// near u if no severity gives such a long response time.
func (p *Predictor) SeverityExplaining(u, responseMS float64) float64 {
	st := p.rtm.strip(u)
	sf := st.smallest(st.share(u), responseMS)
	if !finite(sf) {
		return st.knots[len(st.knots)-1].x
	}
	return min(sf, maxValue)
}

// MaxSeverity returns the highest trained severity near utilisation u. For higher ones response times are extrapolated.
func (p *Predictor) MaxSeverity(u float64) float64 {
	knots := p.rtm.strip(u).knots
	return knots[len(knots)-1].x
}

// MaxUtilization returns the highest trained utilisation. No capacity exceeds it.
func (p *Predictor) MaxUtilization() float64 { return p.rtm.top() }

// Deaf returns whether the probes were seen to take the same time at any load. They show no neighbours then.
func (p *Predictor) Deaf() bool { return p.deaf }

// Station returns the law of the group, nil if nothing was learned in place.
func (p *Predictor) Station() *Station { return p.station }

// Within returns the predictor whose station takes at most unloadedMS without load and neighbours.
func (p *Predictor) Within(unloadedMS float64) *Predictor {
	next := *p
	next.station = p.station.within(unloadedMS)
	return &next
}

// PerRequest returns the utilisation that one request per second causes, and whether it was learned.
func (p *Predictor) PerRequest() (float64, bool) { return p.perRequest, p.perRequest > 0 }

// widestMargin bounds the factor by which a threshold is lowered.
const widestMargin = 2

// Constants of WithReserve.
const (
	reservedPart = 0.7
	maxReserved  = 0.2
)

// WithReserve returns the response time, in milliseconds, that may be predicted at most although headroom is left free. Where response
// times grow slowly with use, a part of the use that is left free leaves little time free. So a part of the learned margin stays free, too:
// less than all of it, because the margin is for single windows. ok is false if nothing was learned in place.
func (p *Predictor) WithReserve(thresholdMS float64) (ms float64, ok bool) {
	if p.margin == nil {
		return thresholdMS, false
	}
	return thresholdMS / (1 + min(reservedPart*math.Expm1(max(*p.margin, 0)), maxReserved)), true
}

// WithMargin returns the response time, in milliseconds, that may be predicted at most so that nine of ten windows stay within the
// threshold. It is at least half the threshold. ok is false if nothing was learned in place, or too few predictions were compared with what
// was measured.
func (p *Predictor) WithMargin(thresholdMS float64) (ms float64, ok bool) {
	if p.margin == nil {
		return thresholdMS, false
	}
	return thresholdMS / min(max(math.Exp(*p.margin), 1), widestMargin), true
}
