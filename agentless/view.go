package agentless

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
)

// View judges the instances of a running service, snapshot by snapshot, where no agent reports. Its zero value knows nothing.
type View struct {
	memory  Memory
	without map[string]int // periods in which no agent reported, by instance
	Ended   []string       // instances whose agent has been silent for long enough, since the last look
	Back    []string       // and those whose agent reports again
}

const (
	// silentFor is for how many periods an agent must be silent before its instance counts as one without an agent.
	silentFor = 3
	// coarse is below how many milliseconds a time to connect in whole milliseconds tells nothing: HAProxy's log has no finer ones.
	coarse = 4.0
	// listed is how many instances a reason names.
	listed = 3
)

// Look judges each instance by its requests and by the time that connections to it take, and returns reasons with what that shows of those
// without an agent. All are judged, so that what is usual is known when an agent ends. needed says whether the policy needs agents: then
// what is missing is a reason, too.
func (v *View) Look(s *quell.Snapshot, service *quell.Service, needed bool) (reasons []quell.Reason) {
	samples := samplesOf(s)
	findings, memory := Judge(v.memory, s.At, samples, service.SLO.ThresholdMS())
	v.memory = memory
	without, parts := v.withoutAgent(s, service.Sampling), partsOf(findings)
	var usual []string
	for i := range findings {
		f := &findings[i]
		switch {
		case !without[f.ID]:
		case f.Slowed || f.Slow:
			reasons = append(reasons, quell.Reason{Code: "no_agent", Instance: f.ID, Text: f.Text() + advice(s, parts, f.ID)})
		default:
			usual = append(usual, f.ID)
		}
	}
	if len(usual) > 0 && needed {
		reasons = append(reasons, quell.Reason{Code: "no_agent", Text: enumerated(usual) +
			" judged by requests and times to connect alone, and nothing shows neighbours there. " + lacking(samples, usual)})
	}
	return reasons
}

// samplesOf returns what balancers see of the instances that are in use.
func samplesOf(s *quell.Snapshot) (samples []Sample) {
	for i := range s.Instances {
		in := &s.Instances[i]
		if in.Observation == nil || in.State != quell.Ready {
			continue
		}
		o := in.Observation
		sample := Sample{ID: in.ID, Rate: o.RequestRate}
		if ms, ok := o.LatencyMS.Of(quell.Mean); ok {
			sample.LatencyMS = &ms
		}
		if ms, ok := o.TCP["connect_ms_p90"]; ok && ms > 0 && (ms >= coarse || ms != math.Trunc(ms)) {
			sample.ConnectMS = &quell.ProbeStats{MeanMS: ms, N: 1}
		}
		samples = append(samples, sample)
	}
	return samples
}

// withoutAgent returns the instances from which no agent has reported for some periods.
func (v *View) withoutAgent(s *quell.Snapshot, period time.Duration) map[string]bool {
	next, ids := map[string]int{}, map[string]bool{}
	v.Ended, v.Back = nil, nil
	for i := range s.Instances {
		in := &s.Instances[i]
		before := v.without[in.ID]
		if in.State != quell.Ready || in.Observation == nil {
			continue
		}
		if agentReports(in.Observation, s.At, period) {
			if before >= silentFor {
				v.Back = append(v.Back, in.ID)
			}
			continue
		}
		if next[in.ID] = min(before+1, silentFor); next[in.ID] < silentFor {
			continue
		}
		if ids[in.ID] = true; before < silentFor {
			v.Ended = append(v.Ended, in.ID)
		}
	}
	v.without = next
	return ids
}

// agentReports returns whether an observation has what only an agent measures, and is not old.
func agentReports(o *quell.Observation, now time.Time, period time.Duration) bool {
	return len(o.Utilization) > 0 && now.Sub(o.At) <= 2*period
}

// partsOf divides the load by what each instance has answered within the objective, less for one that is slowed now. It is nil if that is
// not known of each.
func partsOf(findings []Finding) map[string]float64 {
	parts, sum := map[string]float64{}, 0.0
	for _, f := range findings {
		if f.Carried == nil {
			return nil
		}
		parts[f.ID] = *f.Carried
		if f.Slowed {
			parts[f.ID] /= 1 + *f.Severity
		}
		sum += parts[f.ID]
	}
	for id := range maps.Keys(parts) {
		parts[id] /= sum
	}
	return parts
}

// advice says which share would suit an instance that is slowed.
func advice(s *quell.Snapshot, parts map[string]float64, id string) string {
	for i := range s.Instances {
		if in := &s.Instances[i]; in.ID == id && in.Weight != nil && parts[id] < *in.Weight {
			return fmt.Sprintf(". By that, a share of %.2f instead of %.2f would suit it; without an agent's readings, none is changed for this",
				parts[id], *in.Weight)
		}
	}
	return ""
}

// lacking says what is missing of some instances.
func lacking(samples []Sample, ids []string) string {
	var requests, connects int
	for i := range samples {
		if !slices.Contains(ids, samples[i].ID) {
			continue
		}
		if samples[i].LatencyMS == nil {
			requests++
		}
		if samples[i].ConnectMS == nil {
			connects++
		}
	}
	text := "Use of processors, memory, disk and link is not known"
	if requests > 0 {
		text += fmt.Sprintf("; of %d no response times arrive", requests)
	}
	if connects > 0 {
		text += fmt.Sprintf("; %d have no usable time to connect (HAProxy logs whole milliseconds)", connects)
	}
	return text
}

// enumerated names instances.
func enumerated(ids []string) string {
	switch n := len(ids); {
	case n == 1:
		return ids[0] + " is"
	case n > listed:
		return fmt.Sprintf("%s and %d more are", strings.Join(ids[:listed], ", "), n-listed)
	}
	return strings.Join(ids, ", ") + " are"
}
