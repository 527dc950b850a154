package prima

import (
	"math"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

const (
	// minCollected is how many response times calibration collects before it uses the lowest of the snapshots' values.
	minCollected = 30
	// maxCollected is how many response times one snapshot may contribute, so that no sum overflows.
	maxCollected = 1 << 40
	// minOffset is the severity below which a decaying correction is dropped: a thousandth of the probe time.
	minOffset = 0.001
	// farMissed is how many times the threshold measured response times must be if nothing is predicted near it, and farMissedFor how many
	// more snapshots must show that.
	farMissed, farMissedFor = 1.5, 2
)

// calibrate corrects predictions that turn out too low (PRIMA, section IV). If the response time predicted for an instance is within
// delta of the threshold, measured response times are collected for a short time. If all of them exceed the threshold, calibration
// uses the severity for which the response-time model gives these times, within the range in which the model was trained.
//
// Beyond the paper, if probes were seen not to respond to load, an instance that misses the objective by far is corrected however short the
// prediction is: nothing else shows its neighbours.
//
// The correction is kept as an offset that is added to the measured severity. The offset decays slowly. Whether an instance is within
// delta of the threshold is decided with the offset: otherwise the correction would lower the load, and the lower load would end the
// correction. Measurements that need no such offset end it earlier. If there are several resources, the one with the longest predicted
// response time is corrected. If another one takes its place, the correction is dropped. calibrate returns whether it raised an offset.
func calibrate(in *policy.Input, set Settings, g *policy.Group, plan *quell.Plan) bool {
	if set.Calibrate == 0 {
		return false
	}
	raised := false
	for i := range g.Members {
		correctedResource(&g.Members[i], in) // also while it is not rated
	}
	for _, m := range g.Rated {
		raised = calibrateMember(m, in, set, plan) || raised
	}
	return raised
}

func calibrateMember(m *policy.Member, in *policy.Input, set Settings, plan *quell.Plan) bool {
	mem, threshold := instanceOf(m), in.Service.SLO.ThresholdMS()
	by := correctedResource(m, in)
	s := &m.Senses[by]
	mem.Offset *= 1 - set.CalibrationDecay
	latency, n := newLatency(m, in.Service)
	if mem.Offset == 0 {
		mem.Good = 0
	} else if n >= minCollected {
		mem.doubt(explaining(m, in, by, s.Use, latency), set.Confirm)
	}
	if mem.Offset < minOffset {
		mem.Offset = 0
	}
	s.Severity += mem.Offset
	predicted, longest := m.Predict(in)
	if longest != by {
		s.Severity = s.Measured
		mem.correct(in.Contended[longest].Resource)
		return false
	}
	confirm, near := set.Confirm, math.Abs(predicted-threshold) <= set.Calibrate*threshold
	switch {
	case near:
	case in.Contended[by].Of(m.Type).Predictor.Deaf() && predicted < threshold && (n == 0 || latency > farMissed*threshold):
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
	offset := explaining(m, in, by, use, least)
	s.Severity += mem.Offset
	if least <= threshold || offset <= mem.Offset {
		return false
	}
	mem.Offset, s.Severity = offset, s.Measured+offset
	policy.AddReason(plan, "calibrated", m.ID, "%s measured %.1f ms where %.1f ms was predicted: taking its severity%s for %.2f, not %.2f",
		m.ID, least, predicted, in.Of(by), s.Severity, s.Measured)
	return true
}

// correctedResource returns the index of the resource whose severity is corrected. If it is no longer used, its correction is dropped.
func correctedResource(m *policy.Member, in *policy.Input) int {
	mem := instanceOf(m)
	of := mem.Of
	if of == "" && !in.Several() {
		of = policy.DefaultResource
	}
	i := slices.IndexFunc(in.Contended, func(c policy.Contended) bool { return c.Resource == of })
	if i < 0 {
		i = 0
		mem.correct(in.Contended[i].Resource)
	}
	return i
}

// correct drops the present correction and starts one of another resource.
func (mem *instance) correct(of quell.Resource) {
	mem.Of, mem.Offset, mem.Good = of, 0, 0
	mem.forgetCollected()
}

// explaining returns what must be added to the severity so that the model gives the response time latencyMS, within the trained range.
func explaining(m *policy.Member, in *policy.Input, i int, use, latencyMS float64) float64 {
	predictor := in.Contended[i].Of(m.Type).Predictor
	if station := predictor.Station(); station != nil && m.Now != nil {
		taken := station.TakenExplaining(in.Queue(i, m.Type, m.Now[i].Size), m.Sees(i, m.Now, use*m.Rates[i]), latencyMS)
		return math.Max(0, math.Min(predictor.SeverityAt(use, taken), predictor.MaxSeverity(use))-m.Senses[i].Severity)
	}
	return math.Max(0, math.Min(predictor.SeverityExplaining(use, latencyMS), predictor.MaxSeverity(use))-m.Senses[i].Severity)
}

// newLatency returns the response time of the instance's observation, if that was not used before, and its number of requests; else 0.
func newLatency(m *policy.Member, service *quell.Service) (ms float64, n int) {
	mem := instanceOf(m)
	if !m.Fresh || mem.CollectedAt.Equal(m.Observation.At) {
		return 0, 0
	}
	ms, ok := m.Observation.LatencyMS.Of(service.SLO.Metric)
	if !ok || m.Observation.LatencyMS.N == 0 {
		return 0, 0
	}
	mem.CollectedAt = m.Observation.At
	return ms, min(m.Observation.LatencyMS.N, maxCollected)
}

// doubt halves the offset after more than confirm consecutive measurements that need less than half of it.
func (mem *instance) doubt(explained float64, confirm int) {
	if mem.Good = policy.Consecutive(mem.Good, explained <= mem.Offset/2); mem.Good > confirm {
		mem.Offset, mem.Good = mem.Offset/2, 0
	}
}

// collect counts one more response time and keeps the lowest. It returns whether enough were collected to decide.
func (mem *instance) collect(latencyMS, use float64, n, confirm int) bool {
	if mem.Collected == 0 || latencyMS < mem.CollectedMS {
		mem.CollectedMS, mem.CollectedUse = latencyMS, use
	}
	mem.CollectedN += n
	mem.Collected++
	return mem.Collected > confirm && mem.CollectedN >= minCollected
}

func (mem *instance) forgetCollected() {
	mem.Collected, mem.CollectedN, mem.CollectedMS, mem.CollectedUse = 0, 0, 0, 0
}
