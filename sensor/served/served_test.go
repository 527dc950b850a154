package served

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"

	"github.com/quellhq/quell"
)

// service is a server with metrics as Prometheus' own library shows them.
type service struct {
	*httptest.Server
	durations *prometheus.HistogramVec
	errors    prometheus.Counter
}

// kinds are the kinds of histograms, with how far a percentile may be off.
var kinds = map[string]struct {
	opts prometheus.HistogramOpts
	off  float64
}{
	"classic": {prometheus.HistogramOpts{Buckets: prometheus.ExponentialBuckets(0.001, 1.5, 24)}, 0.26},
	"native":  {prometheus.HistogramOpts{NativeHistogramBucketFactor: 1.1}, 0.06},
	"both":    {prometheus.HistogramOpts{NativeHistogramBucketFactor: 1.1, Buckets: []float64{0.1, 10}}, 0.06},
}

func newService(t *testing.T, o prometheus.HistogramOpts) *service {
	o.Name, o.Help = "request_seconds", "durations"
	s := &service{durations: prometheus.NewHistogramVec(o, []string{"path"}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{Name: "failed_total", Help: "failures"})}
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.durations, s.errors)
	s.Server = httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(s.Close)
	return s
}

func (s *service) sensor(t *testing.T, histogram string) *Sensor {
	t.Helper()
	return sensorOf(t, Options{Settings: Settings{URL: s.URL, Histogram: selector(t, histogram), Errors: selector(t, "failed_total")}})
}

func sensorOf(t *testing.T, o Options) *Sensor {
	t.Helper()
	o.Unit, o.Timeout = time.Second, time.Minute
	sensor, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return sensor
}

func selector(t *testing.T, text string) Selector {
	t.Helper()
	s, err := ParseSelector(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// sample reads the sensor so many seconds after the start.
func sample(t *testing.T, s *Sensor, at int) quell.Observation {
	t.Helper()
	var o quell.Observation
	if err := s.Sample(start.Add(time.Duration(at)*time.Second), &o); err != nil {
		t.Fatal(err)
	}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	return o
}

// Percentiles are those of the durations within what a bucket hides, and the mean is exact, for each kind of histogram. What came before
// the first sample does not count.
func TestPercentiles(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			s := newService(t, kind.opts)
			sensor := s.sensor(t, `request_seconds`)
			s.durations.WithLabelValues("/a").Observe(40)
			sample(t, sensor, 0)
			var all []float64
			random := rand.New(rand.NewPCG(1, 2))
			for i := range 5000 {
				d := 0.02 * random.ExpFloat64()
				all = append(all, d*1000)
				s.durations.WithLabelValues([]string{"/a", "/b"}[i%2]).Observe(d)
			}
			s.errors.Add(50)
			o := sample(t, sensor, 10)
			if *o.RequestRate != 500 || o.WindowS != 10 || *o.ErrorRate != 0.01 || o.LatencyMS.N != 5000 {
				t.Errorf("rate %v, window %v, errors %v, n %v", *o.RequestRate, o.WindowS, *o.ErrorRate, o.LatencyMS.N)
			}
			slices.Sort(all)
			var sum float64
			for _, ms := range all {
				sum += ms
			}
			near(t, "mean", *o.LatencyMS.Mean, sum/5000, 1e-9)
			near(t, "p50", *o.LatencyMS.P50, all[2500], kind.off)
			near(t, "p95", *o.LatencyMS.P95, all[4750], kind.off)
			near(t, "p99", *o.LatencyMS.P99, all[4950], kind.off)
			requests, failed, encoded := sensor.Counted()
			h, err := hdrhistogram.Decode(encoded)
			if err != nil || h.TotalCount() != 5000 || requests != 5000 || failed != 50 {
				t.Errorf("counted %d with %d errors, %v", requests, failed, err)
			}
			if o = sample(t, sensor, 20); *o.RequestRate != 0 || o.LatencyMS != nil || o.ErrorRate != nil {
				t.Errorf("without requests: %+v", o)
			}
		})
	}
}

func near(t *testing.T, what string, got, want, off float64) {
	t.Helper()
	if math.Abs(got/want-1) > off {
		t.Errorf("%s is %v, and was %v", what, got, want)
	}
}

// Only series with the labels count.
func TestLabels(t *testing.T) {
	s := newService(t, kinds["classic"].opts)
	sensor := s.sensor(t, `request_seconds{path="/a"}`)
	s.durations.WithLabelValues("/a").Observe(1)
	sample(t, sensor, 0)
	s.durations.WithLabelValues("/a").Observe(0.5)
	s.durations.WithLabelValues("/b").Observe(2)
	if o := sample(t, sensor, 1); o.LatencyMS.N != 1 || *o.LatencyMS.Mean != 500 {
		t.Errorf("%+v", o.LatencyMS)
	}
}

// A series that appears between two samples counts from its start, and so does one that began again because the service did.
func TestRestart(t *testing.T) {
	page := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprint(w, page)
	}))
	defer server.Close()
	sensor := sensorOf(t, Options{Settings: Settings{URL: server.URL, Histogram: selector(t, "d"), Errors: selector(t, "e")}})
	text := func(n int, sum float64, errors int) string {
		return fmt.Sprintf("# TYPE d histogram\n"+
			"d_bucket{le=\"1\"} %[1]d\nd_bucket{le=\"+Inf\"} %[1]d\nd_sum %[2]v\nd_count %[1]d\n# TYPE e counter\ne %[3]d\n",
			n, sum, errors)
	}
	page = "# TYPE other histogram\nother_bucket{le=\"+Inf\"} 0\nother_sum 0\nother_count 0\n"
	var o quell.Observation
	if err := sensor.Sample(start, &o); err == nil || !strings.Contains(err.Error(), "no histogram d yet; it has other") {
		t.Errorf("no histogram: %v", err)
	}
	for i, c := range []struct {
		n      int
		sum    float64
		errors int
		rate   float64
		mean   float64
		failed int64
	}{{4, 2, 1, 4, 500, 1}, {6, 3.5, 1, 2, 750, 0}, {1, 0.25, 1, 1, 250, 0}} {
		page = text(c.n, c.sum, c.errors)
		o := sample(t, sensor, i+1)
		if _, failed, _ := sensor.Counted(); *o.RequestRate != c.rate || *o.LatencyMS.Mean != c.mean || failed != c.failed {
			t.Errorf("%+v: rate %v, mean %v, failed %d", c, *o.RequestRate, *o.LatencyMS.Mean, failed)
		}
	}
}

// What lies above the last bucket is placed by the sum.
func TestAboveTheLastBucket(t *testing.T) {
	s := newService(t, prometheus.HistogramOpts{Buckets: []float64{0.1}})
	sensor := s.sensor(t, "request_seconds")
	s.durations.WithLabelValues("/").Observe(0)
	sample(t, sensor, 0)
	for range 10 {
		s.durations.WithLabelValues("/").Observe(3)
	}
	o := sample(t, sensor, 1)
	near(t, "mean", *o.LatencyMS.Mean, 3000, 1e-9)
	near(t, "p50", *o.LatencyMS.P50, 3000, 0.15)
}

// Whatever a service answers, there is an error that says where, and nothing is measured.
func TestUnusableAnswers(t *testing.T) {
	for want, handler := range map[string]http.HandlerFunc{
		"says 404 Not Found": http.NotFound,
		`content type "application/json"`: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, "{}")
		},
		"no histogram yet": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "text/plain") },
		"has d{code=\"200\"}, but no histogram": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			fmt.Fprint(w, "# TYPE d counter\nd 1\n")
		},
		"reading http://": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			fmt.Fprint(w, "no metrics at all")
		},
		"too large": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = w.Write([]byte(strings.Repeat("# a comment that is long enough\n", mostMetrics/32+1))) // the client may have gone
		},
	} {
		server := httptest.NewServer(handler)
		sensor := sensorOf(t, Options{Settings: Settings{URL: server.URL, Histogram: selector(t, `d{code="200"}`)}})
		var o quell.Observation
		if err := sensor.Sample(start, &o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if requests, _, _ := sensor.Counted(); o.LatencyMS != nil || o.RequestRate != nil || requests > 0 {
			t.Errorf("%s: measured %+v", want, o)
		}
		server.Close()
	}
}

func TestSelectors(t *testing.T) {
	for text, want := range map[string]string{
		"a_seconds":                     "",
		` a_seconds{x="1",y="/b/{id}"}`: "",
		"":                              "no name",
		"a b":                           "no name",
		"a{":                            "no labels",
		"a{x=1}":                        "no labels",
		`a{x!="1"}`:                     "no labels",
		"a{x=\"1\"} 2\nb":               "no labels",
	} {
		if _, err := ParseSelector(text); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, not %q", text, err, want)
		}
	}
	for _, address := range []string{"", "8080", "ftp://x/metrics", "http://", "::"} {
		if _, err := New(Options{Settings: Settings{URL: address}}); !errors.As(err, new(*quell.UserError)) {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// FuzzMetrics reads what a service may answer. There is an error, or an observation as it may be.
func FuzzMetrics(f *testing.F) {
	f.Add("# TYPE d histogram\nd_bucket{le=\"1\"} 2\nd_bucket{le=\"+Inf\"} 3\nd_sum 9\nd_count 3\n", "d_count 4")
	f.Add("# TYPE d histogram\nd_bucket{le=\"-1\"} 2\nd_sum NaN\nd_count 3\n",
		"# TYPE d histogram\nd_bucket{le=\"1\"} 9\nd_sum -1\nd_count 1e300\n")
	f.Add("# TYPE d histogram\nd_bucket{le=\"NaN\"} 2\nd_bucket{le=\"-Inf\"} 7\nd_sum 1\nd_count 0\n",
		"# TYPE d histogram\nd_bucket{le=\"NaN\"} 8\nd_sum 9\nd_count 2\n")
	f.Fuzz(func(t *testing.T, first, second string) {
		sensor := sensorOf(t, Options{Settings: Settings{URL: "http://127.0.0.1:1/", Histogram: selector(t, "d"), Errors: selector(t, "d")}})
		var o quell.Observation
		for i, page := range []string{first, second} {
			families, err := sensor.decode(strings.NewReader(page), expfmt.NewFormat(expfmt.TypeTextPlain))
			if err == nil {
				err = sensor.since(sensor.last, start.Add(time.Duration(i)*time.Second), families, &o)
			}
			if err != nil && o.LatencyMS != nil {
				t.Errorf("%q, then %q: measured in spite of %v", first, second, err)
			}
		}
		if err := o.Validate(); err != nil {
			t.Errorf("%q, then %q: %v", first, second, err)
		}
	})
}
