// Package agentless finds interference from the outside: from how long connections, small downloads and requests take as a load balancer's
// side sees them. Nothing runs on the servers, so their use of resources is unknown: what cannot be told is said. It is pure.
package agentless

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Sample is what was measured about an instance in one window. What was not measured is nil.
type Sample struct {
	ID        string            `json:"id"`
	Rate      *float64          `json:"rate,omitempty"` // requests per second, from the balancer
	LatencyMS *float64          `json:"latency_ms,omitempty"`
	ConnectMS *quell.ProbeStats `json:"connect_ms,omitempty"` // opening connections
	ProbeMS   *quell.ProbeStats `json:"probe_ms,omitempty"`   // downloads of a small file
	Failed    string            `json:"failed,omitempty"`     // why there are no probes
}

// Finding is what is concluded about an instance.
type Finding struct {
	ID       string   `json:"id"`
	Severity *float64 `json:"severity,omitempty"` // how much longer probes take than without neighbours, a fraction; nil: unknown
	Slowed   bool     `json:"slowed"`             // beyond chance, in several windows, and not by its own load
	Slow     bool     `json:"slow"`               // requests are slow, but nothing shows that neighbours are why
	By       Signal   `json:"by,omitempty"`       // the signal that shows it best
	// Carried is the highest rate of requests per second that was answered within the objective; nil: unknown.
	Carried *float64 `json:"carried,omitempty"`
	Missing []string `json:"missing,omitempty"`
	Unknown string   `json:"unknown,omitempty"` // why there is no severity
}

// Signal names what is compared.
type Signal string

// The signals, the best first.
const (
	Probe   Signal = "downloads"
	Connect Signal = "connects"
	Latency Signal = "requests"
)

var signals = []Signal{Probe, Connect, Latency}

// Constants of the judgement.
const (
	confirm    = 2    // windows that must show it, with none between them that shows nothing
	enough     = 6    // windows after which an instance's own usual time is known
	usualOver  = 60   // windows of the usual time
	leastShift = 0.22 // logarithm: at least 25% longer
	// leastAtFirst is used while an instance is only compared with the others: twice as long. Machines may differ.
	leastAtFirst = 0.69
	deviations   = 4.0  // and this many standard deviations of what usually remains
	priorSD      = 0.10 // of what remains, while few windows are known
	alike        = 3.0  // a shift must be this many standard errors of the window's own mean: a few slow connections are no neighbour
	stays        = 0.5  // of leastShift: a server that was slowed counts as slowed until confirm windows are below it
	forgetAt     = 1000 // windows without an instance, after which it is forgotten
)

// Judge judges a window with what is remembered, and returns the findings, in the order of the samples, and the memory for the next window.
// threshold is the objective in milliseconds; 0: unknown. Its cost is that of sorting the samples. The old memory stays as it is.
func Judge(m Memory, at time.Time, samples []Sample, threshold float64) ([]Finding, Memory) {
	next := m.copied(at)
	findings := make([]Finding, len(samples))
	logs := make([][]float64, len(signals))
	for k, signal := range signals {
		logs[k] = shifts(m, samples, signal)
	}
	for i := range samples {
		s := &samples[i]
		known := next.of(s.ID)
		findings[i] = judgeOne(s, known, [3]float64{logs[0][i], logs[1][i], logs[2][i]})
		known.learn(s, findings[i].suspected(known), [3]float64{logs[0][i], logs[1][i], logs[2][i]})
		known.carry(s, threshold)
		if known.Carried > 0 {
			findings[i].Carried = new(known.Carried)
		}
	}
	next.forget()
	return findings, next
}

// suspected returns whether a window must not teach what is usual.
func (f *Finding) suspected(k *Known) bool { return f.Slowed || f.Slow || k.Passed > 0 }

// value returns the mean time of a signal in milliseconds, and whether it was measured.
func (s *Sample) value(signal Signal) (float64, bool) {
	var v float64
	switch {
	case signal == Probe && s.ProbeMS != nil:
		v = s.ProbeMS.MeanMS
	case signal == Connect && s.ConnectMS != nil:
		v = s.ConnectMS.MeanMS
	case signal == Latency && s.LatencyMS != nil:
		v = *s.LatencyMS
	}
	return v, v > 0 && !math.IsInf(v, 0)
}

// shifts returns, by sample, the logarithm of how much longer a signal takes than usual, beyond what all instances share: a wave of load
// lengthens the times of all of them. NaN: unknown.
func shifts(m Memory, samples []Sample, signal Signal) []float64 {
	out := make([]float64, len(samples))
	usual := typical(m, samples, signal)
	var all []float64
	for i := range samples {
		s := &samples[i]
		out[i] = math.NaN()
		v, ok := s.value(signal)
		expected := usual
		if k := m.Known[s.ID]; k != nil && k.of(signal).N >= enough {
			expected = k.of(signal).Log
		}
		if ok && !math.IsNaN(expected) {
			out[i] = math.Log(v) - expected - ownLoad(m.Known[s.ID], s)
			all = append(all, out[i])
		}
	}
	shared := 0.0
	if len(samples) > 1 {
		shared = lowerMedian(all)
	}
	for i := range out {
		out[i] -= shared
	}
	return out
}

// typical returns the logarithm of a signal's time at the median instance: what is expected of one that is not known yet. NaN if fewer than
// three were measured.
func typical(m Memory, samples []Sample, signal Signal) float64 {
	var all []float64
	for i := range samples {
		if v, ok := samples[i].value(signal); ok {
			all = append(all, math.Log(v))
		}
	}
	if len(all) < 3 {
		return math.NaN()
	}
	return lowerMedian(all)
}

// lowerMedian returns the median, of an even number the lower one; 0 if there is none.
func lowerMedian(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Clone(v)
	slices.Sort(v)
	return v[(len(v)-1)/2]
}

// ownLoad returns how much longer an instance's times are expected to be because it gets more requests than usual: at most in proportion.
// So a larger share of the traffic is not taken for a neighbour.
func ownLoad(k *Known, s *Sample) float64 {
	if k == nil || s.Rate == nil || k.Rate.N < enough || !(*s.Rate > 0) {
		return 0
	}
	return max(0, math.Log(*s.Rate)-k.Rate.Log)
}

// judgeOne concludes from the shifts of an instance's signals. It counts in known for how many windows they were beyond chance.
func judgeOne(s *Sample, known *Known, shift [3]float64) Finding {
	f := Finding{ID: s.ID, Missing: missing(s)}
	shown := slices.IndexFunc(signals[:2], func(signal Signal) bool { // slow requests alone may have other reasons
		v := shift[slices.Index(signals, signal)]
		return beyond(v, known.of(signal)) && s.together(signal, v)
	})
	v := best(shift)
	if shown >= 0 {
		v = shift[shown]
	}
	if !math.IsNaN(v) {
		f.Severity = new(max(0, math.Expm1(v)))
	} else {
		f.Unknown = unknown(s)
	}
	if shown < 0 && known.lasts(v) {
		f.Slowed, f.By = true, signals[known.By]
		return f
	}
	if shown < 0 {
		if known.Calm = 0; !(v > stays*leastShift) { // else the next window decides
			known.Passed = 0
		}
		f.Slow = beyond(shift[2], known.of(Latency))
		return f
	}
	known.Passed, known.Calm, known.By = min(known.Passed+1, confirm), 0, shown
	if f.By = signals[shown]; known.Passed >= confirm {
		f.Slowed = true
	}
	return f
}

// together returns whether the connections of a window were slow together. If the side that looks was busy for a moment, a few of them took
// long and the others did not: then the mean's standard error is large, too. Downloads are few and vary by the neighbour itself.
func (s *Sample) together(signal Signal, shift float64) bool {
	if signal != Connect || s.ConnectMS.N < 2 {
		return true
	}
	p := s.ConnectMS
	se := p.StddevMS / math.Sqrt(float64(p.N)) / p.MeanMS // of the mean's logarithm
	return -math.Expm1(-shift) > alike*se
}

// lasts returns whether a server that was slowed counts as slowed in a window that does not show it. Severity changes with the neighbour's
// load, so single windows say little.
func (k *Known) lasts(shift float64) bool {
	if k.Passed < confirm || math.IsNaN(shift) {
		return false
	}
	if shift > stays*leastShift {
		k.Calm = 0
		return true
	}
	k.Calm++
	return k.Calm < confirm
}

// best returns the shift of the best signal that was measured. Requests are none: they may be slow for other reasons.
func best(shift [3]float64) float64 {
	if !math.IsNaN(shift[0]) {
		return shift[0]
	}
	return shift[1]
}

// beyond returns whether a shift is more than chance.
func beyond(shift float64, t *Track) bool {
	least := leastShift
	if t.N < enough {
		least = leastAtFirst
	}
	return shift > max(least, deviations*t.spread()) // false for NaN
}

// unknown says why a sample tells nothing.
func unknown(s *Sample) string {
	if s.ProbeMS == nil && s.ConnectMS == nil && s.Failed != "" {
		return s.Failed
	}
	return "what is usual is not known yet: look for longer"
}

func missing(s *Sample) (list []string) {
	if s.Failed != "" {
		list = append(list, "downloads: "+s.Failed)
	} else if s.ProbeMS == nil {
		list = append(list, "downloads of a small file were not measured: without them only a full queue shows neighbours")
	}
	if s.Rate == nil {
		list = append(list, "the balancer reports no requests: own load is not told from neighbours")
	}
	return append(list, "use of processors, memory, disk and link: only an agent on the server measures them")
}

// Text says in one line what was found.
func (f *Finding) Text() string {
	carried := ""
	if f.Carried != nil {
		carried = fmt.Sprintf("; it answered up to %.3g requests/s within the objective", *f.Carried)
	}
	switch {
	case f.Slowed:
		return fmt.Sprintf("%s: slowed by something beside its requests, severity %.2f, as %s show%s", f.ID, *f.Severity, f.By, carried)
	case f.Slow && f.Severity == nil:
		return fmt.Sprintf("%s: requests are slower than usual; why is not known: %s%s", f.ID, f.Unknown, carried)
	case f.Slow:
		return fmt.Sprintf("%s: requests are slower than usual, but nothing shows that neighbours are why%s", f.ID, carried)
	case f.Severity == nil:
		return fmt.Sprintf("%s: not known: %s%s", f.ID, f.Unknown, carried)
	}
	return fmt.Sprintf("%s: as usual, severity %.2f%s", f.ID, *f.Severity, carried)
}
