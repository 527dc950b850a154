package model

import (
	"encoding/json"
	"errors"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/stats"
)

// Dial is the section of the policy DIAL. It says above which response time an instance suffers from neighbours, how to tell from which
// resource it suffers, and how much of that resource the neighbours then use.
type Dial struct {
	// PeakRate is r of Eq. 3: the rate of requests, in the trained mix of classes, at which the first resource of an instance is full. It
	// is in requests per second; 0 means unknown.
	PeakRate float64 `json:"peak_rate,omitempty"`
	// DetectMS is the bound that the p90 of one window of an undisturbed instance stays below with 95% confidence, at DetectRate. 0 means
	// unknown.
	DetectMS        float64            `json:"detect_ms,omitempty"`
	DetectByClassMS map[string]float64 `json:"detect_by_class_ms,omitempty"`
	DetectRate      float64            `json:"detect_rate,omitempty"` // requests per second
	// Calm is the p90 of an undisturbed instance as a function of its rate of requests over PeakRate. It gives the bounds at other rates.
	// CalmByClass is the same for single classes, whose response times may grow faster or more slowly with the load. A class that it lacks
	// grows as Calm does.
	Calm        Queueing            `json:"calm,omitempty"`
	CalmByClass map[string]Queueing `json:"calm_by_class,omitempty"`
	// Tail says how much longer than its p90 the longest response times of an undisturbed instance are: the response time that a request
	// exceeds with probability x < 0.1 is about p90 * (1 + Tail * ln(0.1 / x)). It tells how much the p90 of few requests scatters. 0 means
	// unknown: then every window counts as one with many requests.
	// TailByClass is the same for single classes; a class that it lacks has the tail of all.
	Tail        float64            `json:"tail,omitempty"`
	TailByClass map[string]float64 `json:"tail_by_class,omitempty"`
	// Expected are the user and system times of an undisturbed instance, by feature (cpu_user, cpu_system).
	Expected map[string]Expected `json:"expected,omitempty"`
	// Curves are the other features of an undisturbed instance whose value grows with its own use of a resource (curveOver).
	Curves map[string]Queueing `json:"curves,omitempty"`
	// Usual are the mean values of the features of an undisturbed instance. They are for explanations only.
	Usual      map[string]float64          `json:"usual,omitempty"`
	Classifier *stats.Tree                 `json:"classifier,omitempty"`
	Queueing   map[quell.Resource]Queueing `json:"queueing,omitempty"`
	// Stretch says how neighbours on the memory lengthen processor time: requests need 1 + Stretch*h times as much beside neighbours that
	// use h of the memory. Queueing[memory] is then over the use of the processors; see Over. 0: it is over the use of the memory.
	Stretch float64 `json:"stretch,omitempty"`

	// Errors and Validated say how good the fit was.
	Errors    map[quell.Resource]QueueingError `json:"errors,omitempty"`
	Validated stats.Confusion                  `json:"validated,omitempty"` // predictions of each sample by a tree that was fitted to other samples
}

// QueueingError says how much the response times of Eq. 1 differ from those that it was fitted to.
type QueueingError struct {
	Rows         int     `json:"rows"`
	MeanRelative float64 `json:"mean_relative"`
	MaxRelative  float64 `json:"max_relative"`
	Linear       float64 `json:"linear"` // the mean error if Eq. 1 has no square term
}

// Dial returns the models' section of DIAL, or nil if they have none.
func (m *Models) Dial() *Dial {
	d, _ := sectionOf[*Dial](m)
	return d
}

var dialKind = kind{keys: []string{"dial"}, is: is[*Dial], decode: decodeDial, fit: fitDial}

// The features that the classifier tests. A ratio is the measured value over that of an undisturbed instance with the same load.
const (
	userRatio      = "cpu_user_ratio"
	systemRatio    = "cpu_system_ratio"
	ioWait         = "iowait"
	ioWaitRatio    = "iowait_ratio"
	retransmitRate = "retransmit_rate"
	connectP90     = "connect_ms_p90"
	connectRatio   = "connect_ratio"
	cpuWait        = "cpu_wait" // seconds in run queues for a second of processor time, without the time in which the own quota was used up
	cpuWaitRatio   = "cpu_wait_ratio"
)

// Features whose value is expected to follow from the rate of requests (keys of Dial.Expected).
const (
	expectedUser   = "cpu_user"
	expectedSystem = "cpu_system"
)

// NotContended is the classifier's class of an instance that suffers from no neighbour. The other classes are the resources.
const NotContended = "none"

var (
	dialFeatures = []string{connectP90, connectRatio, systemRatio, userRatio, cpuWait, cpuWaitRatio, ioWait, ioWaitRatio,
		retransmitRate}
	dialClasses      = []string{string(quell.CPU), string(quell.Disk), string(quell.Memory), string(quell.Network), NotContended}
	dialExpectations = []string{expectedSystem, expectedUser}
)

// growing is a feature that grows with the own use of a resource as queues do, and the name of its ratio to the expected value.
type growing struct {
	feature, ratio string
	over           quell.Resource
}

var curves = []growing{{connectP90, connectRatio, quell.Network}, {cpuWait, cpuWaitRatio, quell.CPU}, {ioWait, ioWaitRatio, quell.Disk}}

// Expected is what a machine is expected to use for its requests: a linear regression without coefficients below 0 (DIAL, section II-B2).
type Expected struct {
	Intercept  float64            `json:"intercept"`
	PerRequest map[string]float64 `json:"per_request"` // by class of requests, for one request per second; OtherClasses stands for all classes that are not listed
}

// OtherClasses is the key for all requests whose class is not listed.
const OtherClasses = "*"

// At returns what is expected at a rate of requests per second. byClass has the rates of those requests whose class is known.
func (e Expected) At(rate float64, byClass map[string]float64) float64 {
	use := e.Intercept
	for _, class := range sortedKeys(byClass) {
		if per, known := e.PerRequest[class]; known && class != OtherClasses {
			use += per * byClass[class]
			rate -= byClass[class]
		}
	}
	return use + e.PerRequest[OtherClasses]*math.Max(rate, 0)
}

// leastExpected is a share of the processors. If an expected value is smaller, a ratio to it means nothing.
const leastExpected = 0.005

// Features returns the classifier's features of an observation. A feature that was not measured is absent, and so is a ratio to an expected
// value below leastExpected.
func (s *Dial) Features(o *quell.Observation) map[string]float64 {
	features := map[string]float64{}
	if c := o.CPU; c != nil {
		if c.IOWait != nil {
			features[ioWait] = *c.IOWait
		}
		s.ratio(features, userRatio, expectedUser, c.User, o)
		s.ratio(features, systemRatio, expectedSystem, c.System, o)
	}
	for _, name := range []string{retransmitRate, connectP90} {
		if v, measured := o.TCP[name]; measured {
			features[name] = v
		}
	}
	if wait, ok := waits(o.Sched); ok {
		features[cpuWait] = wait
	}
	for _, c := range curves {
		value, measured := features[c.feature]
		use, known := o.Utilization[c.over]
		q, learned := s.Curves[c.feature]
		if !measured || !known || !learned {
			continue
		}
		if expected := q.MS(use); expected > 0 {
			features[c.ratio] = beyondChance(value/expected, o)
		}
	}
	return features
}

// leastRun is in seconds. In a window with less processor time than this, waiting for a processor means nothing.
const leastRun = 0.001

// waits returns for how many seconds tasks waited for a processor, for each second in which they ran. Time in which their own quota was
// used up does not count.
func waits(s *quell.Sched) (perSecond float64, ok bool) {
	if s == nil || s.WaitS == nil || s.RunS < leastRun {
		return 0, false
	}
	wait := *s.WaitS
	if s.ThrottledS != nil {
		wait = math.Max(0, wait-*s.ThrottledS)
	}
	return wait / s.RunS, true
}

func (s *Dial) ratio(features map[string]float64, name, of string, use float64, o *quell.Observation) {
	e, ok := s.Expected[of]
	if !ok || o.RequestRate == nil {
		return
	}
	if expected := e.At(*o.RequestRate, o.RequestRates); expected >= leastExpected {
		features[name] = beyondChance(use/expected, o)
	}
}

// beyondChance moves a ratio towards 1 by what chance explains. What n requests need together differs from n times the mean by about a
// share of 1 / sqrt(n), because requests differ from each other about as much as their mean. Three times that is taken off: an instance is
// judged in those windows in which its requests happen to need much. If the number of requests is unknown, nothing is taken off.
func beyondChance(ratio float64, o *quell.Observation) float64 {
	if o.LatencyMS == nil || o.LatencyMS.N < 1 {
		return ratio
	}
	chance := 3 / math.Sqrt(float64(o.LatencyMS.N))
	return 1 + math.Copysign(math.Max(0, math.Abs(ratio-1)-chance), ratio-1)
}

// Queueing holds the coefficients of Eq. 1 of DIAL: the p90 in milliseconds is c0 + c1 / (1 - rho) + c2 / (1 - rho)². rho is the total use
// of a resource, by the instance and its neighbours, as a fraction. c1 and c2 are at least 0 and not both 0, so the p90 never falls as rho
// grows.
type Queueing []float64

// fullest is the largest use for which a response time is predicted. A higher use counts as this one.
const fullest = 0.999

// MS returns the p90 in milliseconds if the total use of the resource is rho, from 0 to 1.
func (q Queueing) MS(rho float64) float64 {
	free := 1 - math.Min(math.Max(rho, 0), fullest)
	return q[0] + q[1]/free + q[2]/(free*free)
}

// stretched returns what is added to the p90 in milliseconds if every request needs sigma times as much of the resource. rho is the
// instance's own use of it, which contains that factor: without it, the use would be rho / sigma. Requests then both need more, and wait
// for others that need more.
func (q Queueing) stretched(rho, sigma float64) float64 {
	own := Queueing{0, q[1], q[2]} // c0 is the time that requests spend elsewhere
	return sigma*own.MS(rho) - own.MS(rho/sigma)
}

// Hidden returns the neighbours' use of the resource, from 0 to 1 - own, if an instance that uses own of it has a p90 of ms milliseconds.
// It is Eq. 1 solved for rho_bg. If the instance's own use explains the p90, Hidden returns 0.
func (q Queueing) Hidden(ms, own float64) float64 {
	above := ms - q[0]
	if above <= 0 {
		return 0
	}
	// the larger root x = 1 / (1 - rho) of c2 x² + c1 x = above, written so that c2 may be 0
	x := 2 * above / (q[1] + math.Sqrt(q[1]*q[1]+4*q[2]*above))
	return math.Max(0, math.Min(1-1/x, fullest)-own)
}

// Bounds are p90s in milliseconds of a window with many requests. An instance suffers from neighbours if it stays above them for two
// windows.
type Bounds struct {
	All     float64 // 0: unknown
	ByClass map[string]float64
}

// Bounds returns the bounds for an instance that gets this many requests per second.
func (s *Dial) Bounds(rate float64) Bounds {
	b := Bounds{All: s.DetectMS * s.growth(allClasses, rate)}
	for class, ms := range s.DetectByClassMS {
		if b.ByClass == nil {
			b.ByClass = map[string]float64{}
		}
		b.ByClass[class] = ms * s.growth(class, rate)
	}
	return b
}

// allClasses stands for all requests where a class is expected.
const allClasses = ""

// Excess is a response time above its bound.
type Excess struct {
	Class     string // "": all requests
	MS, Bound float64
	Clear     bool // it is so far above the bound that chance explains it as rarely as two windows above their bounds
}

// Exceeded lists the p90s of a window that are above their bounds: that of all requests first, then those of classes by name. rate is in
// requests per second, at the trained mix of classes.
//
// A bound is for one window (detectConfidence). If a window has n requests, its p90 is the k-th smallest of them with k = ceil(0.9 n). The
// share of an undisturbed instance's response times that are shorter is then beta distributed with parameters k and n + 1 - k, whatever the
// distribution of response times. So the bound is the response time at the 95% quantile of that share.
func (s *Dial) Exceeded(o *quell.Observation, rate float64) (list []Excess) {
	bounds := s.Bounds(rate)
	add := func(class string, l *quell.Latency, bound float64) {
		ms, ok := l.Of(quell.P90)
		if !ok || bound == 0 || ms <= bound*s.scatter(class, l.N, detectConfidence) {
			return
		}
		list = append(list, Excess{Class: class, MS: ms, Bound: bound * s.scatter(class, l.N, detectConfidence),
			Clear: ms > bound*s.doubtless(class, rate, bound)*s.scatter(class, l.N, clearConfidence)})
	}
	add(allClasses, o.LatencyMS, bounds.All)
	for _, class := range sortedKeys(bounds.ByClass) {
		if l, measured := o.LatencyByClassMS[class]; measured {
			add(class, &l, bounds.ByClass[class])
		}
	}
	return list
}

// clearConfidence is the confidence of a single window that chance exceeds as rarely as two successive ones at detectConfidence.
const clearConfidence = 1 - (1-detectConfidence)*(1-detectConfidence)

// manyRequests is a number of requests from which on the normal distribution is used instead of the beta distribution.
const manyRequests = 1000

// scatter returns how many times its p90 the bound of an undisturbed instance is, for the p90 of n requests of a class.
func (s *Dial) scatter(class string, n int, confidence float64) float64 {
	tail := s.tailOf(class)
	if n < 1 || tail == 0 {
		return 1
	}
	return 1 + tail*math.Log(0.1/(1-quantileOfP90(n, confidence)))
}

// tailOf returns the tail of a class.
func (s *Dial) tailOf(class string) float64 {
	if tail, known := s.TailByClass[class]; known {
		return tail
	}
	return s.Tail
}

// sampling returns the standard deviation of the p90 of n requests, as a part of itself: sqrt(0.9 * 0.1 / n) over the density at the p90,
// which is 0.1 / (tail * p90).
func sampling(tail float64, n int) float64 { return 3 * tail / math.Sqrt(math.Max(1, float64(n))) }

// quantileOfP90 returns the share of response times that the p90 of n requests exceeds at most, with the given confidence.
func quantileOfP90(n int, confidence float64) float64 {
	if n > manyRequests {
		return 0.9 + distuv.UnitNormal.Quantile(confidence)*math.Sqrt(0.09/float64(n))
	}
	k := math.Ceil(0.9 * float64(n))
	return distuv.Beta{Alpha: k, Beta: float64(n) + 1 - k}.Quantile(confidence)
}

// doubtless returns by which factor the bound of a class grows if its confidence is clearConfidence instead of detectConfidence: its
// distance from the calm response time of that class grows as the quantiles of the normal distribution do. If that time is unknown, nothing
// is clear.
func (s *Dial) doubtless(class string, rate, bound float64) float64 {
	calm := s.calmMS(class, rate)
	if calm == 0 || s.Tail == 0 {
		return math.Inf(1)
	}
	wider := distuv.UnitNormal.Quantile(clearConfidence) / distuv.UnitNormal.Quantile(detectConfidence)
	return math.Max(1, (calm+wider*(bound-calm))/bound)
}

// CalmMS returns the p90 in milliseconds of an undisturbed instance at a rate of requests, or 0 if it is unknown.
func (s *Dial) CalmMS(rate float64) float64 { return s.calmMS(allClasses, rate) }

// calmMS returns the p90 of the requests of a class; see CalmMS.
func (s *Dial) calmMS(class string, rate float64) float64 {
	q := s.CalmByClass[class]
	if class == allClasses {
		q = s.Calm
	}
	if q == nil || s.PeakRate <= 0 {
		return 0
	}
	return q.MS(rate / s.PeakRate)
}

// P90 returns the p90 that response times probably have if the p90 of n of them is ms. The p90 of few requests is too small on average: it
// is the k-th smallest with k = ceil(0.9 n), whose mean is 1/n + 1/(n-1) + ... + 1/(n-k+1) for exponential response times with mean 1. That
// of many is ln 10.
func (s *Dial) P90(ms float64, n int) float64 {
	if n < 1 || n > manyRequests || s.Tail == 0 {
		return ms
	}
	k := math.Ceil(0.9 * float64(n))
	mean := 0.0
	for i := range int(k) {
		mean += 1 / float64(n-i)
	}
	return ms / math.Max(0.1, 1+s.Tail*(mean-math.Ln10))
}

// Estimate is a value with its 95% confidence interval.
type Estimate struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Over returns the resource over whose use Eq. 1 of a resource is: for memory the processors, if the models say how much neighbours on the
// memory lengthen processor time, and otherwise the resource itself.
func (s *Dial) Over(r quell.Resource) quell.Resource {
	if r == quell.Memory && s.Stretch > 0 {
		return quell.CPU
	}
	return r
}

// Lost returns the part of its capacity that an instance loses to neighbours that use hidden of a resource. Neighbours on the memory take
// no part of the processors: requests need 1 + Stretch*hidden times as much of them.
func (s *Dial) Lost(r quell.Resource, hidden float64) float64 {
	if s.Over(r) != r {
		return 1 - 1/(1+s.Stretch*hidden)
	}
	return hidden
}

// Predict returns the p90 in milliseconds of an instance that gets this many requests per second and uses own of the resource Over(r)
// beside neighbours that use hidden of r. It is the calm p90 at that rate, and what the neighbours add by Eq. 1. For a resource that
// requests fill first, this is Eq. 1 itself. For another one, a part of the p90 grows with the load although that resource stays as empty
// as before. The coefficients for the resource must be there.
func (s *Dial) Predict(r quell.Resource, rate, own, hidden float64) float64 {
	q := s.Queueing[r]
	if s.Over(r) != r {
		return s.CalmMS(rate) + q.stretched(own, 1+s.Stretch*hidden)
	}
	if calm := s.CalmMS(rate); calm > 0 {
		return calm + q.MS(own+hidden) - q.MS(own)
	}
	return q.MS(own + hidden)
}

// HiddenLoad estimates the neighbours' use of a resource: it solves Predict for it, for a p90 of n requests. The interval covers the
// scatter of that p90, and the mean error of the fit of Eq. 1. It returns false if the section has no coefficients for the resource.
func (s *Dial) HiddenLoad(r quell.Resource, p90 float64, n int, rate, own float64) (Estimate, bool) {
	q, ok := s.Queueing[r]
	if !ok {
		return Estimate{}, false
	}
	scatter := sampling(s.Tail, n)
	fit := s.Errors[r].MeanRelative * math.Sqrt(math.Pi/2) // mean absolute error to standard deviation
	part := distuv.UnitNormal.Quantile(0.975) * math.Hypot(scatter, fit)
	other := s.Predict(r, rate, own, 0) - q.MS(own) // the part of the p90 that does not come from the resource
	hidden := func(factor float64) float64 {
		if s.Over(r) != r {
			return s.unstretched(p90*factor, rate, own)
		}
		return q.Hidden(p90*factor-other, own)
	}
	return Estimate{hidden(1), hidden(math.Max(0, 1-part)), hidden(1 + part)}, true
}

// unstretched solves Predict for the use of the memory by neighbours, from 0 to 1. Predict grows with that use.
func (s *Dial) unstretched(ms, rate, own float64) float64 {
	const steps = 40
	low, high := 0.0, 1.0
	if s.Predict(quell.Memory, rate, own, high) <= ms {
		return high
	}
	for range steps {
		if middle := (low + high) / 2; s.Predict(quell.Memory, rate, own, middle) < ms {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// growth returns the p90 of the requests of a class at a rate of requests, divided by that at DetectRate, for an undisturbed instance.
func (s *Dial) growth(class string, rate float64) float64 {
	if s.calmMS(class, rate) == 0 {
		class = allClasses
	}
	now, then := s.calmMS(class, rate), s.calmMS(class, s.DetectRate)
	if now == 0 || then == 0 {
		return 1
	}
	return now / then
}

// Incomplete names the first part without which the section cannot be used: it finds no interference, or not how much there is. It is empty
// if there is none.
func (s *Dial) Incomplete() string {
	switch {
	case s.DetectMS == 0:
		return "detect_ms"
	case s.Classifier == nil:
		return "classifier"
	case s.PeakRate == 0:
		return "peak_rate"
	case len(s.Queueing) == 0:
		return "queueing"
	}
	return ""
}

// dialJSON is Dial with the parts that are read by themselves, so that their mistakes are told with their places.
type dialJSON struct {
	Dial
	Expected   map[string]json.RawMessage `json:"expected"`
	Classifier json.RawMessage            `json:"classifier"`
}

func decodeDial(f *file, text texts) Section {
	var raw dialJSON
	f.strict("dial", text["dial"], nil, &raw)
	s := raw.Dial
	for _, name := range sortedKeys(raw.Expected) {
		var e Expected
		f.strict("dial.expected."+name, raw.Expected[name], []string{"intercept", "per_request"}, &e)
		if s.Expected == nil {
			s.Expected = map[string]Expected{}
		}
		s.Expected[name] = e
	}
	if raw.Classifier != nil && string(raw.Classifier) != "null" {
		s.Classifier = &stats.Tree{}
		f.tree("dial.classifier", s.Classifier.UnmarshalJSON(raw.Classifier))
	}
	return &s
}

// tree adds the mistakes in a decision tree to the mistakes in the file.
func (f *file) tree(path string, err error) {
	var c check
	c.tree(path, err)
	f.errs = append(f.errs, c.errs...)
}

// mostTail is the largest value of Tail that is accepted. That of exponential response times is 0.43.
const mostTail = 100

// mostStretch is the largest value of Stretch that is accepted: with it, neighbours that use all of the memory make requests need 100 times
// as much processor time.
const mostStretch = 99

func (s *Dial) print(p *printer) { p.section("dial", s) }

func (s *Dial) check(c *check) {
	c.between("dial.peak_rate", s.PeakRate, 0, maxValue)
	c.between("dial.detect_ms", s.DetectMS, 0, maxValue)
	c.between("dial.detect_rate", s.DetectRate, 0, maxValue)
	c.between("dial.tail", s.Tail, 0, mostTail)
	for _, class := range sortedKeys(s.TailByClass) {
		c.between("dial.tail_by_class."+class, s.TailByClass[class], 0, mostTail)
	}
	for _, class := range sortedKeys(s.DetectByClassMS) {
		c.between("dial.detect_by_class_ms."+class, s.DetectByClassMS[class], 0, maxValue)
	}
	if s.Calm != nil {
		c.queueing("dial.calm", s.Calm)
		if len(s.Calm) == 3 && s.Calm.MS(0) <= 0 {
			c.addf("dial.calm", "the p90 of an instance without load is %v ms; give one above 0", s.Calm.MS(0))
		}
	}
	for _, class := range sortedKeys(s.CalmByClass) {
		path, q := "dial.calm_by_class."+class, s.CalmByClass[class]
		c.queueing(path, q)
		if len(q) == 3 && q.MS(0) <= 0 {
			c.addf(path, "the p90 of an instance without load is %v ms; give one above 0", q.MS(0))
		}
	}
	c.between("dial.stretch", s.Stretch, 0, mostStretch)
	if s.Stretch > 0 && (s.Calm == nil || s.PeakRate == 0) {
		c.addf("dial.stretch", "says what neighbours add to calm response times: it needs dial.calm and dial.peak_rate")
	}
	for _, name := range sortedKeys(s.Curves) {
		if !slices.ContainsFunc(curves, func(k growing) bool { return k.feature == name }) {
			c.addf("dial.curves."+name, "unknown feature %q (known: connect_ms_p90, cpu_wait, iowait)", name)
		}
		c.queueing("dial.curves."+name, s.Curves[name])
	}
	for _, name := range sortedKeys(s.Usual) {
		c.between("dial.usual."+name, s.Usual[name], 0, maxValue)
	}
	for _, name := range sortedKeys(s.Expected) {
		c.expected("dial.expected."+name, name, s.Expected[name])
	}
	if s.Classifier != nil {
		c.tree("dial.classifier", s.Classifier.Validate(dialFeatures, dialClasses))
	}
	for _, r := range sortedKeys(s.Queueing) {
		c.resource("dial.queueing."+string(r), r)
		c.queueing("dial.queueing."+string(r), s.Queueing[r])
	}
}

func (c *check) expected(path, name string, e Expected) {
	if !slices.Contains(dialExpectations, name) {
		c.addf(path, "unknown feature %q (known: cpu_system, cpu_user)", name)
	}
	c.between(path+".intercept", e.Intercept, 0, maxValue)
	for _, class := range sortedKeys(e.PerRequest) {
		c.between(path+".per_request."+class, e.PerRequest[class], 0, maxValue)
	}
}

func (c *check) queueing(path string, q Queueing) {
	if len(q) != 3 {
		c.addf(path, "has %d coefficients; give c0, c1 and c2 of Eq. 1", len(q))
		return
	}
	c.between(path+"[0]", q[0], -maxValue, maxValue)
	for i, v := range q[1:] {
		if !(v >= 0 && v <= maxValue) {
			c.addf(path, "c%d is %v: response times would fall as the resource fills; give 0 or more", i+1, v)
			return
		}
	}
	if q[1] == 0 && q[2] == 0 {
		c.addf(path, "c1 and c2 are 0: response times would say nothing of the resource; leave it out")
	}
}

// tree adds the mistakes in a decision tree to the list of broken rules.
func (c *check) tree(path string, err error) {
	for _, mistake := range unjoined(err) {
		if node := new(stats.NodeError); errors.As(mistake, &node) {
			c.addf(join(path, node.Path), "%s", node.Problem)
		} else {
			c.addf(path, "%v", mistake)
		}
	}
}
