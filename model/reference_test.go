package model

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/stats"
)

// These functions read the tables by the same rules as the predictor, written for clarity instead of speed. The predictor must agree with
// them.

type naiveRow struct{ u, x, y, weight float64 }

// naiveLevel reads one level at x.
func naiveLevel(rows []naiveRow, x float64) float64 {
	rows = slices.Clone(rows)
	slices.SortFunc(rows, func(a, b naiveRow) int { return cmp.Compare(a.x, b.x) })
	var values []stats.Weighted
	for _, r := range rows {
		values = append(values, stats.Weighted{Value: r.y, Weight: r.weight})
	}
	y := stats.Isotonic(values)
	last := len(rows) - 1
	switch {
	case x <= rows[0].x:
		return y[0]
	case x <= rows[last].x:
		i := slices.IndexFunc(rows, func(r naiveRow) bool { return r.x >= x })
		return y[i-1] + (y[i]-y[i-1])*(x-rows[i-1].x)/(rows[i].x-rows[i-1].x)
	case last == 0:
		return y[0]
	}
	segment := (y[last] - y[last-1]) / (rows[last].x - rows[last-1].x)
	secant := (y[last] - y[0]) / (rows[last].x - rows[0].x)
	return y[last] + max(segment, secant)*(x-rows[last].x)
}

// naiveSurface reads a table at utilisation u and x.
func naiveSurface(rows []naiveRow, u, x float64) float64 {
	levels := map[float64][]naiveRow{}
	for _, r := range rows {
		levels[r.u] = append(levels[r.u], r)
	}
	us := slices.Sorted(maps.Keys(levels))
	value := func(k int) float64 {
		largest := math.Inf(-1)
		for _, below := range us[:k+1] {
			largest = max(largest, naiveLevel(levels[below], x))
		}
		return largest
	}
	last := len(us) - 1
	if u <= us[0] {
		return value(0)
	}
	if u >= us[last] {
		return value(last)
	}
	k := slices.IndexFunc(us, func(l float64) bool { return l > u })
	share := (u - us[k-1]) / (us[k] - us[k-1])
	return (1-share)*value(k-1) + share*value(k)
}

func naiveResponse(m *Models, u, sf float64) float64 {
	var rows []naiveRow
	for _, r := range m.Prima().ResponseTime[quell.Network] {
		rows = append(rows, naiveRow{r.Utilization, r.Severity, *r.LatencyMS.Mean, weightOf(r.Runs)})
	}
	return naiveSurface(rows, u, sf)
}

func naiveJoint(m *Models, u, interfering float64) float64 {
	if interfering == 0 {
		return 0
	}
	started := map[float64]bool{}
	var rows []naiveRow
	for _, r := range m.Prima().Interference[quell.Network] {
		if !started[r.Utilization] {
			started[r.Utilization] = true
			rows = append(rows, naiveRow{r.Utilization, 0, 0, 1})
		}
		rows = append(rows, naiveRow{r.Utilization, r.Interfering, r.Severity, weightOf(r.Runs)})
	}
	return naiveSurface(rows, u, interfering)
}

// randomModels draws tables with decreases, ties and single-row levels, with x on a grid so that no two rows are
// nearly equal.
func randomModels(t *rapid.T) *Models {
	m := &Models{Sections: []Section{&Prima{
		Isolation:    map[quell.Resource][]Isolation{quell.Network: {{Utilization: 0.1, ProbeMS: 10, StddevMS: 1, N: 40}}},
		ResponseTime: map[quell.Resource][]ResponseTime{},
		Interference: map[quell.Resource][]Interference{},
	}}}
	grid := rapid.IntRange(0, 20)
	levels := rapid.SliceOfNDistinct(rapid.IntRange(1, 9), 1, 5, rapid.ID)
	for _, l := range levels.Draw(t, "response levels") {
		for _, x := range rapid.SliceOfNDistinct(grid, 1, 6, rapid.ID).Draw(t, "severities") {
			ms := float64(rapid.IntRange(1, 40).Draw(t, "ms"))
			m.Prima().ResponseTime[quell.Network] = append(m.Prima().ResponseTime[quell.Network], ResponseTime{
				Utilization: float64(l) / 10, Severity: float64(x) / 4, LatencyMS: quell.Latency{Mean: &ms},
				Runs: rapid.IntRange(0, 4).Draw(t, "runs"),
			})
		}
	}
	for _, l := range levels.Draw(t, "interference levels") {
		for _, x := range rapid.SliceOfNDistinct(rapid.IntRange(1, 18), 1, 6, rapid.ID).Draw(t, "interfering") {
			m.Prima().Interference[quell.Network] = append(m.Prima().Interference[quell.Network], Interference{
				Utilization: float64(l) / 10, Interfering: float64(x) / 20,
				Severity: float64(rapid.IntRange(0, 16).Draw(t, "severity")) / 4, Runs: rapid.IntRange(0, 4).Draw(t, "runs"),
			})
		}
	}
	// One row that the total model can use, in every drawn table.
	m.Prima().Interference[quell.Network] = append(m.Prima().Interference[quell.Network],
		Interference{Utilization: 0.95, Interfering: 0.01, Severity: 3})
	return m
}

func compiled(t interface {
	Helper()
	Fatal(...any)
}, m *Models, im quell.InterferenceModel) *Predictor {
	t.Helper()
	p, err := Compile(m, Spec{Resource: quell.Network, Metric: quell.Mean, InterferenceModel: im, Confidence: 0.95})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func fraction(t *rapid.T, name string) float64 { return rapid.Float64Range(0, 1).Draw(t, name) }

func anyModel(t *rapid.T) quell.InterferenceModel {
	return rapid.SampledFrom(quell.InterferenceModels).Draw(t, "interference model")
}

func nearly(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

func TestReadsTablesAsTheNaiveReading(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := randomModels(t)
		p := compiled(t, m, quell.Joint)
		u, sf, interfering := fraction(t, "u"), rapid.Float64Range(0, 12).Draw(t, "sf"), fraction(t, "interfering")
		if got, want := p.ResponseTime(u, sf), naiveResponse(m, u, sf); !nearly(got, want) {
			t.Fatalf("response at %v, %v: got %v, want %v", u, sf, got, want)
		}
		if got, want := p.SeverityAt(u, interfering), naiveJoint(m, u, interfering); !nearly(got, want) {
			t.Fatalf("severity at %v, %v: got %v, want %v", u, interfering, got, want)
		}
	})
}

func TestPredictionsNeverFall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := compiled(t, randomModels(t), anyModel(t))
		u, sf := fraction(t, "u"), rapid.Float64Range(0, 9).Draw(t, "sf")
		more, worse := min(1, u+fraction(t, "more")), sf+rapid.Float64Range(0, 9).Draw(t, "worse")
		interfering, ms := fraction(t, "interfering"), rapid.Float64Range(0, 200).Draw(t, "threshold")
		for _, c := range []struct {
			what      string
			low, high float64
		}{
			{"response with utilisation", p.ResponseTime(u, sf), p.ResponseTime(more, sf)},
			{"response with severity", p.ResponseTime(u, sf), p.ResponseTime(u, worse)},
			{"severity with utilisation", p.SeverityAt(u, interfering), p.SeverityAt(more, interfering)},
			{"severity with interference", p.SeverityAt(u, interfering/2), p.SeverityAt(u, interfering)},
			{"interference with severity", p.Interfering(u, sf), p.Interfering(u, worse)},
			{"capacity with threshold", p.Capacity(interfering, ms), p.Capacity(interfering, ms+5)},
			{"capacity with less interference", p.Capacity(interfering, ms), p.Capacity(interfering/2, ms)},
		} {
			if c.low > c.high+1e-9*max(1, c.high) {
				t.Fatalf("%s: %v, then %v", c.what, c.low, c.high)
			}
		}
	})
}

func TestCapacityIsTheLargestThatFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := compiled(t, randomModels(t), anyModel(t))
		interfering := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 0.9)).Draw(t, "interfering")
		// A threshold that is a predicted response time is crossed between rows; a threshold that is a whole number is often equal to a row or a
		// plateau.
		u := p.MaxUtilization() * fraction(t, "share of the highest level")
		ms := rapid.OneOf(
			rapid.Just(p.ResponseTime(u, p.SeverityAt(u, interfering))),
			rapid.Map(rapid.IntRange(0, 60), func(i int) float64 { return float64(i) }),
		).Draw(t, "threshold")
		got := p.Capacity(interfering, ms)
		fits := func(u, slack float64) bool {
			return p.ResponseTime(u, p.SeverityAt(u, interfering)) <= ms+slack*max(1, ms)
		}
		if got < 0 || got > p.MaxUtilization() {
			t.Fatalf("capacity %v lies outside what was trained", got)
		}
		if got > 0 && !fits(got, 1e-9) {
			t.Fatalf("capacity %v does not fit", got)
		}
		const steps = 500
		for i := range steps + 1 {
			if u := p.MaxUtilization() * float64(i) / steps; u > got+1e-9 && fits(u, -1e-12) {
				t.Fatalf("capacity %v, but %v fits too", got, u)
			}
		}
	})
}

func TestInterferingUndoesSeverityAt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := compiled(t, randomModels(t), anyModel(t))
		u := fraction(t, "u")
		// In the total model severity jumps at a use of 0. So a use that differs from 0 only by rounding counts as 0.
		interfering := (1 - u) * rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(1e-6, 1)).Draw(t, "share of the rest")
		if interfering > 0 && interfering < 1e-9 {
			t.Skip("no interference to speak of")
		}
		sf := p.SeverityAt(u, interfering)
		back := p.Interfering(u, sf)
		if back < 0 || back > 1-u {
			t.Fatalf("interfering %v lies outside 0 to %v", back, 1-u)
		}
		if sf == 0 {
			if back != 0 {
				t.Fatalf("severity 0 is no interference, got %v", back)
			}
			return
		}
		if back < interfering-1e-9 {
			t.Fatalf("severity %v was caused by %v, the larger value cannot be %v", sf, interfering, back)
		}
		if again := p.SeverityAt(u, back); !nearly(again, sf) {
			t.Fatalf("severity %v became %v by way of %v", sf, again, back)
		}
	})
}

// Where a steep level meets a flat one exactly at a row, rounding made the flat piece rise by 1e-16, and its beginning was returned.
func TestInterferingOfAFlatPieceIsItsEnd(t *testing.T) {
	rows := []Interference{
		{Utilization: 0.9, Interfering: 0.05}, {Utilization: 0.9, Interfering: 0.1}, {Utilization: 0.9, Interfering: 0.15},
		{Utilization: 0.1, Interfering: 0.05}, {Utilization: 0.1, Interfering: 0.35, Severity: 2.25},
		{Utilization: 0.2, Interfering: 0.25}, {Utilization: 0.2, Interfering: 0.05, Severity: 1.5},
	}
	latency := 1.0
	p := compiled(t, &Models{Sections: []Section{&Prima{
		Isolation:    map[quell.Resource][]Isolation{quell.Network: {{Utilization: 0.1, ProbeMS: 10, StddevMS: 1, N: 40}}},
		ResponseTime: map[quell.Resource][]ResponseTime{quell.Network: {{Utilization: 0.1, LatencyMS: quell.Latency{Mean: &latency}}}},
		Interference: map[quell.Resource][]Interference{quell.Network: rows},
	}}}, quell.Joint)
	if got := p.Interfering(0.75, p.SeverityAt(0.75, 0.125)); !nearly(got, 0.15) {
		t.Errorf("the severity of 0.125 is caused by %v at most, want 0.15", got)
	}
}

func TestSeverityExplainingUndoesResponseTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := compiled(t, randomModels(t), quell.Joint)
		u, ms := fraction(t, "u"), rapid.Float64Range(0, 500).Draw(t, "ms")
		sf := p.SeverityExplaining(u, ms)
		if !finite(sf) || sf < 0 {
			t.Fatalf("severity %v", sf)
		}
		reached := p.ResponseTime(u, sf)
		switch {
		case ms <= p.ResponseTime(u, 0):
			if sf != 0 {
				t.Fatalf("%v ms needs no interference, got severity %v", ms, sf)
			}
		case p.ResponseTime(u, maxValue) < ms:
			if reached != p.ResponseTime(u, maxValue) {
				t.Fatalf("severity %v is not the highest that matters", sf)
			}
		case !nearly(reached, ms):
			t.Fatalf("severity %v gives %v ms, not %v", sf, reached, ms)
		}
	})
}
