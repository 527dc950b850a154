package stats

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// reference is testdata/trees.json: what scikit-learn makes of fixed data (testdata/trees.py).
type reference struct {
	Cases []struct {
		Name     string      `json:"name"`
		MinLeaf  int         `json:"min_leaf"`
		Features []string    `json:"features"`
		Rows     [][]float64 `json:"rows"`
		Classes  []string    `json:"classes"`
		Tests    [][]float64 `json:"tests"`
		Nodes    []refNode   `json:"nodes"`
		Folds    []int       `json:"folds"`
		Path     struct {
			Alphas []float64 `json:"alphas"`
			Costs  []float64 `json:"costs"`
		} `json:"path"`
		Prunings []struct {
			Alpha       float64   `json:"alpha"`
			Nodes       []refNode `json:"nodes"`
			Predictions []string  `json:"predictions"`
			CrossErrors *int      `json:"cross_errors"`
		} `json:"prunings"`
	} `json:"cases"`
	Sets map[string]struct {
		Features []string    `json:"features"`
		Rows     [][]float64 `json:"rows"`
		Classes  []string    `json:"classes"`
	} `json:"sets"`
}

type refNode struct {
	Feature   int     `json:"feature"`
	Threshold float64 `json:"threshold"`
	Counts    []int   `json:"counts"`
}

func readReference(t *testing.T) (r reference) {
	t.Helper()
	text, err := os.ReadFile("testdata/trees.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func samplesOf(features []string, rows [][]float64, classes []string) []Sample {
	samples := make([]Sample, len(rows))
	for i, row := range rows {
		samples[i].Features = map[string]float64{}
		for j, v := range row {
			samples[i].Features[features[j]] = v
		}
		if classes != nil {
			samples[i].Class = classes[i]
		}
	}
	return samples
}

// preorder lists the nodes of a pruned tree, the branch above first.
func preorder(b *branch, alpha float64) []refNode {
	if b.leafAt(alpha) {
		return []refNode{{Counts: b.counts}}
	}
	return slices.Concat([]refNode{{b.split.feature, b.split.threshold, b.counts}}, preorder(b.above, alpha), preorder(b.below, alpha))
}

func TestGiniTreesAreThoseOfScikitLearn(t *testing.T) {
	compared := 0
	for _, c := range readReference(t).Cases {
		t.Run(c.Name, func(t *testing.T) {
			d, err := newTable(samplesOf(c.Features, c.Rows, c.Classes))
			if err != nil {
				t.Fatal(err)
			}
			o := TreeOptions{Criterion: Gini, MinLeaf: c.MinLeaf}
			grown := d.grow(d.all(), o)
			if got := preorder(grown, -1); !reflect.DeepEqual(got, c.Nodes) {
				t.Fatalf("grown: got  %v\nwant %v", got, c.Nodes)
			}
			for i, alpha := range c.Path.Alphas {
				if cost, _ := grown.visit(alpha+1e-9, func(*branch, float64) {}); math.Abs(cost-c.Path.Costs[i]) > 1e-9 {
					t.Errorf("pruned at %g: cost %g, want %g", alpha, cost, c.Path.Costs[i])
				}
			}
			for _, p := range c.Prunings {
				if got := preorder(grown, p.Alpha); !reflect.DeepEqual(got, p.Nodes) {
					t.Errorf("pruned at %g: got  %v\nwant %v", p.Alpha, got, p.Nodes)
				}
				tree := d.tree(grown, p.Alpha).merged()
				for i, s := range samplesOf(c.Features, c.Tests, nil) {
					if got := tree.Leaf(s.Features).Class; got != p.Predictions[i] {
						t.Errorf("pruned at %g: test %d is %s, want %s", p.Alpha, i, got, p.Predictions[i])
					}
				}
				if p.CrossErrors != nil {
					compared++
					if got := d.crossErrors(c.Folds, []float64{p.Alpha}, o); got[0] != *p.CrossErrors {
						t.Errorf("pruned at %g: %d errors in cross-validation, want %d", p.Alpha, got[0], *p.CrossErrors)
					}
				}
			}
		})
	}
	if compared == 0 {
		t.Error("no cross-validation was compared")
	}
}

// The tree of C4.5 on Fisher's irises is in the manual of every program that has the method: WEKA's J48 with at least two samples in a leaf
// prints these five leaves with these counts. It names the largest value below a threshold where this package takes the middle.
func TestGainRatioTreeIsThatOfC45(t *testing.T) {
	iris := readReference(t).Sets["iris"]
	tree, err := FitTree(samplesOf(iris.Features, iris.Rows, iris.Classes), TreeOptions{Criterion: GainRatio, MinLeaf: 2})
	if err != nil {
		t.Fatal(err)
	}
	want := `petal width (cm) > 0.8
|   petal width (cm) > 1.75: virginica (46, 1 wrong)
|   petal width (cm) <= 1.75
|   |   petal length (cm) > 4.95
|   |   |   petal width (cm) > 1.55: versicolor (3, 1 wrong)
|   |   |   petal width (cm) <= 1.55: virginica (3)
|   |   petal length (cm) <= 4.95: versicolor (48, 1 wrong)
petal width (cm) <= 0.8: setosa (50)
`
	if got := tree.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// byHand are eight samples whose gains can be worked out on paper.
func byHand() []Sample {
	var out []Sample
	for i, class := range []string{"a", "a", "a", "b", "b", "b", "b", "b"} {
		out = append(out, Sample{Features: map[string]float64{"x": float64(i)}, Class: class})
	}
	return out
}

func TestGainRatioOfMissingValues(t *testing.T) {
	samples := byHand()
	delete(samples[7].Features, "x")
	delete(samples[6].Features, "x")
	d, err := newTable(samples)
	if err != nil {
		t.Fatal(err)
	}
	s, ok := d.bestOf(0, d.all(), TreeOptions{Criterion: GainRatio})
	// six samples with a known value, three of each class: 1 bit, times 6/8 for the known ones; five possible thresholds cost log2(5)/8
	gain := 6.0/8 - math.Log2(5)/8
	if bits := 2*(3.0/8)*math.Log2(8.0/3) + (2.0/8)*2; !ok || s.threshold != 2.5 || math.Abs(s.gain-gain) > 1e-12 ||
		math.Abs(s.ratio-gain/bits) > 1e-12 {
		t.Errorf("got %+v, %v, want a gain of %g and a ratio of %g", s, ok, gain, gain/bits)
	}
}

// A sample without a feature takes the branch that most other samples took, in training and later.
func TestMissingFollowsTheLargerBranch(t *testing.T) {
	for _, c := range []Criterion{Gini, GainRatio} {
		samples := append(byHand(), Sample{Class: "b"}, Sample{Class: "a"})
		tree, err := FitTree(samples, TreeOptions{Criterion: c})
		if err != nil {
			t.Fatal(err)
		}
		if want := "x > 2.5: b (7, 1 wrong)\nx <= 2.5: a (3)\n"; tree.String() != want {
			t.Errorf("got\n%swant\n%s", tree, want)
		}
		if got := tree.Leaf(nil); got != tree.Above {
			t.Errorf("a sample of nothing is %s", got.Label())
		}
	}
	even := &Tree{Feature: "x", Above: &Tree{Class: "a"}, Below: &Tree{Class: "b"}}
	if got := even.Leaf(map[string]float64{"y": 1}).Class; got != "b" {
		t.Errorf("between equal branches: %s", got)
	}
}

// There is no test of a feature that is never measured or never varies, and none if no feature distinguishes the classes.
func TestNothingToTell(t *testing.T) {
	for name, c := range map[string]struct {
		samples []Sample
		want    string
	}{
		"one class":       {[]Sample{{map[string]float64{"x": 1}, "a"}, {map[string]float64{"x": 2}, "a"}}, "a (2)\n"},
		"no feature":      {[]Sample{{nil, "a"}, {nil, "b"}, {nil, "b"}}, "b (3, 1 wrong)\n"},
		"a constant":      {[]Sample{{map[string]float64{"x": 1}, "b"}, {map[string]float64{"x": 1}, "a"}}, "a (2, 1 wrong)\n"},
		"known once":      {[]Sample{{map[string]float64{"x": 1}, "b"}, {nil, "a"}}, "a (2, 1 wrong)\n"},
		"a single sample": {[]Sample{{map[string]float64{"x": 1}, "b"}}, "b (1)\n"},
		"neighbouring numbers": {[]Sample{{map[string]float64{"x": 1}, "b"}, {map[string]float64{"x": math.Nextafter(1, 2)}, "a"}},
			"x > 1: a (1)\nx <= 1: b (1)\n"},
	} {
		for _, criterion := range []Criterion{Gini, GainRatio} {
			tree, err := FitTree(c.samples, TreeOptions{Criterion: criterion})
			if err != nil || tree.String() != c.want {
				t.Errorf("%s: got %v, %v, want %s", name, tree, err, c.want)
			}
		}
	}
}

func TestFitTreeRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		samples []Sample
		o       TreeOptions
		want    string
	}{
		"nothing":  {nil, TreeOptions{}, "no samples"},
		"no class": {[]Sample{{nil, "a"}, {nil, ""}}, TreeOptions{}, "sample 2 has no class"},
		"NaN": {[]Sample{{map[string]float64{"x": math.NaN()}, "a"}}, TreeOptions{},
			"sample 1: x is NaN; leave out what was not measured"},
		"infinity":       {[]Sample{{map[string]float64{"x": math.Inf(1)}, "a"}}, TreeOptions{}, "sample 1: x is +Inf; leave out"},
		"too many folds": {[]Sample{{nil, "a"}, {nil, "b"}}, TreeOptions{Folds: 3}, "3 folds of 2 samples"},
	} {
		if _, err := FitTree(c.samples, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
	if _, err := FitTree(nil, TreeOptions{}); !errors.Is(err, ErrNoSamples) {
		t.Errorf("got %v", err)
	}
}

// Pruning keeps the one useful test among features that are pure noise. GainRatio hardly grows any other test, because their gain is less
// than the cost of a threshold.
func TestPruningLeavesNoNoise(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var samples []Sample
	for range 300 {
		s := Sample{Features: map[string]float64{"signal": r.Float64(), "noise": r.Float64(), "more noise": r.Float64()}, Class: "none"}
		if s.Features["signal"] > 0.4 != (r.IntN(10) == 0) {
			s.Class = "cpu"
		}
		if r.IntN(20) == 0 {
			delete(s.Features, "signal")
		}
		samples = append(samples, s)
	}
	for _, criterion := range []Criterion{Gini, GainRatio} {
		full, err := FitTree(samples, TreeOptions{Criterion: criterion, MinLeaf: 1})
		if err != nil {
			t.Fatal(err)
		}
		pruned, err := FitTree(samples, TreeOptions{Criterion: criterion, MinLeaf: 1, Folds: 10, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		if criterion == Gini && full.Leaves() < 20 || pruned.Leaves() != 2 ||
			pruned.Feature != "signal" || math.Abs(pruned.Threshold-0.4) > 0.03 {
			t.Errorf("criterion %d: %d leaves as grown, pruned:\n%s", criterion, full.Leaves(), pruned)
		}
	}
}

// Whatever the samples, a tree that was fitted is valid, holds each sample once, and reads back as it was written. The same samples give
// the same tree.
func TestFittedTrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Sample {
			s := Sample{Features: map[string]float64{}, Class: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "class")}
			for _, name := range []string{"x", "y"} {
				if rapid.IntRange(0, 4).Draw(t, "measured") > 0 {
					s.Features[name] = float64(rapid.IntRange(0, 6).Draw(t, name))
				}
			}
			return s
		}), 4, 60).Draw(t, "samples")
		o := TreeOptions{Criterion: Criterion(rapid.IntRange(0, 1).Draw(t, "criterion")), MinLeaf: rapid.IntRange(0, 5).Draw(t, "least"),
			Folds: rapid.IntRange(0, 4).Draw(t, "folds"), Seed: 7}
		tree, err := FitTree(samples, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := tree.Validate([]string{"x", "y"}, []string{"a", "b", "c"}); err != nil {
			t.Fatal(err)
		}
		wrong, reached := 0, map[*Tree]int{}
		for _, s := range samples {
			leaf := tree.Leaf(s.Features)
			if reached[leaf]++; leaf.Class != s.Class {
				wrong++
			}
		}
		if tree.samples() != len(samples) || wrong != errorsOf(tree) {
			t.Fatalf("%d samples, %d wrong, but the leaves have %d and %d", len(samples), wrong, tree.samples(), errorsOf(tree))
		}
		for leaf, n := range reached {
			if leaf.Count != n {
				t.Fatalf("a leaf of %d was reached %d times", leaf.Count, n)
			}
		}
		text, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		var read Tree
		if err := json.Unmarshal(text, &read); err != nil || !reflect.DeepEqual(&read, tree) {
			t.Fatalf("read back %s: %v", text, err)
		}
		if again, err := FitTree(samples, o); err != nil || !reflect.DeepEqual(again, tree) {
			t.Fatalf("fitted again: %v, %v", again, err)
		}
	})
}

func errorsOf(t *Tree) int {
	if t.isLeaf() {
		return t.Errors
	}
	return errorsOf(t.Above) + errorsOf(t.Below)
}

// The example of the contract for models.json.
const written = `{"feature":"connect_ms_p90","threshold":3,` +
	`"above":{"class":"network","count":50,"errors":1},` +
	`"below":{"feature":"cpu_user_ratio","threshold":0,"above":{"class":"memory"},"below":{"class":"none","count":7}}}`

func TestTreeInJSON(t *testing.T) {
	var tree Tree
	if err := json.Unmarshal([]byte(written), &tree); err != nil {
		t.Fatal(err)
	}
	want := "connect_ms_p90 > 3: network (50, 1 wrong)\nconnect_ms_p90 <= 3\n" +
		"|   cpu_user_ratio > 0: memory\n|   cpu_user_ratio <= 0: none (7)\n"
	if tree.String() != want {
		t.Errorf("got\n%s", &tree)
	}
	if text, err := json.Marshal(&tree); err != nil || string(text) != written {
		t.Errorf("written as %s, %v", text, err)
	}
}

func TestTreeInJSONIsReadStrictly(t *testing.T) {
	leaf := `{"class":"a"}`
	deep := leaf
	for range deepest + 1 {
		deep = fmt.Sprintf(`{"feature":"x","threshold":1,"above":%s,"below":%s}`, deep, leaf)
	}
	for name, c := range map[string]struct{ text, want string }{
		"an array":           {`[]`, `must be an object`},
		"an empty object":    {`{}`, `class: is missing`},
		"an unknown field":   {`{"clas":"a"}`, "clas: unknown field (known: feature, threshold, above, below; class, count, errors)"},
		"other letters":      {`{"Class":"a"}`, `Class: unknown field`},
		"a field twice":      {`{"class":"a","class":"b"}`, `class: is given twice`},
		"null":               {`{"class":null}`, `class: null is no string`},
		"a number as class":  {`{"class":1}`, `class: 1 is no string`},
		"half a sample":      {`{"class":"a","count":1.5}`, `count: 1.5 is no number`},
		"too large a number": {`{"feature":"x","threshold":1e999,"above":{"class":"a"},"below":{"class":"b"}}`, `threshold: 1e999 is no number`},
		"no threshold":       {`{"feature":"x","above":{"class":"a"},"below":{"class":"b"}}`, `threshold: is missing`},
		"no feature":         {`{"threshold":1,"above":{"class":"a"},"below":{"class":"b"}}`, `feature: is missing`},
		"one branch":         {`{"feature":"x","threshold":1,"above":{"class":"a"}}`, `below: is missing; a test has the branches above and below`},
		"no branches":        {`{"feature":"x","threshold":1}`, `threshold: is given to a leaf`},
		"a class above a leaf": {`{"feature":"x","threshold":1,"above":{"class":"a"},"below":{"class":"b"},"class":"a"}`,
			`class: is given to a node with branches`},
		"a mistake below": {`{"feature":"x","threshold":1,"above":{"class":"a"},"below":{"feature":"y","threshold":1,"above":7,"below":{}}}`,
			`below.above: must be an object`},
		"more errors":     {`{"class":"a","count":1,"errors":2}`, `errors: 2 is outside 0 to count, which is 1`},
		"a count below 0": {`{"class":"a","count":-1}`, `count: -1 is below 0`},
		"too deep":        {deep, `is deeper than 50 nodes`},
	} {
		var tree Tree
		err := json.Unmarshal([]byte(c.text), &tree)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
		if !reflect.DeepEqual(tree, Tree{}) {
			t.Errorf("%s: left %v", name, &tree)
		}
	}
}

func TestTreeIsValidated(t *testing.T) {
	a := func() *Tree { return &Tree{Class: "a"} }
	circle := &Tree{Feature: "x", Above: a()}
	circle.Below = &Tree{Feature: "x", Above: circle, Below: a()}
	for name, c := range map[string]struct {
		tree *Tree
		want string
	}{
		"a class of its own":   {&Tree{Feature: "x", Above: a(), Below: &Tree{Class: "c"}}, `below.class: unknown class "c" (known: a, b)`},
		"a feature of its own": {&Tree{Feature: "y", Above: a(), Below: a()}, `feature: unknown feature "y" (known: x)`},
		"a circle":             {circle, `below.above: is a node above itself`},
		"NaN":                  {&Tree{Feature: "x", Threshold: math.NaN(), Above: a(), Below: a()}, `threshold: NaN is not finite`},
		"infinity":             {&Tree{Feature: "x", Threshold: math.Inf(-1), Above: a(), Below: a()}, `threshold: -Inf is not finite`},
		"a leaf with a test":   {&Tree{Feature: "x", Class: "a"}, `feature: is given to a leaf`},
	} {
		err := c.tree.Validate([]string{"x"}, []string{"a", "b"})
		if err == nil || err.Error() != c.want && !strings.HasPrefix(err.Error(), c.want+";") {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
		var node *NodeError
		if !errors.As(err, &node) {
			t.Errorf("%s: %v names no node", name, err)
		}
	}
	if _, err := json.Marshal(circle); err == nil {
		t.Error("a circle was written")
	}
	shared := a() // two branches lead to the same node: unusual, but not a cycle
	if err := (&Tree{Feature: "x", Above: shared, Below: shared}).Validate(nil, nil); err != nil {
		t.Error(err)
	}
}

func FuzzTreeInJSON(f *testing.F) {
	f.Add([]byte(written))
	f.Add([]byte(`{"class":"a","class":`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var tree Tree
		if json.Unmarshal(text, &tree) != nil {
			return
		}
		again, err := json.Marshal(&tree)
		if err != nil {
			t.Fatalf("read, but not written: %v", err)
		}
		var read Tree
		if err := json.Unmarshal(again, &read); err != nil || !reflect.DeepEqual(read, tree) {
			t.Fatalf("%s read back as %v, %v", again, &read, err)
		}
	})
}

func TestStratifiedFolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		classes := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 2, 80).Draw(t, "classes")
		k := rapid.IntRange(2, len(classes)).Draw(t, "k")
		seed := rapid.Uint64().Draw(t, "seed")
		folds, err := StratifiedFolds(classes, k, 1, seed)
		if err != nil {
			t.Fatal(err)
		}
		all, of := make([]int, k), map[string][]int{}
		for i, fold := range folds {
			if of[classes[i]] == nil {
				of[classes[i]] = make([]int, k)
			}
			all[fold]++
			of[classes[i]][fold]++
		}
		for _, sizes := range append([][]int{all}, of["a"], of["b"], of["c"]) {
			if sizes != nil && slices.Max(sizes)-slices.Min(sizes) > 1 {
				t.Fatalf("folds of %v", sizes)
			}
		}
		if again, _ := StratifiedFolds(classes, k, 1, seed); !slices.Equal(again, folds) {
			t.Fatal("the same seed gives other folds")
		}
	})
	if _, err := StratifiedFolds([]string{"a", "b"}, 1, 1, 0); err == nil {
		t.Error("one fold is no validation")
	}
}

// Samples of a block are in the same fold, and blocks of a class are spread over the folds.
func TestFoldsOfBlocks(t *testing.T) {
	classes := strings.Split(strings.Repeat("a", 45)+strings.Repeat("b", 20)+strings.Repeat("a", 15), "")
	folds, err := StratifiedFolds(classes, 2, 10, 1)
	if err != nil {
		t.Fatal(err)
	}
	per := [2]int{}
	for _, b := range [][2]int{{0, 10}, {10, 20}, {20, 30}, {30, 40}, {40, 45}, {45, 55}, {55, 65}, {65, 75}, {75, 80}} {
		if among := slices.Compact(slices.Clone(folds[b[0]:b[1]])); len(among) > 1 {
			t.Errorf("the samples from %d to %d are in the folds %v", b[0], b[1], among)
		}
		per[folds[b[0]]]++
	}
	if per != [2]int{4, 5} && per != [2]int{5, 4} || folds[45] == folds[55] {
		t.Errorf("blocks in folds: %d; those of b are in %d and %d", per, folds[45], folds[55])
	}
	if folds, err = StratifiedFolds(classes[:8], 5, 10, 1); err != nil || slices.Max(folds) != 4 {
		t.Errorf("eight samples of a class: %v, %v", folds, err)
	}
}

func TestCrossValidate(t *testing.T) {
	samples := append(byHand(), byHand()...)
	classes := make([]string, len(samples))
	for i, s := range samples {
		classes[i] = s.Class
	}
	folds, err := StratifiedFolds(classes, 4, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	got, err := CrossValidate(samples, folds, func(rest []Sample) (*Tree, error) {
		return FitTree(rest, TreeOptions{Criterion: Gini})
	})
	if err != nil {
		t.Fatal(err)
	}
	if n, right := got.Total(); n != 16 || right < 14 {
		t.Errorf("%d of %d are right", right, n)
	}
	if _, err := CrossValidate(samples, folds[1:], nil); err == nil {
		t.Error("a fold is missing")
	}
	broken := errors.New("broken")
	if _, err := CrossValidate(samples, folds, func([]Sample) (*Tree, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestConfusion(t *testing.T) {
	c := Confusion{}
	for _, pair := range [][2]string{{"cpu", "cpu"}, {"cpu", "memory"}, {"cpu", "cpu"}, {"none", "none"}} {
		c.Add(pair[0], pair[1])
	}
	if n, right := c.Of("cpu"); n != 3 || right != 2 {
		t.Errorf("%d of %d", right, n)
	}
	want := "   class  samples  right  as cpu  as memory  as none\n" +
		"     cpu        3      2       2          1        0\n" +
		"  memory        0      0       0          0        0\n" +
		"    none        1      1       0          0        1\n"
	if got := c.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
