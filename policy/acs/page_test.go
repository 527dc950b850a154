package acs

import (
	"fmt"
	"testing"

	"github.com/quellhq/quell/internal/golden"
)

// The page states the constants as they are.
func TestPageOfACS(t *testing.T) {
	golden.Says(t, "policies/acs.md",
		fmt.Sprintf("part = part * clamp((level / avg)^gain, %g, %g)", 1/acsStep, acsStep),
		fmt.Sprintf("from %g to %g", acsLightest, acsHeaviest),
		fmt.Sprintf("^gain, %g, %g) then; at least %g", 1/acsStep, acsStep, acsLeastCap),
		fmt.Sprintf("cap * clamp(1 + gain * (level - avg) / avg, %g, %g)", acsLeast, acsMost),
		fmt.Sprintf("above %g times what its group wants, or %g times if the group does not wait", acsSpare, acsSated),
		fmt.Sprintf("(a new value counts %g%%)", 100*acsSmoothing), fmt.Sprintf("for less than %g%% of a period is idle", 100*acsIdle),
		fmt.Sprintf("together want less than %g%% of the processors, and none reports", 100*acsFull),
		"lifted after "+golden.Word(acsCalm)+" such periods",
		golden.Word(acsChanged)+" slowdowns in a row are "+fmt.Sprint(acsFar)+" times its average",
		fmt.Sprintf("the factor is %g.", acsFarther), "the group is idle for "+golden.Word(acsGone)+" periods",
		fmt.Sprintf("It falls by %.1g%% in each period", 100*(1-acsKept)),
		"counts up to "+golden.Word(acsPlausible)+" times the one from scheduling",
		fmt.Sprintf("Older rows count less: %g%% for each later period", 100*acsForget), fmt.Sprintf("at least %d rows", acsRows),
		fmt.Sprintf("(Eq. 9) is at least %g", acsRelated), fmt.Sprintf("a cap of %g processors, so they nearly stop", acsIdle))
}
