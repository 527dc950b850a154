// Package served measures requests where only the service itself can: it reads a histogram of the service's own Prometheus metrics. So
// response times are known behind balancers that tell nothing, and an objective can be about something that no balancer sees, such as how
// late a streaming server sends its frames.
package served

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/quellhq/quell"
)

// Options are the settings, and how long one reading may take.
type Options struct {
	Settings
	Timeout time.Duration
}

// Sensor is a sensor.Sensor.
type Sensor struct {
	opts   Options
	client *http.Client
	last   *state // nil: the next sample only sets the starting point

	mu      sync.Mutex // guards counted
	counted counted
}

// counted is what the last sample counted, for those who merge the response times of many instances.
type counted struct {
	requests, failed int64
	latencyHDR       []byte // as in quell.Reading
}

// state is what the metrics said at one moment.
type state struct {
	at     time.Time
	series map[string]series // of the histogram, by its labels
	failed map[string]float64
}

// New checks o.
func New(o Options) (*Sensor, error) {
	switch problem := URLProblem(o.URL); {
	case problem != "":
		return nil, &quell.UserError{Err: fmt.Errorf("%q %s", o.URL, problem)}
	case o.Histogram.Name == "" || o.Unit <= 0 || o.Timeout <= 0:
		return nil, errors.New("a histogram, its unit and a time-out are needed")
	}
	return &Sensor{opts: o, client: &http.Client{Timeout: o.Timeout}}, nil
}

// URLProblem says what is wrong with the URL of metrics; "" if nothing is.
func URLProblem(text string) string {
	if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "must be a URL, such as http://127.0.0.1:8080/metrics"
	}
	return ""
}

// Name is "requests".
func (s *Sensor) Name() string { return "requests" }

// Counted returns what the last call of Sample counted: requests, those of them that failed, and their response times as in quell.Reading.
func (s *Sensor) Counted() (requests, failed int64, latencyHDR []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counted.requests, s.counted.failed, s.counted.latencyHDR
}

func (s *Sensor) count(c counted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counted = c
}

// Sample adds the rate of requests, their response times and, if they are measured, the share of those that failed. A service that has
// started again is counted from its start.
func (s *Sensor) Sample(now time.Time, obs *quell.Observation) error {
	before := s.last
	s.last = nil
	s.count(counted{})
	families, err := s.read()
	if err != nil {
		return err
	}
	return s.since(before, now, families, obs)
}

// since adds what was counted since a state.
func (s *Sensor) since(before *state, now time.Time, families map[string]*dto.MetricFamily, obs *quell.Observation) error {
	at := &state{at: now, series: s.opts.Histogram.histograms(families)}
	if s.opts.Errors.Name != "" {
		at.failed = s.opts.Errors.counters(families)
	}
	s.last = at
	if len(at.series) == 0 {
		return s.missing(families)
	}
	if before == nil {
		return nil
	}
	seconds := now.Sub(before.at).Seconds()
	if seconds <= 0 {
		return errors.New("the clock went back: reading skipped")
	}
	return s.observe(before, at, seconds, obs)
}

// observe adds what was counted between two states.
func (s *Sensor) observe(before, at *state, seconds float64, obs *quell.Observation) error {
	var all series
	for labels, now := range at.series {
		grown, known := now.since(before.series[labels])
		if !known {
			return fmt.Errorf("the buckets of %s have changed: reading skipped", s.opts.Histogram)
		}
		all.add(grown)
	}
	if !(all.count >= 0 && all.count <= mostRequests) {
		return fmt.Errorf("%s has counted %v requests, which cannot be: reading skipped", s.opts.Histogram, all.count)
	}
	n, rate := int64(math.Round(all.count)), all.count/seconds
	obs.WindowS, obs.RequestRate = seconds, &rate
	c := counted{requests: n}
	if s.opts.Errors.Name != "" && n > 0 {
		c.failed = min(failures(before.failed, at.failed), n)
		obs.ErrorRate = new(float64(c.failed) / float64(n))
	}
	if n > 0 {
		latency, encoded, err := all.durations(s.opts.Unit)
		if err != nil {
			return err
		}
		obs.LatencyMS, c.latencyHDR = latency, encoded
	}
	s.count(c)
	return nil
}

// mostRequests are more than a service can serve in one period.
const mostRequests = 1e9

// failures is by how much counters have grown.
func failures(before, now map[string]float64) int64 {
	var sum float64
	for labels, n := range now {
		if n < before[labels] { // it began again
			sum += n
			continue
		}
		sum += n - before[labels]
	}
	return int64(math.Round(sum))
}

// mostMetrics bounds what is read, in bytes.
const mostMetrics = 16 << 20

// accepted are the formats that can be read, the one with native histograms first.
var accepted = string(expfmt.NewFormat(expfmt.TypeProtoDelim)) + ";q=0.7," + string(expfmt.NewFormat(expfmt.TypeTextPlain)) + ";q=0.5"

// read reads the service's metrics.
func (s *Sensor) read() (families map[string]*dto.MetricFamily, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.opts.URL, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", accepted)
	response, err := s.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("the service's metrics: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the service's metrics: %s says %s", s.opts.URL, response.Status)
	}
	format := expfmt.ResponseFormat(response.Header)
	if format.FormatType() == expfmt.TypeUnknown {
		return nil, fmt.Errorf("%s has the content type %q, which is none of metrics", s.opts.URL, response.Header.Get("Content-Type"))
	}
	return s.decode(http.MaxBytesReader(nil, response.Body, mostMetrics), format)
}

// decode keeps the families that are asked for, and the names of the other histograms.
func (s *Sensor) decode(body io.Reader, format expfmt.Format) (families map[string]*dto.MetricFamily, err error) {
	families = map[string]*dto.MetricFamily{}
	decoder := expfmt.NewDecoder(body, format)
	for {
		var family dto.MetricFamily
		if err := decoder.Decode(&family); errors.Is(err, io.EOF) {
			return families, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading %s: %w", s.opts.URL, err)
		}
		switch name := family.GetName(); {
		case name == s.opts.Histogram.Name || name == s.opts.Errors.Name:
			families[name] = &family
		case family.GetType() == dto.MetricType_HISTOGRAM:
			families[name] = nil
		}
	}
}

// missing says that there is no such histogram. A service often shows a metric only after its first request.
func (s *Sensor) missing(families map[string]*dto.MetricFamily) error {
	if families[s.opts.Histogram.Name] != nil {
		return fmt.Errorf("%s has %s, but no histogram with these labels yet", s.opts.URL, s.opts.Histogram)
	}
	const most = 8
	var others []string
	for name := range families {
		if name != s.opts.Errors.Name {
			others = append(others, name)
		}
	}
	if len(others) == 0 {
		return fmt.Errorf("%s has no histogram yet, so not %s", s.opts.URL, s.opts.Histogram)
	}
	slices.Sort(others)
	if len(others) > most {
		others = append(others[:most], "...")
	}
	return fmt.Errorf("%s has no histogram %s yet; it has %s", s.opts.URL, s.opts.Histogram, strings.Join(others, ", "))
}

// Selector names a metric, and labels that a series must have.
type Selector struct {
	Name   string
	Labels string // as Prometheus writes them, between braces; empty: none
}

func (s Selector) String() string { return s.Name + s.Labels }

// ParseSelector reads a metric's name, with labels in braces if only some of its series count, as in
// http_request_duration_seconds{handler="/buy"}.
func ParseSelector(text string) (s Selector, err error) {
	name, rest, braces := strings.Cut(strings.TrimSpace(text), "{") // Prometheus' own parser reads the labels
	s.Name = strings.TrimSpace(name)
	if braces {
		s.Labels = "{" + rest
	}
	if !model.LegacyValidation.IsValidMetricName(s.Name) {
		return Selector{}, fmt.Errorf("%q is no name of a metric", s.Name)
	}
	if _, err := s.wanted(); err != nil {
		return Selector{}, err
	}
	return s, nil
}

// wanted returns the labels that a series must have.
func (s Selector) wanted() ([]*dto.LabelPair, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(s.String() + " 1\n"))
	if err != nil || families[s.Name] == nil || len(families) > 1 || s.Labels != "" && !strings.HasSuffix(s.Labels, "}") {
		return nil, fmt.Errorf(`%q are no labels: write them as {handler="/buy", code="200"}`, s.Labels)
	}
	return families[s.Name].Metric[0].Label, nil
}

// each calls f with every series that has the labels, and with its own labels as text.
func (s Selector) each(families map[string]*dto.MetricFamily, f func(labels string, m *dto.Metric)) {
	wanted, err := s.wanted()
	if family := families[s.Name]; family != nil && err == nil {
		for _, m := range family.Metric {
			if has(m.Label, wanted) {
				f(textOf(m.Label), m)
			}
		}
	}
}

func has(labels, wanted []*dto.LabelPair) bool {
	for _, w := range wanted {
		if !slices.ContainsFunc(labels, func(l *dto.LabelPair) bool {
			return l.GetName() == w.GetName() && l.GetValue() == w.GetValue()
		}) {
			return false
		}
	}
	return true
}

func textOf(labels []*dto.LabelPair) string {
	texts := make([]string, 0, len(labels))
	for _, l := range labels {
		texts = append(texts, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	slices.Sort(texts)
	return strings.Join(texts, ",")
}

// counters returns the values of counters, and how much histograms have counted.
func (s Selector) counters(families map[string]*dto.MetricFamily) map[string]float64 {
	values := map[string]float64{}
	s.each(families, func(labels string, m *dto.Metric) {
		switch {
		case m.Histogram != nil:
			values[labels] = sampleCount(m.Histogram)
		case m.Counter != nil:
			values[labels] = m.Counter.GetValue()
		case m.Untyped != nil:
			values[labels] = m.Untyped.GetValue()
		}
	})
	return values
}

func (s Selector) histograms(families map[string]*dto.MetricFamily) map[string]series {
	all := map[string]series{}
	s.each(families, func(labels string, m *dto.Metric) {
		if m.Histogram != nil {
			all[labels] = seriesOf(m.Histogram)
		}
	})
	return all
}
