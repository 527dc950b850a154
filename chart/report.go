package chart

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/quellhq/quell/internal/figure"
	"github.com/quellhq/quell/report"
)

// Report writes the pictures of a report into a PNG file, below its sentence: how much of each part of the time was above the objective and
// why, and what is expected otherwise.
func Report(path string, r *report.Report) error {
	recorded, other := timePlot(r), timePlot(r)
	recorded.Title.Text = fold(r.Sentence, 100)
	recorded.Title.TextStyle.Font.Size, recorded.Title.Padding = font.Points(11), vg.Points(8)
	recorded.Y.Label.Text = "as recorded"
	other.Y.Label.Text = "otherwise"
	other.X.Label.Text = fmt.Sprintf("UTC; part of the time above the objective, as recorded, and %s", r.Otherwise())
	for _, kind := range shownKinds(r) {
		c := hexColour(report.Colours[kind])
		recorded.Add(bars(r, func(b report.Bin) float64 {
			if b.Kind != kind {
				return 0
			}
			return b.MissedS
		}, c)...)
		recorded.Legend.Add(string(kind), figure.Swatch{Color: c})
	}
	other.Add(bars(r, func(b report.Bin) float64 { return b.OtherS }, hexColour(report.OtherColour))...)
	image := vgimg.New(width, height)
	canvases := plot.Align([][]*plot.Plot{{recorded}, {other}}, draw.Tiles{Rows: 2, Cols: 1, PadY: vg.Points(6), PadTop: vg.Points(6),
		PadBottom: vg.Points(6), PadLeft: vg.Points(6), PadRight: vg.Points(14)}, draw.New(image))
	recorded.Draw(canvases[0][0])
	other.Draw(canvases[1][0])
	return figure.Write(path, vgimg.PngCanvas{Canvas: image})
}

// timePlot is an empty picture of the report's time, with shares from 0 to 1.
func timePlot(r *report.Report) *plot.Plot {
	p := plot.New()
	p.Add(figure.Grid())
	p.X.Min, p.X.Max = float64(r.Since.Unix()), float64(r.Until.Unix())
	p.X.Tick.Marker = plot.TickerFunc(clockTicks)
	p.Y.Min, p.Y.Max, p.Y.Tick.Marker = 0, 1, plot.TickerFunc(tenths)
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(2)
	p.Legend.XOffs, p.Legend.YOffs = vg.Points(8), -vg.Points(6)
	return p
}

// clockTicks marks at most nine full times of the clock (UTC) between two times in Unix seconds.
func clockTicks(low, high float64) (ticks []plot.Tick) {
	step, format := 24*time.Hour, "Jan 2"
	for _, d := range []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour} {
		if (high-low)/d.Seconds() <= 9 {
			step, format = d, "15:04"
			break
		}
	}
	for (high-low)/step.Seconds() > 9 {
		step *= 2
	}
	for t := math.Ceil(low/step.Seconds()) * step.Seconds(); t <= high; t += step.Seconds() {
		ticks = append(ticks, plot.Tick{Value: t, Label: time.Unix(int64(t), 0).UTC().Format(format)})
	}
	return ticks
}

// bars draws a bar for each part of the time, as high as the share of it that was missed.
func bars(r *report.Report, missed func(report.Bin) float64, c color.Color) (all []plot.Plotter) {
	if len(r.Timeline) == 0 {
		return nil
	}
	step := r.Step().Seconds()
	for _, b := range r.Timeline {
		share := min(1, missed(b)/step)
		if !(share > 0) {
			continue
		}
		from := float64(b.At.Unix())
		all = append(all, &plotter.Polygon{Color: c,
			XYs: []plotter.XYs{{{X: from}, {X: from, Y: share}, {X: from + step, Y: share}, {X: from + step}}}})
	}
	return all
}

// shownKinds lists the causes that the picture shows, in order of their names.
func shownKinds(r *report.Report) (kinds []report.Kind) {
	for _, b := range r.Timeline {
		if b.MissedS > 0 && !slices.Contains(kinds, b.Kind) {
			kinds = append(kinds, b.Kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// hexColour reads a colour as pages have it, #rrggbb.
func hexColour(text string) color.Color {
	v, err := strconv.ParseUint(strings.TrimPrefix(text, "#"), 16, 24)
	if err != nil {
		return color.Black
	}
	return color.RGBA{uint8(v >> 16), uint8(v >> 8), uint8(v), 0xff}
}

// fold breaks a text into lines of at most this many characters.
func fold(text string, most int) string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > most {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return strings.Join(append(lines, line), "\n")
}
