package policy

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/quellhq/quell"
)

// Override fixes instances' weights by hand; the others share the rest in their plan's proportions, equally where
// those are all 0. Unknown instances are ignored, and weights that together pass 1, or that leave no other instance,
// are scaled to 1. Where that would leave no instance at all, they are not in force, and a reason says so.
func Override(plan *quell.Plan, fixed map[string]float64) {
	var fixedSum, free float64
	var ids, others []string
	for _, id := range slices.Sorted(maps.Keys(plan.Weights)) {
		if f, ok := fixed[id]; ok {
			fixedSum += f
			ids = append(ids, id)
		} else {
			free += plan.Weights[id]
			others = append(others, id)
		}
	}
	if len(ids) == 0 {
		return
	}
	if fixedSum == 0 && len(others) == 0 {
		addReason(plan, "override", "", "not in force: %s at 0 would leave no instance", strings.Join(ids, ", "))
		return
	}
	whole := 1.0
	if fixedSum > 1 || len(others) == 0 {
		whole = fixedSum
	}
	weights := make(map[string]float64, len(plan.Weights))
	texts := make([]string, len(ids))
	for i, id := range ids {
		weights[id] = fixed[id] / whole
		texts[i] = fmt.Sprintf("%s=%.3f", id, weights[id])
	}
	rest := math.Max(0, 1-fixedSum/whole)
	for _, id := range others {
		if free > 0 {
			weights[id] = plan.Weights[id] / free * rest
		} else {
			weights[id] = rest / float64(len(others))
		}
	}
	plan.Weights = weights
	addReason(plan, "override", "", "set by hand: %s", strings.Join(texts, ", "))
}
