package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/stats"
)

// Baseline is R_iso, the probe time of an instance without neighbours as a function of its utilisation, and the test whether
// a measured probe time is significantly longer. It is immutable.
type Baseline struct {
	rows []baselineRow  // in order of utilisation
	miss float64        // 1 - confidence: how often chance alone passes the test
	by   *quell.Probing // how the probes of the table were made; nil if unknown
	lone bool           // now and then a single probe is slow without neighbours
}

type baselineRow struct {
	Isolation
	t float64 // quantile of the one-sided test
}

// CompileBaseline prepares the isolation table of a resource. confidence is the confidence level of the one-sided test in
// Eq. 1, a fraction in [0.5, 1). If the table is missing, the error wraps quell.ErrNoData.
func CompileBaseline(m *Models, r quell.Resource, confidence float64) (*Baseline, error) {
	return CompileBaselineOf(m, r, "", confidence)
}

// CompileBaselineOf is CompileBaseline for instances of one type, which differ if the models were learned in place.
func CompileBaselineOf(m *Models, r quell.Resource, instanceType string, confidence float64) (*Baseline, error) {
	return compileBaseline(m.tabulated(r, instanceType), r, confidence)
}

// compileBaseline is CompileBaseline for models with tables.
func compileBaseline(m *Models, r quell.Resource, confidence float64) (*Baseline, error) {
	if !(confidence >= 0.5 && confidence < 1) {
		return nil, &quell.InvalidError{Path: "confidence", Problem: fmt.Sprintf("%v is outside 0.5 to below 1", confidence)}
	}
	rows := m.Prima().Isolation[r]
	if len(rows) == 0 {
		return nil, missing("isolation", r, "")
	}
	b := newBaseline(rows, confidence)
	b.lone = r == quell.Disk
	if m.Trained != nil {
		if by, ok := m.Trained.By[r]; ok {
			b.by = &by
		}
	}
	return b, nil
}

func newBaseline(rows []Isolation, confidence float64) *Baseline {
	b := &Baseline{miss: 1 - confidence}
	for _, row := range rows {
		b.rows = append(b.rows, baselineRow{Isolation: row, t: testQuantile(confidence, row.N)})
	}
	slices.SortFunc(b.rows, func(a, b baselineRow) int { return cmp.Compare(a.Utilization, b.Utilization) })
	return b
}

// testQuantile returns the quantile t of a one-sided test. The spread is estimated from the n isolation probes only, so t has
// n - 1 degrees of freedom. The spread of the tested window is not used, because interference increases it.
func testQuantile(confidence float64, n int) float64 {
	return stats.TQuantile(confidence, float64(max(n-1, 1)))
}

// By returns how the table's instances were probed; nil if unknown.
func (b *Baseline) By() *quell.Probing { return b.by }

// Isolation returns the mean probe time and the standard deviation of single probes at utilisation u, in milliseconds, and
// the number of probes n. The first two are linear in u between rows and constant outside. n is that of the nearer row (of
// two equally near rows, the lower one).
func (b *Baseline) Isolation(u float64) (meanMS, stddevMS float64, n int) {
	meanMS, stddevMS, nearer := b.at(u)
	return meanMS, stddevMS, nearer.N
}

// NeighboursUse returns the neighbours' use of an instance's processors, a fraction, by how long the instance's own tasks waited, less what
// is inferred so without neighbours. u is the instance's own use. It returns false if the observation does not say how long tasks waited,
// or if the training did not show that this inference can be relied on.
func (b *Baseline) NeighboursUse(u float64, o *quell.Observation) (share float64, ok bool) {
	low, high, part := b.around(u)
	if low.Waits == nil || high.Waits == nil {
		return 0, false
	}
	share, ok = NeighboursUse(o)
	return max(0, share-(*low.Waits+part*(*high.Waits-*low.Waits))), ok
}

func (b *Baseline) at(u float64) (meanMS, stddevMS float64, nearer *baselineRow) {
	low, high, part := b.around(u)
	nearer = low
	if part > 0.5 {
		nearer = high
	}
	return low.ProbeMS + part*(high.ProbeMS-low.ProbeMS), low.StddevMS + part*(high.StddevMS-low.StddevMS), nearer
}

// around returns the rows on both sides of a utilisation, and which part of the way from the lower to the higher one it is. Outside of the
// table both are the outermost row.
func (b *Baseline) around(u float64) (low, high *baselineRow, part float64) {
	i := b.rowBelow(u)
	low = &b.rows[i]
	if i+1 == len(b.rows) || u <= low.Utilization {
		return low, low, 0
	}
	high = &b.rows[i+1]
	return low, high, (u - low.Utilization) / (high.Utilization - low.Utilization)
}

// rowBelow returns the index of the last row at or below u, or the first.
func (b *Baseline) rowBelow(u float64) int {
	low, high := 0, len(b.rows)
	for high-low > 1 {
		if mid := int(uint(low+high) >> 1); b.rows[mid].Utilization <= u {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// Severity returns the severity factor SF = max(0, (P - R_iso) / R_iso) of PRIMA's Eq. 1 for a window of probes at utilisation u, and
// whether P is significantly above R_iso. P is the mean of the n probes of the window. It is significant above R_iso + margin, where
// margin = t s sqrt(1/n + 1/n_iso), s and n_iso are the spread and number of the isolation row's probes, and t has n_iso - 1 degrees of
// freedom. If wasSignificant, R_iso + margin/2 is enough, so that severity does not flicker. On a disk, which now and then answers a single
// operation late, the window's other probes must be slower than R_iso, too. If P is not significant, or the window has no probes, severity
// is 0.
func (b *Baseline) Severity(u float64, p quell.ProbeStats, wasSignificant bool) (sf float64, significant bool) {
	if p.N <= 0 {
		return 0, false
	}
	alone, stddev, row := b.at(u)
	margin := row.t * stddev * math.Sqrt(1/float64(p.N)+1/float64(row.N))
	if wasSignificant {
		margin /= 2
	}
	if !b.slow(p, alone, margin) {
		return 0, false
	}
	return severityFactor(p.MeanMS, alone), true
}

// slow returns whether a window's probes exceed aloneMS by more than the margin.
func (b *Baseline) slow(p quell.ProbeStats, aloneMS, marginMS float64) bool {
	return p.MeanMS > aloneMS+marginMS && (!b.lone || slowWithoutSlowest(p, aloneMS))
}

// slowWithoutSlowest returns whether the mean of a window's probes is above aloneMS without the slowest of them. It is never below
// mean - spread / sqrt(n), which is what remains if all others take equally long.
func slowWithoutSlowest(p quell.ProbeStats, aloneMS float64) bool {
	return p.N < 2 || p.MeanMS-p.StddevMS/math.Sqrt(float64(p.N)) > aloneMS
}

// Clear returns whether P exceeds R_iso so far that this one window is as unlikely by chance as the given number of significant windows in
// a row. It is the test of Severity at confidence 1 - (1 - confidence)^windows.
func (b *Baseline) Clear(u float64, p quell.ProbeStats, windows int) bool {
	if p.N <= 0 {
		return false
	}
	alone, stddev, row := b.at(u)
	t := testQuantile(1-math.Pow(b.miss, float64(windows)), row.N)
	return b.slow(p, alone, t*stddev*math.Sqrt(1/float64(p.N)+1/float64(row.N)))
}

// severityFactor is Eq. 1 of PRIMA without the test for significance.
func severityFactor(probeMS, aloneMS float64) float64 {
	return min(max(0, (probeMS-aloneMS)/aloneMS), maxValue)
}
