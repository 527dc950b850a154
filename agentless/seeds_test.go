package agentless

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// site is four servers as a busy machine sees them: most connections take a fifth of a millisecond, a few take many, because the machine
// itself was busy. Downloads share a link with a neighbour of server 2, if there is one.
type site struct {
	rng    *rand.Rand
	memory Memory
	at     time.Time
}

func (s *site) stats(n int, one func() float64) *quell.ProbeStats {
	var sum, squares float64
	for range n {
		v := one()
		sum, squares = sum+v, squares+v*v
	}
	mean := sum / float64(n)
	return &quell.ProbeStats{MeanMS: mean, StddevMS: math.Sqrt(max(0, squares/float64(n)-mean*mean)), N: n}
}

// window judges a window in which the neighbour's mean severity is this.
func (s *site) window(severity float64) []Finding {
	s.at = s.at.Add(4 * time.Second)
	var samples []Sample
	for i := range 4 {
		slower := 1.0
		if i == 2 {
			slower += severity * math.Exp(0.4*s.rng.NormFloat64()-0.08) // it comes and goes
		}
		rate := 20 * math.Exp(0.1*s.rng.NormFloat64())
		samples = append(samples, Sample{ID: fmt.Sprint("w", i), Rate: &rate,
			ConnectMS: s.stats(10, func() float64 {
				ms := 0.2 * math.Exp(0.15*s.rng.NormFloat64())
				if s.rng.Float64() < 0.02 {
					ms += 5 * s.rng.ExpFloat64()
				}
				return ms
			}),
			ProbeMS: s.stats(10, func() float64 { return 20 * slower * math.Exp(0.25*s.rng.NormFloat64()) })})
	}
	findings, next := Judge(s.memory, s.at, samples, 0)
	s.memory = next
	return findings
}

// Over a hundred seeds a busy looking machine accuses nobody in nearly all looks, and a neighbour of changing strength is named and still
// named at the end.
func TestBusyLookers(t *testing.T) {
	accused, named, atEnd := 0, 0, 0
	const seeds = 100
	for seed := range seeds {
		s := &site{rng: rand.New(rand.NewPCG(uint64(seed), 7)), at: start}
		wrong, right := false, false
		var last []Finding
		for w := range 30 {
			severity := 0.0
			if w >= 12 {
				severity = 0.6
			}
			last = s.window(severity)
			for i := range last {
				wrong = wrong || last[i].Slowed && (i != 2 || w < 12)
				right = right || last[i].Slowed && i == 2 && w >= 12
			}
		}
		if wrong {
			accused++
		}
		if right {
			named++
		}
		if last[2].Slowed {
			atEnd++
		}
	}
	t.Logf("of %d looks: %d accused another server, %d named the right one, %d at the end", seeds, accused, named, atEnd)
	if accused > 5 || named < 95 || atEnd < 95 {
		t.Errorf("of %d looks: %d accused another server, %d named the right one, %d at the end", seeds, accused, named, atEnd)
	}
}
