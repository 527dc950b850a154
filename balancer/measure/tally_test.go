package measure

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell/balancer"
)

// Named classes are reported even without requests; further ones as long as there is room.
func TestClasses(t *testing.T) {
	tally := New("home", balancer.OtherClass)
	for i := range 100 {
		c := tally.Class(fmt.Sprint("client-", i))
		c.Arrived++
		c.Requests++
		c.Latency(10 * time.Millisecond)
	}
	o := tally.Observation(time.Unix(1, 0), 10*time.Second, 0)
	if len(o.RequestRates) != MaxClasses || len(o.LatencyByClassMS) != balancer.MostClasses {
		t.Errorf("%d classes, %d with response times", len(o.RequestRates), len(o.LatencyByClassMS))
	}
	if rate, told := o.RequestRates["home"]; !told || rate != 0 {
		t.Errorf("a class without requests: %v, %t", rate, told)
	}
	if n := o.LatencyByClassMS[balancer.OtherClass].N; n != 100-(balancer.MostClasses-1) {
		t.Errorf("%d requests of other classes", n)
	}
	tally.Reset()
	o = tally.Observation(time.Unix(2, 0), time.Second, 0)
	for class, rate := range o.RequestRates {
		if rate != 0 || o.LatencyByClassMS != nil {
			t.Errorf("after the reset, class %s has %v requests/s, %v", class, rate, o.LatencyByClassMS)
		}
	}
	if o := New().Observation(time.Unix(3, 0), time.Second, 0); o.RequestRates != nil || o.LatencyByClassMS != nil {
		t.Errorf("without classes: %+v", o)
	}
}

// Requests that arrived are divided among the classes in proportion to those that finished.
func TestSpreadArrivals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tally := New("idle")
		tally.Arrived = rapid.Int64Range(0, 1e6).Draw(t, "arrived")
		var finished, sum int64
		for i := range rapid.IntRange(0, 5).Draw(t, "classes") {
			n := rapid.Int64Range(0, 1000).Draw(t, "finished")
			tally.Class(fmt.Sprint(i)).Requests = n
			finished += n
		}
		tally.SpreadArrivals()
		for _, n := range tally.Arrivals() {
			sum += n
		}
		if want := tally.Arrived; finished > 0 && math.Abs(float64(sum-want)) > 3 || finished == 0 && sum != 0 {
			t.Fatalf("%d arrived, %d by class, %d finished", want, sum, finished)
		}
	})
}
