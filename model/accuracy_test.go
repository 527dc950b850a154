package model

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/stats"
)

// sample draws probe times around 20 ms.
func sample(r *rand.Rand, n int) stats.Moments {
	values := make([]float64, n)
	for i := range values {
		values[i] = 20 + 3*r.NormFloat64()
	}
	mean, stddev := stat.MeanStdDev(values, nil)
	return stats.Moments{Mean: mean, Stddev: stddev, N: n}
}

// sharedLink is a link that behaves like processor sharing: everything takes 1/(1 - U - U_int) times as long.
func sharedLink() *Models {
	m := &Models{Sections: []Section{&Prima{
		Isolation:    map[quell.Resource][]Isolation{},
		ResponseTime: map[quell.Resource][]ResponseTime{},
		Interference: map[quell.Resource][]Interference{},
	}}}
	for level := 1; level <= 9; level++ {
		u := float64(level) / 10
		m.Prima().Isolation[quell.Network] = append(m.Prima().Isolation[quell.Network],
			Isolation{Utilization: u, ProbeMS: 8 / (1 - u), StddevMS: 1, N: 40})
		m.Prima().ResponseTime[quell.Network] = append(m.Prima().ResponseTime[quell.Network],
			ResponseTime{Utilization: u, LatencyMS: mean(10 / (1 - u))})
		for _, interfering := range sharedLinkInterference {
			if u+interfering >= saturated {
				continue
			}
			sf := interfering / (1 - u - interfering)
			m.Prima().ResponseTime[quell.Network] = append(m.Prima().ResponseTime[quell.Network],
				ResponseTime{Utilization: u, Severity: sf, LatencyMS: mean(10 / (1 - u - interfering))})
			m.Prima().Interference[quell.Network] = append(m.Prima().Interference[quell.Network],
				Interference{Utilization: u, Interfering: interfering, Severity: sf})
		}
	}
	return m
}

var sharedLinkInterference = []float64{0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7}

// capacityErrors returns the mean error of the capacity and the largest overestimate, for instances at all loads and
// interferences. The true capacity is 1 - U_int - 1/2.5.
func capacityErrors(p *Predictor) (meanError, tooHigh float64) {
	n := 0.0
	for u := 0.1; u < 0.9; u += 0.05 {
		for interfering := 0.05; interfering <= 0.55 && u+interfering < 0.95; interfering += 0.05 {
			sf := interfering / (1 - u - interfering)
			err := p.Capacity(p.Interfering(u, sf), 25) - (0.6 - interfering)
			meanError += math.Abs(err)
			tooHigh = max(tooHigh, err)
			n++
		}
	}
	return meanError / n, tooHigh
}

func TestCapacityOnASharedLink(t *testing.T) {
	joint, jointHigh := capacityErrors(compiled(t, sharedLink(), quell.Joint))
	total, totalHigh := capacityErrors(compiled(t, sharedLink(), quell.Total))
	t.Logf("joint: mean %.4f, too high by at most %.4f; total: mean %.4f, too high by at most %.4f", joint, jointHigh, total, totalHigh)
	if joint > 0.01 || jointHigh > 0.03 {
		t.Errorf("joint errs by %.4f on average and is %.4f too high at worst", joint, jointHigh)
	}
	if total < 0.04 || total > 0.08 {
		t.Errorf("total errs by %.4f on average, known to be near 0.06 on such a link", total)
	}
	if total < 3*joint || totalHigh < 3*jointHigh {
		t.Errorf("total (%.4f, %.4f) should be far behind joint (%.4f, %.4f): one total belongs to many severities",
			total, totalHigh, joint, jointHigh)
	}
}

func BenchmarkSeverity(b *testing.B) {
	p := compiled(b, sharedLink(), quell.Joint)
	for b.Loop() {
		p.Severity(0.43, quell.ProbeStats{MeanMS: 19, StddevMS: 2, N: 8}, false)
	}
}

func BenchmarkResponseTime(b *testing.B) {
	p := compiled(b, sharedLink(), quell.Joint)
	for b.Loop() {
		p.ResponseTime(0.43, 0.8)
	}
}

func BenchmarkCapacity(b *testing.B) {
	for _, im := range quell.InterferenceModels {
		b.Run(string(im), func(b *testing.B) {
			p := compiled(b, sharedLink(), im)
			b.ReportAllocs()
			for b.Loop() {
				p.Capacity(0.23, 25)
			}
		})
	}
}
