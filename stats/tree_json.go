package stats

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// deepest limits the number of nodes on the way to a leaf. Trees that people can read have far fewer.
const deepest = 50

// NodeError is a mistake at one node of a tree.
type NodeError struct {
	Path    string // from the root, such as above.below.threshold; empty: the root itself
	Problem string
}

// Error returns the problem with its path.
func (e *NodeError) Error() string {
	if e.Path == "" {
		return e.Problem
	}
	return e.Path + ": " + e.Problem
}

// nodeErrors collects the mistakes of a tree.
type nodeErrors []error

func (n *nodeErrors) addf(path []string, format string, args ...any) {
	*n = append(*n, &NodeError{Path: strings.Join(path, "."), Problem: fmt.Sprintf(format, args...)})
}

// Validate returns an error that joins a *NodeError for each rule that the tree breaks. Every node must be either a leaf or a test with two
// branches. Features and classes must be in the given lists; a nil list permits all. Numbers must be finite. No node may contain itself.
func (t *Tree) Validate(features, classes []string) error {
	v := validation{features: features, classes: classes}
	v.node(t, nil)
	return errors.Join(v.errs...)
}

type validation struct {
	features, classes []string
	above             []*Tree // the nodes on the way from the root
	errs              nodeErrors
}

func (v *validation) node(t *Tree, path []string) {
	switch {
	case slices.Contains(v.above, t):
		v.errs.addf(path, "is a node above itself")
		return
	case len(path) > deepest:
		v.errs.addf(nil, "is deeper than %d nodes", deepest)
		return
	case t.isLeaf():
		v.leaf(t, path)
		return
	}
	if t.Class != "" {
		v.errs.addf(append(path, "class"), "is given to a node with branches; only a leaf has a class")
	}
	v.known(append(path, "feature"), "feature", t.Feature, v.features)
	if math.IsNaN(t.Threshold) || math.IsInf(t.Threshold, 0) {
		v.errs.addf(append(path, "threshold"), "%v is not finite", t.Threshold)
	}
	v.above = append(v.above, t)
	v.branch(t.Above, append(path, "above"))
	v.branch(t.Below, append(path, "below"))
	v.above = v.above[:len(v.above)-1]
}

func (v *validation) branch(t *Tree, path []string) {
	if t == nil {
		v.errs.addf(path, "is missing; a test has the branches above and below")
		return
	}
	v.node(t, path)
}

func (v *validation) leaf(t *Tree, path []string) {
	if t.Feature != "" {
		v.errs.addf(append(path, "feature"), "is given to a leaf; a test has the branches above and below")
	}
	v.known(append(path, "class"), "class", t.Class, v.classes)
	if t.Count < 0 {
		v.errs.addf(append(path, "count"), "%d is below 0", t.Count)
	}
	if t.Errors < 0 || t.Errors > t.Count {
		v.errs.addf(append(path, "errors"), "%d is outside 0 to count, which is %d", t.Errors, t.Count)
	}
}

func (v *validation) known(path []string, what, name string, names []string) {
	switch {
	case name == "":
		v.errs.addf(path, "is missing")
	case names != nil && !slices.Contains(names, name):
		v.errs.addf(path, "unknown %s %q (known: %s)", what, name, strings.Join(names, ", "))
	}
}

// test and leaf are the two kinds of nodes in JSON.
type (
	test struct {
		Feature   string  `json:"feature"`
		Threshold float64 `json:"threshold"`
		Above     any     `json:"above"`
		Below     any     `json:"below"`
	}
	leaf struct {
		Class  string `json:"class"`
		Count  int    `json:"count,omitempty"`
		Errors int    `json:"errors,omitempty"`
	}
)

// MarshalJSON writes a test as {"feature":"iowait","threshold":0.2,"above":{...},"below":{...}}, and a leaf as
// {"class":"disk","count":50,"errors":1}. If the tree breaks a rule, it returns an error.
func (t *Tree) MarshalJSON() ([]byte, error) {
	if err := t.Validate(nil, nil); err != nil {
		return nil, err
	}
	return json.Marshal(t.encode())
}

func (t *Tree) encode() any {
	if t.isLeaf() {
		return leaf{t.Class, t.Count, t.Errors}
	}
	return test{t.Feature, t.Threshold, t.Above.encode(), t.Below.encode()}
}

// UnmarshalJSON reads a tree strictly. The returned error contains a *NodeError for each mistake.
func (t *Tree) UnmarshalJSON(text []byte) error {
	var errs nodeErrors
	read := errs.decode(text, nil)
	if len(errs) == 0 {
		if err := read.Validate(nil, nil); err != nil {
			return err
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	*t = *read
	return nil
}

func (n *nodeErrors) decode(text []byte, path []string) *Tree {
	if len(path) > deepest {
		n.addf(nil, "is deeper than %d nodes", deepest)
		return nil
	}
	t := &Tree{}
	tested := false
	n.fields(text, path, func(name string, value json.RawMessage) {
		at := append(path, name)
		switch name {
		case "feature":
			n.value(at, value, &t.Feature)
		case "threshold":
			tested = true
			n.value(at, value, &t.Threshold)
		case "above":
			t.Above = n.decode(value, at)
		case "below":
			t.Below = n.decode(value, at)
		case "class":
			n.value(at, value, &t.Class)
		case "count":
			n.value(at, value, &t.Count)
		case "errors":
			n.value(at, value, &t.Errors)
		default:
			n.addf(at, "unknown field (known: feature, threshold, above, below; class, count, errors)")
		}
	})
	switch {
	case tested && t.isLeaf():
		n.addf(append(path, "threshold"), "is given to a leaf; a test has the branches above and below")
	case !tested && !t.isLeaf():
		n.addf(append(path, "threshold"), "is missing")
	}
	return t
}

// fields calls visit for each field of an object. A repeated field is a mistake.
func (n *nodeErrors) fields(text []byte, path []string, visit func(name string, value json.RawMessage)) {
	d := json.NewDecoder(bytes.NewReader(text))
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		n.addf(path, "must be an object")
		return
	}
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			n.addf(path, "%v", err)
			return
		}
		name, value := token.(string), json.RawMessage{}
		if err := d.Decode(&value); err != nil {
			n.addf(append(path, name), "%v", err)
			return
		}
		if seen[name] {
			n.addf(append(path, name), "is given twice")
		}
		seen[name] = true
		visit(name, value)
	}
}

// value decodes a field that holds no node.
func (n *nodeErrors) value(path []string, text json.RawMessage, to any) {
	if string(text) == "null" || json.Unmarshal(text, to) != nil {
		n.addf(path, "%s is no %s", text, map[bool]string{true: "string", false: "number"}[isString(to)])
	}
}

func isString(to any) bool { _, ok := to.(*string); return ok }
