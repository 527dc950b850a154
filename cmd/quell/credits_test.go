package main

import (
	"strings"
	"testing"

	"github.com/quellhq/quell/config/yaml"
	"github.com/quellhq/quell/credit"
)

func TestMeasuredCreditsAreTold(t *testing.T) {
	of := func(low, high float64) *credit.Estimate { return &credit.Estimate{Low: low, High: high} }
	for _, tc := range []struct {
		m    credit.Measured
		want []string
	}{
		{credit.Measured{Processors: 2, Seconds: 150, Spent: 3.2, Burst: of(1.98, 2.02), Baseline: of(0.39, 0.41), Balance: of(2.9, 3.1),
			Settled: true},
			[]string{"spent     3.2 of at most 5 credits, in 2m30s with 2 processors\n", "burst     2 (1.98 to 2.02) processors\n",
				"baseline  0.4 (0.39 to 0.41) processors\n", "balance   3 (2.9 to 3.1) credits at the beginning, none now\n",
				"  - {type: measured, vcpus: 2, cpu: {baseline: 20%, earned: 24}}\n"}},
		{credit.Measured{Processors: 2, Seconds: 60, Spent: 2, Burst: of(2, 2)},
			[]string{"did not slow down", "give a larger --spend", "unlimited mode"}},
		{credit.Measured{Processors: 1, Seconds: 60, Spent: 0.2, Baseline: of(0.1, 0.1), Balance: of(0, 0), Settled: true},
			[]string{"balance   0: the machine was slow from the beginning"}},
		{credit.Measured{Processors: 1, Seconds: 60, Spent: 0.2, Burst: of(1, 1), Baseline: of(0.1, 0.1), Balance: of(0, 0)},
			[]string{"ended too early for precise figures"}},
	} {
		var b strings.Builder
		if err := writeMeasured(&b, tc.m, 5); err != nil {
			t.Fatal(err)
		}
		for _, want := range tc.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%q is missing in\n%s", want, b.String())
			}
		}
		if _, entry, ok := strings.Cut(b.String(), "\ntypes:\n"); ok {
			if _, err := credit.Parse(yaml.NewDecoder("types.yaml"), []byte("types:\n"+entry)); err != nil {
				t.Errorf("the entry is refused: %v", err)
			}
		}
	}
}
