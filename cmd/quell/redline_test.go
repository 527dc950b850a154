package main

import (
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/controller"
)

// A red-line test measures the statistic of the objective, also if that is about the time to the first byte.
func TestRedlineOfTheFirstByte(t *testing.T) {
	x := redlineTest{id: "web-1"}
	s := &controller.Status{SLO: "ttfb_p95 <= 200ms", ThresholdMS: 200, SamplingS: 10, Mode: quell.Act, Leading: true,
		Instances: []controller.InstanceStatus{{ID: "web-1"}}}
	if err := x.begin(s); err != nil {
		t.Fatal(err)
	}
	if x.slo.Metric != quell.P95 || !x.slo.FirstByte || x.slo.Threshold != 200*time.Millisecond {
		t.Errorf("%+v", x.slo)
	}
}
