package policy

import (
	"strings"
	"testing"

	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/policytest"
)

// An instance that fails twice in a row keeps half of an equal share until it no longer fails.
func TestAFailingInstanceGetsLess(t *testing.T) {
	kit := policytest.Kit{Table: policy.NewTable(Spec.Row())}
	good, bad := "a weight=0.5 use=0.2", "b weight=0.5 use=0.2 err=0.2"
	policytest.Play(t, kit.Engine(t, kit.Golden("forgiving", 75, 0), nil),
		policytest.At("a=0.5 b=0.5", good, bad),
		policytest.At("a=0.667 b=0.333 failing", good, bad),
		policytest.At("a=0.5 b=0.5", good, "b weight=0.5 use=0.1 err=0"),
	)
}

// A setting out of its bounds is refused with its place.
func TestSettingsAreBounded(t *testing.T) {
	kit := policytest.Kit{Table: policy.NewTable(Spec.Row())}
	p, err := kit.Configured("policy: {name: forgiving, errors: 10%}")
	if want := (Settings{Errors: 0.1, Keeps: 0.5}); err != nil || p.Settings != want {
		t.Errorf("got %v, %v, want %v", p.Settings, err, want)
	}
	const want = "quell.yaml:1:34: policy.keeps: must be between 0% and 100%"
	if _, err := kit.Configured("policy: {name: forgiving, keeps: 150%}"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
