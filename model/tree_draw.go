package model

import (
	"strings"

	"github.com/quellhq/quell/stats"
)

// treePicture draws a decision tree. At a node stands its test, below a leaf its class. The left branch is for samples that pass the test.
func treePicture(name, title string, t *stats.Tree) Picture {
	d := treeDrawing{words: Layer{Form: Texts}}
	d.node(t, 0)
	return Picture{Name: name, Title: title, Bare: true,
		X: Axis{High: float64(d.leaves)}, Y: Axis{Low: -float64(d.deepest) - 0.5, High: 0.5}, Layers: append(d.edges, d.words)}
}

// treeDrawing is the state while a tree is drawn. A leaf is one unit wide, and a step down is one unit high.
type treeDrawing struct {
	edges           []Layer
	words           Layer
	leaves, deepest int
}

// beneath is how far the text of a class is below its leaf.
const beneath = 0.15

// node draws what is below a node, and returns where the node is.
func (d *treeDrawing) node(t *stats.Tree, depth int) Point {
	d.deepest = max(d.deepest, depth)
	if t.Above == nil {
		at := Point{float64(d.leaves) + 0.5, -float64(depth)}
		d.leaves++
		d.write(Point{at.X, at.Y - beneath}, strings.Replace(t.Label(), " (", "\n(", 1))
		return at
	}
	above, below := d.node(t.Above, depth+1), d.node(t.Below, depth+1)
	at := Point{(above.X + below.X) / 2, -float64(depth)}
	d.write(at, t.Label())
	d.edge(at, above, "yes")
	d.edge(at, below, "no")
	return at
}

func (d *treeDrawing) edge(from, to Point, answer string) {
	d.edges = append(d.edges, Layer{Points: []Point{from, to}, Colour: Colour{Grey: 0xa0}})
	d.write(Point{(from.X + to.X) / 2, (from.Y + to.Y) / 2}, answer)
}

func (d *treeDrawing) write(at Point, text string) {
	d.words.Points, d.words.Texts = append(d.words.Points, at), append(d.words.Texts, text)
}
