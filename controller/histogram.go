package controller

import (
	"maps"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/quellhq/quell/life"
)

var (
	// responseBounds are the upper bounds of the classic buckets of response times, in seconds; those of the built-in balancer are the same.
	responseBounds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	// ratioBounds are those of measured over predicted response times.
	ratioBounds = []float64{.25, .5, .7, .8, .9, 1, 1.1, 1.2, 1.3, 1.5, 2, 3, 5}
)

// nativeSchema is the resolution of native histograms: each bucket ends at 2^(1/8), 1.09 times the end of the one before.
const nativeSchema = 3

// histogram counts positive values, for both kinds of histogram that Prometheus has. The zero value is empty.
type histogram struct {
	count   uint64
	sum     float64
	buckets []uint64      // classic: one for each bound, and the rest; not cumulative
	native  map[int]int64 // by index in the native schema
	zero    uint64        // values below the smallest native bucket
}

// smallest is the least value that has a native bucket of its own.
const smallest = 1e-6

// add counts a value n times.
func (h *histogram) add(bounds []float64, v float64, n int64) {
	if h.buckets == nil {
		h.buckets, h.native = make([]uint64, len(bounds)+1), map[int]int64{}
	}
	h.count += uint64(n)
	h.sum += v * float64(n)
	h.buckets[sort.SearchFloat64s(bounds, v)] += uint64(n)
	if v < smallest {
		h.zero += uint64(n)
		return
	}
	h.native[int(math.Ceil(math.Log2(v)*(1<<nativeSchema)))] += n
}

func (h *histogram) clone() histogram {
	c := *h
	c.buckets, c.native = slices.Clone(h.buckets), maps.Clone(h.native)
	return c
}

// responses makes a histogram, in seconds, of all response times of a service.
func responses(all *life.Durations) (h histogram) {
	all.Each(func(us, n int64) { h.add(responseBounds, float64(us)/1e6, n) })
	return h
}

// metric gives Prometheus both kinds.
func (h *histogram) metric(desc *prometheus.Desc, bounds []float64, begun time.Time, labels ...string) prometheus.Metric {
	native := prometheus.MustNewConstNativeHistogram(desc, h.count, h.sum, h.native, nil, h.zero, nativeSchema, smallest, begun, labels...)
	return both{native, h, bounds}
}

// both is a native histogram that has classic buckets, too.
type both struct {
	prometheus.Metric
	classic *histogram
	bounds  []float64
}

// Write implements prometheus.Metric.
func (b both) Write(out *dto.Metric) error {
	if err := b.Metric.Write(out); err != nil {
		return err
	}
	var sum uint64
	for i := range b.bounds {
		if b.classic.buckets != nil {
			sum += b.classic.buckets[i]
		}
		out.Histogram.Bucket = append(out.Histogram.Bucket, &dto.Bucket{CumulativeCount: new(sum), UpperBound: &b.bounds[i]})
	}
	return nil
}
