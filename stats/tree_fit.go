package stats

import (
	"errors"
	"fmt"
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
	// GainRatio takes the test with the largest information gain per bit of the split, among those with at least the average gain (C4.5;
	// Quinlan 1993, section 2.2). The gain is less what it costs to say which of the possible thresholds was taken (Quinlan 1996).
	GainRatio
)

// TreeOptions say how a tree is fitted.
type TreeOptions struct {
	Criterion Criterion
	MinLeaf   int    // samples that each branch of a test must have at least; less than 1 counts as 1
	Folds     int    // of the cross-validation that chooses the pruning
	Seed      uint64 // of its folds
}

// ErrNoSamples is the error of a fit to nothing.
var ErrNoSamples = errors.New("no samples")

// FitTree grows a tree and prunes it by cost and complexity (Breiman et al. 1984, chapter 3): of the prunings whose cross-validated error
// is within a standard error of the least, it takes the smallest tree. A test both of whose branches name one class is dropped. With fewer
// than two folds nothing is pruned. Features that are not finite are an error.
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
	values   [][]float64 // of a feature, by sample; NaN: not measured
	class    []int       // of a sample, as an index
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
	d.classes, d.features = sortedNames(classes), sortedNames(features)
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

func sortedNames(set map[string]bool) []string {
	names := make([]string, 0, len(set))
	for name := range set {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
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
	cost         float64 // its share of all samples times its impurity
	split        split
	above, below *branch // nil: a leaf
	// prunedAt is the least cost of a leaf at which the node becomes one (Breiman's alpha)
	prunedAt float64
}

// split is a test of a node.
type split struct {
	feature   int
	threshold float64
	gain      float64 // of purity; for GainRatio in bits, less the cost of the threshold
	ratio     float64 // GainRatio: gain per bit of the split
}

// grow splits samples until they are of one class, or no test leaves enough of them on either side.
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

// divide sends samples to the branches of a test. Those without the feature follow the larger one.
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

// best finds the test of a node; the first of equally good ones.
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

// tiny is how far gains may be apart by rounding.
const tiny = 1e-12

func (s split) score(c Criterion) float64 {
	if c == GainRatio {
		return s.ratio
	}
	return s.gain
}

// bestOf finds the threshold of a feature that gains most. Thresholds lie midway between values. Samples without the feature gain nothing.
func (d *table) bestOf(feature int, rows []int, o TreeOptions) (best split, found bool) {
	values := d.values[feature]
	known := slices.DeleteFunc(slices.Clone(rows), func(i int) bool { return math.IsNaN(values[i]) })
	slices.SortStableFunc(known, func(i, j int) int { return compare(values[i], values[j]) })
	n, least := len(known), max(o.MinLeaf, 1)
	above, below := d.count(known), make([]int, len(d.classes))
	whole := o.Criterion.impurity(above, n)
	thresholds, at := 0, 0 // that are possible; samples below the best one
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

// between is midway between two values, a below b; b itself would belong to the wrong side.
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

// impurity of n samples is 0 if all are of one class.
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

// entropy of n samples by their counts, in bits.
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
