package stats

import (
	"math"
	"slices"
)

func (b *branch) isLeaf() bool { return b.above == nil }

// leafAt returns whether the node is a leaf after the tree is pruned with alpha.
func (b *branch) leafAt(alpha float64) bool { return b.isLeaf() || b.prunedAt <= alpha }

// weakestLinks sets prunedAt of every node. It repeatedly prunes the nodes whose branches lower the cost least per leaf that they add
// (Breiman et al. 1984, section 3.3).
func (b *branch) weakestLinks() {
	for alpha := 0.0; !b.leafAt(alpha); {
		least := math.Inf(1)
		b.visit(alpha, func(_ *branch, link float64) { least = min(least, link) })
		alpha = max(alpha, least)
		b.visit(alpha, func(node *branch, link float64) {
			if link <= least {
				node.prunedAt = alpha
			}
		})
	}
}

// visit calls look for each test that remains in the tree pruned with alpha. link is the cost that the branches of the test save per leaf
// that they add. visit returns the cost and the number of leaves of the pruned tree.
func (b *branch) visit(alpha float64, look func(node *branch, link float64)) (cost float64, leaves int) {
	if b.leafAt(alpha) {
		return b.cost, 1
	}
	aboveCost, aboveLeaves := b.above.visit(alpha, look)
	belowCost, belowLeaves := b.below.visit(alpha, look)
	cost, leaves = aboveCost+belowCost, aboveLeaves+belowLeaves
	look(b, max(b.cost-cost, 0)/float64(leaves-1))
	return cost, leaves
}

// pruning is one of the steps from the full tree to a tree that is only the root.
type pruning struct {
	alpha  float64
	cost   float64
	leaves int
}

// path returns all trees that pruning gives, the largest first.
func (b *branch) path() []pruning {
	alphas := []float64{0}
	b.visit(-1, func(node *branch, _ float64) { alphas = append(alphas, node.prunedAt) })
	slices.Sort(alphas)
	var steps []pruning
	for _, alpha := range slices.Compact(alphas) {
		cost, leaves := b.visit(alpha, func(*branch, float64) {})
		steps = append(steps, pruning{alpha, cost, leaves})
	}
	return steps
}

// choosePruning returns the largest alpha whose cross-validated error is within one standard error of the least (Breiman et al. 1984,
// section 3.4.3). Candidates lie between the steps of the path, at geometric means.
func (d *table) choosePruning(grown *branch, o TreeOptions) (float64, error) {
	folds, err := stratified(d.class, o.Folds, o.Block, o.Seed)
	if err != nil {
		return 0, err
	}
	steps := grown.path()
	alphas := make([]float64, len(steps))
	for i := range steps {
		if alphas[i] = steps[i].alpha; i+1 < len(steps) {
			alphas[i] = math.Sqrt(steps[i].alpha * steps[i+1].alpha)
		}
	}
	wrong := d.crossErrors(folds, alphas, o)
	n := float64(len(d.class))
	share := float64(slices.Min(wrong)) / n
	within := float64(slices.Min(wrong)) + math.Sqrt(n*share*(1-share))
	for i, alpha := range slices.Backward(alphas) {
		if float64(wrong[i]) <= within {
			return alpha, nil
		}
	}
	return 0, nil
}

// crossErrors counts for each alpha the samples that a tree fitted to the other folds classifies wrongly.
func (d *table) crossErrors(folds []int, alphas []float64, o TreeOptions) []int {
	wrong := make([]int, len(alphas))
	for fold := range slices.Max(folds) + 1 {
		var rest, held []int
		for i, f := range folds {
			if f == fold {
				held = append(held, i)
			} else {
				rest = append(rest, i)
			}
		}
		grown := d.grow(rest, o)
		for a, alpha := range alphas {
			for _, i := range held {
				if d.predict(grown, i, alpha) != d.class[i] {
					wrong[a]++
				}
			}
		}
	}
	return wrong
}

// predict returns the class of a sample by the pruned tree. It is what Tree.Leaf does with names.
func (d *table) predict(b *branch, sample int, alpha float64) int {
	for !b.leafAt(alpha) {
		v := d.values[b.split.feature][sample]
		if math.IsNaN(v) && b.above.samples() > b.below.samples() || v > b.split.threshold {
			b = b.above
		} else {
			b = b.below
		}
	}
	return b.majority()
}

func (b *branch) samples() (n int) {
	for _, k := range b.counts {
		n += k
	}
	return n
}

// majority returns the class with the most samples. Of classes with equally many it returns the first.
func (b *branch) majority() int {
	best := 0
	for class, k := range b.counts {
		if k > b.counts[best] {
			best = class
		}
	}
	return best
}

// tree turns a pruned branch into a Tree.
func (d *table) tree(b *branch, alpha float64) *Tree {
	if b.leafAt(alpha) {
		class, n := b.majority(), b.samples()
		return &Tree{Class: d.classes[class], Count: n, Errors: n - b.counts[class]}
	}
	return &Tree{
		Feature: d.features[b.split.feature], Threshold: b.split.threshold,
		Above: d.tree(b.above, alpha), Below: d.tree(b.below, alpha),
	}
}

// merged replaces each test whose two branches name the same class by a leaf.
func (t *Tree) merged() *Tree {
	if t.isLeaf() {
		return t
	}
	t.Above, t.Below = t.Above.merged(), t.Below.merged()
	if a, b := t.Above, t.Below; a.isLeaf() && b.isLeaf() && a.Class == b.Class {
		return &Tree{Class: a.Class, Count: a.Count + b.Count, Errors: a.Errors + b.Errors}
	}
	return t
}
