package chart

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/quellhq/quell/model"
)

// words is a layer of texts. Each text has a white background, which hides the lines below it.
type words struct{ model.Layer }

// Plot implements plot.Plotter.
func (w words) Plot(c draw.Canvas, p *plot.Plot) {
	style := text.Style{Color: color.Black, Font: font.From(plot.DefaultFont, vg.Points(10)), XAlign: text.XCenter, YAlign: text.YCenter,
		Handler: plot.DefaultTextHandler}
	x, y := p.Transforms(&c)
	for i, at := range w.Points {
		place := vg.Point{X: x(at.X), Y: y(at.Y)}
		box := style.Rectangle(w.Texts[i])
		low, high := box.Min.Add(place), box.Max.Add(place)
		c.FillPolygon(color.White, []vg.Point{low, {X: high.X, Y: low.Y}, high, {X: low.X, Y: high.Y}})
		c.FillText(style, place, w.Texts[i])
	}
}
