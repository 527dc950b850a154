package policy

import (
	"fmt"
	"strings"
)

// fixing is what people set of a group's shares.
type fixing struct {
	count   int     // instances whose share is set
	sum     float64 // of their shares
	refused bool    // no instance would get traffic
}

// fixByHand applies the weights that snapshots carry as overrides. Weights whose sum exceeds 1, or that include all
// instances, are scaled to 1. If all of them are 0, they are not applied.
func fixByHand(members []*member) fixing {
	var f fixing
	for _, m := range members {
		if m.fixed = nil; m.Override != nil {
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
			share := *m.Override / whole
			m.fixed = &share
		}
	}
	f.sum /= whole
	return f
}

func (f fixing) text(members []*member) string {
	var ids, set []string
	for _, m := range members {
		if m.fixed != nil {
			set = append(set, fmt.Sprintf("%s=%.3f", m.ID, *m.fixed))
		}
		if m.Override != nil {
			ids = append(ids, m.ID)
		}
	}
	if f.refused {
		return fmt.Sprintf("not in force: %s at 0 would leave no instance", strings.Join(ids, ", "))
	}
	return "set by hand: " + strings.Join(set, ", ")
}
