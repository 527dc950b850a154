// Package setting declares settings: tables of keys, each with its name, kind, unit, range and meaning. Files are read by such tables,
// strictly, into typed values, and written from them. All mistakes in a file are reported together, each with its place and what to do.
// A Source parses the files: config/yaml.
package setting

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/quellhq/quell"
)

// Decoder reads a file's tree into typed values. It collects every problem and remembers the place of each key, so that
// later checks can name it.
type Decoder struct {
	file   string
	source Source
	path   string // of the value being read, for example timeline[2].interfere.host
	places map[string]Place
	broken map[string]bool // paths that already have a problem
	found  Problems

	elsewhere func(path string) (owners, hint string) // says which other maps have a key that the present one lacks; nil: none do
}

// Value reads a node of the file into its destination.
type Value interface {
	read(d *Decoder, n *Node)
	// initial is the default as written in a file, "" if there is none.
	initial() string
	// node is the present value as written in a file, empty if there is none.
	node() node
	// schema is the value's JSON Schema; the caller may change it.
	schema() object
}

// Table is the table of keys that a map may have.
type Table []Key

// Key is one row of a table.
type Key struct {
	Name     string
	Value    Value
	meaning  string
	Required bool
	standing string // describes the default in words, if a value cannot
	reader   any    // who reads the key and the keys inside it; nil: as for the map around it
}

// Opt is an optional key: if a file lacks it, its destination keeps its value.
func Opt(name string, v Value, meaning string) Key {
	return Key{Name: name, Value: v, meaning: meaning}
}

// Req is a required key.
func Req(name string, v Value, meaning string) Key {
	return Key{Name: name, Value: v, meaning: meaning, Required: true}
}

// Meaning sets the description of the key.
func (k Key) Meaning() string { return k.meaning }

// Or describes a default that depends on something else.
func (k Key) Or(standing string) Key {
	k.standing = standing
	return k
}

// Source is a format of files: it reads and parses them.
type Source interface {
	// Parse returns a file's tree, or reports to the decoder why there is none.
	Parse(d *Decoder, data []byte) (root *Node, ok bool)
	// Read reads a file that a value names.
	Read(path string) ([]byte, error)
}

// ReadBy notes who reads the key and the keys inside it. What that means is up to the caller of Table.Reader.
func (k Key) ReadBy(reader any) Key {
	k.reader = reader
	return k
}

// NewDecoder makes a decoder for the named file, which has the format of the source.
func NewDecoder(file string, source Source) *Decoder {
	return &Decoder{file: file, source: source, places: map[string]Place{}, broken: map[string]bool{}}
}

// Decode reads a whole file by its table of keys. It returns false if nothing could be read; then there is nothing to check
// further.
func (d *Decoder) Decode(data []byte, keys Table) bool {
	root, ok := d.source.Parse(d, data)
	if !ok || !d.usable(root) {
		return false
	}
	d.places[""] = root.Place
	keys.read(d, root)
	return !d.broken[""]
}

// Problems returns all problems, in order.
func (d *Decoder) Problems() Problems {
	d.found.Sort()
	return d.found
}

// Err returns all problems, in order, as one error, or nil if there are none.
func (d *Decoder) Err() error {
	if len(d.found) == 0 {
		return nil
	}
	return &quell.UserError{Err: d.Problems()}
}

// problem reports a problem of the value that is being read.
func (d *Decoder) problem(n *Node, text, hint string) {
	if d.path != "" {
		text = d.path + ": " + text
	}
	d.MarkBroken(d.path)
	d.ProblemAt(n.Place, text, hint)
}

// most is the largest number of problems that are collected.
const most = 1000

// MarkBroken marks a path as having a problem.
func (d *Decoder) MarkBroken(path string) {
	if len(d.broken) < most {
		d.broken[path] = true
	}
}

// ProblemAt reports a problem at a place in the file.
func (d *Decoder) ProblemAt(p Place, text, hint string) {
	if len(d.found) >= most {
		return
	}
	d.found = append(d.found, Problem{File: d.file, Line: p.Line, Column: p.Column, Text: text, Hint: hint})
}

// Refuse reports that the value at a path could be read but is not allowed.
func (d *Decoder) Refuse(path, hint, format string, args ...any) {
	d.MarkBroken(path)
	d.ProblemAt(d.PlaceOf(path), path+": "+fmt.Sprintf(format, args...), hint)
}

// PlaceOf returns where the value of a path is in the file. If the file does not set it, it returns the place of the nearest map or
// list around it.
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

// Broken returns whether a path itself has a problem.
func (d *Decoder) Broken(path string) bool { return d.broken[path] }

// Given returns whether the file sets a path.
func (d *Decoder) Given(path string) bool {
	_, ok := d.places[path]
	return ok
}

// Sound returns whether no problem has been found so far at the paths, inside them or around them. Only then do checks that compare
// them make sense.
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

// Within returns whether a path equals around or lies inside it.
func Within(path, around string) bool {
	rest, ok := strings.CutPrefix(path, around)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// step reads a named part of the value that is being read.
func (d *Decoder) step(name string, n *Node, read func(*Node)) {
	defer func(outer string) { d.path = outer }(d.path)
	d.path = Join(d.path, name)
	d.places[d.path] = n.Place
	if d.usable(n) {
		read(n)
	}
}

// usable returns whether a value can be read. If not, it reports what its parser found.
func (d *Decoder) usable(n *Node) bool {
	if n.Kind == UnusableNode {
		d.problem(n, n.Text, n.Hint)
	}
	return n.Kind != UnusableNode
}

// Join appends a key or an [index] to a path.
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

// Names lists the names of the table's keys.
func (s Table) Names() []string {
	names := make([]string, len(s))
	for i, k := range s {
		names[i] = k.Name
	}
	return names
}

// has returns whether a table has a key, by its path within it.
func (s Table) has(path string) bool {
	name, rest, inside := strings.Cut(path, ".")
	k, known := s.find(name)
	if !known || !inside {
		return known
	}
	inner, ok := k.Value.(Table)
	return ok && inner.has(rest)
}

func (s Table) read(d *Decoder, n *Node) {
	entries, ok := d.entries(n)
	if !ok {
		return
	}
	seen := map[string]Place{}
	var meant []string
	for _, e := range entries {
		name := e.Name
		if e.Problem != "" {
			d.ProblemAt(e.Place, e.Problem, e.Hint)
			continue
		}
		if first, twice := seen[name]; twice {
			d.MarkBroken(Join(d.path, name))
			d.ProblemAt(e.Place, fmt.Sprintf("duplicate key %q, first set on line %d", Shorten(name), first.Line), "")
			continue
		}
		seen[name] = e.Place
		if k, known := s.find(name); known {
			d.step(name, e.Value, func(inner *Node) { k.Value.read(d, inner) })
			continue
		}
		if owners, hint := d.ownersOf(Join(d.path, name)); owners != "" {
			d.ProblemAt(e.Place, fmt.Sprintf("%s is a key of %s only", Join(d.path, name), owners), hint)
			continue
		}
		d.ProblemAt(e.Place, fmt.Sprintf("unknown key %q%s", Shorten(name), Suggest(name, s.Names())), "")
		if near, ok := Nearest(name, s.Names()); ok {
			meant = append(meant, near)
		}
	}
	s.markMeant(d, meant, seen)
	s.missing(d, n, seen)
}

// ownersOf returns which maps have a key that the present map does not have, "" if none, and a hint.
func (d *Decoder) ownersOf(path string) (owners, hint string) {
	if d.elsewhere == nil {
		return "", ""
	}
	return d.elsewhere(path)
}

// markMeant marks keys as broken if a misspelt key was probably meant to be one of them. So these keys are not also reported as missing.
func (s Table) markMeant(d *Decoder, meant []string, seen map[string]Place) {
	for _, name := range meant {
		if _, given := seen[name]; !given {
			d.MarkBroken(Join(d.path, name))
		}
	}
}

func (s Table) missing(d *Decoder, n *Node, seen map[string]Place) {
	for _, k := range s {
		path := Join(d.path, k.Name)
		if _, ok := seen[k.Name]; k.Required && !ok && !d.broken[path] {
			d.ProblemAt(n.Place, path+" is missing", k.meaning)
			d.MarkBroken(path)
		}
	}
}

// entries returns the content of a map.
func (d *Decoder) entries(n *Node) ([]Pair, bool) {
	if n.Kind == MapNode {
		return n.Entries, true
	}
	d.problem(n, "must be a map of keys and values, is "+describe(n), "")
	return nil, false
}

// describe names the type of a node for a message.
func describe(n *Node) string {
	switch n.Kind {
	case MapNode:
		return "a map"
	case ListNode:
		return "a list"
	case BlockNode:
		return "a block of text"
	case TextNode:
		return "the text " + strconv.Quote(Shorten(n.Text))
	case TruthNode:
		return n.Text
	case NotFiniteNode:
		return "not finite"
	}
	return "the number " + Shorten(n.Text)
}

// Shorten cuts a text from the file that a message repeats.
func Shorten(s string) string {
	if len(s) <= 40 {
		return s
	}
	return strings.ToValidUTF8(s[:37], "") + "..."
}
