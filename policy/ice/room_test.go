package ice

import (
	"math"
	"runtime"
	"testing"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/bands"
)

// The level of all instances is the same as if it were computed anew after each change.
func TestICERoom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		use := rapid.Float64Range(0, 1)
		n := rapid.IntRange(1, 30).Draw(rt, "n")
		p := &plan{group: &policy.Group{Members: make([]policy.Member, n)}, all: make([]facts, n)}
		policy.RememberedOf[instance](p.group)
		for i := range p.group.Members {
			m := &p.group.Members[i]
			m.Position, m.Fresh = i, true
			*memoryOf(m) = instance{
				Cause: rapid.SampledFrom([]quell.Resource{"", quell.CPU, quell.Network}).Draw(rt, "cause"), Hidden: use.Draw(rt, "hidden"),
				Seen: means{N: rapid.IntRange(0, 1).Draw(rt, "seen"), Hidden: use.Draw(rt, "hidden now")}}
			p.all[i].use.Own = use.Draw(rt, "own")
			p.group.Ready = append(p.group.Ready, m)
		}
		for range rapid.IntRange(1, 20).Draw(rt, "changes") {
			if got, want := p.level(quell.CPU), p.levelAnew(); math.Abs(got-want) > 1e-8 {
				rt.Fatalf("the level is %v, want %v", got, want)
			}
			m := p.group.Ready[rapid.IntRange(0, n-1).Draw(rt, "changed")]
			switch mem := memoryOf(m); rapid.IntRange(0, 2).Draw(rt, "change") {
			case 0: // calm again
				mem.Cause, mem.Hidden = "", 0
			case 1: // it grows
				mem.Seen = means{}
			case 2: // it is cut
				mem.Hidden, mem.Seen = mem.Seen.Hidden, means{}
			}
			p.changed(m)
		}
	})
}

// levelAnew computes the level of the processors from all instances.
func (p *plan) levelAnew() float64 {
	low, high := 0.0, 1.0
	for range 50 {
		level, room := (low+high)/2, 0.0
		for _, m := range p.group.Ready {
			room += math.Max(0, level-memoryOf(m).othersUse(quell.CPU)) - p.ownUse(m, quell.CPU)
		}
		if room < 0 {
			low = level
		} else {
			high = level
		}
	}
	return high
}

// The memory that a decision takes grows with the number of instances, and not with its square.
func TestICEWorkGrowsWithTheGroup(t *testing.T) {
	taken := func(n int) float64 {
		s := newShop(t, n, nil, tuned)
		s.seconds(bands.Known + 1)
		eachOf(s.servers, func(v *served) { v.hidden = 0.6 })
		snapshot := s.next()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s.decide(snapshot, s.st)
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	if few, many := taken(100), taken(1000); many > 15*few {
		t.Errorf("1000 instances take %.1f times the memory of 100", many/few)
	}
}
