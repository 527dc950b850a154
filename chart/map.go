package chart

import (
	"image/color"
	"math"

	"gonum.org/v1/plot/palette/moreland"
	"gonum.org/v1/plot/plotter"

	"github.com/quellhq/quell/internal/figure"
	"github.com/quellhq/quell/model"
)

// field is a map on a grid.
type field struct{ *model.Map }

const fieldSteps = 120

// Dims implements plotter.GridXYZ.
func (f field) Dims() (columns, rows int) { return fieldSteps + 1, fieldSteps + 1 }

// X implements plotter.GridXYZ.
func (f field) X(c int) float64 { return float64(c) / fieldSteps }

// Y implements plotter.GridXYZ.
func (f field) Y(r int) float64 { return f.High * float64(r) / fieldSteps }

// Z implements plotter.GridXYZ: the logarithm of the value.
func (f field) Z(c, r int) float64 { return math.Log(min(f.Most, f.At(f.X(c), f.Y(r)))) }

func heat(m *model.Map) *plotter.HeatMap {
	h := plotter.NewHeatMap(field{m}, hues())
	h.Min, h.Max = math.Log(m.Least), math.Log(m.Most)
	h.NaN = color.White
	h.Rasterized = true
	return h
}

// part is a palette without its darkest and lightest colours: black would look like the lines, and white like the paper.
type part struct{ colours []color.Color }

// Colors implements palette.Palette.
func (p part) Colors() []color.Color { return p.colours }

const mapHues = 256

// hues are the colours of maps.
func hues() part {
	colours := moreland.ExtendedBlackBody()
	colours.SetMin(0)
	colours.SetMax(1)
	return part{colours.Palette(mapHues).Colors()[mapHues/8 : mapHues*7/8]}
}

// scale says in the legend what the colours of a map mean.
func (s sheet) scale(m *model.Map) {
	all := hues().colours
	for _, tick := range figure.LogTicks(m.Least, m.Most) {
		at := (math.Log(tick.Value) - math.Log(m.Least)) / (math.Log(m.Most) - math.Log(m.Least))
		s.Legend.Add(tick.Label+" "+m.Unit, figure.Swatch{Color: all[min(len(all)-1, int(at*float64(len(all))))]})
	}
}
