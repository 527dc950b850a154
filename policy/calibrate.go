package policy

import (
	"math"
	"slices"

	"github.com/quellhq/quell"
)

const (
	// minCollected is how many response times calibration collects before it uses the lowest of the snapshots' values.
	minCollected = 30
	// mostCollected is how many response times one snapshot may contribute, so that no sum overflows.
	mostCollected = 1 << 40
	// leastOffset is the severity below which a decaying correction is dropped: a thousandth of the probe time.
	leastOffset = 0.001
	// farMissed is how many times the threshold measured response times must be if nothing is predicted near it, and farMissedFor how many
	// more snapshots must show that.
	farMissed, farMissedFor = 1.5, 2
)

// calibrate corrects predictions that turn out too low (PRIMA, section IV). If the response time predicted for an instance is within
// delta of the threshold, measured response times are collected for a short time. If all of them exceed the threshold, calibration
// uses the severity for which the response-time model gives these times, within the range in which the model was trained. One slow
// window is not enough.
//
// Beyond the paper, if probes were seen not to respond to load, an instance that misses the objective by far is corrected however short the
// prediction is: nothing else shows its neighbours.
//
// The correction is kept as an offset that is added to the measured severity. The offset decays slowly. Whether an instance is within
// delta of the threshold is decided with the offset: otherwise the correction would lower the load, and the lower load would end the
// correction. Measurements that need no such offset end it earlier. If there are several resources, the one with the longest predicted
// response time is corrected. If another one takes its place, the correction is dropped. calibrate returns whether it raised an offset.
func calibrate(in *Input, set PRIMASettings, g *Group, plan *quell.Plan) bool {
	if set.Calibrate == 0 {
		return false
	}
	raised := false
	for _, m := range g.rated {
		raised = m.calibrate(in, set, plan) || raised
	}
	return raised
}

func (m *Member) calibrate(in *Input, set PRIMASettings, plan *quell.Plan) bool {
	mem, threshold := m.prima(), in.Service.SLO.ThresholdMS()
	by := m.corrected(in)
	s := &m.Senses[by]
	mem.Offset *= 1 - set.CalibrationDecay
	latency, n := m.newLatency(in.Service)
	mem.doubt(m.explain(in, by, s.Use, latency), n, set.Confirm)
	if mem.Offset < leastOffset {
		mem.Offset = 0
	}
	s.Severity += mem.Offset
	predicted, longest := m.predict(in)
	if longest != by {
		s.Severity = s.Measured
		mem.correct(in.contended[longest].Resource)
		return false
	}
	confirm, near := set.Confirm, math.Abs(predicted-threshold) <= set.Calibrate*threshold
	switch {
	case near:
	case in.contended[by].of(m.Type).Predictor.Deaf() && predicted < threshold && (n == 0 || latency > farMissed*threshold):
		confirm += farMissedFor
	default:
		mem.forgetCollected()
		return false
	}
	if n == 0 || !mem.collect(latency, s.Use, n, confirm) {
		return false
	}
	least, use := mem.CollectedMS, mem.CollectedUse
	mem.forgetCollected()
	s.Severity = s.Measured
	offset := m.explain(in, by, use, least)
	s.Severity += mem.Offset
	if least <= threshold || offset <= mem.Offset {
		return false
	}
	mem.Offset, s.Severity = offset, s.Measured+offset
	AddReason(plan, "calibrated", m.ID, "%s measured %.1f ms where %.1f ms was predicted: taking its severity%s for %.2f, not %.2f",
		m.ID, least, predicted, in.of(by), s.Severity, s.Measured)
	return true
}

// corrected returns the index of the resource whose severity calibration corrects. If the policy no longer uses that resource, its
// correction is dropped.
func (m *Member) corrected(in *Input) int {
	mem := m.prima()
	if !in.several() && mem.Of == "" {
		return 0
	}
	i := slices.IndexFunc(in.contended, func(c contended) bool { return c.Resource == mem.Of })
	if i < 0 {
		i = 0
		mem.correct(in.contended[i].Resource)
	}
	return i
}

// correct drops the present correction and starts one of another resource.
func (mem *primaInstance) correct(of quell.Resource) {
	mem.Of, mem.Offset, mem.Good = of, 0, 0
	mem.forgetCollected()
}

// predict returns the response time in milliseconds that the models predict for an instance now, and the resource that determines it.
func (m *Member) predict(in *Input) (longest float64, by int) {
	longest = -1
	for i := range m.Senses {
		s := &m.Senses[i]
		if s.out {
			continue
		}
		if ms := m.predictBy(in, i); ms > longest {
			longest, by = ms, i
		}
	}
	return longest, by
}

// predictBy is predict for one resource.
func (m *Member) predictBy(in *Input, i int) float64 {
	s, predictor := &m.Senses[i], in.contended[i].of(m.Type).Predictor
	station := predictor.Station()
	if station == nil || m.now == nil {
		return predictor.ResponseTime(s.Use, s.Severity)
	}
	s.interfering = s.takenOf(predictor)
	return station.ResponseMS(in.queue(i, m.Type, m.now[i].Size), m.sees(i, m.now, s.Use*m.rates[i]), s.interfering)
}

// explain returns what must be added to the severity so that the model gives the response time latencyMS. The sum stays within the trained
// range.
func (m *Member) explain(in *Input, i int, use, latencyMS float64) float64 {
	predictor := in.contended[i].of(m.Type).Predictor
	if station := predictor.Station(); station != nil && m.now != nil {
		taken := station.TakenExplaining(in.queue(i, m.Type, m.now[i].Size), m.sees(i, m.now, use*m.rates[i]), latencyMS)
		return math.Max(0, math.Min(predictor.SeverityAt(use, taken), predictor.MaxSeverity(use))-m.Senses[i].Severity)
	}
	return math.Max(0, math.Min(predictor.SeverityExplaining(use, latencyMS), predictor.MaxSeverity(use))-m.Senses[i].Severity)
}

// newLatency returns the response time of the instance's observation and its number of requests. Both are 0 if there is no observation
// that was not used before.
func (m *Member) newLatency(service *quell.Service) (ms float64, n int) {
	mem := m.prima()
	if !m.Fresh || mem.CollectedAt != nil && mem.CollectedAt.Equal(m.Observation.At) {
		return 0, 0
	}
	ms, ok := m.Observation.LatencyMS.Of(service.SLO.Metric)
	if !ok || m.Observation.LatencyMS.N == 0 {
		return 0, 0
	}
	at := m.Observation.At
	mem.CollectedAt = &at
	return ms, min(m.Observation.LatencyMS.N, mostCollected)
}

// doubt halves the offset after more than confirm consecutive measurements that need less than half of it.
func (mem *primaInstance) doubt(explained float64, n, confirm int) {
	switch {
	case n < minCollected && mem.Offset > 0:
		return
	case mem.Offset == 0 || explained > mem.Offset/2:
		mem.Good = 0
		return
	}
	if mem.Good++; mem.Good > confirm {
		mem.Offset, mem.Good = mem.Offset/2, 0
	}
}

// collect counts one more response time and keeps the lowest. It returns whether enough were collected to decide.
func (mem *primaInstance) collect(latencyMS, use float64, n, confirm int) bool {
	if mem.Collected == 0 || latencyMS < mem.CollectedMS {
		mem.CollectedMS, mem.CollectedUse = latencyMS, use
	}
	mem.CollectedN += n
	mem.Collected++
	return mem.Collected > confirm && mem.CollectedN >= minCollected
}

func (mem *primaInstance) forgetCollected() {
	mem.Collected, mem.CollectedN, mem.CollectedMS, mem.CollectedUse = 0, 0, 0, 0
}
