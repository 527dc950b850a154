package arena

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/figure"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
)

// The size of plots, and the width of the strip at the right that is left to the legend.
const (
	plotWidth   = 11 * vg.Inch
	plotHeight  = 5.5 * vg.Inch
	legendWidth = 2.2 * vg.Inch
	plotDPI     = 96
)

// The colours of the policies in plots.
var (
	colours = [...]color.NRGBA{
		{0x1f, 0x77, 0xb4, 0xff}, {0xff, 0x7f, 0x0e, 0xff}, {0x2c, 0xa0, 0x2c, 0xff}, {0x94, 0x67, 0xbd, 0xff}, {0x8c, 0x56, 0x4b, 0xff},
		{0xe3, 0x77, 0xc2, 0xff}, {0x17, 0xbe, 0xcf, 0xff}, {0xbc, 0xbd, 0x22, 0xff}, {0x60, 0x60, 0x60, 0xff},
	}
	primaColours = [...]color.NRGBA{
		{0xd6, 0x27, 0x28, 0xff}, {0xa8, 0x3c, 0x60, 0xff}, {0xff, 0x6b, 0x6b, 0xff}, {0x8b, 0x00, 0x00, 0xff}, {0xe0, 0x2f, 0xa0, 0xff},
	}
	black       = color.NRGBA{0, 0, 0, 0xff}
	grey        = color.NRGBA{0x50, 0x50, 0x50, 0xff}
	lightGrey   = color.NRGBA{0x90, 0x90, 0x90, 0xff}
	frontColour = color.NRGBA{0xf2, 0xc1, 0x4e, 0xff}
	shadeColour = color.NRGBA{0x9a, 0x6a, 0x2f, 0xff}
)

// palette gives each policy a colour: PRIMA's forms get reds, the bounds get black and greys.
type palette struct{ others, own int }

func (p *palette) next(name string) color.NRGBA {
	switch name {
	case sim.Clairvoyant:
		return black
	case sim.Present:
		return grey
	case sim.Foresight:
		return lightGrey
	case subject:
		p.own++
		return primaColours[(p.own-1)%len(primaColours)]
	}
	p.others++
	return colours[(p.others-1)%len(colours)]
}

// canvas is a plot with its legend beside it.
type canvas struct {
	*plot.Plot
	legend plot.Legend
}

func newCanvas(title, x, y string) *canvas {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.Padding = vg.Points(6)
	p.Add(figure.Grid())
	l := plot.NewLegend()
	l.Top, l.Left, l.Padding = true, true, vg.Points(2)
	l.TextStyle.Font.Size = vg.Points(10)
	return &canvas{p, l}
}

// save writes a PNG.
func (c *canvas) save(path string) error {
	img := vgimg.NewWith(vgimg.UseWH(plotWidth, plotHeight), vgimg.UseDPI(plotDPI))
	whole := draw.New(img)
	c.Draw(draw.Crop(whole, vg.Points(4), -legendWidth, vg.Points(4), -vg.Points(4)))
	c.legend.Draw(draw.Crop(whole, plotWidth-legendWidth+vg.Points(10), 0, 0, -vg.Points(24)))
	return figure.Write(path, vgimg.PngCanvas{Canvas: img})
}

// points are rows of the trade-off plot (violation against cost) with error bars.
type points struct {
	plotter.XYs
	plotter.XErrors
	plotter.YErrors
	labels []string
	shapes []draw.GlyphDrawer
}

func (p *points) add(r Row) {
	p.XYs = append(p.XYs, plotter.XY{X: r.Cost.Mean, Y: 100 * r.Violation.Mean})
	x, y := r.Cost.half(), 100*r.Violation.half()
	p.XErrors = append(p.XErrors, struct{ Low, High float64 }{x, x})
	p.YErrors = append(p.YErrors, struct{ Low, High float64 }{min(y, 100*r.Violation.Mean), y})
	p.labels = append(p.labels, r.Candidate.label())
	p.shapes = append(p.shapes, schedulingShapes[r.Candidate.Scheduling])
}

// label is the text at a point. Policy and scheduling are left out, because colour and shape show them.
func (e Candidate) label() string {
	if _, settings, ok := strings.Cut(e.Series(), "("); ok {
		settings, _, _ = strings.Cut(settings, ")")
		return settings
	}
	return e.Step()
}

// plotTradeoff draws violation against cost. Each policy has a colour. A line joins those of its forms that no other of its forms beats;
// the others are faint dots. The shape of a point shows the scheduling. The best of all candidates are joined in the background.
func plotTradeoff(path, name string, rows []Row) error {
	c := newCanvas(name+": violation against cost (lower left is better)", "instance-seconds",
		"share of the time in violation, % (square-root scale)")
	if err := c.addFront(rows); err != nil {
		return err
	}
	ordered := byCost(rows)
	var looks palette
	for _, family := range families(rows) {
		col := looks.next(family)
		var best, others points
		for _, r := range ordered {
			switch {
			case r.Candidate.Policy != family:
			case r.Best:
				best.add(r)
			default:
				others.add(r)
			}
		}
		if err := c.addFamily(family, &best, &others, col); err != nil {
			return err
		}
	}
	for _, s := range quell.Schedulings {
		c.legend.Add(string(s), glyph{schedulingShapes[s]})
	}
	c.Y.Min, c.Y.Max = 0, max(c.Y.Max, 5)
	c.Y.Scale, c.Y.Tick.Marker = rootScale{}, plot.TickerFunc(rootTicks)
	c.X.Tick.Marker = plot.TickerFunc(shortTicks)
	return c.save(path)
}

// schedulingShapes are the shapes of points, by scheduling.
var schedulingShapes = map[quell.Scheduling]draw.GlyphDrawer{
	quell.RoundRobin: draw.RingGlyph{}, quell.LeastConn: draw.BoxGlyph{}, quell.Random2: draw.TriangleGlyph{},
	quell.EWMA: draw.CircleGlyph{}, quell.LeastTime: draw.PyramidGlyph{}, quell.Prequal: draw.CrossGlyph{},
}

// glyph is a shape in a legend.
type glyph struct{ draw.GlyphDrawer }

// Thumbnail implements plot.Thumbnailer.
func (g glyph) Thumbnail(c *draw.Canvas) {
	g.DrawGlyph(c, draw.GlyphStyle{Color: colours[len(colours)-1], Radius: vg.Points(4)}, c.Center())
}

// rootScale gives the small values, which matter most, more room than the large ones.
type rootScale struct{}

// Normalize implements plot.Normalizer.
func (rootScale) Normalize(low, high, x float64) float64 {
	root := func(v float64) float64 { return math.Sqrt(math.Max(0, v)) }
	return (root(x) - root(low)) / (root(high) - root(low))
}

func rootTicks(_, high float64) (ticks []plot.Tick) {
	for _, v := range []float64{0, 1, 2, 5, 10, 20, 30, 40, 60, 80, 100} {
		if v <= high {
			ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%g", v)})
		}
	}
	return ticks
}

func byCost(rows []Row) []Row {
	return slices.SortedStableFunc(slices.Values(rows), func(a, b Row) int { return cmp.Compare(a.Cost.Mean, b.Cost.Mean) })
}

// addFront draws the steps between the rows that no other row beats. No row is below and left of these steps.
func (c *canvas) addFront(rows []Row) error {
	var best plotter.XYs
	for _, r := range byCost(rows) {
		if r.Front {
			best = append(best, plotter.XY{X: r.Cost.Mean, Y: 100 * r.Violation.Mean})
		}
	}
	if len(best) == 0 {
		return nil
	}
	l, err := plotter.NewLine(best)
	if err != nil {
		return err
	}
	l.StepStyle = plotter.PostStep
	l.Width, l.Color = vg.Points(7), frontColour
	marks, err := plotter.NewScatter(best)
	if err != nil {
		return err
	}
	marks.Shape, marks.Radius, marks.Color = draw.CircleGlyph{}, vg.Points(8), frontColour
	c.Add(l, marks)
	c.legend.Add("front of what can be had", l)
	return nil
}

// addFamily draws the best forms of a policy with error bars and labels, and its other forms as faint dots.
func (c *canvas) addFamily(name string, best, others *points, col color.NRGBA) error {
	if len(others.XYs) > 0 {
		dots, err := plotter.NewScatter(others.XYs)
		if err != nil {
			return err
		}
		dots.Shape, dots.Radius, dots.Color = draw.CircleGlyph{}, vg.Points(1.5), faded(col, 0x60)
		c.Add(dots)
	}
	l, s, err := plotter.NewLinePoints(best.XYs)
	if err != nil {
		return err
	}
	l.Color, l.Width = faded(col, 0xa0), vg.Points(1.5)
	s.GlyphStyleFunc = func(i int) draw.GlyphStyle {
		return draw.GlyphStyle{Color: col, Shape: best.shapes[i], Radius: vg.Points(4)}
	}
	across, err := plotter.NewXErrorBars(best)
	if err != nil {
		return err
	}
	along, err := plotter.NewYErrorBars(best)
	if err != nil {
		return err
	}
	across.Color, along.Color = faded(col, 0x60), faded(col, 0x60)
	labels, err := plotter.NewLabels(plotter.XYLabels{XYs: best.XYs, Labels: best.labels})
	if err != nil {
		return err
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i].Font.Size, labels.TextStyle[i].Color = vg.Points(8), col
	}
	labels.Offset = vg.Point{X: vg.Points(5), Y: vg.Points(4)}
	c.Add(across, along, l, s, labels)
	c.legend.Add(name, figure.Swatch{Color: col})
	return nil
}

// lowestMS is the lowest response time drawn, because the logarithm of 0 is not finite.
const lowestMS = 0.1

// plotLatency draws the response time of each run's worst instance over time. The background is darker when there is more interference.
func plotLatency(path string, sc *scenario.Scenario, seed uint64, ground []shade, lines []line) error {
	c := newCanvas(fmt.Sprintf("%s: the worst instance's latency (%s), seed %d alone", sc.Name, sc.Service.SLO.Metric, seed), "time, s", "ms")
	low, high := sc.Service.SLO.ThresholdMS(), sc.Service.SLO.ThresholdMS()
	for _, l := range lines {
		for _, w := range l.windows {
			if w.WorstMS != nil {
				low, high = min(low, *w.WorstMS), max(high, *w.WorstMS)
			}
		}
	}
	low, high = max(lowestMS, low/1.3), high*1.3
	if err := c.addGround(ground, low, high); err != nil {
		return err
	}
	if err := c.addThreshold(sc); err != nil {
		return err
	}
	var looks palette
	for _, l := range lines {
		if err := c.addLine(l, &looks); err != nil {
			return err
		}
	}
	c.X.Min, c.X.Max, c.Y.Min, c.Y.Max = 0, sc.Duration.Seconds(), low, high
	c.Y.Scale, c.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(plainTicks)
	return c.save(path)
}

// deepest is the opacity of the background under the most interference.
const deepest = 0x70

func (c *canvas) addGround(ground []shade, low, high float64) error {
	for _, s := range ground {
		p, err := plotter.NewPolygon(plotter.XYs{{X: s.from, Y: low}, {X: s.to, Y: low}, {X: s.to, Y: high}, {X: s.from, Y: high}})
		if err != nil {
			return err
		}
		p.LineStyle.Width = 0
		p.Color = faded(shadeColour, uint8(deepest*s.depth))
		c.Add(p)
	}
	if len(ground) > 0 {
		c.legend.Add("interference, where most", figure.Swatch{Color: faded(shadeColour, deepest)})
	}
	return nil
}

func (c *canvas) addThreshold(sc *scenario.Scenario) error {
	y := sc.Service.SLO.ThresholdMS()
	l, err := plotter.NewLine(plotter.XYs{{X: 0, Y: y}, {X: sc.Duration.Seconds(), Y: y}})
	if err != nil {
		return err
	}
	l.Dashes, l.Width = []vg.Length{vg.Points(6), vg.Points(4)}, vg.Points(1.5)
	c.Add(l)
	c.legend.Add(fmt.Sprintf("objective, %g ms", y), l)
	return nil
}

// addLine draws the line of one run; it has a gap at windows without enough requests.
func (c *canvas) addLine(run line, looks *palette) error {
	col := looks.next(run.policy)
	var part plotter.XYs
	named := false
	flush := func() error {
		if len(part) == 0 {
			return nil
		}
		l, s, err := plotter.NewLinePoints(part)
		if err != nil {
			return err
		}
		l.Color, l.Width = col, vg.Points(1.8)
		s.Color, s.Shape, s.Radius = col, draw.CircleGlyph{}, vg.Points(1.8)
		c.Add(l, s)
		if !named {
			c.legend.Add(run.title, l)
		}
		named, part = true, nil
		return nil
	}
	for _, w := range run.windows {
		if w.WorstMS == nil {
			if err := flush(); err != nil {
				return err
			}
			continue
		}
		part = append(part, plotter.XY{X: (w.Start + w.Length/2).Seconds(), Y: max(lowestMS, *w.WorstMS)})
	}
	return flush()
}

// shortTicks are gonum's usual ticks with as few digits as they need.
func shortTicks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i := range ticks {
		if !ticks[i].IsMinor() {
			ticks[i].Label = fmt.Sprintf("%g", math.Round(ticks[i].Value*1e6)/1e6)
		}
	}
	return ticks
}

// plainTicks are 1, 2 and 5 times every power of ten, without exponents.
func plainTicks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for _, k := range []float64{1, 2, 5} {
			if v := k * math.Pow(10, e); v >= low && v <= high {
				ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%g", math.Round(v*1e6)/1e6)})
			}
		}
	}
	return ticks
}

func faded(c color.NRGBA, alpha uint8) color.NRGBA { return color.NRGBA{c.R, c.G, c.B, alpha} }
