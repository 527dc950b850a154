package stats

import (
	"fmt"
	"strings"
)

// Tree is a decision tree. A leaf names a class; any other node tests whether a feature is above a threshold.
type Tree struct {
	Feature   string  // that a node tests, such as connect_ms_p90
	Threshold float64 // in the unit of the feature
	Above     *Tree   // for feature > threshold
	Below     *Tree   // for feature <= threshold

	Class  string // of a leaf
	Count  int    // training samples that reached the leaf; 0 where that is not known
	Errors int    // how many of these are of another class
}

// isLeaf says whether the node names a class.
func (t *Tree) isLeaf() bool { return t.Above == nil && t.Below == nil }

// Leaf returns the leaf that the features lead to. A feature that is missing follows the branch that more training samples took, Below if
// both took as many. The tree must be valid.
func (t *Tree) Leaf(features map[string]float64) *Tree {
	for !t.isLeaf() {
		value, measured := features[t.Feature]
		if above := value > t.Threshold; measured && above || !measured && t.Above.samples() > t.Below.samples() {
			t = t.Above
		} else {
			t = t.Below
		}
	}
	return t
}

// samples is how many training samples reached the node.
func (t *Tree) samples() int {
	if t.isLeaf() {
		return t.Count
	}
	return t.Above.samples() + t.Below.samples()
}

// Leaves returns the number of leaves.
func (t *Tree) Leaves() int {
	if t.isLeaf() {
		return 1
	}
	return t.Above.Leaves() + t.Below.Leaves()
}

// Label is the node in words: the test, or the class with the number of its training samples and how many of them are of another class.
func (t *Tree) Label() string {
	switch {
	case !t.isLeaf():
		return fmt.Sprintf("%s > %.4g", t.Feature, t.Threshold)
	case t.Count == 0:
		return t.Class
	case t.Errors == 0:
		return fmt.Sprintf("%s (%d)", t.Class, t.Count)
	}
	return fmt.Sprintf("%s (%d, %d wrong)", t.Class, t.Count, t.Errors)
}

// String prints the tree, a line for each branch. The leaf of a branch stands behind its test.
func (t *Tree) String() string {
	if t.isLeaf() {
		return t.Label() + "\n"
	}
	var b strings.Builder
	t.print(&b, "")
	return b.String()
}

func (t *Tree) print(b *strings.Builder, indent string) {
	for _, branch := range []struct {
		sign string
		to   *Tree
	}{{">", t.Above}, {"<=", t.Below}} {
		fmt.Fprintf(b, "%s%s %s %.4g", indent, t.Feature, branch.sign, t.Threshold)
		if branch.to.isLeaf() {
			fmt.Fprintf(b, ": %s\n", branch.to.Label())
			continue
		}
		b.WriteByte('\n')
		branch.to.print(b, indent+"|   ")
	}
}
