package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quellhq/quell"
)

// Named lists the first few ids, and says how many more there are.
func Named(ids []string) string {
	if more := len(ids) - maxNamed; more > 0 {
		ids = append(slices.Clone(ids[:maxNamed]), fmt.Sprintf("%d more", more))
	}
	return strings.Join(ids, ", ")
}

func AddReason(plan *quell.Plan, code, instance, format string, args ...any) {
	plan.Reasons = append(plan.Reasons, quell.Reason{Code: code, Instance: instance, Text: fmt.Sprintf(format, args...)})
}

// maxNamed limits how many instances a reason names.
const maxNamed = 3

// stepReason is the code of the reason that shares move only part of the way at once.
const stepReason = "step"
