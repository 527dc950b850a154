package life

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quellhq/quell"
)

// Altered returns the backends as the balancer has them, each after a change. One that is not in force everywhere has no address; the
// scaler knows it, and without one the backend is no instance any more.
func (v *View) Altered(change func(*quell.Backend)) (backends []quell.Backend) {
	at := make(map[string]string, len(v.Members))
	for i := range v.Members {
		at[v.Members[i].ID] = v.Members[i].Address
	}
	for _, id := range slices.Sorted(maps.Keys(v.Backends)) {
		b := v.Backends[id].Backend
		if b.Address = cmp.Or(b.Address, at[id]); b.Address == "" {
			continue
		}
		change(&b)
		backends = append(backends, b)
	}
	return backends
}

// LikeOthers returns the mean weight of the other backends in rotation, so that one that is put back without a share of its own gets as
// many requests as they do.
func (v *View) LikeOthers(id string) float64 {
	sum, n := 0.0, 0
	for other, b := range v.Backends {
		if other != id && !b.Draining && b.Weight > 0 {
			sum, n = sum+b.Weight, n+1
		}
	}
	if n == 0 {
		return 1
	}
	return sum / float64(n)
}

// Moved describes how shares differ from those in force, "" if they are equal.
func (v *View) Moved(weights map[string]float64) string {
	var parts []string
	for id, w := range weights {
		if b, known := v.Backends[id]; Moves(b, known, w) {
			parts = append(parts, fmt.Sprintf("%s=%.3f", id, w))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	slices.Sort(parts)
	return "weights " + strings.Join(parts, " ")
}
