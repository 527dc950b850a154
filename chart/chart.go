// Package chart makes PNG files from the models' pictures.
package chart

import (
	"errors"
	"fmt"
	"image/color"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/palette/moreland"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/figure"
	"github.com/quellhq/quell/model"
)

// The size of a picture.
const (
	width  = 8.5 * vg.Inch
	height = 5 * vg.Inch
)

// Models writes pictures of the models into a folder, which it makes if needed, and returns the pictures' names. It leaves out a
// picture whose model is missing; if all are missing the error is a *quell.UserError.
func Models(dir string, m *model.Models, o model.ShowOptions) ([]string, error) {
	pictures, err := model.Draw(m, o)
	if err != nil {
		return nil, err
	}
	if len(pictures) == 0 {
		return nil, &quell.UserError{Err: errors.New("the models hold nothing that can be drawn: train and fit first")}
	}
	return Pictures(dir, pictures...)
}

// Pictures writes pictures into a folder, which it makes if needed, and returns their names.
func Pictures(dir string, pictures ...model.Picture) (names []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, &quell.UserError{Err: fmt.Errorf("making the folder for the pictures: %w", err)}
	}
	for _, p := range pictures {
		name, err := write(plotOf(p), dir, p.Name+".png")
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// write writes the picture completely or not at all, so that a full disk leaves the previous file.
func write(p *plot.Plot, dir, name string) (path string, err error) {
	picture, err := p.WriterTo(width, height, "png")
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, name)
	return path, figure.Write(path, picture)
}

// sheet is a picture to which layers are being added.
type sheet struct{ *plot.Plot }

func plotOf(p model.Picture) *plot.Plot {
	s := sheet{plot.New()}
	s.Title.Text, s.Title.TextStyle.Font.Size, s.Title.Padding = p.Title, font.Points(13), vg.Points(8)
	if !p.Bare {
		s.Add(figure.Grid())
	}
	s.Legend.Top, s.Legend.Left, s.Legend.Padding = true, !p.Right, vg.Points(2)
	s.Legend.XOffs, s.Legend.YOffs = vg.Points(8), -vg.Points(6)
	if p.Right {
		s.Legend.XOffs = -vg.Points(8)
	}
	axis(&s.X, p.X) // set before the layers are drawn, because the outer cells of a map extend the axes by half a cell
	for _, layer := range p.Layers {
		s.draw(layer)
	}
	axis(&s.Y, p.Y)
	if p.Bare {
		s.HideAxes()
	}
	return s.Plot
}

func axis(to *plot.Axis, a model.Axis) {
	to.Label.Text, to.Min, to.Max, to.Padding = a.Label, a.Low, a.High, 0
	switch {
	case a.Log:
		to.Scale, to.Tick.Marker = plot.LogScale{}, plot.TickerFunc(figure.LogTicks)
	case a.Share:
		to.Tick.Marker = plot.TickerFunc(tenths)
	default:
		to.Tick.Marker = plot.TickerFunc(figure.RoundTicks)
	}
}

// draw adds a layer, and its name to the legend.
func (s sheet) draw(l model.Layer) {
	var shown []plot.Thumbnailer
	switch c := colourOf(l.Colour); l.Form {
	case model.Line:
		shown = append(shown, s.line(l.Points, c, vg.Points(1.8), dashes[l.Dash]))
	case model.Contour:
		shown = append(shown, s.line(l.Points, color.Black, vg.Points(3.6), nil),
			s.line(l.Points, color.White, vg.Points(1.6), contourDashes[l.Dash]))
	case model.Area:
		s.Add(&plotter.Polygon{XYs: []plotter.XYs{points(l.Points)}, Color: c})
		shown = append(shown, figure.Swatch{Color: c})
	case model.Dots:
		shown = append(shown, s.dots(l.Points, c, vg.Points(3)))
		s.Add(&plotter.Scatter{XYs: points(l.Points),
			GlyphStyle: draw.GlyphStyle{Color: color.Gray{0x50}, Radius: vg.Points(3.2), Shape: draw.RingGlyph{}}})
	case model.Marks:
		shown = append(shown, s.dots(l.Points, c, vg.Points(2)))
	case model.Field:
		s.Add(heat(l.Map))
	case model.Scale:
		s.scale(l.Map)
	case model.Texts:
		s.Add(words{l})
	}
	if l.Legend != "" {
		s.Legend.Add(l.Legend, shown...)
	}
}

// The dashes of lines, in points.
var (
	dashes        = map[model.Dash][]vg.Length{model.Dashed: {vg.Points(6), vg.Points(4)}, model.Dotted: {vg.Points(2), vg.Points(3)}}
	contourDashes = map[model.Dash][]vg.Length{model.Dashed: {vg.Points(8), vg.Points(4)}, model.Dotted: {vg.Points(2), vg.Points(3)}}
)

func (s sheet) line(through []model.Point, c color.Color, width vg.Length, dashes []vg.Length) *plotter.Line {
	l := &plotter.Line{XYs: points(through), LineStyle: draw.LineStyle{Color: c, Width: width, Dashes: dashes}}
	s.Add(l)
	return l
}

func (s sheet) dots(at []model.Point, c color.Color, radius vg.Length) *plotter.Scatter {
	d := &plotter.Scatter{XYs: points(at), GlyphStyle: draw.GlyphStyle{Color: c, Radius: radius, Shape: draw.CircleGlyph{}}}
	s.Add(d)
	return d
}

func points(of []model.Point) plotter.XYs {
	var out plotter.XYs
	for _, p := range of {
		out = append(out, plotter.XY(p))
	}
	return out
}

func colourOf(c model.Colour) color.Color {
	if !c.Shaded {
		return color.Gray{c.Grey}
	}
	colours := moreland.Kindlmann()
	colours.SetMin(0)
	colours.SetMax(1)
	shade, err := colours.At(darkest + (lightest-darkest)*c.Shade)
	if err != nil {
		return color.Black
	}
	return shade
}

// The range of the palette, from 0 to 1, that is visible on white.
const darkest, lightest = 0.12, 0.78

// tenths are the ticks of a utilisation, every other one labelled.
func tenths(_, _ float64) []plot.Tick {
	var ticks []plot.Tick
	for i := range 11 {
		t := plot.Tick{Value: float64(i) / 10}
		if i%2 == 0 {
			t.Label = fmt.Sprintf("%.1f", t.Value)
		}
		ticks = append(ticks, t)
	}
	return ticks
}
