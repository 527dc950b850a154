package life

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
)

// SetWeights are the weights that were set at the balancer. They tell whether something else sets others there.
type SetWeights struct {
	weights map[string]float64 // by instance; nil: none were set, or somebody else may have set some since
	seen    bool               // a look has shown them
	told    time.Time          // when it was last said, or seen again, that others were set; zero: not lately
}

const (
	// rounding is how far a weight may be from the one that was set, as a part of that one or of a mean one: balancers round.
	rounding = 0.05
	// undisturbed is for how long weights must have been left alone until it is said again that something else sets them.
	undisturbed = time.Hour
	// mostNamed is how many instances an event names.
	mostNamed = 3
)

// Note keeps what is about to be set at the balancer. If setting it fails, nothing is said until a look has shown it.
func (s *SetWeights) Note(backends []quell.Backend) {
	weights := make(map[string]float64, len(backends))
	for i := range backends {
		if b := &backends[i]; !b.Draining && b.Weight > 0 {
			weights[b.ID] = b.Weight
		}
	}
	s.weights, s.seen = weights, s.seen && maps.Equal(weights, s.weights)
}

// look compares the balancer's weights with those that were set. If they were there and are others now, something else has set them. A
// controller that does not act would not set its own again, so nothing is said then.
func (s *SetWeights) look(now time.Time, states []quell.BackendState, acts bool, told *events) {
	if !acts {
		*s = SetWeights{}
		return
	}
	changed := s.changed(states)
	if len(changed) == 0 || !s.seen {
		s.seen = s.seen || len(changed) == 0
		return
	}
	if s.told.IsZero() || now.Sub(s.told) >= undisturbed {
		told.note("something else changed weights at the balancer: %s. They are set again. It may be a person, a script, an agent-check, "+
			"another controller, or a restart or an outage of the balancer. `quell override INSTANCE SHARE` sets a share that stays",
			someOf(changed))
	}
	s.told = now
}

// changed lists the instances whose weight is not the one that was set. The unit is that of most of them: a balancer from which a person
// took one out, or where a person set one weight, may report those of the rest in other units. One of weight 0 is out of rotation.
func (s *SetWeights) changed(states []quell.BackendState) (list []string) {
	var units []float64
	var now, sum float64
	counts := func(b *quell.BackendState) (wanted float64, ok bool) {
		wanted, ok = s.weights[b.ID]
		return wanted, ok && b.Weight > 0 && !b.Draining && !b.Held && b.ByHand == nil
	}
	for i := range states {
		if wanted, ok := counts(&states[i]); ok {
			units, now, sum = append(units, states[i].Weight/wanted), now+states[i].Weight, sum+wanted
		}
	}
	if len(units) < 2 { // one is all there is, whatever its weight
		return nil
	}
	slices.Sort(units)
	unit, mean := units[len(units)/2], sum/float64(len(units))
	if len(units) == 2 { // neither is the usual one
		unit = now / sum
	}
	for i := range states {
		b := &states[i]
		if wanted, ok := counts(b); ok && math.Abs(b.Weight-wanted*unit) > rounding*unit*math.Max(wanted, mean) {
			list = append(list, fmt.Sprintf("%s has %.2f, not %.2f", b.ID, b.Weight/unit, wanted))
		}
	}
	return list
}

// someOf joins the first few texts, and says how many more there are.
func someOf(list []string) string {
	if more := len(list) - mostNamed; more > 0 {
		list = append(list[:mostNamed:mostNamed], fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, ", ")
}
