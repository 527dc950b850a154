package model

import "math"

// Picture is a drawing of a part of the models, as data.
type Picture struct {
	Name   string // such as network-isolation
	Title  string
	X, Y   Axis
	Layers []Layer // in the order in which they are drawn
	Right  bool    // the legend is at the right instead of the left
	Bare   bool    // without axes and grid
}

// Axis is the x axis or the y axis of a picture.
type Axis struct {
	Label     string
	Low, High float64
	Log       bool // logarithmic
	Share     bool // the axis shows a utilisation: it is divided into tenths
}

// Layer is one thing in a picture.
type Layer struct {
	Form   Form
	Legend string // in the legend; empty: none
	Points []Point
	Colour Colour
	Dash   Dash     // of lines
	Map    *Map     // for the forms Field and Scale
	Texts  []string // for the form Texts: the text at each point
}

// Form is how a layer is drawn.
type Form int

// The forms of layers.
const (
	Line    Form = iota // through the points
	Contour             // like Line; drawn on a map
	Area                // within the points
	Dots                // with edges, so that light ones are visible
	Marks               // small dots
	Field               // a map
	Scale               // only the colours of a map in the legend
	Texts               // words, centred
)

// Dash distinguishes lines.
type Dash int

// The dashes of lines.
const (
	Solid Dash = iota
	Dashed
	Dotted
)

// Draw returns the pictures of the models. Parts that the models lack have no picture.
func Draw(m *Models, o ShowOptions) ([]Picture, error) {
	o = o.of(m)
	var out []Picture
	for _, section := range m.Sections {
		pictures, err := section.pictures(m, o)
		if err != nil {
			return nil, err
		}
		out = append(out, pictures...)
	}
	return out, nil
}

// Point is a place in a picture, in the units of its axes.
type Point struct{ X, Y float64 }

// Colour is a grey, from 0 for black to 255 for white, or a shade between small and large values.
type Colour struct {
	Grey   uint8
	Shaded bool
	Shade  float64 // from 0, dark violet, to 1, light green
}

// Map is values over an area, from 0 to 1 on the x axis and from 0 to High on the y axis.
type Map struct {
	High float64
	// At returns a value, or NaN where there is none.
	At          func(x, y float64) float64
	Least, Most float64 // values beyond which colours no longer change; the scale between them is logarithmic
	Unit        string
}

// shade returns the colour of a value between least and most.
func shade(value, least, most float64) Colour {
	at := 0.0
	if most > least {
		at = (value - least) / (most - least)
	}
	return Colour{Shaded: true, Shade: min(max(at, 0), 1)}
}

// sampled evaluates a function at points between two ends. Points at which it is NaN are left out.
func sampled(f func(float64) float64, from, to float64) []Point {
	const steps = 300
	var points []Point
	for i := range steps + 1 {
		x := from + (to-from)*float64(i)/steps
		if y := f(x); !math.IsNaN(y) {
			points = append(points, Point{x, y})
		}
	}
	return points
}

// within returns y, or NaN if y is outside the picture.
func within(y, low, high float64) float64 {
	if y < low || y > high {
		return math.NaN()
	}
	return y
}

// maxNames is how many lines of a picture can be in the legend.
const maxNames = 10

// named returns whether the i-th of n lines is in the legend: all if there are few, some if there are many, and
// always the last.
func named(i, n int) bool {
	step := (n + maxNames - 1) / maxNames
	return (n-1-i)%step == 0
}
