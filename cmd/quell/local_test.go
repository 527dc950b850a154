package main

import (
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent/host"
)

// The status shows the weight of each group, and those of the groups around.
func TestLocalStatusShowsWeights(t *testing.T) {
	slowdown, related := 2.5, 0.87
	s := host.Status{Host: "h", Policy: "acs", Groups: []quell.Instance{{ID: "web"}}, Plan: &quell.Plan{
		Tenants: map[string]quell.Tenant{"web": {Slowdown: &slowdown, From: quell.FromScheduling, Correlation: &related}},
		Limits: []quell.Limit{
			{Instance: "web", Resource: quell.CPU, Value: 1.25, Unit: quell.WeightUnit},
			{Instance: "/system.slice", Resource: quell.CPU, Value: 0.4, Unit: quell.WeightUnit},
		}}}
	var b strings.Builder
	if err := writeLocalStatus(&b, s); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2.50", "RELATED", "0.87", "weight 1.25", "/system.slice, in which groups lie, has weight 0.40"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
}
