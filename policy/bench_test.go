package policy

import (
	"fmt"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// sharingModels are the tables that a training would give on a link that is shared equally (processor sharing): with
// a response time of 10 ms without neighbours, severity is U_int/(1-U-U_int) and the response time 10 ms/(1-U-U_int).
func sharingModels(tb testing.TB) *model.Models {
	tb.Helper()
	prima := &model.Prima{
		Isolation:    map[quell.Resource][]model.Isolation{},
		ResponseTime: map[quell.Resource][]model.ResponseTime{},
		Interference: map[quell.Resource][]model.Interference{},
	}
	m := &model.Models{
		Trained:  &model.Trained{PerRequest: map[quell.Resource]float64{quell.Network: 0.01}},
		Sections: []model.Section{prima},
	}
	for level := 1; level <= 9; level++ {
		u := float64(level) / 10
		alone := 10 / (1 - u)
		prima.Isolation[quell.Network] = append(prima.Isolation[quell.Network],
			model.Isolation{Utilization: u, ProbeMS: alone, StddevMS: 1, N: 50})
		for step := range 9 {
			interfering := float64(step) * (0.96 - u) / 8
			free := 1 - u - interfering
			response := 10 / free
			prima.ResponseTime[quell.Network] = append(prima.ResponseTime[quell.Network], model.ResponseTime{
				Utilization: u, Severity: interfering / free, LatencyMS: quell.Latency{Mean: &response},
			})
			if step > 0 {
				prima.Interference[quell.Network] = append(prima.Interference[quell.Network], model.Interference{
					Utilization: u, Interfering: interfering, Severity: interfering / free,
				})
			}
		}
	}
	return m
}

// crowd is a snapshot of n instances at one utilisation, 30% of which suffer from neighbours.
func crowd(n int, use float64) *quell.Snapshot {
	at := time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)
	s := &quell.Snapshot{At: at, Service: "video"}
	for i := range n {
		weight, age, latency, severity := 1/float64(n), float64(1000+i%97), 20.0, 0.0
		if i%10 < 3 {
			severity = 0.2 + float64(i%7)/10
		}
		s.Instances = append(s.Instances, quell.Instance{
			ID: fmt.Sprintf("video-%05d", i), State: quell.Ready, Weight: &weight, AgeS: &age,
			Observation: &quell.Observation{
				At: at, Utilization: map[quell.Resource]float64{quell.Network: use},
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
				snapshot := crowd(n, tc.use)
				var st State
				for range 3 {
					_, st = engine.Decide(snapshot, st)
				}
				b.ReportAllocs()
				for b.Loop() {
					engine.Decide(snapshot, st)
				}
			})
		}
	}
}

// BenchmarkICE measures one decision of ice beside another policy, without JSON: while nobody has neighbours, in the second in which all
// instances get some, and in one in which half of them are calm again while the others' cuts change.
func BenchmarkICE(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		for _, tc := range []struct {
			name string
			play func(s *shop)
		}{
			{"quiet", func(*shop) {}},
			{"all", func(s *shop) { eachOf(s.servers, func(v *served) { v.hidden = 0.6 }) }},
			{"half", func(s *shop) {
				for i := range s.servers {
					s.servers[i].hidden = 0.6
				}
				s.seconds(1)
				for i := range s.servers {
					s.servers[i].hidden = 0.8 * float64(i%2)
				}
				s.seconds(9)
			}},
		} {
			b.Run(fmt.Sprintf("%d/%s", n, tc.name), func(b *testing.B) {
				s := newShop(b, n, nil, tuned)
				s.seconds(bandKnown + 1)
				tc.play(s)
				snapshot := s.next()
				b.ReportAllocs()
				for b.Loop() {
					s.decide(snapshot, s.st)
				}
			})
		}
	}
}
