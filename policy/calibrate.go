package policy

import (
	"math"

	"github.com/quellhq/quell"
)

const (
	// minCollected is how many response times a calibration wants before it believes their mean.
	minCollected = 30
	// mostCollected is how many of them one snapshot may count for, so that no sum of them overflows.
	mostCollected = 1 << 40
	// leastOffset is the severity below which a decaying correction is forgotten: a thousandth of the probe time.
	leastOffset = 0.001
)

// calibrate corrects predictions that turn out too low (PRIMA, section IV). Where the response time predicted for
// an instance lies within delta of the threshold, the measured one is collected for a short time; if it exceeds
// the threshold, the severity that explains it in the response-time model is used instead.
//
// The correction is kept as an offset to the measured severity that decays slowly, and the band is judged with it:
// otherwise the lower load that follows would leave the band and undo the correction. It returns whether an offset
// was raised now.
func calibrate(in Input, g *group, plan *quell.Plan) bool {
	if in.Service.Policy.Calibrate == 0 {
		return false
	}
	raised := false
	for _, m := range g.rated {
		raised = m.calibrate(in, plan) || raised
	}
	return raised
}

func (m *member) calibrate(in Input, plan *quell.Plan) bool {
	mem, pol, threshold := &m.mem, in.Service.Policy, in.Service.SLO.ThresholdMS()
	if mem.Offset *= 1 - pol.CalibrationDecay; mem.Offset < leastOffset {
		mem.Offset = 0
	}
	measured := m.severity
	m.severity += mem.Offset
	predicted := in.Predictor.ResponseTime(m.use, m.severity)
	if math.Abs(predicted-threshold) > pol.Calibrate*threshold {
		mem.forgetCollected()
		return false
	}
	if !mem.collect(m, in.Service) {
		return false
	}
	latency, use := mem.CollectedMS, mem.CollectedUse
	mem.forgetCollected()
	offset := in.Predictor.SeverityExplaining(use, latency) - measured
	if latency <= threshold || offset <= mem.Offset {
		return false
	}
	mem.Offset, m.severity = offset, measured+offset
	addReason(plan, "calibrated", m.ID, "%s measured %.1f ms where %.1f ms was predicted: taking its severity for %.2f, not %.2f",
		m.ID, latency, predicted, m.severity, measured)
	return true
}

// collect adds an observation's response time, each observation once, and says whether enough are there to judge.
func (mem *InstanceState) collect(m *member, service *quell.Service) bool {
	if !m.fresh || mem.CollectedAt != nil && mem.CollectedAt.Equal(m.Observation.At) {
		return false
	}
	latency, ok := m.Observation.LatencyMS.Of(service.SLO.Metric)
	if !ok || m.Observation.LatencyMS.N == 0 {
		return false
	}
	n := min(m.Observation.LatencyMS.N, mostCollected)
	share := float64(n) / float64(mem.CollectedN+n)
	mem.CollectedMS += share * (latency - mem.CollectedMS)
	mem.CollectedUse += share * (m.use - mem.CollectedUse)
	mem.CollectedN += n
	mem.Collected++
	at := m.Observation.At
	mem.CollectedAt = &at
	return mem.Collected > service.Policy.Confirm && mem.CollectedN >= minCollected
}

func (mem *InstanceState) forgetCollected() {
	mem.Collected, mem.CollectedN, mem.CollectedMS, mem.CollectedUse = 0, 0, 0, 0
}
