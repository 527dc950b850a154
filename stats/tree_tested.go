package stats

import (
	"fmt"
	"slices"
	"strings"
)

// Tested describes the features that the tree tested on the way to its decision, with their usual values, as the end of a list.
func (t *Tree) Tested(usually, features map[string]float64) string {
	var text strings.Builder
	var named []string
	for _, node := range t.Path(features) {
		value, measured := features[node.Feature]
		if node.Feature == "" || slices.Contains(named, node.Feature) {
			continue
		}
		named = append(named, node.Feature)
		switch usual, known := usually[node.Feature]; {
		case !measured:
			fmt.Fprintf(&text, ", %s not measured", node.Feature)
		case known:
			fmt.Fprintf(&text, ", %s %.3g (usually %.3g)", node.Feature, value, usual)
		default:
			fmt.Fprintf(&text, ", %s %.3g", node.Feature, value)
		}
	}
	return text.String()
}
