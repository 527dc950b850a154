package figure

import (
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// Mark is how the points of a series are shown.
type Mark int

// The marks.
const (
	NoMark Mark = iota
	Disc
	Ring
)

var marks = map[Mark]draw.GlyphDrawer{Disc: draw.CircleGlyph{}, Ring: draw.RingGlyph{}}

// Series is a line of a plot. Its name stands at its right end, in its colour.
type Series struct {
	Name   string // empty: none is shown
	Points plotter.XYs
	Color  color.Color
	Dashed bool
	Mark   Mark
}

// MostSeries is how many lines a reader can tell apart in one plot.
const MostSeries = 7

// New is a plot with a grid and round ticks.
func New(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle.Font.Size, p.Title.Padding = vg.Points(13), vg.Points(6)
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(RoundTicks), plot.TickerFunc(RoundTicks)
	p.Add(Grid())
	return p
}

// AddLines draws the series, and their names where they end. Series without points are left out. Those after the first MostSeries are grey,
// because a reader cannot tell more colours apart.
func AddLines(p *plot.Plot, list ...Series) error {
	list = slices.DeleteFunc(slices.Clone(list), func(s Series) bool { return len(s.Points) == 0 })
	for i := range list {
		s := &list[i]
		if i >= MostSeries {
			s.Color = Others
		}
		line, err := plotter.NewLine(s.Points)
		if err != nil {
			return err
		}
		line.Color, line.Width = s.Color, vg.Points(1.6)
		if s.Dashed {
			line.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
		}
		p.Add(line)
		if s.Mark != NoMark {
			dots, err := plotter.NewScatter(s.Points)
			if err != nil {
				return err
			}
			dots.Color, dots.Shape, dots.Radius = s.Color, marks[s.Mark], vg.Points(3)
			p.Add(dots)
		}
	}
	p.Add(names(list))
	return nil
}

// names writes the name of each series where it ends.
type names []Series

// gap is between the end of a line and its name.
var gap = vg.Points(5)

// atEdge is the part of a plot's width in which lines end at its right edge.
const atEdge = 0.08

func (s Series) style() text.Style {
	return text.Style{Color: s.Color, Font: font.From(plot.DefaultFont, vg.Points(11)), YAlign: text.YCenter, Handler: plot.DefaultTextHandler}
}

// GlyphBoxes implements plot.GlyphBoxer: the plot leaves room for the names at its right.
func (n names) GlyphBoxes(p *plot.Plot) (boxes []plot.GlyphBox) {
	for _, s := range n {
		if s.Name != "" {
			end := s.Points[len(s.Points)-1]
			box := s.style().Rectangle(s.Name)
			box.Max.X += gap
			x, y := min(end.X, p.X.Max), min(max(end.Y, p.Y.Min), p.Y.Max) // a box outside the axes would get no room
			boxes = append(boxes, plot.GlyphBox{X: p.X.Norm(x), Y: p.Y.Norm(y), Rectangle: box})
		}
	}
	return boxes
}

// Plot implements plot.Plotter.
func (n names) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	type placed struct {
		Series
		at vg.Point
	}
	var all []placed
	for _, s := range n {
		if s.Name != "" {
			end := s.Points[len(s.Points)-1]
			right := x(end.X)
			if right > c.Max.X-atEdge*(c.Max.X-c.Min.X) {
				right = c.Max.X // names of lines that end almost together are below each other
			}
			all = append(all, placed{s, vg.Point{X: right + gap, Y: y(min(max(end.Y, p.Y.Min), p.Y.Max))}})
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int { return int(math.Copysign(1, float64(a.at.Y-b.at.Y))) })
	heights := make([]float64, len(all))
	for i, a := range all {
		heights[i] = float64(a.at.Y)
	}
	for i, height := range spread(heights, float64(vg.Points(13))) {
		all[i].at.Y = vg.Length(height)
		c.FillText(all[i].style(), all[i].at, all[i].Name)
	}
}

// spread moves ascending heights apart, each as little as possible, until all are at least a distance from the next: names whose lines
// end at the same height stand around it.
func spread(heights []float64, distance float64) []float64 {
	type group struct {
		sum float64 // of the heights, each less its place in the group
		n   int
	}
	var groups []group
	start := func(g group) float64 { return g.sum / float64(g.n) }
	for _, h := range heights {
		g := group{h, 1}
		for len(groups) > 0 {
			last := groups[len(groups)-1]
			if start(last)+float64(last.n)*distance <= start(g) {
				break
			}
			g = group{last.sum + g.sum - float64(g.n*last.n)*distance, last.n + g.n}
			groups = groups[:len(groups)-1]
		}
		groups = append(groups, g)
	}
	var out []float64
	for _, g := range groups {
		for i := range g.n {
			out = append(out, start(g)+float64(i)*distance)
		}
	}
	return out
}

// WriteAbove writes plots one above the other as a PNG. Their axes are aligned.
func WriteAbove(path string, plots ...*plot.Plot) error {
	img := vgimg.NewWith(vgimg.UseWH(9*vg.Inch, vg.Length(len(plots))*3.2*vg.Inch), vgimg.UseDPI(96))
	rows := make([][]*plot.Plot, len(plots))
	for i, p := range plots {
		rows[i] = []*plot.Plot{p}
	}
	tiles := draw.Tiles{Rows: len(plots), Cols: 1, PadLeft: vg.Points(6), PadTop: vg.Points(4), PadRight: vg.Points(6), PadY: vg.Points(8)}
	for i, c := range plot.Align(rows, tiles, draw.New(img)) {
		plots[i].Draw(c[0])
	}
	return Write(path, vgimg.PngCanvas{Canvas: img})
}

// RoundTicks are from three to nine labelled ticks, at multiples of 1, 2 or 5 times a power of ten.
func RoundTicks(low, high float64) (ticks []plot.Tick) {
	const most = 8 // steps
	power := math.Pow10(int(math.Floor(math.Log10((high - low) / most))))
	step := power
	for _, times := range []float64{2, 5, 10} {
		if (high-low)/step <= most {
			break
		}
		step = times * power
	}
	for n := math.Ceil(low / step); n*step <= high; n++ {
		ticks = append(ticks, plot.Tick{Value: n * step, Label: fmt.Sprintf("%.6g", n*step)})
	}
	return ticks
}

// LogTicks are the labelled ticks of a logarithmic axis: a few round numbers of every power of ten, fewer if the axis is long.
func LogTicks(low, high float64) []plot.Tick {
	steps := []float64{1, 2, 3, 5, 7}
	switch {
	case high/low > longestAxis:
		steps = steps[:1]
	case high/low > longAxis:
		steps = []float64{1, 2, 5}
	}
	var ticks []plot.Tick
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for _, k := range steps {
			if v := k * math.Pow(10, e); v >= low && v <= high {
				ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%.6g", v)})
			}
		}
	}
	return ticks
}

// If the ratio of its ends exceeds one of these, a logarithmic axis has fewer ticks.
const longAxis, longestAxis = 30, 1e5

// Logarithmic makes the axis of response times logarithmic.
func Logarithmic(a *plot.Axis) { a.Scale, a.Tick.Marker = plot.LogScale{}, plot.TickerFunc(LogTicks) }
