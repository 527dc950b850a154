package figure

import (
	"bytes"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"pgregory.net/rapid"
)

func TestSpread(t *testing.T) {
	for _, c := range []struct{ at, want []float64 }{
		{nil, nil},
		{[]float64{5}, []float64{5}},
		{[]float64{0, 30}, []float64{0, 30}},
		{[]float64{10, 10}, []float64{5, 15}},                     // around their common height
		{[]float64{0, 9, 11, 40}, []float64{-3.3, 6.7, 16.7, 40}}, // each as little as possible
	} {
		got := spread(c.at, 10)
		for i := range got {
			got[i] = float64(int(got[i]*10+0.5*sign(got[i]))) / 10
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.at, got, c.want)
		}
	}
}

func sign(v float64) float64 {
	if v < 0 {
		return -1
	}
	return 1
}

func TestSpreadKeepsOrderAndDistance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.SliceOf(rapid.Float64Range(0, 300)).Draw(t, "heights")
		slices.Sort(at)
		got := spread(at, 13)
		if len(got) != len(at) {
			t.Fatalf("%d of %d", len(got), len(at))
		}
		for i := 1; i < len(got); i++ {
			if got[i]-got[i-1] < 13-1e-6 {
				t.Fatalf("%v is nearer than 13", got)
			}
		}
	})
}

func TestRunsHaveTheColourOfTheirPolicy(t *testing.T) {
	prima, _ := Policy("prima")
	got := Runs("PRIMA over leastconn", "static", "PRIMA (learning)", "anything")
	if got[0] != prima || got[1] != Others {
		t.Errorf("PRIMA is %v, static %v", got[0], got[1])
	}
	seen := map[color.NRGBA]bool{}
	for _, col := range got {
		if col.A == 0 || seen[col] {
			t.Errorf("two runs have the colour %v: %v", col, got)
		}
		seen[col] = true
	}
	if _, ok := Policy("nice"); ok {
		t.Error("nice is not ICE")
	}
}

func TestAddLines(t *testing.T) {
	p := New("title", "x", "y")
	line := plotter.XYs{{X: 0, Y: 1}, {X: 10, Y: 2}}
	if err := AddLines(p, Series{Name: "one", Points: line, Color: Nth(0), Mark: Ring}, Series{Name: "nothing"},
		Series{Name: "two", Points: line, Color: Nth(1), Dashed: true}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "a.png")
	if err := WriteAbove(path, p); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		if !has(img.At, img.Bounds().Dx(), img.Bounds().Dy(), Nth(n)) {
			t.Errorf("the colour of line %d is not in the picture", n)
		}
	}
}

func has(at func(x, y int) color.Color, width, height int, want color.NRGBA) bool {
	for y := range height {
		for x := range width {
			if r, g, b, _ := at(x, y).RGBA(); uint8(r>>8) == want.R && uint8(g>>8) == want.G && uint8(b>>8) == want.B {
				return true
			}
		}
	}
	return false
}

// A line may end a little after its axis does. Its name gets room all the same.
func TestNamesOfLinesThatEndBeyondTheAxis(t *testing.T) {
	p := New("", "", "")
	if err := AddLines(p, Series{Name: "a long name", Points: plotter.XYs{{X: 0, Y: 1}, {X: 100.01, Y: 1}}}); err != nil {
		t.Fatal(err)
	}
	p.X.Min, p.X.Max = 0, 100
	const wide = 30 // the name; other boxes are smaller
	boxes := p.GlyphBoxes(p)
	if !slices.ContainsFunc(boxes, func(b plot.GlyphBox) bool { return b.X == 1 && b.Rectangle.Max.X > wide }) {
		t.Errorf("room is left for %+v", boxes)
	}
}
