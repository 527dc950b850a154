package stats

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"
)

// StratifiedFolds assigns each sample to one of k folds, 0 to k-1. Up to block successive samples of a class stay together, because they
// may resemble each other, and a tree must not be tested with samples that resemble those it was fitted to. A block below 1 counts as 1.
// Blocks are smaller if there would be fewer than k of them. In any two folds, the numbers of blocks of a class differ by at most one, and
// so do those of all blocks. The seed decides which block goes into which fold.
func StratifiedFolds(classes []string, k, block int, seed uint64) ([]int, error) {
	set := map[string]bool{}
	for _, c := range classes {
		set[c] = true
	}
	names := slices.Sorted(maps.Keys(set))
	index := make([]int, len(classes))
	for i, c := range classes {
		index[i], _ = slices.BinarySearch(names, c)
	}
	return stratified(index, k, block, seed)
}

func stratified(classes []int, k, block int, seed uint64) ([]int, error) {
	if k < 2 || k > len(classes) {
		return nil, fmt.Errorf("%d folds of %d samples; at least 2 folds, and no more than samples, are needed", k, len(classes))
	}
	blockOf, classOf := blocks(classes, block)
	for ; len(classOf) < k; block /= 2 {
		blockOf, classOf = blocks(classes, block/2)
	}
	order := rand.New(rand.NewPCG(seed, 0)).Perm(len(classOf))
	slices.SortStableFunc(order, func(i, j int) int { return classOf[i] - classOf[j] })
	foldOf := make([]int, len(classOf))
	for at, b := range order {
		foldOf[b] = at % k
	}
	folds := make([]int, len(classes))
	for i, b := range blockOf {
		folds[i] = foldOf[b]
	}
	return folds, nil
}

// blocks cuts samples into blocks of at most size successive ones of the same class. It returns the block of each sample, and the class of
// each block.
func blocks(classes []int, size int) (blockOf, classOf []int) {
	n := 0
	for i, class := range classes {
		if n++; i == 0 || class != classes[i-1] || n > size {
			classOf, n = append(classOf, class), 1
		}
		blockOf = append(blockOf, len(classOf)-1)
	}
	return blockOf, classOf
}

// Confusion counts samples by their class and by the class that was predicted.
type Confusion map[string]map[string]int

// Add counts a sample.
func (c Confusion) Add(class, predicted string) {
	if c[class] == nil {
		c[class] = map[string]int{}
	}
	c[class][predicted]++
}

// Of returns how many samples of a class there are, and how many of them were predicted correctly.
func (c Confusion) Of(class string) (n, right int) {
	for _, k := range c[class] {
		n += k
	}
	return n, c[class][class]
}

// Total returns how many samples there are, and how many of them were predicted correctly.
func (c Confusion) Total() (n, right int) {
	for class := range c {
		k, r := c.Of(class)
		n, right = n+k, right+r
	}
	return n, right
}

// String prints the counts, with a row for each class and a column for each predicted class.
func (c Confusion) String() string {
	set := map[string]bool{}
	for class, row := range c {
		set[class] = true
		for predicted := range row {
			set[predicted] = true
		}
	}
	names := slices.Sorted(maps.Keys(set))
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "class\tsamples\tright\tas %s\t\n", strings.Join(names, "\tas "))
	for _, class := range names {
		n, right := c.Of(class)
		fmt.Fprintf(t, "%s\t%d\t%d\t", class, n, right)
		for _, predicted := range names {
			fmt.Fprintf(t, "%d\t", c[class][predicted])
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	return b.String()
}

// CrossValidate predicts the class of each sample by a tree that fit makes from the samples in the other folds.
func CrossValidate(samples []Sample, folds []int, fit func([]Sample) (*Tree, error)) (Confusion, error) {
	if len(samples) == 0 || len(folds) != len(samples) {
		return nil, fmt.Errorf("%d folds are given for %d samples", len(folds), len(samples))
	}
	c := Confusion{}
	for fold := range slices.Max(folds) + 1 {
		var rest []Sample
		for i, s := range samples {
			if folds[i] != fold {
				rest = append(rest, s)
			}
		}
		tree, err := fit(rest)
		if err != nil {
			return nil, fmt.Errorf("fold %d: %w", fold+1, err)
		}
		for i, s := range samples {
			if folds[i] == fold {
				c.Add(s.Class, tree.Leaf(s.Features).Class)
			}
		}
	}
	return c, nil
}
