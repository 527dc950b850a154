package tenants

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// The kinds of tenants that mixes are made of.
const (
	Processor = "processor-bound"
	Memory    = "memory-bound"
	Bursty    = "bursty"
	Idle      = "mostly idle"
)

// Kinds lists the kinds, the greedy ones first.
var Kinds = []string{Processor, Memory, Bursty, Idle}

// mostTasks is the largest number of tasks that work side by side in a drawn tenant.
const mostTasks = 8

// draw draws a tenant of a kind.
func draw(kind string, rng *rand.Rand) Tenant {
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(rng.Int64N(int64(most-least)))
	}
	switch kind {
	case Processor:
		return Tenant{Tasks: 1 + rng.IntN(mostTasks)}
	case Memory:
		return Tenant{Tasks: 1 + rng.IntN(mostTasks), Memory: 0.3 + 0.7*rng.Float64(), Reports: true}
	case Bursty:
		burst := between(5*time.Millisecond, 100*time.Millisecond)
		return Tenant{Tasks: 1 + rng.IntN(mostTasks/2), Burst: burst, Sleep: time.Duration((0.5 + 3*rng.Float64()) * float64(burst)), Vary: 0.5}
	}
	burst := between(2*time.Millisecond, 20*time.Millisecond)
	return Tenant{Tasks: 1, Burst: burst, Sleep: time.Duration((8 + 16*rng.Float64()) * float64(burst)), Vary: 0.5}
}

// Mix draws a number of tenants, the first of which is greedy.
func Mix(tenants int, seed uint64) (mix []Tenant) {
	rng := rand.New(rand.NewPCG(seed, uint64(tenants)))
	for i := range tenants {
		kind := Kinds[rng.IntN(len(Kinds))]
		if i == 0 {
			kind = Kinds[rng.IntN(2)]
		}
		t := draw(kind, rng)
		t.Name = fmt.Sprintf("%d %s", i+1, kind)
		mix = append(mix, t)
	}
	return mix
}

// Uneven draws mixes with different seeds, from seed on, until it has a number of them whose unfairness under the kernel's own sharing is
// at least least.
func Uneven(o Options, tenants, mixes int, least float64, seed uint64) (list [][]Tenant, err error) {
	const tries = 100
	for try := range uint64(tries * mixes) {
		o.Tenants, o.Seed = Mix(tenants, seed+try), seed+try
		out, err := Play(o)
		if err != nil {
			return nil, err
		}
		if out.Unfairness >= least {
			if list = append(list, o.Tenants); len(list) == mixes {
				return list, nil
			}
		}
	}
	return nil, fmt.Errorf("of %d mixes of %d tenants, only %d have an unfairness of %v", tries*mixes, tenants, len(list), least)
}
