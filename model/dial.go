package model

import (
	"encoding/json"
	"errors"
	"math"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/stats"
)

// Dial is what DIAL learns: from which response time on an instance suffers, which resource it suffers from, and how much of that resource
// others then use.
type Dial struct {
	// PeakRate is r of Eq. 3: the requests per second, of the classes' trained mix, at which the first resource of an instance is full.
	// 0: not known.
	PeakRate float64 `json:"peak_rate,omitempty"`
	// DetectMS is the p90 that one window of an undisturbed instance stays below with 95% confidence, at DetectRate; 0: not known.
	DetectMS        float64            `json:"detect_ms,omitempty"`
	DetectByClassMS map[string]float64 `json:"detect_by_class_ms,omitempty"`
	DetectRate      float64            `json:"detect_rate,omitempty"` // requests per second
	// Calm is the p90 of an undisturbed instance over the share of PeakRate that it gets; with it the bounds follow the load.
	Calm Queueing `json:"calm,omitempty"`
	// Expected are the user and system times of an undisturbed instance, by feature (cpu_user, cpu_system).
	Expected   map[string]Expected         `json:"expected,omitempty"`
	Classifier *stats.Tree                 `json:"classifier,omitempty"`
	Queueing   map[quell.Resource]Queueing `json:"queueing,omitempty"`

	// how good the fit was
	Errors    map[quell.Resource]QueueingError `json:"errors,omitempty"`
	Validated stats.Confusion                  `json:"validated,omitempty"` // the classifier, each sample by a tree fitted to others
}

// QueueingError is how far Eq. 1 is off the response times that it was fitted to.
type QueueingError struct {
	Rows         int     `json:"rows"`
	MeanRelative float64 `json:"mean_relative"`
	MaxRelative  float64 `json:"max_relative"`
	Linear       float64 `json:"linear"` // the mean without the square term
}

// Dial returns the models' section of DIAL; nil if they have none.
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

// What is expected by the number of requests.
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
	PerRequest map[string]float64 `json:"per_request"` // by class, for one request per second; OtherClasses for all that are not named
}

// OtherClasses is the name of requests whose class has no name.
const OtherClasses = "*"

// At returns what is expected at a rate of requests, of which byClass tells the classes, all per second.
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

// leastExpected is the share of the processors below which a ratio to it says nothing.
const leastExpected = 0.005

// Features returns what an observation tells the classifier. What was not measured is absent, as is a ratio to next to nothing.
func (s *Dial) Features(o *quell.Observation) map[string]float64 {
	features := map[string]float64{}
	if c := o.CPU; c != nil {
		features[ioWait] = c.IOWait
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

// Queueing is Eq. 1 of DIAL: the p90 in milliseconds is c0 + c1 / (1 - rho) + c2 / (1 - rho)², where rho is the share of a resource that
// is used by whomever. It never falls as rho grows: c1 and c2 are not below 0, and one of them is above.
type Queueing []float64

// fullest is the largest use at which a response time is predicted.
const fullest = 0.999

// MS returns the p90 in milliseconds at a use of the resource from 0 to 1.
func (q Queueing) MS(rho float64) float64 {
	free := 1 - math.Min(math.Max(rho, 0), fullest)
	return q[0] + q[1]/free + q[2]/(free*free)
}

// Hidden returns what neighbours use of the resource, from 0 to 1 - own, if an instance that uses own of it has this p90 in milliseconds:
// Eq. 1 solved for rho_bg. A p90 that the own use explains gives 0.
func (q Queueing) Hidden(ms, own float64) float64 {
	above := ms - q[0]
	if above <= 0 {
		return 0
	}
	// the larger root x = 1 / (1 - rho) of c2 x² + c1 x = above, written so that c2 may be 0
	x := 2 * above / (q[1] + math.Sqrt(q[1]*q[1]+4*q[2]*above))
	return math.Max(0, math.Min(1-1/x, fullest)-own)
}

// Bounds are p90s in milliseconds above which an instance suffers, if it stays above them for two windows.
type Bounds struct {
	All     float64 // 0: not known
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

// growth is the p90 of an undisturbed instance at a rate over that at DetectRate.
func (s *Dial) growth(rate float64) float64 {
	if s.Calm == nil || s.PeakRate <= 0 {
		return 1
	}
	return s.Calm.MS(rate/s.PeakRate) / s.Calm.MS(s.DetectRate/s.PeakRate)
}

// Lacking says which part of the section is missing that tells of a resource; empty if all are there.
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

// tree takes the mistakes of a tree.
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

// tree takes the mistakes of a tree.
func (c *check) tree(path string, err error) {
	for _, mistake := range unjoined(err) {
		if node := new(stats.NodeError); errors.As(mistake, &node) {
			c.addf(join(path, node.Path), "%s", node.Problem)
		} else {
			c.addf(path, "%v", mistake)
		}
	}
}
