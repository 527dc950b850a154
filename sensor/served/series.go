package served

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	dto "github.com/prometheus/client_model/go"

	"github.com/quellhq/quell"
)

// series is a histogram at one moment, or what it counted between two.
type series struct {
	count, sum float64
	schema     int32 // of a native histogram, whose buckets change with it; classic: that of a classic one
	buckets    map[bucket]float64
}

// bucket is a range of values, without its lower end.
type bucket struct{ from, to float64 }

// classic is no schema of a native histogram.
const classic = math.MinInt32

func seriesOf(h *dto.Histogram) series {
	s := series{count: sampleCount(h), sum: h.GetSampleSum(), schema: classic, buckets: map[bucket]float64{}}
	if len(h.PositiveSpan) > 0 || h.ZeroThreshold != nil && len(h.Bucket) == 0 {
		s.schema = h.GetSchema()
		s.native(h)
		return s
	}
	var below, last float64
	for _, b := range h.Bucket {
		n := b.GetCumulativeCountFloat()
		if n == 0 {
			n = float64(b.GetCumulativeCount())
		}
		s.put(bucket{below, b.GetUpperBound()}, n-last)
		below, last = b.GetUpperBound(), n
	}
	if !math.IsInf(below, 1) {
		s.put(bucket{below, math.Inf(1)}, s.count-last)
	}
	return s
}

// native adds the buckets of a native histogram: each is 2^(2^-schema) times as large as the one before.
func (s *series) native(h *dto.Histogram) {
	zeros := h.GetZeroCountFloat()
	if zeros == 0 {
		zeros = float64(h.GetZeroCount())
	}
	s.put(bucket{0, h.GetZeroThreshold()}, zeros)
	bound := func(i int32) float64 { return math.Exp2(math.Ldexp(float64(i), -int(s.schema))) }
	var index, at int32
	var n float64
	for _, span := range h.PositiveSpan {
		index += span.GetOffset()
		for range span.GetLength() {
			switch {
			case int(at) < len(h.PositiveDelta):
				n += float64(h.PositiveDelta[at])
			case int(at) < len(h.PositiveCount):
				n = h.PositiveCount[at]
			}
			s.put(bucket{bound(index - 1), bound(index)}, n)
			index, at = index+1, at+1
		}
	}
}

func (s *series) put(b bucket, n float64) {
	if n > 0 {
		s.buckets[b] += n
	}
}

func sampleCount(h *dto.Histogram) float64 {
	if f := h.GetSampleCountFloat(); f > 0 {
		return f
	}
	return float64(h.GetSampleCount())
}

// since returns what was counted since an earlier moment; the zero series is before the first request. If the counter began again, that is
// all of it. It is not known if the buckets are others.
func (s series) since(before series) (grown series, known bool) {
	if before.count == 0 || s.count < before.count {
		return s, true
	}
	if s.schema != before.schema {
		return series{}, false
	}
	grown = series{count: s.count - before.count, sum: s.sum - before.sum, schema: s.schema, buckets: map[bucket]float64{}}
	for b, n := range s.buckets {
		grown.put(b, n-before.buckets[b])
	}
	return grown, true
}

func (s *series) add(more series) {
	if s.buckets == nil {
		s.buckets = map[bucket]float64{}
	}
	s.count, s.sum = s.count+more.count, s.sum+more.sum
	for b, n := range more.buckets {
		s.buckets[b] += n
	}
}

// longest is longer than any request takes, in µs: what is above it counts as it.
const longest = int64(24 * time.Hour / time.Microsecond)

// durations returns the response times of a histogram whose values have a unit. The mean is that of the sum. A percentile is interpolated
// in its bucket, as Prometheus does; in the last one, which has no end, by the sum.
func (s *series) durations(unit time.Duration) (*quell.Latency, []byte, error) {
	mean := s.sum / s.count * unit.Seconds() * 1000
	if !(mean >= 0) || math.IsInf(mean, 1) {
		return nil, nil, errors.New("the sum of the response times is none: reading skipped")
	}
	h := hdrhistogram.New(1, longest, 2)
	overflow := s.overflow()
	for _, b := range s.ordered() {
		end := b.to
		if math.IsInf(end, 1) {
			end = max(b.from, 2*overflow-b.from)
		}
		record(h, b.from*unit.Seconds()*1e6, end*unit.Seconds()*1e6, int64(math.Round(s.buckets[b])))
	}
	encoded, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return nil, nil, err
	}
	at := func(q float64) *float64 { ms := float64(h.ValueAtQuantile(q)) / 1000; return &ms }
	return &quell.Latency{Mean: &mean, P50: at(50), P90: at(90), P95: at(95), P99: at(99), N: int(math.Round(s.count))}, encoded, nil
}

func (s *series) ordered() []bucket {
	buckets := make([]bucket, 0, len(s.buckets))
	for b := range s.buckets {
		buckets = append(buckets, b)
	}
	slices.SortFunc(buckets, func(a, b bucket) int { return cmp.Compare(a.to, b.to) })
	return buckets
}

// overflow is the mean of the values in the bucket without end, if the others lie in the middle of theirs.
func (s *series) overflow() float64 {
	rest, n := s.sum, 0.
	for b, in := range s.buckets {
		if math.IsInf(b.to, 1) {
			n = in
		} else {
			rest -= in * (b.from + b.to) / 2
		}
	}
	if n == 0 {
		return 0
	}
	return rest / n
}

// record adds n values that lie evenly between two, in µs.
func record(h *hdrhistogram.Histogram, from, to float64, n int64) {
	const finest = 100
	pieces := min(n, finest)
	for i := range pieces {
		us := from + (to-from)*(float64(i)+0.5)/float64(pieces)
		value := max(1, min(longest, int64(math.Min(us, float64(longest)))))
		_ = h.RecordValues(value, n*(i+1)/pieces-n*i/pieces) // it is within the histogram's range
	}
}
