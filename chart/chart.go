// Package chart draws what models have learned, as PNG pictures for people.
package chart

import (
	"cmp"
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/palette/moreland"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// The size of a picture.
const (
	width  = 8.5 * vg.Inch
	height = 5 * vg.Inch
)

// Options say what is drawn. The zero value draws for the metric the models were trained for and for thresholds of 1.5,
// 2.5 and 4 times the least trained response time.
type Options struct {
	Metric       quell.Metric
	ThresholdsMS []float64
}

// Models draws pictures of the models of every resource into a folder, which is made if need be, and returns their
// names. A picture whose part of the models is missing is left out; without any the error is a *quell.UserError.
func Models(dir string, m *model.Models, o Options) ([]string, error) {
	if o.Metric == "" {
		o.Metric = quell.Mean
		if m.Trained != nil && m.Trained.Metric != "" {
			o.Metric = m.Trained.Metric
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, &quell.UserError{Err: fmt.Errorf("making the folder for the pictures: %w", err)}
	}
	var names []string
	for _, r := range quell.Resources {
		part, err := resource(dir, m, r, o)
		if err != nil {
			return nil, fmt.Errorf("drawing models of %s: %w", r, err)
		}
		names = append(names, part...)
	}
	if len(names) == 0 {
		return nil, &quell.UserError{Err: errors.New("the models hold nothing that can be drawn: train and fit first")}
	}
	return names, nil
}

// sheet is a picture in the making.
type sheet struct {
	*plot.Plot
	name string
}

func resource(dir string, m *model.Models, r quell.Resource, o Options) ([]string, error) {
	a := artist{models: m, resource: r, options: o}
	var err error
	for _, kind := range quell.InterferenceModels {
		p, cause := model.Compile(m, model.Spec{Resource: r, Metric: o.Metric, InterferenceModel: kind, Confidence: 0.95})
		switch {
		case errors.Is(cause, quell.ErrNoData):
		case cause != nil:
			return nil, cause
		case kind == quell.Joint:
			a.joint = p
		default:
			a.total = p
		}
	}
	if a.alone, err = model.CompileBaseline(m, r, 0.95); err != nil && !errors.Is(err, quell.ErrNoData) {
		return nil, err
	}
	var names []string
	for _, s := range a.sheets() {
		name, err := s.write(dir, string(r)+"-"+s.name+".png")
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// write puts the picture into a folder as a whole: a full disk leaves the one that was there.
func (s sheet) write(dir, name string) (path string, err error) {
	path, part := filepath.Join(dir, name), filepath.Join(dir, ".part-"+name)
	if err = s.Save(width, height, part); err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		_ = os.Remove(part)
	}
	return path, err
}

// artist draws one resource. What the models lack is nil.
type artist struct {
	models       *model.Models
	resource     quell.Resource
	options      Options
	joint, total *model.Predictor
	alone        *model.Baseline
}

func (a *artist) sheets() []sheet {
	var out []sheet
	if a.alone != nil {
		out = append(out, a.isolation())
	}
	if a.joint != nil {
		out = append(out, a.response(), a.field(), a.jointCurves())
	}
	if a.total != nil {
		out = append(out, a.totalCurve())
	}
	if a.joint != nil || a.total != nil {
		out = append(out, a.capacity())
	}
	return out
}

func (a *artist) sheet(name, title, x, y string) sheet {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle.Font.Size, p.Title.Padding = font.Points(13), vg.Points(8)
	p.X.Padding, p.Y.Padding = 0, 0
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{0xe6}, color.Gray{0xe6}
	p.Add(grid)
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(2)
	p.Legend.XOffs, p.Legend.YOffs = vg.Points(8), -vg.Points(6)
	p.X.Min, p.X.Max = 0, 1
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(tenths), plot.TickerFunc(roundTicks)
	return sheet{p, name}
}

// thresholds are those asked for, or some that suit what was trained.
func (a *artist) thresholds() []float64 {
	if len(a.options.ThresholdsMS) > 0 {
		return a.options.ThresholdsMS
	}
	least := a.predictor().ResponseTime(0, 0)
	return []float64{1.5 * least, 2.5 * least, 4 * least}
}

func (a *artist) predictor() *model.Predictor {
	if a.joint != nil {
		return a.joint
	}
	return a.total
}

// shade is the colour of a value between least and most, from dark violet to light green.
func shade(value, least, most float64) color.Color {
	colours := moreland.Kindlmann()
	colours.SetMin(0)
	colours.SetMax(1)
	at := 0.0
	if most > least {
		at = (value - least) / (most - least)
	}
	c, err := colours.At(darkest + (lightest-darkest)*min(max(at, 0), 1))
	if err != nil {
		return color.Black
	}
	return c
}

// The part of the colours that shows on white.
const darkest, lightest = 0.12, 0.78

// line draws a function between two ends.
func (s sheet) line(f func(float64) float64, from, to float64, c color.Color, dashed bool) *plotter.Line {
	const steps = 300
	var points plotter.XYs
	for i := range steps + 1 {
		x := from + (to-from)*float64(i)/steps
		if y := f(x); !math.IsNaN(y) {
			points = append(points, plotter.XY{X: x, Y: y})
		}
	}
	l := &plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: c, Width: vg.Points(1.8)}}
	if dashed {
		l.Dashes = []vg.Length{vg.Points(6), vg.Points(4)}
	}
	s.Add(l)
	return l
}

// dots draws training points, filled with a colour and edged so that light ones show.
func (s sheet) dots(points plotter.XYs, c color.Color) *plotter.Scatter {
	d := &plotter.Scatter{XYs: points, GlyphStyle: draw.GlyphStyle{Color: c, Radius: vg.Points(3), Shape: draw.CircleGlyph{}}}
	edge := &plotter.Scatter{XYs: points, GlyphStyle: draw.GlyphStyle{Color: color.Gray{0x50}, Radius: vg.Points(3.2), Shape: draw.RingGlyph{}}}
	s.Add(d, edge)
	return d
}

// isolation draws the probe time of an instance alone, with the spread of single probes.
func (a *artist) isolation() sheet {
	s := a.sheet("isolation", fmt.Sprintf("The probe on an instance alone (%s)", a.resource), "utilisation", "probe time, ms")
	rows := slices.Clone(a.models.Isolation[a.resource])
	slices.SortFunc(rows, func(x, y model.Isolation) int { return cmp.Compare(x.Utilization, y.Utilization) })
	var upper, lower, mean plotter.XYs
	most := 0.0
	for _, r := range rows {
		mean = append(mean, plotter.XY{X: r.Utilization, Y: r.ProbeMS})
		upper = append(upper, plotter.XY{X: r.Utilization, Y: r.ProbeMS + r.StddevMS})
		lower = append(lower, plotter.XY{X: r.Utilization, Y: max(0, r.ProbeMS-r.StddevMS)})
		most = max(most, r.ProbeMS+r.StddevMS)
	}
	slices.Reverse(lower)
	colour := shade(0.4, 0, 1)
	if len(rows) > 1 {
		band := &plotter.Polygon{XYs: []plotter.XYs{append(slices.Clone(upper), lower...)}, Color: color.Gray{0xdd}}
		s.Add(band)
		s.Legend.Add("± deviation of single probes", swatch{color.Gray{0xdd}})
	}
	l := s.line(func(u float64) float64 { ms, _, _ := a.alone.Isolation(u); return ms }, rows[0].Utilization, rows[len(rows)-1].Utilization, colour, false)
	s.Legend.Add("mean, as it is read", l)
	s.Legend.Add("measured", s.dots(mean, colour))
	s.Y.Min, s.Y.Max = 0, 1.1*most
	return s
}

// swatch is a patch of colour in a legend.
type swatch struct{ color.Color }

// Thumbnail implements plot.Thumbnailer.
func (s swatch) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(s.Color, []vg.Point{c.Min, {X: c.Min.X, Y: c.Max.Y}, c.Max, {X: c.Max.X, Y: c.Min.Y}})
}

// shownSeverities are the lines of the response-time surface.
var shownSeverities = []float64{0, 0.25, 0.5, 1, 2, 4}

// response draws lines of the response-time surface, and the training points in the colour of their severity.
func (a *artist) response() sheet {
	s := a.sheet("response", fmt.Sprintf("Response time (%s) over utilisation, for several severities (%s)", a.options.Metric, a.resource), "utilisation", "response time, ms")
	s.Y.Scale, s.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(plainTicks)
	low, high, worst := math.Inf(1), 0.0, 0.0
	rows := a.models.ResponseTime[a.resource]
	for _, r := range rows {
		if ms, ok := r.LatencyMS.Of(a.options.Metric); ok && ms > 0 {
			low, high, worst = min(low, ms), max(high, ms), max(worst, r.Severity)
		}
	}
	low, high = low/1.3, high*max(3, math.Pow(high/low, headroom))
	top := a.joint.MaxUtilization()
	most := rank(min(worst, shownSeverities[len(shownSeverities)-1]))
	for _, r := range rows {
		if ms, ok := r.LatencyMS.Of(a.options.Metric); ok && ms > 0 {
			s.dots(plotter.XYs{{X: r.Utilization, Y: ms}}, shade(rank(r.Severity), 0, most))
		}
	}
	for _, severity := range shownSeverities {
		if severity > worst {
			break
		}
		l := s.line(func(u float64) float64 { return within(a.joint.ResponseTime(u, severity), low, high) }, 0, top, shade(rank(severity), 0, most), false)
		s.Legend.Add(fmt.Sprintf("severity %g", severity), l)
	}
	for _, ms := range a.options.ThresholdsMS {
		l := s.line(func(float64) float64 { return within(ms, low, high) }, 0, 1, color.Black, true)
		s.Legend.Add(fmt.Sprintf("threshold %.4g ms", ms), l)
	}
	s.Legend.Add("measured (in the colour of its severity)", s.dots(plotter.XYs{}, color.Gray{0xc0}))
	s.Y.Min, s.Y.Max = low, high
	return s
}

// headroom is what the legend has to itself above the longest response time, as a part of the axis below.
const headroom = 0.4

// rank spreads severities, which crowd near 0, over the colours.
func rank(severity float64) float64 { return math.Log1p(severity) }

// within is a value, or nothing where the picture does not reach.
func within(y, low, high float64) float64 {
	if y < low || y > high {
		return math.NaN()
	}
	return y
}

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

// roundTicks are the multiples of 1, 2 or 5 times a power of ten that give an axis from three to nine of them, written
// out.
func roundTicks(low, high float64) (ticks []plot.Tick) {
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

// plainTicks are a few round numbers of every power of ten, written out; fewer where the axis is long.
func plainTicks(low, high float64) []plot.Tick {
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

// From these ratios of its ends on a logarithmic axis has fewer ticks.
const longAxis, longestAxis = 30, 1e5

// capacity draws the effective capacity against the neighbours' use.
func (a *artist) capacity() sheet {
	s := a.sheet("capacity", fmt.Sprintf("Effective capacity under interference (%s)", a.resource), "utilisation by neighbours", "effective capacity, as a utilisation")
	thresholds := a.thresholds()
	for i, ms := range thresholds {
		c := shade(float64(i), 0, float64(max(1, len(thresholds)-1)))
		if a.joint != nil {
			l := s.line(func(x float64) float64 { return a.joint.Capacity(x, ms) }, 0, 1, c, false)
			s.Legend.Add(fmt.Sprintf("%s within %.4g ms, joint model", a.options.Metric, ms), l)
		}
		if a.total != nil {
			l := s.line(func(x float64) float64 { return a.total.Capacity(x, ms) }, 0, 1, c, true)
			s.Legend.Add(fmt.Sprintf("%s within %.4g ms, total model", a.options.Metric, ms), l)
		}
	}
	s.Legend.Left, s.Legend.XOffs = false, -vg.Points(8)
	s.Y.Min, s.Y.Max = 0, 1
	s.Y.Tick.Marker = plot.TickerFunc(tenths)
	return s
}
