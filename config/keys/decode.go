// Package keys reads YAML files by tables of keys, strictly, into typed values. A table says which keys a map may hold,
// how their values are written, and what they mean. A file with mistakes gives all of them at once, each with its place
// and what to do.
package keys

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/quellhq/quell"
)

// Decoder walks a file's tree into typed values. It collects every problem and remembers where each key stands, so that
// later checks can point at it.
type Decoder struct {
	file   string
	path   string // of the value being read, as in timeline[2].interfere.host
	places map[string]Place
	broken map[string]bool // paths that already have a problem
	found  Problems

	elsewhere func(path string) (owners, hint string) // who has a key that the map being read does not have; nil: nobody
}

// Value reads a node into the place it was made for.
type Value interface {
	read(d *Decoder, n ast.Node)
	// initial is how the default would be written in a file, "" if there is none.
	initial() string
	// node is how the value as it is now would be written, empty if there is none.
	node() node
}

// Table is the table of keys that a map may have.
type Table []Key

// Key is one row of a section.
type Key struct {
	Name     string
	Value    Value
	meaning  string
	Required bool
	standing string // says what the default is, where the value itself cannot
}

// Opt is a key that may be left out: then its value stays as it is.
func Opt(name string, v Value, meaning string) Key {
	return Key{Name: name, Value: v, meaning: meaning}
}

// Req is a key that must be given.
func Req(name string, v Value, meaning string) Key {
	return Key{Name: name, Value: v, meaning: meaning, Required: true}
}

// Meaning says what the key is for.
func (k Key) Meaning() string { return k.meaning }

// Or describes a default that follows from something else.
func (k Key) Or(standing string) Key {
	k.standing = standing
	return k
}

// NewDecoder makes a decoder of the named file.
func NewDecoder(file string) *Decoder {
	return &Decoder{file: file, places: map[string]Place{}, broken: map[string]bool{}}
}

// Decode reads a whole file by its table of keys. Where it returns false there is nothing to check further.
func (d *Decoder) Decode(data []byte, keys Table) bool {
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

// Problems returns everything found, in order.
func (d *Decoder) Problems() Problems {
	d.found.Sort()
	return d.found
}

// Err returns everything found, in order, or nil.
func (d *Decoder) Err() error {
	if len(d.found) == 0 {
		return nil
	}
	return &quell.UserError{Err: d.Problems()}
}

// problem reports something about the value being read.
func (d *Decoder) problem(n ast.Node, text, hint string) {
	if d.path != "" {
		text = d.path + ": " + text
	}
	d.Spoil(d.path)
	d.ProblemAt(start(n), text, hint)
}

// most bounds the problems that are collected.
const most = 1000

// Spoil notes that a path has a problem.
func (d *Decoder) Spoil(path string) {
	if len(d.broken) < most {
		d.broken[path] = true
	}
}

// ProblemAt reports something at a place of the file.
func (d *Decoder) ProblemAt(p Place, text, hint string) {
	if len(d.found) >= most {
		return
	}
	d.found = append(d.found, Problem{File: d.file, Line: p.Line, Column: p.Column, Text: text, Hint: hint})
}

// Refuse reports that a value which can be read must not be what it is.
func (d *Decoder) Refuse(path, hint, format string, args ...any) {
	d.Spoil(path)
	d.ProblemAt(d.PlaceOf(path), path+": "+fmt.Sprintf(format, args...), hint)
}

// PlaceOf returns where a path stands in the file, or the nearest part around it.
func (d *Decoder) PlaceOf(path string) Place {
	for {
		if p, ok := d.places[path]; ok {
			return p
		}
		if path == "" {
			return Place{1, 1}
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
}

// Broken says whether a path itself has a problem.
func (d *Decoder) Broken(path string) bool { return d.broken[path] }

// Given says whether the file sets a path.
func (d *Decoder) Given(path string) bool {
	_, ok := d.places[path]
	return ok
}

// Sound says whether the paths, all that is inside them and all that is around them are free of problems so far, so that
// a check of what they say together makes sense.
func (d *Decoder) Sound(paths ...string) bool {
	for _, path := range paths {
		for bad := range d.broken {
			if Within(bad, path) || Within(path, bad) {
				return false
			}
		}
	}
	return true
}

// Within says whether a path is another one or part of it.
func Within(path, around string) bool {
	rest, ok := strings.CutPrefix(path, around)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// step reads a part of the value being read.
func (d *Decoder) step(name string, n ast.Node, read func(ast.Node)) {
	defer func(outer string) { d.path = outer }(d.path)
	d.path = Join(d.path, name)
	d.places[d.path] = start(n)
	if inner, ok := d.plain(n); ok {
		read(inner)
	}
}

// Join extends a path by a key or by an [index].
func Join(path, name string) string {
	if path == "" || strings.HasPrefix(name, "[") {
		return path + name
	}
	return path + "." + name
}

func (s Table) initial() string { return "" }

func (s Table) find(name string) (Key, bool) {
	for _, k := range s {
		if k.Name == name {
			return k, true
		}
	}
	return Key{}, false
}

// Names lists the keys.
func (s Table) Names() []string {
	names := make([]string, len(s))
	for i, k := range s {
		names[i] = k.Name
	}
	return names
}

// has says whether a table holds a key, by its path within it.
func (s Table) has(path string) bool {
	name, rest, inside := strings.Cut(path, ".")
	k, known := s.find(name)
	if !known || !inside {
		return known
	}
	inner, ok := k.Value.(Table)
	return ok && inner.has(rest)
}

func (s Table) read(d *Decoder, n ast.Node) {
	entries, ok := d.entries(n)
	if !ok {
		return
	}
	seen := map[string]Place{}
	var meant []string
	for _, e := range entries {
		name, ok := d.keyName(e.Key)
		if !ok {
			continue
		}
		if first, twice := seen[name]; twice {
			d.Spoil(Join(d.path, name))
			d.ProblemAt(start(e.Key), fmt.Sprintf("duplicate key %q, first set on line %d", Shorten(name), first.Line), "")
			continue
		}
		seen[name] = start(e.Key)
		if k, known := s.find(name); known {
			d.step(name, e.Value, func(inner ast.Node) { k.Value.read(d, inner) })
			continue
		}
		if owners, hint := d.ownersOf(Join(d.path, name)); owners != "" {
			d.ProblemAt(start(e.Key), fmt.Sprintf("%s is a key of %s only", Join(d.path, name), owners), hint)
			continue
		}
		d.ProblemAt(start(e.Key), fmt.Sprintf("unknown key %q%s", Shorten(name), Suggest(name, s.Names())), "")
		if near, ok := Nearest(name, s.Names()); ok {
			meant = append(meant, near)
		}
	}
	s.spoil(d, meant, seen)
	s.missing(d, n, seen)
}

// ownersOf lists who has a key that the map being read does not have, "" if nobody, and says what to do.
func (d *Decoder) ownersOf(path string) (owners, hint string) {
	if d.elsewhere == nil {
		return "", ""
	}
	return d.elsewhere(path)
}

// spoil holds the keys that misspelt ones were probably meant to be for broken, so that they are not missed as well.
func (s Table) spoil(d *Decoder, meant []string, seen map[string]Place) {
	for _, name := range meant {
		if _, given := seen[name]; !given {
			d.Spoil(Join(d.path, name))
		}
	}
}

func (s Table) missing(d *Decoder, n ast.Node, seen map[string]Place) {
	for _, k := range s {
		path := Join(d.path, k.Name)
		if _, ok := seen[k.Name]; k.Required && !ok && !d.broken[path] {
			d.ProblemAt(start(n), path+" is missing", k.meaning)
			d.Spoil(path)
		}
	}
}

// entries returns what a map holds.
func (d *Decoder) entries(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	d.problem(n, "must be a map of keys and values, is "+describe(n), "")
	return nil, false
}

func (d *Decoder) keyName(k ast.MapKeyNode) (string, bool) {
	switch k := k.(type) {
	case *ast.StringNode:
		return k.Value, true
	case *ast.MergeKeyNode:
		d.ProblemAt(start(k), "merge keys are not supported", "write the values out here")
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return k.GetToken().Value, true
	default:
		d.ProblemAt(start(k), "this is no plain key", "keys are single words")
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
		return "the text " + strconv.Quote(Shorten(n.Value))
	case *ast.BoolNode:
		return n.GetToken().Value
	case *ast.InfinityNode, *ast.NanNode:
		return "not finite"
	}
	return "the number " + Shorten(n.GetToken().Value)
}

// Shorten bounds what a message repeats of the file.
func Shorten(s string) string {
	if len(s) <= 40 {
		return s
	}
	return strings.ToValidUTF8(s[:37], "") + "..."
}
