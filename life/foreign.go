package life

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/quellhq/quell"
)

// SetWeights are the weights that were set at the balancer. They tell whether something else sets others there.
type SetWeights struct {
	weights map[string]float64 // by instance; nil: none were set, or somebody else may have set some since
	seen    bool               // a look has shown them
	told    bool               // that others were set
	right   int                // looks in a row that have shown them
}

const (
	// rounding is how far a weight may be from the one that was set, as a part of that one or of a mean one: balancers round.
	rounding = 0.05
	// undisturbed is after how many looks it is said again that something else sets weights.
	undisturbed = 60
	// mostNamed is how many instances an event names.
	mostNamed = 3
)

// Note keeps what was put in force at the balancer.
func (s *SetWeights) Note(backends []quell.Backend) {
	s.weights, s.seen = make(map[string]float64, len(backends)), false
	for i := range backends {
		if b := &backends[i]; !b.Draining && b.Weight > 0 {
			s.weights[b.ID] = b.Weight
		}
	}
}

// look compares the balancer's weights with those that were set. If they were there and are others now, something else has set them. A
// controller that does not act would not set its own again, so nothing is said then.
func (s *SetWeights) look(states []quell.BackendState, acts bool, told *events) {
	if !acts {
		*s = SetWeights{}
		return
	}
	changed := s.changed(states)
	switch {
	case len(changed) == 0:
		s.seen = true
		if s.right++; s.right >= undisturbed {
			s.told = false
		}
	case s.seen:
		if s.right = 0; !s.told {
			s.told = true
			told.note("something else changed weights at the balancer: %s. They are set again. It may be a person, a script, an agent-check, "+
				"another controller or a restart. `quell override INSTANCE SHARE` sets a share that stays", someOf(changed))
		}
	}
}

// changed lists the instances whose weight is not the one that was set. The unit is that of most of them: a balancer from which a person
// took one out, or where a person set one weight, may report those of the rest in other units.
func (s *SetWeights) changed(states []quell.BackendState) (list []string) {
	var units []float64
	var sum float64
	counts := func(b *quell.BackendState) (wanted float64, ok bool) {
		wanted, ok = s.weights[b.ID]
		return wanted, ok && !b.Draining && !b.Held && b.ByHand == nil
	}
	for i := range states {
		if wanted, ok := counts(&states[i]); ok {
			units, sum = append(units, states[i].Weight/wanted), sum+wanted
		}
	}
	slices.Sort(units)
	if len(units) == 0 || units[len(units)/2] == 0 {
		return nil
	}
	unit, mean := units[len(units)/2], sum/float64(len(units))
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
