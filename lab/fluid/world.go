// Package fluid plays a service's load and its neighbours as amounts per second instead of as requests: a second is missed if the load is
// above what the ready instances carry. It is fast enough to compare rules for the reserve over hours and many seeds. It knows nothing of
// queues, probes or response times, which lab/sim has. Pure.
package fluid

import (
	"math"
	"math/rand/v2"
	"time"
)

// World is how a service's load and its neighbours behave.
type World struct {
	Name    string
	Startup time.Duration

	Neighbours float64       // part of the hosts that have one
	On, Off    time.Duration // mean lengths of its presence and absence
	Bursts     time.Duration // mean time between two bursts of load; 0: none
}

// The worlds of group.md: neighbours at random, rare, none; and bursts of load.
var kinds = []World{
	{Name: "storm", Neighbours: 0.8, On: 15 * time.Second, Off: 25 * time.Second},
	{Name: "rare", Neighbours: 0.8, On: 30 * time.Second, Off: 10 * time.Minute},
	{Name: "calm"},
	{Name: "bursts", Bursts: 4 * time.Minute},
}

// Worlds returns the four kinds, each with a start-up time of 3 and of 30 s.
func Worlds() (all []World) {
	for _, startup := range []time.Duration{3 * time.Second, 30 * time.Second} {
		for _, w := range kinds {
			w.Startup = startup
			all = append(all, w)
		}
	}
	return all
}

const (
	hosts = 48
	most  = 32   // group.max
	alone = 0.75 // capacity of an instance without neighbours
	load  = 6.0  // mean load: eight instances without a reserve
)

// Course is what happens in a world, second by second.
type Course struct {
	Load []float64
	Left [][]float64 // by second and host: the capacity of an instance there
}

// Play draws what happens in a number of seconds.
func (w World) Play(seconds int, seed uint64) Course {
	rng := rand.New(rand.NewPCG(seed, 77))
	c := Course{Load: w.loads(rng, seconds), Left: make([][]float64, seconds)}
	for t := range c.Left {
		c.Left[t] = make([]float64, hosts)
	}
	for h := range hosts {
		w.neighbour(rng, c, h)
	}
	return c
}

// loads draws the load: two slow waves, chance, and bursts.
func (w World) loads(rng *rand.Rand, seconds int) []float64 {
	list := make([]float64, seconds)
	phase, chance := rng.Float64()*2*math.Pi, 0.0
	burst, height, next := 0.0, 0.0, drawn(rng, w.Bursts)
	left := 0
	for t := range list {
		x := float64(t)
		chance = 0.95*chance + 0.01*rng.NormFloat64()
		if w.Bursts > 0 && t >= next && left == 0 {
			height, left = 0.2+0.4*rng.Float64(), 20+rng.IntN(60)
			next = t + left + drawn(rng, w.Bursts)
		}
		if left > 0 {
			left--
			burst += (height - burst) / 4
		} else {
			burst -= burst / 8
		}
		list[t] = load * (1 + 0.25*math.Sin(2*math.Pi*x/1800+phase) + 0.1*math.Sin(2*math.Pi*x/420+2*phase) + chance + burst)
	}
	return list
}

// neighbour draws what a host's neighbour leaves.
func (w World) neighbour(rng *rand.Rand, c Course, host int) {
	has := rng.Float64() < w.Neighbours
	on, until, use := false, drawn(rng, w.Off), 0.0
	for t := range c.Left {
		if has && t >= until {
			if on = !on; on {
				use, until = 0.4+0.2*rng.Float64(), t+max(1, drawn(rng, w.On))
			} else {
				use, until = 0, t+max(1, drawn(rng, w.Off))
			}
		}
		c.Left[t][host] = alone - use
	}
}

// drawn returns a number of seconds with the given mean.
func drawn(rng *rand.Rand, mean time.Duration) int { return int(rng.ExpFloat64() * mean.Seconds()) }
