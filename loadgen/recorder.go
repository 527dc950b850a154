package loadgen

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/quellhq/quell"
)

// Recorders keep latencies in microseconds, with three significant digits, up to one hour.
const (
	longest = int64(time.Hour / time.Microsecond)
	digits  = 3
)

// Recorder counts samples and keeps their latencies, in total, by instance and by class. It is safe for concurrent use.
// Latencies of failed requests are left out, because a quick refusal must not make a service look fast.
type Recorder struct {
	mu         sync.Mutex
	total      *record
	byInstance map[string]*record
	byClass    map[string]*record
}

type record struct {
	requests, errors int64
	latency          *hdrhistogram.Histogram
	connect          *hdrhistogram.Histogram // of new connections; nil: there were none
}

func newRecord() *record { return &record{latency: hdrhistogram.New(1, longest, digits)} }

// NewRecorder returns an empty recorder.
func NewRecorder() *Recorder {
	return &Recorder{total: newRecord(), byInstance: map[string]*record{}, byClass: map[string]*record{}}
}

// Record adds one sample. A sample without an instance or class counts only in the total.
func (r *Recorder) Record(s Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total.add(s)
	if s.Instance != "" {
		of(r.byInstance, s.Instance).add(s)
	}
	if s.Class != "" {
		of(r.byClass, s.Class).add(s)
	}
}

// Merge adds the content of other to r; other does not change. Merging a recorder with itself does nothing.
func (r *Recorder) Merge(other *Recorder) {
	if r == other {
		return
	}
	other.mu.Lock()
	copied := NewRecorder()
	copied.absorb(other)
	other.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.absorb(copied)
}

func (r *Recorder) absorb(other *Recorder) {
	r.total.merge(other.total)
	for id, rec := range other.byInstance {
		of(r.byInstance, id).merge(rec)
	}
	for class, rec := range other.byClass {
		of(r.byClass, class).merge(rec)
	}
}

// of returns the record of a name, and makes it if it is missing.
func of(records map[string]*record, name string) *record {
	rec := records[name]
	if rec == nil {
		rec = newRecord()
		records[name] = rec
	}
	return rec
}

func (r *record) add(s Sample) {
	r.requests++
	if s.Connect > 0 {
		_ = r.connects().RecordValue(microseconds(s.Connect))
	}
	if s.Failed() {
		r.errors++
		return
	}
	_ = r.latency.RecordValue(microseconds(s.Latency()))
}

// microseconds limits a time to the histograms' range, so that recording it cannot fail.
func microseconds(d time.Duration) int64 { return min(max(d.Microseconds(), 1), longest) }

func (r *record) connects() *hdrhistogram.Histogram {
	if r.connect == nil {
		r.connect = hdrhistogram.New(1, longest, digits)
	}
	return r.connect
}

func (r *record) merge(other *record) {
	r.requests += other.requests
	r.errors += other.errors
	r.latency.Merge(other.latency)
	if other.connect != nil {
		r.connects().Merge(other.connect)
	}
}

// Stats are a recorder's values for one instance or for all.
type Stats struct {
	Requests  int64         // requests that finished or failed
	Errors    int64         // requests that failed
	LatencyMS quell.Latency // of successful requests; absent if there were none
	ConnectMS *float64      // p90 of the times in which new connections were made; nil if none was
}

// Total returns the statistics of all samples.
func (r *Recorder) Total() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total.stats()
}

// Instance returns the statistics of one instance's samples, and whether there were any.
func (r *Recorder) Instance(id string) (Stats, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, ok := r.byInstance[id]
	if !ok {
		return Stats{}, false
	}
	return rec.stats(), true
}

// Instances returns the sorted names of the instances seen.
func (r *Recorder) Instances() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.byInstance))
}

// Classes returns the statistics of each class that was seen.
func (r *Recorder) Classes() map[string]Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]Stats, len(r.byClass))
	for class, rec := range r.byClass {
		all[class] = rec.stats()
	}
	return all
}

func (r *record) stats() Stats {
	s := Stats{Requests: r.requests, Errors: r.errors}
	if r.connect != nil {
		s.ConnectMS = new(float64(r.connect.ValueAtQuantile(90)) / 1e3)
	}
	if r.latency.TotalCount() == 0 {
		return s
	}
	at := func(percentile float64) *float64 {
		return new(float64(r.latency.ValueAtQuantile(percentile)) / 1e3)
	}
	mean := r.latency.Mean() / 1e3
	s.LatencyMS = quell.Latency{
		Mean: &mean, P50: at(50), P90: at(90), P95: at(95), P99: at(99), N: int(r.latency.TotalCount()),
	}
	return s
}
