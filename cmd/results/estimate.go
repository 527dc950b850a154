package main

import (
	"fmt"

	"gonum.org/v1/gonum/stat"

	"github.com/quellhq/quell/stats"
)

// estimate is a mean with half the width of its 95% confidence interval.
type estimate struct {
	Mean float64 `json:"mean"`
	Half float64 `json:"half"`
}

func estimateOf(values []float64) estimate {
	if i, ok := stats.MeanInterval(values, 0.95); ok {
		return estimate{i.Mean, i.Half}
	}
	return estimate{Mean: stat.Mean(values, nil)}
}

// Percent is the estimate of a share in percent.
func (e estimate) Percent() string { return fmt.Sprintf("%.1f ± %.1f", 100*e.Mean, 100*e.Half) }

// Text is the estimate with this many decimals.
func (e estimate) Text(decimals int) string {
	return fmt.Sprintf("%.*f ± %.*f", decimals, e.Mean, decimals, e.Half)
}
