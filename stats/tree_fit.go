package stats

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Sample is one example that a tree is fitted to. A feature that was not measured is absent.
type Sample struct {
	Features map[string]float64
	Class    string
}

// Criterion chooses the test of a node.
type Criterion int

const (
	// Gini takes the test that lowers the Gini impurity most (CART; Breiman et al. 1984, section 4.3).
	Gini Criterion = iota
	// GainRatio takes, of the tests with at least the average information gain, the one with the largest gain per bit of the split (C4.5;
	// Quinlan 1993, section 2.2). The bits that name one of the possible thresholds are subtracted from the gain (Quinlan 1996).
	GainRatio
)

// TreeOptions say how a tree is fitted.
type TreeOptions struct {
	Criterion Criterion
	MinLeaf   int    // samples that each branch of a test must have at least; less than 1 counts as 1
	Folds     int    // folds of the cross-validation that chooses the pruning
	Block     int    // successive samples that stay together in a fold, as in StratifiedFolds
	Seed      uint64 // seed of the assignment of samples to folds
}

// ErrNoSamples is the error of FitTree if there are no samples.
var ErrNoSamples = errors.New("no samples")

// FitTree grows a tree and prunes it by cost and complexity (Breiman et al. 1984, chapter 3). Of the pruned trees whose cross-validated
// error is within one standard error of the least, it takes the smallest. A test whose two branches name the same class is dropped. If
// there are fewer than two folds, nothing is pruned. Features that are not finite are an error.
func FitTree(samples []Sample, o TreeOptions) (*Tree, error) {
	d, err := newTable(samples)
	if err != nil {
		return nil, err
	}
	grown := d.grow(d.all(), o)
	alpha := 0.0
	if o.Folds > 1 {
		if alpha, err = d.choosePruning(grown, o); err != nil {
			return nil, err
		}
	}
	return d.tree(grown, alpha).merged(), nil
}

// table holds samples by feature.
type table struct {
	features []string
	classes  []string
	values   [][]float64 // by feature and sample; NaN: not measured
	class    []int       // class of each sample, as an index
}

func newTable(samples []Sample) (*table, error) {
	if len(samples) == 0 {
		return nil, ErrNoSamples
	}
	d := &table{class: make([]int, len(samples))}
	classes, features := map[string]bool{}, map[string]bool{}
	for i, s := range samples {
		if s.Class == "" {
			return nil, fmt.Errorf("sample %d has no class", i+1)
		}
		classes[s.Class] = true
		for name, v := range s.Features {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, fmt.Errorf("sample %d: %s is %v; leave out what was not measured", i+1, name, v)
			}
			features[name] = true
		}
	}
	d.classes, d.features = slices.Sorted(maps.Keys(classes)), slices.Sorted(maps.Keys(features))
	for i, s := range samples {
		d.class[i], _ = slices.BinarySearch(d.classes, s.Class)
	}
	for _, name := range d.features {
		column := make([]float64, len(samples))
		for i, s := range samples {
			v, measured := s.Features[name]
			if column[i] = v; !measured {
				column[i] = math.NaN()
			}
		}
		d.values = append(d.values, column)
	}
	return d, nil
}

// all lists every sample.
func (d *table) all() []int {
	rows := make([]int, len(d.class))
	for i := range rows {
		rows[i] = i
	}
	return rows
}

// count returns how many of the samples are of each class.
func (d *table) count(rows []int) []int {
	counts := make([]int, len(d.classes))
	for _, i := range rows {
		counts[d.class[i]]++
	}
	return counts
}

// branch is a node of a tree that has been grown, with all that pruning needs to know.
type branch struct {
	counts       []int   // training samples by class
	cost         float64 // the node's share of all samples times its impurity
	split        split
	above, below *branch // nil: a leaf
	// prunedAt is Breiman's alpha: the least cost per leaf at which pruning turns the node into a leaf.
	prunedAt float64
}

// split is a test of a node.
type split struct {
	feature   int
	threshold float64
	gain      float64 // how much the test lowers impurity; for GainRatio in bits, less the cost of the threshold
	ratio     float64 // GainRatio: gain per bit of the split
}

// grow splits samples until all are of one class, or every test would leave too few on one side.
func (d *table) grow(rows []int, o TreeOptions) *branch {
	b := d.growBelow(rows, o, float64(len(rows)), 0)
	b.weakestLinks()
	return b
}

func (d *table) growBelow(rows []int, o TreeOptions, total float64, depth int) *branch {
	counts := d.count(rows)
	b := &branch{counts: counts, cost: float64(len(rows)) / total * o.Criterion.impurity(counts, len(rows)), prunedAt: math.Inf(1)}
	if b.cost == 0 || depth == deepest {
		return b
	}
	best, ok := d.best(rows, o)
	if !ok {
		return b
	}
	above, below := d.divide(rows, best)
	b.split = best
	b.above, b.below = d.growBelow(above, o, total, depth+1), d.growBelow(below, o, total, depth+1)
	return b
}

// divide sends samples to the branches of a test. Samples without the feature follow the larger branch.
func (d *table) divide(rows []int, s split) (above, below []int) {
	var unknown []int
	for _, i := range rows {
		switch v := d.values[s.feature][i]; {
		case math.IsNaN(v):
			unknown = append(unknown, i)
		case v > s.threshold:
			above = append(above, i)
		default:
			below = append(below, i)
		}
	}
	if len(above) > len(below) {
		return append(above, unknown...), below
	}
	return above, append(below, unknown...)
}

// best finds the best test of a node. Of equally good tests it takes the first.
func (d *table) best(rows []int, o TreeOptions) (best split, found bool) {
	var candidates []split
	var gains float64
	for feature := range d.features {
		if s, ok := d.bestOf(feature, rows, o); ok {
			candidates = append(candidates, s)
			gains += s.gain
		}
	}
	least := math.Inf(-1)
	if o.Criterion == GainRatio {
		least = gains/float64(len(candidates)) - tiny
	}
	for _, s := range candidates {
		if s.gain >= least && (!found || s.score(o.Criterion) > best.score(o.Criterion)+tiny) {
			best, found = s, true
		}
	}
	return best, found
}

// tiny is how much gains may differ because of rounding.
const tiny = 1e-12

func (s split) score(c Criterion) float64 {
	if c == GainRatio {
		return s.ratio
	}
	return s.gain
}

// bestOf finds the threshold of a feature with the largest gain. Thresholds lie midway between two values. Samples without the feature add
// nothing to the gain.
func (d *table) bestOf(feature int, rows []int, o TreeOptions) (best split, found bool) {
	values := d.values[feature]
	known := slices.DeleteFunc(slices.Clone(rows), func(i int) bool { return math.IsNaN(values[i]) })
	slices.SortStableFunc(known, func(i, j int) int { return compare(values[i], values[j]) })
	n, least := len(known), max(o.MinLeaf, 1)
	above, below := d.count(known), make([]int, len(d.classes))
	whole := o.Criterion.impurity(above, n)
	thresholds, at := 0, 0 // number of possible thresholds; number of samples below the best one
	for k := 1; k < n; k++ {
		class := d.class[known[k-1]]
		above[class]--
		below[class]++
		if values[known[k-1]] == values[known[k]] || k < least || n-k < least {
			continue
		}
		thresholds++
		left := (float64(k)*o.Criterion.impurity(below, k) + float64(n-k)*o.Criterion.impurity(above, n-k)) / float64(n)
		if gain := whole - left; !found || gain > best.gain+tiny {
			best, found, at = split{feature, between(values[known[k-1]], values[known[k]]), gain, 0}, true, k
		}
	}
	if !found {
		return best, false
	}
	best.gain *= float64(n) / float64(len(rows))
	if o.Criterion == GainRatio {
		best.gain -= math.Log2(float64(thresholds)) / float64(len(rows))
		best.ratio = best.gain / entropy([]int{at, n - at, len(rows) - n}, len(rows))
		return best, best.gain > tiny
	}
	return best, true
}

// between returns a threshold midway between a and b, where a < b. It is never b itself, because b would then be on the wrong side.
func between(a, b float64) float64 {
	if middle := a/2 + b/2; middle < b {
		return middle
	}
	return a
}

func compare(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// impurity returns the impurity of n samples, which is 0 if all are of one class.
func (c Criterion) impurity(counts []int, n int) float64 {
	if c == GainRatio {
		return entropy(counts, n)
	}
	impurity := 1.0
	for _, k := range counts {
		share := float64(k) / float64(n)
		impurity -= share * share
	}
	return max(impurity, 0)
}

// entropy returns the entropy of n samples in bits, from the number of samples of each class.
func entropy(counts []int, n int) float64 {
	var bits float64
	for _, k := range counts {
		if k > 0 {
			share := float64(k) / float64(n)
			bits -= share * math.Log2(share)
		}
	}
	return bits
}
