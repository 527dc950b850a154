package policy

import (
	"math"

	"github.com/quellhq/quell"
)

// minCollected is how many response times a calibration wants before it believes their mean.
const minCollected = 30

// calibrate corrects predictions that turn out too low (PRIMA, section IV). Where the response time predicted for
// an instance lies within delta of the threshold, the measured one is collected for a short time; if it exceeds
// the threshold, the severity that explains it in the response-time model is used instead.
//
// The correction is kept as an offset to the measured severity that decays slowly, and the band is judged with it:
// otherwise the lower load that follows would leave the band and undo the correction. It returns whether an offset
// was raised now.
func calibrate(in Input, g *group, st *State) bool {
	delta := in.Service.Policy.Calibrate
	if delta == 0 {
		return false
	}
	threshold := in.Service.SLO.ThresholdMS()
	raised := false
	for _, m := range g.rated {
		mem := st.Instances[m.ID]
		mem.Offset *= 1 - in.Service.Policy.CalibrationDecay
		measured := m.severity
		m.severity += mem.Offset
		predicted := in.Predictor.ResponseTime(m.use, m.severity)
		if math.Abs(predicted-threshold) > delta*threshold {
			mem.forgetCollected()
		} else if mem.collect(m, in.Service) && mem.CollectedMS > threshold {
			explained := in.Predictor.SeverityExplaining(mem.CollectedUse, mem.CollectedMS)
			raised = mem.raise(explained-measured) || raised
			m.severity = measured + mem.Offset
		}
		st.Instances[m.ID] = mem
	}
	return raised
}

// collect adds a snapshot's response time and says whether enough are there to judge.
func (mem *InstanceState) collect(m *member, service *quell.Service) bool {
	if !m.fresh {
		return false
	}
	latency, ok := m.Observation.LatencyMS.Of(service.SLO.Metric)
	if !ok || m.Observation.LatencyMS.N == 0 {
		return false
	}
	n := m.Observation.LatencyMS.N
	share := float64(n) / float64(mem.CollectedN+n)
	mem.CollectedMS += share * (latency - mem.CollectedMS)
	mem.CollectedUse += share * (m.use - mem.CollectedUse)
	mem.CollectedN += n
	mem.Collected++
	return mem.Collected > service.Policy.Confirm && mem.CollectedN >= minCollected
}

// raise sets the offset, if that is higher, and starts a new collection.
func (mem *InstanceState) raise(offset float64) bool {
	mem.forgetCollected()
	if offset <= mem.Offset {
		return false
	}
	mem.Offset = offset
	return true
}

func (mem *InstanceState) forgetCollected() {
	mem.Collected, mem.CollectedN, mem.CollectedMS, mem.CollectedUse = 0, 0, 0, 0
}
