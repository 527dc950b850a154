package stats

import (
	"fmt"
	"strings"
)

// Tree is a decision tree. A leaf names a class; any other node tests whether a feature is above a threshold.
type Tree struct {
	Feature   string  // the feature that a node tests, such as connect_ms_p90
	Threshold float64 // in the unit of the feature
	Above     *Tree   // for feature > threshold
	Below     *Tree   // for feature <= threshold

	Class  string // the class that a leaf names
	Count  int    // training samples that reached the leaf; 0 if that is not known
	Errors int    // how many of these samples have another class
}

// isLeaf returns whether the node is a leaf, which names a class.
func (t *Tree) isLeaf() bool { return t.Above == nil && t.Below == nil }

// Leaf returns the leaf that the features lead to. If a feature is missing, it follows the branch that more training samples took, or Below
// if both branches have as many. The tree must be valid.
func (t *Tree) Leaf(features map[string]float64) *Tree {
	path := t.Path(features)
	return path[len(path)-1]
}

// Path returns the nodes that the features lead through, from the root to the leaf; see Leaf.
func (t *Tree) Path(features map[string]float64) []*Tree {
	path := []*Tree{t}
	for !t.isLeaf() {
		value, measured := features[t.Feature]
		if above := value > t.Threshold; measured && above || !measured && t.Above.samples() > t.Below.samples() {
			t = t.Above
		} else {
			t = t.Below
		}
		path = append(path, t)
	}
	return path
}

// samples returns how many training samples reached the node.
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

// Label describes the node: its test, or its class with the number of training samples and how many of them have another class.
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

// String prints the tree with a line for each branch. If a branch ends in a leaf, the leaf stands in the same line.
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
