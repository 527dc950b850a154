package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy/guard"
)

// Named lists the first few ids, and says how many more there are.
func Named(ids []string) string {
	if more := len(ids) - guard.MaxNamed; more > 0 {
		ids = append(slices.Clone(ids[:guard.MaxNamed]), fmt.Sprintf("%d more", more))
	}
	return strings.Join(ids, ", ")
}

func AddReason(plan *quell.Plan, code, instance, format string, args ...any) {
	plan.Reasons = append(plan.Reasons, quell.Reason{Code: code, Instance: instance, Text: fmt.Sprintf(format, args...)})
}
