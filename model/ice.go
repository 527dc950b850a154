package model

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/stats"
)

// ICE is the section of the policy ICE. It says from which signals of one second it follows that an instance has neighbours, and how busy
// its processors are then at a rate of requests.
type ICE struct {
	Classifier *stats.Tree `json:"classifier,omitempty"`
	// Usual are the mean signals of windows without neighbours.
	Usual map[string]float64 `json:"usual,omitempty"`
	// Signal is the signal c of the estimator. quell.CounterCPI is the one of the paper; the others stand for it on machines without counters.
	Signal    string     `json:"signal,omitempty"`
	Estimator *Estimator `json:"estimator,omitempty"`

	// Fits and Validated say how good the fit was.
	Fits      []EstimatorFit  `json:"fits,omitempty"`      // polynomials by degree (Figure 5)
	Validated stats.Confusion `json:"validated,omitempty"` // predictions of each window by a tree that was fitted to other windows
}

// Estimator is xi of ICE (section IV): how busy the processors of an instance with neighbours are is a linear function of how busy they
// were before (o), of the rate of requests (r) and of the signal (c). All variables are scaled to their ranges in the training.
type Estimator struct {
	Intercept float64        `json:"intercept"`
	Previous  float64        `json:"previous"` // coefficient of o
	Requests  float64        `json:"requests"` // coefficient of r
	CPI       float64        `json:"cpi"`      // coefficient of c
	Range     EstimatorRange `json:"range"`
}

// EstimatorRange holds the smallest and the largest value of each variable in the training: use of the processors as a fraction, requests
// per second, and the signal.
type EstimatorRange struct {
	CPU      Range `json:"cpu"`
	Requests Range `json:"requests"`
	CPI      Range `json:"cpi"`
}

// Range is a smallest and a largest value.
type Range [2]float64

// UnmarshalJSON accepts two numbers and nothing else: encoding/json takes a missing one as 0 and drops those beyond.
func (r *Range) UnmarshalJSON(data []byte) error {
	var values []*float64
	if err := json.Unmarshal(data, &values); err != nil || len(values) != len(r) || slices.Contains(values, nil) {
		return fmt.Errorf("%s is no range; give the smallest and the largest value, as in [0, 1]", data)
	}
	r[0], r[1] = *values[0], *values[1]
	return nil
}

// scaled returns (x - min) / (max - min). A variable that never changed counts as 0.
func (r Range) scaled(x float64) float64 {
	if r[1] <= r[0] {
		return 0
	}
	return (x - r[0]) / (r[1] - r[0])
}

func (r Range) unscaled(x float64) float64 { return r[0] + x*(r[1]-r[0]) }

// EstimatorFit is the coefficient of determination (R²) of polynomials of one degree.
type EstimatorFit struct {
	Degree  int     `json:"degree"`
	R2      float64 `json:"r2"`               // in o, r and c
	Without float64 `json:"without_previous"` // in r and c
}

// ICE returns the models' section of ICE, or nil if they have none.
func (m *Models) ICE() *ICE {
	s, _ := sectionOf[*ICE](m)
	return s
}

var iceKind = kind{keys: []string{"ice"}, is: is[*ICE], decode: decodeICE, fit: fitICE}

// The classes of ICE's classifier.
const (
	Disturbed = "interference"
	Alone     = "none"
)

var iceClasses = []string{Disturbed, Alone}

// The signals that ICE's classifier tests.
const (
	signalHidden     = "cpu_hidden"      // use of the processors by others, as ProcessorsOf infers it
	signalRecent     = "cpu_recent"      // mean of cpu_hidden, in which each window counts half as much as the next one
	signalLasting    = "cpu_lasting"     // the same over more windows (lasting)
	signalPerRequest = "cpu_per_request" // milliseconds of processor time
	signalSteal      = "steal"
	signalThrottled  = "throttled" // share of the time in which the own quota was used up
	signalPressure   = "pressure_" // and a resource of the kernel's pressure figures
	signalProbe      = "probe_"    // and a resource: the mean probe time in milliseconds, less what the own use explains
)

// counters are the signals that the processors count.
var counters = []string{quell.CounterCPI, quell.CounterMissRate}

// estimatorSignals are the signals that can be c of the estimator, the paper's first.
var estimatorSignals = []string{quell.CounterCPI, signalPerRequest, signalHidden}

// iceSignals lists all signals.
func iceSignals() []string {
	list := append([]string{signalHidden, signalRecent, signalLasting, signalPerRequest, cpuWait, signalThrottled, signalSteal, ioWait,
		retransmitRate, connectP90}, counters...)
	for _, name := range []string{"cpu", "io", "memory"} {
		list = append(list, signalPressure+name)
	}
	for _, r := range quell.Resources {
		list = append(list, signalProbe+string(r))
	}
	return list
}

// HiddenMeans are means of others' use of the processors over an instance's last windows.
type HiddenMeans struct {
	Recent  float64 `json:"recent"`
	Lasting float64 `json:"lasting"`
}

const (
	lasting = 0.15 // what the newest window counts in the lasting mean
	jump    = 0.2  // the lasting mean starts again from the recent one if they are this far apart
)

// after returns the means after another window.
func (m *HiddenMeans) after(hidden float64) *HiddenMeans {
	if m == nil {
		return &HiddenMeans{hidden, hidden}
	}
	next := HiddenMeans{(m.Recent + hidden) / 2, m.Lasting + lasting*(hidden-m.Lasting)}
	if math.Abs(next.Recent-next.Lasting) > jump {
		next.Lasting = next.Recent
	}
	return &next
}

// ICESignals returns the signals of a window. A signal that was not measured is absent. before are the means up to the window before, nil
// if they are not known; after are those with this window.
func ICESignals(o *quell.Observation, before *HiddenMeans) (signals map[string]float64, after *HiddenMeans) {
	signals = map[string]float64{}
	for _, name := range counters {
		if v, counted := o.Counters[name]; counted {
			signals[name] = v
		}
	}
	if use, ok := ProcessorsOf(o, 0); ok {
		after = before.after(use.Hidden)
		signals[signalHidden], signals[signalRecent], signals[signalLasting] = use.Hidden, after.Recent, after.Lasting
	}
	if ms, ok := PerRequestMS(o); ok {
		signals[signalPerRequest] = ms
	}
	if wait, ok := waits(o.Sched); ok {
		signals[cpuWait] = wait
	}
	if s := o.Sched; s != nil && s.ThrottledS != nil && o.WindowS > 0 {
		signals[signalThrottled] = *s.ThrottledS / o.WindowS
	}
	if c := o.CPU; c != nil {
		if signals[signalSteal] = c.Steal; c.IOWait != nil {
			signals[ioWait] = *c.IOWait
		}
	}
	for _, name := range []string{retransmitRate, connectP90} {
		if v, measured := o.TCP[name]; measured {
			signals[name] = v
		}
	}
	for _, name := range []string{"cpu", "io", "memory"} {
		if v, measured := o.Pressure[name]; measured {
			signals[signalPressure+name] = v
		}
	}
	for r := range o.Probe {
		if ms, ok := ProbeAtRest(o, r); ok {
			signals[signalProbe+string(r)] = ms
		}
	}
	return signals, after
}

// PerRequestMS returns the processor time of one request in milliseconds. It returns false if no request arrived or the time is not known.
func PerRequestMS(o *quell.Observation) (ms float64, ok bool) {
	if o.Sched == nil || o.Sched.RunS < minRun || o.RequestRate == nil || o.WindowS <= 0 || *o.RequestRate*o.WindowS < 1 {
		return 0, false
	}
	return 1000 * o.Sched.RunS / (*o.RequestRate * o.WindowS), true
}

// ProbeAtRest returns the mean probe time of a resource in milliseconds less what the instance's own use explains: on a shared resource a
// probe takes 1 / (1 - use) times as long as on an idle one. It returns false if there are no probes or the own use is not known.
func ProbeAtRest(o *quell.Observation, r quell.Resource) (ms float64, ok bool) {
	probe, probed := o.Probe[r]
	use, known := o.Utilization[r]
	if !probed || !known || probe.N < 1 || probe.MeanMS <= 0 {
		return 0, false
	}
	return probe.MeanMS * (1 - math.Min(use, fullest)), true
}

// Disturbed returns whether the classifier takes an instance with these signals for one with neighbours. clear is set if it would also do
// so if each signal were only half as far from its usual value, by what the window itself showed of others' use. If a signal
// that the classifier asks for is missing, it finds no neighbours. The classifier must be there.
func (s *ICE) Disturbed(signals map[string]float64) (disturbed, clear bool) {
	if !s.finds(signals) {
		return false, false
	}
	half := make(map[string]float64, len(signals))
	for name, v := range signals {
		if half[name] = v; hasKey(s.Usual, name) {
			half[name] = (v + s.Usual[name]) / 2
		}
	}
	if hidden, ok := half[signalHidden]; ok {
		half[signalRecent], half[signalLasting] = hidden, hidden
	}
	return true, s.finds(half)
}

// finds returns whether the classifier finds neighbours by these signals. If one that it asks for is missing, it finds none.
func (s *ICE) finds(signals map[string]float64) bool {
	path := s.Classifier.Path(signals)
	for _, node := range path[:len(path)-1] {
		if !hasKey(signals, node.Feature) {
			return false
		}
	}
	return path[len(path)-1].Class == Disturbed
}

func hasKey(m map[string]float64, name string) bool { _, ok := m[name]; return ok }

// Use predicts how busy the processors are, from 0 to 1: xi(o, r, c).
func (e *Estimator) Use(previous, perSecond, signal float64) float64 {
	scaled := e.Intercept + e.Previous*e.Range.CPU.scaled(previous) + e.Requests*e.Range.Requests.scaled(perSecond) +
		e.CPI*e.Range.CPI.scaled(signal)
	return math.Min(1, math.Max(0, e.Range.CPU.unscaled(scaled)))
}

// Rate returns the requests per second, at least 0, at which the processors are this busy: r of use = xi(o, r, c) (Algorithm 1, line 5). It
// returns false if the use does not grow with the rate.
func (e *Estimator) Rate(use, previous, signal float64) (perSecond float64, ok bool) {
	if e.Requests <= 0 {
		return 0, false
	}
	rest := e.Range.CPU.scaled(use) - e.Intercept - e.Previous*e.Range.CPU.scaled(previous) - e.CPI*e.Range.CPI.scaled(signal)
	return math.Max(0, e.Range.Requests.unscaled(rest/e.Requests)), true
}

// iceJSON is ICE with the classifier apart, so that mistakes in it are told with their places.
type iceJSON struct {
	ICE
	Classifier json.RawMessage `json:"classifier"`
}

func decodeICE(f *file, text texts) Section {
	var raw iceJSON
	f.strict("ice", text["ice"], nil, &raw)
	f.nullParts("ice", text["ice"], "classifier", "estimator")
	s := raw.ICE
	if raw.Classifier != nil && string(raw.Classifier) != "null" {
		s.Classifier = &stats.Tree{}
		f.tree("ice.classifier", s.Classifier.UnmarshalJSON(raw.Classifier))
	}
	return &s
}

func (s *ICE) print(p *printer) { p.section("ice", s) }

func (s *ICE) check(c *check) {
	if s.Classifier != nil {
		c.tree("ice.classifier", s.Classifier.Validate(iceSignals(), iceClasses))
	}
	for _, name := range sortedKeys(s.Usual) {
		c.known("ice.usual."+name, "signal", name, iceSignals())
		c.between("ice.usual."+name, s.Usual[name], 0, maxValue)
	}
	if s.Signal != "" {
		c.known("ice.signal", "signal", s.Signal, estimatorSignals)
	}
	c.confusion("ice.validated", s.Validated, iceClasses)
	for i, fit := range s.Fits {
		if fit.Degree < 1 || fit.Degree > highestDegree || !finite(fit.R2) || !finite(fit.Without) {
			c.addf("ice.fits", "row %d is of degree %d with R² %v and %v", i, fit.Degree, fit.R2, fit.Without)
		}
	}
	if e := s.Estimator; e != nil {
		e.check(c)
	}
}

func (e *Estimator) check(c *check) {
	for _, x := range []struct {
		name  string
		value float64
	}{{"intercept", e.Intercept}, {"previous", e.Previous}, {"requests", e.Requests}, {"cpi", e.CPI}} {
		c.between("ice.estimator."+x.name, x.value, -maxValue, maxValue)
	}
	for _, x := range []struct {
		name  string
		value Range
	}{{"cpu", e.Range.CPU}, {"requests", e.Range.Requests}, {"cpi", e.Range.CPI}} {
		path := "ice.estimator.range." + x.name
		c.between(path, x.value[0], 0, maxValue)
		if c.between(path, x.value[1], 0, maxValue); x.value[1] < x.value[0] {
			c.addf(path, "begins at %v and ends at %v", x.value[0], x.value[1])
		}
	}
	if e.Range.CPU[1] <= e.Range.CPU[0] {
		c.addf("ice.estimator.range.cpu", "has no extent: the use of the processors could not be scaled")
	}
}
