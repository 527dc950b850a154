package stats

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"
)

// StratifiedFolds assigns each sample to one of k folds, 0 to k-1. In any two folds, the numbers of samples of a class differ by at most
// one, and so do the sizes of the folds. The seed decides which sample goes into which fold.
func StratifiedFolds(classes []string, k int, seed uint64) ([]int, error) {
	set := map[string]bool{}
	for _, c := range classes {
		set[c] = true
	}
	names := sortedNames(set)
	index := make([]int, len(classes))
	for i, c := range classes {
		index[i], _ = slices.BinarySearch(names, c)
	}
	return stratified(index, k, seed)
}

func stratified(classes []int, k int, seed uint64) ([]int, error) {
	if k < 2 || k > len(classes) {
		return nil, fmt.Errorf("%d folds of %d samples; at least 2 folds, and no more than samples, are needed", k, len(classes))
	}
	order := rand.New(rand.NewPCG(seed, 0)).Perm(len(classes))
	slices.SortStableFunc(order, func(i, j int) int { return classes[i] - classes[j] })
	folds := make([]int, len(classes))
	for at, i := range order {
		folds[i] = at % k
	}
	return folds, nil
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
	names := sortedNames(set)
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
