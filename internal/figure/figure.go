// Package figure has what the plots of several packages share.
package figure

import (
	"bytes"
	"image/color"
	"io"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/quellhq/quell/internal/atomicfile"
)

// Grid is a light grid behind a plot.
func Grid() *plotter.Grid {
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{0xe6}, color.Gray{0xe6}
	return grid
}

// Swatch is a patch of colour in a legend.
type Swatch struct{ color.Color }

// Thumbnail implements plot.Thumbnailer.
func (s Swatch) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(s.Color, []vg.Point{c.Min, {X: c.Min.X, Y: c.Max.Y}, c.Max, {X: c.Max.X, Y: c.Min.Y}})
}

// Write writes a picture to a file, completely or not at all: a full disk leaves the previous file.
func Write(path string, picture io.WriterTo) error {
	var b bytes.Buffer
	if _, err := picture.WriteTo(&b); err != nil {
		return err
	}
	return atomicfile.Write(path, b.Bytes(), 0o644)
}
