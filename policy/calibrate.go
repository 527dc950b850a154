package policy

import (
	"math"
	"slices"

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
// the threshold in all of that time, the severity that explains it in the response-time model is used instead, within the
// range that the model was trained for: a single slow window says nothing, and no window says more than the model knows.
//
// The correction is kept as an offset to the measured severity that decays slowly, and the band is judged with it:
// otherwise the lower load that follows would leave the band and undo the correction. Measurements that the offset does
// not explain end it sooner. Of several resources the one is corrected whose predicted response time is the longest; when another one
// takes its place, the correction is forgotten. It returns whether an offset was raised now.
func calibrate(in *Input, set PRIMASettings, g *group, plan *quell.Plan) bool {
	if set.Calibrate == 0 {
		return false
	}
	raised := false
	for _, m := range g.rated {
		raised = m.calibrate(in, set, plan) || raised
	}
	return raised
}

func (m *member) calibrate(in *Input, set PRIMASettings, plan *quell.Plan) bool {
	mem, threshold := m.prima(), in.Service.SLO.ThresholdMS()
	by := m.corrected(in)
	s := &m.senses[by]
	mem.Offset *= 1 - set.CalibrationDecay
	latency, n := m.newLatency(in.Service)
	mem.doubt(s.explain(in, by, s.use, latency), n, set.Confirm)
	if mem.Offset < leastOffset {
		mem.Offset = 0
	}
	s.severity += mem.Offset
	predicted, longest := m.predict(in)
	if longest != by {
		s.severity = s.measured
		mem.correct(in.contended[longest].resource)
		return false
	}
	if math.Abs(predicted-threshold) > set.Calibrate*threshold {
		mem.forgetCollected()
		return false
	}
	if n == 0 || !mem.collect(latency, s.use, n, set.Confirm) {
		return false
	}
	least, use := mem.CollectedMS, mem.CollectedUse
	mem.forgetCollected()
	s.severity = s.measured
	offset := s.explain(in, by, use, least)
	s.severity += mem.Offset
	if least <= threshold || offset <= mem.Offset {
		return false
	}
	mem.Offset, s.severity = offset, s.measured+offset
	addReason(plan, "calibrated", m.ID, "%s measured %.1f ms where %.1f ms was predicted: taking its severity%s for %.2f, not %.2f",
		m.ID, least, predicted, in.of(by), s.severity, s.measured)
	return true
}

// corrected is the resource whose severity calibration corrects. What was learned of one that the policy goes by no more is forgotten.
func (m *member) corrected(in *Input) int {
	mem := m.prima()
	if !in.several() && mem.Of == "" {
		return 0
	}
	i := slices.IndexFunc(in.contended, func(c contended) bool { return c.resource == mem.Of })
	if i < 0 {
		i = 0
		mem.correct(in.contended[i].resource)
	}
	return i
}

// correct begins anew, with another resource.
func (mem *primaInstance) correct(of quell.Resource) {
	mem.Of, mem.Offset, mem.Good = of, 0, 0
	mem.forgetCollected()
}

// predict is the response time, in milliseconds, that the models expect of an instance as it is, and the resource that makes it that long.
func (m *member) predict(in *Input) (longest float64, by int) {
	longest = -1
	for i := range m.senses {
		s := &m.senses[i]
		if s.out {
			continue
		}
		if ms := in.contended[i].predictor.ResponseTime(s.use, s.severity); ms > longest {
			longest, by = ms, i
		}
	}
	return longest, by
}

// explain returns what must be added to the severity so that it explains a response time, within the range that was trained.
func (s *sense) explain(in *Input, i int, use, latencyMS float64) float64 {
	predictor := in.contended[i].predictor
	return math.Max(0, math.Min(predictor.SeverityExplaining(use, latencyMS), predictor.MaxSeverity(use))-s.severity)
}

// newLatency returns the response time of an observation that was not seen before, and how many requests it is of: 0 if there is none.
func (m *member) newLatency(service *quell.Service) (ms float64, n int) {
	mem := m.prima()
	if !m.fresh || mem.CollectedAt != nil && mem.CollectedAt.Equal(m.Observation.At) {
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

// doubt halves the offset where more than confirm measurements in a row ask for less than half of it.
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

// collect keeps the least response time, and says whether enough are there to judge.
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
