package loadgen

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func answered(instance string, latency time.Duration) Sample {
	return Sample{Intended: time.Second, Finished: time.Second + latency, Instance: instance, Status: 200}
}

func TestRecorderByInstanceAndTotal(t *testing.T) {
	r := NewRecorder()
	for ms := 1; ms <= 100; ms++ {
		r.Record(answered("i1", time.Duration(ms)*time.Millisecond))
	}
	r.Record(answered("i2", 500*time.Millisecond))
	r.Record(Sample{Instance: "i2", Status: 503, Finished: time.Microsecond})
	r.Record(Sample{Err: errors.New("refused")})

	if got := r.Instances(); !slices.Equal(got, []string{"i1", "i2"}) {
		t.Errorf("instances %v", got)
	}
	i1, _ := r.Instance("i1")
	for name, c := range map[string]struct{ got, want float64 }{
		"mean": {*i1.LatencyMS.Mean, 50.5}, "p50": {*i1.LatencyMS.P50, 50}, "p90": {*i1.LatencyMS.P90, 90},
		"p95": {*i1.LatencyMS.P95, 95}, "p99": {*i1.LatencyMS.P99, 99},
	} {
		if math.Abs(c.got-c.want) > 0.002*c.want {
			t.Errorf("%s is %v ms, want %v", name, c.got, c.want)
		}
	}
	i2, _ := r.Instance("i2")
	if i2.Requests != 2 || i2.Errors != 1 || i2.LatencyMS.N != 1 {
		t.Errorf("i2: %+v; a failed request counts, its latency does not", i2)
	}
	if total := r.Total(); total.Requests != 103 || total.Errors != 2 || total.LatencyMS.N != 101 {
		t.Errorf("total: %+v", total)
	}
	if _, ok := r.Instance("i3"); ok {
		t.Error("an instance that was never seen has statistics")
	}
}

func TestRecorderTellsClassesApart(t *testing.T) {
	r := NewRecorder()
	for class, latencies := range map[string][]time.Duration{"page": {10 * time.Millisecond, 30 * time.Millisecond}, "": {time.Second}} {
		for _, latency := range latencies {
			s := answered("", latency)
			s.Class = class
			r.Record(s)
		}
	}
	r.Record(Sample{Class: "search", Err: errors.New("refused")})
	got := r.Classes()
	if page := got["page"]; len(got) != 2 || page.Requests != 2 || math.Abs(*page.LatencyMS.Mean-20) > 0.1 || got["search"].Errors != 1 {
		t.Errorf("classes %+v", got)
	}
}

func TestRecorderWithoutAnswersHasNoLatency(t *testing.T) {
	r := NewRecorder()
	r.Record(Sample{Instance: "i1", Err: errors.New("refused")})
	if s, _ := r.Instance("i1"); s.LatencyMS.Mean != nil || s.LatencyMS.P99 != nil || s.LatencyMS.N != 0 {
		t.Errorf("latency of nothing: %+v", s.LatencyMS)
	}
}

func TestMergedRecordersEqualOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one, left, right := NewRecorder(), NewRecorder(), NewRecorder()
		for range rapid.IntRange(0, 50).Draw(t, "n") {
			s := answered(
				fmt.Sprintf("i%d", rapid.IntRange(1, 3).Draw(t, "instance")),
				time.Duration(rapid.Int64Range(-5, int64(2*time.Hour)).Draw(t, "latency")))
			if rapid.Bool().Draw(t, "failed") {
				s.Status = 500
			}
			s.Class = rapid.SampledFrom([]string{"", "page", "search"}).Draw(t, "class")
			one.Record(s)
			if rapid.Bool().Draw(t, "left") {
				left.Record(s)
			} else {
				right.Record(s)
			}
		}
		left.Merge(right)
		left.Merge(left)
		if !reflect.DeepEqual(one.Total(), left.Total()) || !reflect.DeepEqual(one.Classes(), left.Classes()) ||
			!slices.Equal(one.Instances(), left.Instances()) {
			t.Fatalf("merged %+v, at once %+v", left.Total(), one.Total())
		}
		for _, id := range one.Instances() {
			a, _ := one.Instance(id)
			if b, _ := left.Instance(id); !reflect.DeepEqual(a, b) {
				t.Fatalf("%s: merged %+v, at once %+v", id, b, a)
			}
		}
	})
}
