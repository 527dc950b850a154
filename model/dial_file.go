package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/stats"
)

// dialJSON is Dial with the parts that are read by themselves, so that their mistakes are told with their places.
type dialJSON struct {
	Dial
	Expected   map[string]json.RawMessage `json:"expected"`
	Classifier json.RawMessage            `json:"classifier"`
}

func decodeDial(f *file, text texts) Section {
	var raw dialJSON
	f.strict("dial", text["dial"], nil, &raw)
	f.nullParts("dial", text["dial"], "classifier", "expected")
	s := raw.Dial
	for _, name := range sortedKeys(raw.Expected) {
		var e Expected
		f.strict("dial.expected."+name, raw.Expected[name], []string{"intercept", "per_request"}, &e)
		var own map[string]json.RawMessage
		if json.Unmarshal(raw.Expected[name], &own) == nil {
			f.nulls("dial.expected."+name+".per_request", own["per_request"])
		}
		quell.Put(&s.Expected, name, e)
	}
	if raw.Classifier != nil && string(raw.Classifier) != "null" {
		s.Classifier = &stats.Tree{}
		f.tree("dial.classifier", s.Classifier.UnmarshalJSON(raw.Classifier))
	}
	return &s
}

// nullParts calls nulls for the parts of a section, but for those that are read by themselves.
func (f *file) nullParts(section string, raw json.RawMessage, except ...string) {
	var parts map[string]json.RawMessage
	if json.Unmarshal(raw, &parts) != nil {
		return // reported already
	}
	for _, name := range sortedKeys(parts) {
		if !slices.Contains(except, name) {
			f.nulls(section+"."+name, parts[name])
		}
	}
}

// nulls adds each null within an array or an object to the mistakes in the file, because it would be read as 0.
func (f *file) nulls(path string, raw json.RawMessage) {
	var list []json.RawMessage
	var object map[string]json.RawMessage
	add := func(path string, v json.RawMessage) {
		if string(v) == "null" {
			f.addf(path, "is null; give a value")
		}
		f.nulls(path, v)
	}
	if json.Unmarshal(raw, &list) == nil {
		for i, v := range list {
			add(fmt.Sprintf("%s[%d]", path, i), v)
		}
	} else if json.Unmarshal(raw, &object) == nil {
		for _, name := range sortedKeys(object) {
			add(join(path, name), object[name])
		}
	}
}

// tree adds the mistakes in a decision tree to the mistakes in the file.
func (f *file) tree(path string, err error) {
	var c check
	c.tree(path, err)
	f.errs = append(f.errs, c.errs...)
}

// maxTail is the largest value of Tail that is accepted. That of exponential response times is 0.43.
const maxTail = 100

// minPeak is the smallest PeakRate that is accepted, in requests per second: shares of the load are computed from it.
const minPeak = 1e-6

// maxStretch is the largest value of Stretch that is accepted: with it, neighbours that use all of the memory make requests need 100 times
// as much processor time.
const maxStretch = 99

func (s *Dial) print(p *printer) { p.section("dial", s) }

func (s *Dial) check(c *check) {
	if s.PeakRate != 0 && !(s.PeakRate >= minPeak && s.PeakRate <= maxValue) {
		c.addf("dial.peak_rate", "%v is outside %v to %v requests per second; leave it out if it is unknown", s.PeakRate, minPeak, maxValue)
	}
	c.between("dial.detect_ms", s.DetectMS, 0, maxValue)
	c.between("dial.detect_rate", s.DetectRate, 0, maxValue)
	c.between("dial.tail", s.Tail, 0, maxTail)
	for _, class := range sortedKeys(s.TailByClass) {
		c.between("dial.tail_by_class."+class, s.TailByClass[class], 0, maxTail)
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
	c.between("dial.stretch", s.Stretch, 0, maxStretch)
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
		c.known("dial.usual."+name, "feature", name, dialFeatures)
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
	c.fit(s)
}

// fit checks the parts that say how good the fit was.
func (c *check) fit(s *Dial) {
	for _, r := range sortedKeys(s.Errors) {
		c.resource("dial.errors."+string(r), r)
		c.fitError("dial.errors."+string(r), s.Errors[r])
	}
	c.confusion("dial.validated", s.Validated, dialClasses)
}

// confusion checks how often windows of each class were predicted as each class.
func (c *check) confusion(path string, m stats.Confusion, classes []string) {
	for _, class := range sortedKeys(m) {
		c.known(path+"."+class, "class", class, classes)
		for _, predicted := range sortedKeys(m[class]) {
			c.known(path+"."+class+"."+predicted, "class", predicted, classes)
			c.between(path+"."+class+"."+predicted, float64(m[class][predicted]), 0, maxValue)
		}
	}
}

func (c *check) fitError(path string, e QueueingError) {
	c.between(path+".rows", float64(e.Rows), 0, maxValue)
	c.between(path+".mean_relative", e.MeanRelative, 0, maxValue)
	c.between(path+".max_relative", e.MaxRelative, 0, maxValue)
	c.between(path+".linear", e.Linear, 0, maxValue)
}

// known checks that a name is one of a list. what says what the names stand for.
func (c *check) known(path, what, name string, names []string) {
	if !slices.Contains(names, name) {
		c.addf(path, "unknown %s %q (known: %s)", what, name, strings.Join(names, ", "))
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
		switch {
		case v > maxValue:
			c.addf(path, "c%d is %v, which is too large; give 0 to %v", i+1, v, maxValue)
			return
		case !(v >= 0):
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
