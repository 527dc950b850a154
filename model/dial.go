package model

import (
	"encoding/json"
	"errors"
	"math"
	"slices"

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
	Calm Queueing `json:"calm,omitempty"`
	// Expected are the user and system times of an undisturbed instance, by feature (cpu_user, cpu_system).
	Expected   map[string]Expected         `json:"expected,omitempty"`
	Classifier *stats.Tree                 `json:"classifier,omitempty"`
	Queueing   map[quell.Resource]Queueing `json:"queueing,omitempty"`

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

// The features that the classifier tests.
const (
	userRatio      = "cpu_user_ratio" // measured over expected
	systemRatio    = "cpu_system_ratio"
	ioWait         = "iowait"
	retransmitRate = "retransmit_rate"
	connectP90     = "connect_ms_p90"
)

// Features whose value is expected to follow from the rate of requests (keys of Dial.Expected).
const (
	expectedUser   = "cpu_user"
	expectedSystem = "cpu_system"
)

// NotContended is the classifier's class of an instance that suffers from no neighbour. The other classes are the resources.
const NotContended = "none"

var (
	dialFeatures     = []string{connectP90, systemRatio, userRatio, ioWait, retransmitRate}
	dialClasses      = []string{string(quell.CPU), string(quell.Disk), string(quell.Memory), string(quell.Network), NotContended}
	dialExpectations = []string{expectedSystem, expectedUser}
)

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
	return features
}

func (s *Dial) ratio(features map[string]float64, name, of string, use float64, o *quell.Observation) {
	e, ok := s.Expected[of]
	if !ok || o.RequestRate == nil {
		return
	}
	if expected := e.At(*o.RequestRate, o.RequestRates); expected >= leastExpected {
		features[name] = use / expected
	}
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

// Bounds are p90s in milliseconds. An instance suffers from neighbours if it stays above them for two windows.
type Bounds struct {
	All     float64 // 0: unknown
	ByClass map[string]float64
}

// Bounds returns the bounds for an instance that gets this many requests per second.
func (s *Dial) Bounds(rate float64) Bounds {
	by := s.growth(rate)
	b := Bounds{All: s.DetectMS * by}
	for class, ms := range s.DetectByClassMS {
		if b.ByClass == nil {
			b.ByClass = map[string]float64{}
		}
		b.ByClass[class] = ms * by
	}
	return b
}

// growth returns the p90 of an undisturbed instance at a rate of requests, divided by its p90 at DetectRate.
func (s *Dial) growth(rate float64) float64 {
	if s.Calm == nil || s.PeakRate <= 0 {
		return 1
	}
	return s.Calm.MS(rate/s.PeakRate) / s.Calm.MS(s.DetectRate/s.PeakRate)
}

// Lacking names the part of the section that is needed for a resource but missing. It is empty if none is missing.
func (s *Dial) Lacking(r quell.Resource) string {
	switch {
	case s.DetectMS == 0:
		return "detect_ms"
	case s.Classifier == nil:
		return "classifier"
	case s.PeakRate == 0:
		return "peak_rate"
	case s.Queueing[r] == nil:
		return "queueing." + string(r)
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

func (s *Dial) print(p *printer) { p.section("dial", s) }

func (s *Dial) check(c *check) {
	c.between("dial.peak_rate", s.PeakRate, 0, maxValue)
	c.between("dial.detect_ms", s.DetectMS, 0, maxValue)
	c.between("dial.detect_rate", s.DetectRate, 0, maxValue)
	for _, class := range sortedKeys(s.DetectByClassMS) {
		c.between("dial.detect_by_class_ms."+class, s.DetectByClassMS[class], 0, maxValue)
	}
	if s.Calm != nil {
		c.queueing("dial.calm", s.Calm)
		if len(s.Calm) == 3 && s.Calm.MS(0) <= 0 {
			c.addf("dial.calm", "the p90 of an instance without load is %v ms; give one above 0", s.Calm.MS(0))
		}
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
