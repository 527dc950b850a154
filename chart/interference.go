package chart

import (
	"fmt"
	"image/color"
	"maps"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/palette/moreland"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/quellhq/quell/model"
)

// jointCurves draws severity over the neighbours' use, a line for each trained utilisation.
func (a *artist) jointCurves() sheet {
	s := a.sheet("interference-joint", fmt.Sprintf("Severity by the joint model (%s)", a.resource), "utilisation by neighbours", "severity")
	rows, top := a.interference()
	levels := map[float64]plotter.XYs{}
	for _, r := range rows {
		levels[r.Utilization] = append(levels[r.Utilization], plotter.XY{X: r.Interfering, Y: r.Severity})
	}
	utilizations := slices.Sorted(maps.Keys(levels))
	for i, u := range utilizations {
		colour := shade(u, 0, 1)
		s.dots(levels[u], colour)
		l := s.line(func(x float64) float64 { return within(a.joint.SeverityAt(u, x), 0, top) }, 0, min(1, 1-u), colour, false)
		if named(i, len(utilizations)) {
			s.Legend.Add(fmt.Sprintf("utilisation %.2f", u), l)
		}
	}
	s.Y.Min, s.Y.Max = 0, top
	s.Legend.Left, s.Legend.XOffs = false, -vg.Points(8)
	return s
}

// totalCurve draws severity over the total utilisation: the paper's curve and what it should go through.
func (a *artist) totalCurve() sheet {
	s := a.sheet("interference-total", fmt.Sprintf("Severity by the total model, the paper's (%s)", a.resource), "utilisation, own and neighbours' together", "severity")
	rows, top := a.interference()
	for _, r := range rows {
		s.dots(plotter.XYs{{X: r.Utilization + r.Interfering, Y: r.Severity}}, shade(r.Utilization, 0, 1))
	}
	l := s.line(func(x float64) float64 { return within(a.total.SeverityAt(0, x), 0, top) }, 0, 1, color.Black, false)
	s.Legend.Add("the curve", l)
	var levels []float64
	for _, r := range rows {
		levels = append(levels, r.Utilization)
	}
	slices.Sort(levels)
	levels = slices.Compact(levels)
	for i, u := range levels {
		if named(i, len(levels)) {
			s.Legend.Add(fmt.Sprintf("measured at utilisation %.2f", u), s.dots(plotter.XYs{}, shade(u, 0, 1)))
		}
	}
	s.Y.Min, s.Y.Max = 0, top
	return s
}

// interference returns the rows, and the end of the axis: what is far above most others would press them flat.
func (a *artist) interference() (rows []model.Interference, top float64) {
	rows = a.models.Interference[a.resource]
	var severities []float64
	for _, r := range rows {
		severities = append(severities, r.Severity)
	}
	slices.Sort(severities)
	top = max(0.5, 1.15*severities[len(severities)*9/10])
	kept := slices.DeleteFunc(slices.Clone(rows), func(r model.Interference) bool { return r.Severity > top })
	return kept, top
}

// mostNames is how many lines a legend has room for beside the curves.
const mostNames = 10

// named says whether the i-th of n lines is in the legend: all of a few, some of many, the last always.
func named(i, n int) bool {
	step := (n + mostNames - 1) / mostNames
	return (n-1-i)%step == 0
}

// field is response times over both utilisations, on a grid for heat maps and contours.
type field struct {
	predictor *model.Predictor
	top       float64 // of the own utilisation
	most      float64 // ms; above it all looks alike
}

const fieldSteps = 120

// Dims implements plotter.GridXYZ.
func (f field) Dims() (columns, rows int) { return fieldSteps + 1, fieldSteps + 1 }

// X implements plotter.GridXYZ.
func (f field) X(c int) float64 { return float64(c) / fieldSteps }

// Y implements plotter.GridXYZ.
func (f field) Y(r int) float64 { return f.top * float64(r) / fieldSteps }

// Z implements plotter.GridXYZ: the logarithm of the response time, nothing where the resource would be full.
func (f field) Z(c, r int) float64 {
	interfering, u := f.X(c), f.Y(r)
	if u+interfering > 1 {
		return math.NaN()
	}
	return math.Log(min(f.most, f.predictor.ResponseTime(u, f.predictor.SeverityAt(u, interfering))))
}

// part is some colours of a palette: its ends, black and white, would not be told from lines and paper.
type part struct{ colours []color.Color }

// Colors implements palette.Palette.
func (p part) Colors() []color.Color { return p.colours }

const mapHues = 256

// field draws the response time over both utilisations, with the lines along which it is at the thresholds: the
// effective capacity.
func (a *artist) field() sheet {
	s := a.sheet("response-map", fmt.Sprintf("Response time (%s) by own and neighbours' utilisation (%s)", a.options.Metric, a.resource), "utilisation by neighbours", "own utilisation")
	least := a.joint.ResponseTime(0, 0)
	f := field{a.joint, a.joint.MaxUtilization(), max(8*least, 2*slices.Max(a.thresholds()))}
	colours := moreland.ExtendedBlackBody()
	colours.SetMin(0)
	colours.SetMax(1)
	hues := part{colours.Palette(mapHues).Colors()[mapHues/8 : mapHues*7/8]}
	h := plotter.NewHeatMap(f, hues)
	h.Min, h.Max = math.Log(least), math.Log(f.most)
	h.NaN = color.White
	h.Rasterized = true
	s.Add(h)
	var points plotter.XYs
	for _, r := range a.models.Interference[a.resource] {
		points = append(points, plotter.XY{X: r.Interfering, Y: r.Utilization})
	}
	marks := &plotter.Scatter{XYs: points, GlyphStyle: draw.GlyphStyle{Color: color.Gray{0x80}, Radius: vg.Points(2), Shape: draw.CircleGlyph{}}}
	for i, ms := range a.thresholds() {
		var edge plotter.XYs
		for c := range fieldSteps + 1 {
			if capacity := a.joint.Capacity(f.X(c), ms); capacity > 0 {
				edge = append(edge, plotter.XY{X: f.X(c), Y: capacity})
			}
		}
		under := &plotter.Line{XYs: edge, LineStyle: draw.LineStyle{Color: color.Black, Width: vg.Points(3.6)}}
		over := &plotter.Line{XYs: edge, LineStyle: draw.LineStyle{Color: color.White, Width: vg.Points(1.6)}}
		over.Dashes = [][]vg.Length{nil, {vg.Points(8), vg.Points(4)}, {vg.Points(2), vg.Points(3)}}[i%3]
		s.Add(under, over)
		s.Legend.Add(fmt.Sprintf("threshold %.4g ms", ms), under, over)
	}
	s.Add(marks)
	for _, ms := range plainTicks(least, f.most) {
		at := (math.Log(ms.Value) - h.Min) / (h.Max - h.Min)
		all := hues.Colors()
		s.Legend.Add(ms.Label+" ms", swatch{all[min(len(all)-1, int(at*float64(len(all))))]})
	}
	s.Legend.Add("trained", marks)
	s.Legend.Left, s.Legend.XOffs = false, -vg.Points(8)
	s.Y.Min, s.Y.Max = 0, 1
	s.Y.Tick.Marker = plot.TickerFunc(tenths)
	return s
}
