package policy

import (
	"fmt"
	"strings"
)

// fixing sums up the shares that people set in a group.
type fixing struct {
	count   int     // instances whose share is set
	sum     float64 // sum of the shares that people set
	refused bool    // these shares are not applied, because no instance would get traffic
}

// fixByHand applies the weights that people set, which snapshots carry as overrides. If their sum exceeds 1, or if every
// instance has one, they are scaled to the sum 1. If every instance has the weight 0, none is applied.
func fixByHand(members []*Member) fixing {
	var f fixing
	for _, m := range members {
		if m.Fixed = nil; m.Override != nil {
			f.sum += *m.Override
			f.count++
		}
	}
	if f.refused = f.count > 0 && f.count == len(members) && f.sum == 0; f.refused || f.count == 0 {
		return fixing{refused: f.refused}
	}
	whole := 1.0
	if f.sum > 1 || f.count == len(members) {
		whole = f.sum
	}
	for _, m := range members {
		if m.Override != nil {
			m.Fixed = new(*m.Override / whole)
		}
	}
	f.sum /= whole
	return f
}

func (f fixing) text(members []*Member) string {
	var ids, set []string
	for _, m := range members {
		if m.Fixed != nil {
			set = append(set, fmt.Sprintf("%s=%.3f", m.ID, *m.Fixed))
		}
		if m.Override != nil {
			ids = append(ids, m.ID)
		}
	}
	if f.refused {
		return fmt.Sprintf("not in force: %s at 0 would leave no instance", Named(ids))
	}
	return strings.Join(set, ", ")
}
