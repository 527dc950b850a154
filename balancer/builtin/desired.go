package builtin

import (
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"

	"github.com/quellhq/quell"
)

// checkBackends returns every rule that a list of backends breaks, as joined *quell.InvalidError values, nil if it breaks none.
func checkBackends(desired []quell.Backend) error {
	var errs []error
	seen := make(map[string]bool, len(desired))
	for i, b := range desired {
		bad := func(field, format string, args ...any) {
			path := fmt.Sprintf("backends[%d].%s", i, field)
			errs = append(errs, &quell.InvalidError{Path: path, Problem: fmt.Sprintf(format, args...)})
		}
		switch {
		case b.ID == "":
			bad("id", "missing")
		case !isHeaderValue(b.ID):
			bad("id", "%q cannot stand in a response header", b.ID)
		case seen[b.ID]:
			bad("id", "%q is given twice", b.ID)
		}
		seen[b.ID] = true
		if problem := addressProblem(b.Address); problem != "" {
			bad("address", "%s", problem)
		}
		if math.IsNaN(b.Weight) || math.IsInf(b.Weight, 0) || b.Weight < 0 || b.Weight > maxWeight {
			bad("weight", "%v is not a number from 0 to %g", b.Weight, float64(maxWeight))
		}
	}
	return errors.Join(errs...)
}

// maxWeight keeps sums of weights finite. Quell's own weights are fractions; a person may prefer percentages.
const maxWeight = 1e6

func isHeaderValue(s string) bool {
	unprintable := func(r rune) bool { return r < ' ' || r > '~' }
	return len(s) <= 256 && strings.TrimSpace(s) == s && !strings.ContainsFunc(s, unprintable)
}

func addressProblem(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Sprintf("%q is not host:port", address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fmt.Sprintf("port %q of %q is not a number from 1 to 65535", port, address)
	}
	if host == "" || strings.ContainsAny(host, " /\\?#@\x00") {
		return fmt.Sprintf("%q has no usable host", address)
	}
	return ""
}
