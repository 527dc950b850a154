// Package measure counts what a balancer observes of one instance in one window, and turns the counts into a reading. All balancers that
// Quell measures use this package, so their readings mean the same and can be merged without loss.
package measure

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
)

// Histograms cover 1 µs to 1 h with an error of at most 1%, in 25 KB; longer times count as 1 h.
const (
	MaxUS  = int64(time.Hour / time.Microsecond)
	digits = 2
)

// Tally holds the counts of one window. It is not safe for concurrent use.
type Tally struct {
	Arrived  int64 // requests given to the instance, not counting those moved to another one
	Answered int64 // requests whose answer began, or that ended without one
	Requests int64 // requests that finished
	Errors   int64 // requests that finished and failed
	Shed     int64 // requests that finished and were refused by the instance to protect itself
	Limited  int64 // of those, requests whose clients asked too often
	Moved    int64 // attempts that failed before the instance got the request, which was then tried again or moved to another instance

	latency, connect *Durations
	classes          map[string]*Class
}

// Class holds the counts of one class of requests in one window.
type Class struct {
	Arrived  int64 // as Tally.Arrived
	Requests int64 // requests that finished
	latency  *Durations
}

// MaxClasses is the largest number of classes, with balancer.OtherClass, which stands for all further ones: clients cannot fill the memory
// with classes of their own.
const MaxClasses = balancer.MostClasses + 1

// Durations is a histogram of durations of one kind, with their exact sum.
type Durations struct {
	sum       time.Duration
	histogram *hdrhistogram.Histogram // µs
}

// NewDurations returns an empty histogram.
func NewDurations() *Durations { return &Durations{histogram: hdrhistogram.New(1, MaxUS, digits)} }

// Add records one duration; a negative one counts as 0.
func (d *Durations) Add(took time.Duration) {
	d.sum += took
	_ = d.histogram.RecordValue(min(max(took.Microseconds(), 0), MaxUS)) // cannot be out of range
}

// Reset removes all durations and keeps the allocated memory.
func (d *Durations) Reset() {
	d.sum = 0
	d.histogram.Reset()
}

// New returns an empty tally. Classes with the given names are reported even if there are no requests of them.
func New(classes ...string) *Tally {
	t := &Tally{latency: NewDurations(), connect: NewDurations(), classes: map[string]*Class{}}
	for _, name := range classes {
		t.Class(name)
	}
	return t
}

// Class returns the counts of a class, or, if there are too many classes, those of balancer.OtherClass.
func (t *Tally) Class(name string) *Class {
	named := len(t.classes)
	if t.classes[balancer.OtherClass] != nil {
		named--
	}
	if t.classes[name] == nil && named >= balancer.MostClasses {
		name = balancer.OtherClass
	}
	c := t.classes[name]
	if c == nil {
		c = &Class{latency: NewDurations()}
		t.classes[name] = c
	}
	return c
}

// Arrivals returns how many requests of each class arrived.
func (t *Tally) Arrivals() map[string]int64 {
	counts := make(map[string]int64, len(t.classes))
	for name, c := range t.classes {
		counts[name] = c.Arrived
	}
	return counts
}

// SpreadArrivals divides the requests that arrived among the classes, in proportion to those that finished. It is for balancers that know
// a request's class only at its end.
func (t *Tally) SpreadArrivals() {
	var finished int64
	for _, c := range t.classes {
		finished += c.Requests
	}
	for _, c := range t.classes {
		if c.Arrived = c.Requests; finished > 0 {
			c.Arrived = int64(math.Round(float64(t.Arrived) * float64(c.Requests) / float64(finished)))
		}
	}
}

// Finish counts a request that ended. class is "" if classes are not measured. took counts only for a Response.
func (t *Tally) Finish(v Verdict, class string, took time.Duration) {
	if v == Nothing {
		return
	}
	t.Requests++
	switch v {
	case Failure:
		t.Errors++
	case Shed:
		t.Shed++
	case Limited:
		t.Shed++
		t.Limited++
	case Response:
		t.Latency(took)
	}
	if class == "" {
		return
	}
	c := t.Class(class)
	if c.Requests++; v == Response {
		c.Latency(took)
	}
}

// Latency records the response time of a request of the class that succeeded.
func (c *Class) Latency(d time.Duration) { c.latency.Add(d) }

// Reset empties the tally and keeps the allocated memory.
func (t *Tally) Reset() {
	t.latency.Reset()
	t.connect.Reset()
	for _, c := range t.classes {
		c.latency.Reset()
		*c = Class{latency: c.latency}
	}
	*t = Tally{latency: t.latency, connect: t.connect, classes: t.classes}
}

// Merge adds the counts of another window.
func (t *Tally) Merge(o *Tally) {
	t.Arrived, t.Requests = t.Arrived+o.Arrived, t.Requests+o.Requests
	t.Answered += o.Answered
	t.Errors, t.Shed, t.Limited, t.Moved = t.Errors+o.Errors, t.Shed+o.Shed, t.Limited+o.Limited, t.Moved+o.Moved
	t.latency.Merge(o.latency)
	t.connect.Merge(o.connect)
	for _, name := range slices.Sorted(maps.Keys(o.classes)) {
		c, of := t.Class(name), o.classes[name]
		c.Arrived, c.Requests = c.Arrived+of.Arrived, c.Requests+of.Requests
		c.latency.Merge(of.latency)
	}
}

// Merge adds the durations of another histogram.
func (d *Durations) Merge(o *Durations) {
	d.sum += o.sum
	d.histogram.Merge(o.histogram)
}

// Latency records the response time of a request that succeeded.
func (t *Tally) Latency(d time.Duration) { t.latency.Add(d) }

// Connects returns how many connections were recorded.
func (t *Tally) Connects() int { return int(t.connect.histogram.TotalCount()) }

// Connect records how long a connection took to open.
func (t *Tally) Connect(d time.Duration) { t.connect.Add(d) }

// Observation returns the window as an Observation. RequestRate counts requests when they arrive: then the rates of a group add up to the
// offered load even under overload, when fewer requests finish. ErrorRate is the share of failed attempts: requests that failed, and
// attempts that never reached the instance, over all attempts that ended. ShedRate is the share of requests that were refused. meanOpen is
// the mean number of open requests in the window.
func (t *Tally) Observation(at time.Time, window time.Duration, meanOpen float64) quell.Observation {
	o := quell.Observation{At: at, WindowS: window.Seconds(), InFlight: &meanOpen}
	if window > 0 {
		rate := float64(max(0, t.Arrived)) / window.Seconds() // a request that arrived before the window may be moved in it
		o.RequestRate, o.AnsweredRate = &rate, new(float64(max(0, t.Answered))/window.Seconds())
	}
	if attempts := t.Requests + t.Moved; attempts > 0 {
		o.ErrorRate = new(float64(t.Errors+t.Moved) / float64(attempts))
	}
	if t.Shed > 0 {
		o.ShedRate = new(float64(t.Shed) / float64(t.Requests))
	}
	if t.Limited > 0 {
		o.LimitedRate = new(float64(t.Limited) / float64(t.Requests))
	}
	o.LatencyMS = t.latency.Summary()
	t.observeClasses(&o, window)
	if t.connect.histogram.TotalCount() > 0 {
		o.TCP = map[string]float64{"connect_ms_p90": milliseconds(t.connect.histogram.ValueAtPercentile(90))}
	}
	return o
}

// observeClasses adds the rate of each class, and its response times if there are any.
func (t *Tally) observeClasses(o *quell.Observation, window time.Duration) {
	if len(t.classes) == 0 || window <= 0 {
		return
	}
	o.RequestRates = make(map[string]float64, len(t.classes))
	for name, c := range t.classes {
		o.RequestRates[name] = float64(max(0, c.Arrived)) / window.Seconds()
		if l := c.latency.Summary(); l != nil {
			quell.Put(&o.LatencyByClassMS, name, *l)
		}
	}
}

// Reading adds the counts and the histograms to the observation. The caller sets service, instance and sender.
func (t *Tally) Reading(at time.Time, window time.Duration, meanOpen float64) (quell.Reading, error) {
	r := quell.Reading{Source: quell.FromBalancer, Observation: t.Observation(at, window, meanOpen), Requests: t.Requests, Errors: t.Errors}
	var err error
	if r.LatencyHDR, err = t.latency.encode(); err != nil {
		return r, err
	}
	if r.ConnectHDR, err = t.connect.encode(); err != nil {
		return r, err
	}
	for name, c := range t.classes {
		encoded, err := c.latency.encode()
		if err != nil {
			return r, err
		}
		if encoded == nil {
			continue
		}
		quell.Put(&r.ClassHDR, name, encoded)
	}
	return r, nil
}

// None returns what a balancer without any instance reports at the end of a sampling period.
func None(service, sender string, at time.Time, period time.Duration) quell.Reading {
	return quell.Reading{Service: service, Instance: quell.NoInstance, Source: quell.FromBalancer, Sender: sender,
		Observation: quell.Observation{At: at.UTC(), WindowS: period.Seconds()}}
}

// Unserved adds to the readings of a sampling period how many requests the balancer had no instance for. If there is no reading but those
// of a fast policy's periods, it appends none, because the number must be in one.
func Unserved(readings []quell.Reading, none quell.Reading, requests int64) []quell.Reading {
	if !slices.ContainsFunc(readings, func(r quell.Reading) bool { return !r.Fast }) {
		readings = append(readings, none)
	}
	period := none.Observation.WindowS
	if requests <= 0 || period <= 0 {
		return readings
	}
	for i := range readings {
		r := &readings[i]
		if r.Fast {
			continue
		}
		quell.Put(&r.Observation.Counters, quell.CounterUnserved, float64(requests)/period)
	}
	return readings
}

// encode returns the encoded histogram, nil if it has no values.
func (d *Durations) encode() ([]byte, error) {
	if d.histogram.TotalCount() == 0 {
		return nil, nil
	}
	return d.histogram.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
}

// Summary returns statistics in milliseconds, nil if there are no durations.
func (d *Durations) Summary() *quell.Latency {
	n := d.histogram.TotalCount()
	if n == 0 {
		return nil
	}
	mean := float64(d.sum) / float64(n) / float64(time.Millisecond)
	p := d.histogram.ValueAtPercentilesSlice([]float64{50, 90, 95, 99})
	ms := make([]float64, len(p))
	for i, us := range p {
		ms[i] = milliseconds(us)
	}
	return &quell.Latency{Mean: &mean, P50: &ms[0], P90: &ms[1], P95: &ms[2], P99: &ms[3], N: int(n)}
}

func milliseconds(us int64) float64 { return float64(us) / 1000 }
