package balancer

import (
	"fmt"
	"math"

	"github.com/quellhq/quell"
)

// CheckBackends returns what is wrong with a list of backends, as a *quell.InvalidError.
func CheckBackends(backends []quell.Backend) error {
	seen := map[string]bool{}
	for i, b := range backends {
		switch {
		case seen[b.ID]:
			return &quell.InvalidError{Path: fmt.Sprintf("backends[%d].id", i), Problem: fmt.Sprintf("%q is given twice", b.ID)}
		case b.Address == "":
			return &quell.InvalidError{Path: fmt.Sprintf("backends[%d].address", i), Problem: b.ID + " has none"}
		case math.IsNaN(b.Weight) || math.IsInf(b.Weight, 0) || b.Weight < 0:
			return &quell.InvalidError{Path: fmt.Sprintf("backends[%d].weight", i), Problem: fmt.Sprintf("%v is no share", b.Weight)}
		}
		seen[b.ID] = true
	}
	return nil
}
