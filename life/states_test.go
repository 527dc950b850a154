package life

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// path is how far an instance has come: its last state, and what is remembered of it.
type path struct {
	last    quell.State
	past    Past
	now     time.Time
	startup time.Duration
	watch   time.Duration
}

// key is a path without what later states do not depend on.
func (p *path) key() string {
	age := func(at time.Time, limit time.Duration) string {
		if at.IsZero() {
			return "never"
		}
		return fmt.Sprint(p.now.Sub(at) > limit)
	}
	return fmt.Sprint(p.last, p.past.Healthy, p.past.Begun, age(p.past.Known, p.startup), age(p.past.Gone, p.watch))
}

// ways returns every way in which scaler, balancer and people can report an instance.
func ways() (all []Instance) {
	both := []bool{false, true}
	for _, state := range quell.States {
		for _, known := range both {
			for _, healthy := range both {
				for _, draining := range both {
					for _, held := range both {
						for _, weight := range []float64{0, 1} {
							in := member(state)
							in.Known = known
							in.Backend.Healthy, in.Backend.Draining, in.Backend.Weight = healthy, draining, weight
							if held {
								in.Held = &quell.Held{By: "eve"}
							}
							all = append(all, in)
						}
					}
				}
			}
		}
	}
	return all
}

// The picture of an instance's states in ARCHITECTURE.md has exactly the changes that can occur, in whatever order scaler, balancer and
// people report what. One that a plan has removed only drains or fails.
func TestPictureOfStates(t *testing.T) {
	page, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[string]bool{}
	for _, arrow := range regexp.MustCompile(`(?m)^ +(\w+) --> (\w+): \S.*$`).FindAllStringSubmatch(string(page), -1) {
		drawn[arrow[1]+" "+arrow[2]] = true
	}
	possible := map[string]bool{}
	start := path{now: epoch, startup: time.Minute, watch: time.Second}
	open, seen := []path{start}, map[string]bool{start.key(): true}
	for len(open) > 0 {
		from := open[0]
		open = open[1:]
		for _, reported := range ways() {
			for _, passed := range []time.Duration{from.watch / 2, 2 * from.startup} {
				for _, empty := range []bool{false, true} {
					in, to := reported, from
					to.now = from.now.Add(passed)
					in.Past = from.past
					to.last = in.state(&times{now: to.now, startup: to.startup, watch: to.watch, empty: empty})
					to.past = in.Past
					in.Past, in.Leaving = from.past, true
					if removed := in.state(&times{now: to.now, startup: to.startup, watch: to.watch, empty: empty}); removed != quell.Draining &&
						removed != quell.Failed {
						t.Fatalf("removed, and %s: %+v", removed, in)
					}
					if from.last != "" && to.last != from.last {
						possible[fmt.Sprint(from.last, " ", to.last)] = true
					}
					if !seen[to.key()] {
						seen[to.key()] = true
						open = append(open, to)
					}
				}
			}
		}
	}
	for _, arrow := range slices.Sorted(maps.Keys(possible)) {
		if !drawn[arrow] {
			t.Errorf("%s can occur, and is not drawn", arrow)
		}
	}
	for _, arrow := range slices.Sorted(maps.Keys(drawn)) {
		if !possible[arrow] {
			t.Errorf("%s is drawn, and cannot occur", arrow)
		}
	}
}
