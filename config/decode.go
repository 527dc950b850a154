package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/quellhq/quell"
)

// decoder walks a file's tree into typed values. It collects every problem and remembers where each key stands, so that
// later checks can point at it.
type decoder struct {
	file   string
	path   string // of the value being read, as in timeline[2].interfere.host
	places map[string]place
	broken map[string]bool // paths that already have a problem
	found  Problems
}

// value reads a node into the place it was made for.
type value interface {
	read(d *decoder, n ast.Node)
	// initial is how the default would be written in a file, "" if there is none.
	initial() string
}

// section is the table of keys that a map may have.
type section []key

// key is one row of a section.
type key struct {
	name     string
	value    value
	meaning  string
	required bool
	standing string // says what the default is, where the value itself cannot
}

func opt(name string, v value, meaning string) key {
	return key{name: name, value: v, meaning: meaning}
}

func req(name string, v value, meaning string) key {
	return key{name: name, value: v, meaning: meaning, required: true}
}

// or describes a default that follows from something else.
func (k key) or(standing string) key {
	k.standing = standing
	return k
}

func newDecoder(file string) *decoder {
	return &decoder{file: file, places: map[string]place{}, broken: map[string]bool{}}
}

// decode reads a whole file by its table of keys. Where it returns false there is nothing to check further.
func (d *decoder) decode(data []byte, keys section) bool {
	root, ok := d.tree(data)
	if !ok {
		return false
	}
	if root, ok = d.plain(root); !ok {
		return false
	}
	d.places[""] = start(root)
	keys.read(d, root)
	return !d.broken[""]
}

// err returns everything found, in order, or nil.
func (d *decoder) err() error {
	if len(d.found) == 0 {
		return nil
	}
	d.found.sort()
	return &quell.UserError{Err: d.found}
}

// problem reports something about the value being read.
func (d *decoder) problem(n ast.Node, text, hint string) {
	if d.path != "" {
		text = d.path + ": " + text
	}
	d.spoil(d.path)
	d.problemAt(start(n), text, hint)
}

// most bounds the problems that are collected.
const most = 1000

// spoil notes that a path has a problem.
func (d *decoder) spoil(path string) {
	if len(d.broken) < most {
		d.broken[path] = true
	}
}

func (d *decoder) problemAt(p place, text, hint string) {
	if len(d.found) >= most {
		return
	}
	d.found = append(d.found, Problem{File: d.file, Line: p.line, Column: p.column, Text: text, Hint: hint})
}

// refuse reports that a value which can be read must not be what it is.
func (d *decoder) refuse(path, hint, format string, args ...any) {
	d.spoil(path)
	d.problemAt(d.placeOf(path), path+": "+fmt.Sprintf(format, args...), hint)
}

// placeOf returns where a path stands in the file, or the nearest part around it.
func (d *decoder) placeOf(path string) place {
	for {
		if p, ok := d.places[path]; ok {
			return p
		}
		if path == "" {
			return place{1, 1}
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
}

// given says whether the file sets a path.
func (d *decoder) given(path string) bool {
	_, ok := d.places[path]
	return ok
}

// sound says whether the paths, all that is inside them and all that is around them are free of problems so far, so that
// a check of what they say together makes sense.
func (d *decoder) sound(paths ...string) bool {
	for _, path := range paths {
		for bad := range d.broken {
			if within(bad, path) || within(path, bad) {
				return false
			}
		}
	}
	return true
}

// within says whether a path is another one or part of it.
func within(path, around string) bool {
	rest, ok := strings.CutPrefix(path, around)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// step reads a part of the value being read.
func (d *decoder) step(name string, n ast.Node, read func(ast.Node)) {
	defer func(outer string) { d.path = outer }(d.path)
	d.path = join(d.path, name)
	d.places[d.path] = start(n)
	if inner, ok := d.plain(n); ok {
		read(inner)
	}
}

func join(path, name string) string {
	if path == "" || strings.HasPrefix(name, "[") {
		return path + name
	}
	return path + "." + name
}

func (s section) initial() string { return "" }

func (s section) find(name string) (key, bool) {
	for _, k := range s {
		if k.name == name {
			return k, true
		}
	}
	return key{}, false
}

func (s section) names() []string {
	names := make([]string, len(s))
	for i, k := range s {
		names[i] = k.name
	}
	return names
}

func (s section) read(d *decoder, n ast.Node) {
	entries, ok := d.entries(n)
	if !ok {
		return
	}
	seen := map[string]place{}
	var meant []string
	for _, e := range entries {
		name, ok := d.keyName(e.Key)
		if !ok {
			continue
		}
		if first, twice := seen[name]; twice {
			d.spoil(join(d.path, name))
			d.problemAt(start(e.Key), fmt.Sprintf("duplicate key %q, first set on line %d", shorten(name), first.line), "")
			continue
		}
		seen[name] = start(e.Key)
		if k, known := s.find(name); known {
			d.step(name, e.Value, func(inner ast.Node) { k.value.read(d, inner) })
			continue
		}
		d.problemAt(start(e.Key), fmt.Sprintf("unknown key %q%s", shorten(name), suggest(name, s.names())), "")
		if near, ok := nearest(name, s.names()); ok {
			meant = append(meant, near)
		}
	}
	s.spoil(d, meant, seen)
	s.missing(d, n, seen)
}

// spoil holds the keys that misspelt ones were probably meant to be for broken, so that they are not missed as well.
func (s section) spoil(d *decoder, meant []string, seen map[string]place) {
	for _, name := range meant {
		if _, given := seen[name]; !given {
			d.spoil(join(d.path, name))
		}
	}
}

func (s section) missing(d *decoder, n ast.Node, seen map[string]place) {
	for _, k := range s {
		path := join(d.path, k.name)
		if _, ok := seen[k.name]; k.required && !ok && !d.broken[path] {
			d.problemAt(start(n), path+" is missing", k.meaning)
			d.spoil(path)
		}
	}
}

// entries returns what a map holds.
func (d *decoder) entries(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	d.problem(n, "must be a map of keys and values, is "+describe(n), "")
	return nil, false
}

func (d *decoder) keyName(k ast.MapKeyNode) (string, bool) {
	switch k := k.(type) {
	case *ast.StringNode:
		return k.Value, true
	case *ast.MergeKeyNode:
		d.problemAt(start(k), "merge keys are not supported", "write the values out here")
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return k.GetToken().Value, true
	default:
		d.problemAt(start(k), "this is no plain key", "keys are single words")
	}
	return "", false
}

// describe names the sort of a node for a message.
func describe(n ast.Node) string {
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a map"
	case *ast.SequenceNode:
		return "a list"
	case *ast.LiteralNode:
		return "a block of text"
	case *ast.StringNode:
		return "the text " + strconv.Quote(shorten(n.Value))
	case *ast.BoolNode:
		return n.GetToken().Value
	case *ast.InfinityNode, *ast.NanNode:
		return "not finite"
	}
	return "the number " + shorten(n.GetToken().Value)
}

// shorten bounds what a message repeats of the file.
func shorten(s string) string {
	if len(s) <= 40 {
		return s
	}
	return strings.ToValidUTF8(s[:37], "") + "..."
}
