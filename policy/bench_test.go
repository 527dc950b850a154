package policy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// crowd is a snapshot of n instances at one utilisation, 30% of which suffer from neighbours, in a period.
func crowd(n int, use float64, period int) *quell.Snapshot {
	at := time.Date(2026, 1, 1, 0, 0, 10*period, 0, time.UTC)
	s := &quell.Snapshot{At: at, Service: "video"}
	for i := range n {
		weight, age, latency, severity, rate, share := 1/float64(n), float64(1000+i%97), 20.0, 0.0, 100*use, 1/float64(n)
		if i%10 < 3 {
			severity = 0.2 + float64(i%7)/10
		}
		s.Instances = append(s.Instances, quell.Instance{
			ID: fmt.Sprintf("video-%05d", i), State: quell.Ready, Weight: &weight, Share: &share, AgeS: &age,
			Observation: &quell.Observation{
				At: at, WindowS: 10, RequestRate: &rate, Utilization: map[quell.Resource]float64{quell.Network: use},
				Severity:  map[quell.Resource]float64{quell.Network: severity},
				LatencyMS: &quell.Latency{Mean: &latency, N: 100},
			},
		})
	}
	return s
}

// BenchmarkPRIMA measures one Decide with the guard, without JSON, after the memory has filled.
func BenchmarkPRIMA(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		for _, tc := range []struct {
			name string
			use  float64 // with a threshold of 25 ms an instance without neighbours can carry 0.6
		}{{"steady", 0.40}, {"shift", 0.45}, {"out", 0.55}, {"in", 0.20}} {
			b.Run(fmt.Sprintf("%d/%s", n, tc.name), func(b *testing.B) {
				service := quell.DefaultService()
				service.Name, service.SLO = "video", quell.SLO{Metric: quell.Mean, Threshold: 25 * time.Millisecond}
				service.Group.Max = 2 * n
				engine, err := all.NewEngine(service, sharingModels(b))
				if err != nil {
					b.Fatal(err)
				}
				var st policy.State
				for period := range 3 {
					_, st = engine.Decide(crowd(n, tc.use, period), st)
				}
				snapshot := crowd(n, tc.use, 3) // new readings, as in every period
				b.ReportAllocs()
				for b.Loop() {
					engine.Decide(snapshot, st)
				}
			})
		}
	}
}
