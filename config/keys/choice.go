package keys

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Form is one of the forms that a map can have: what the choosing key says then, and the further keys that belong to it.
type Form struct {
	Name string
	Keys Table
}

// Choice is a map in which one key says which further keys there may be.
type Choice struct {
	by     Key
	common Table                               // keys that every form has
	forms  []Form                              // as they are before a file is read
	open   func() (keys Table, closing func()) // the keys of the form that is chosen, and what is to be done when they are read
}

// ChoiceBy makes a map whose further keys hang on by. The forms are for messages and the reference; open is asked once by is read.
func ChoiceBy(by Key, forms []Form, open func() (keys Table, closing func())) *Choice {
	return &Choice{by: by, forms: forms, open: open}
}

// Kind is a driver that a configuration can choose, with settings of its own.
type Kind[S interface{ Keys() Table }] struct {
	Name, About string
	Defaults    func() S // the settings before a file is read; their keys read into them
}

// ByKind makes a map in which the key kind chooses a driver, and with it the settings that hold the further keys. Names that are
// expected and not supported have a message of their own.
func ByKind[S interface{ Keys() Table }](kind *string, settings *S, kinds []Kind[S], unsupported ...string) *Choice {
	names, about, forms := make([]string, len(kinds)), make([]string, len(kinds)), make([]Form, len(kinds))
	for i, k := range kinds {
		names[i], about[i], forms[i] = k.Name, k.Name+": "+k.About, Form{k.Name, k.Defaults().Keys()}
	}
	before := *kind
	return ChoiceBy(Opt("kind", OneOf(kind, names, unsupported...), strings.Join(about, "; ")), forms, func() (Table, func()) {
		if *kind != before {
			*settings, before = kinds[slices.Index(names, *kind)].Defaults(), *kind
		}
		return (*settings).Keys(), func() {}
	})
}

// Beside adds keys that every form has.
func (c *Choice) Beside(common ...Key) *Choice {
	c.common = common
	return c
}

func (c *Choice) initial() string { return "" }

func (c *Choice) node() node { return c.now().node() }

func (c *Choice) read(d *Decoder, n ast.Node) {
	entries, ok := d.entries(n)
	if !ok {
		return
	}
	c.choose(d, entries)
	if d.broken[Join(d.path, c.by.Name)] {
		return // whose the other keys are cannot be told
	}
	defer func(outer func(string) (string, string)) { d.elsewhere = outer }(d.elsewhere)
	at := d.path
	d.elsewhere = func(path string) (owners, hint string) {
		return c.owners(strings.TrimPrefix(strings.TrimPrefix(path, at), ".")), "remove it or change " + Join(at, c.by.Name)
	}
	keys, closing := c.open()
	c.whole(keys, done{}).read(d, n)
	closing()
}

// choose reads the key that chooses, wherever it stands.
func (c *Choice) choose(d *Decoder, entries []*ast.MappingValueNode) {
	for _, e := range entries {
		if name, ok := e.Key.(*ast.StringNode); ok && name.Value == c.by.Name {
			d.step(c.by.Name, e.Value, func(inner ast.Node) { c.by.Value.read(d, inner) })
			return
		}
	}
}

// whole is the map as a table: the choosing key with its value, those that all forms have, and those of one.
func (c *Choice) whole(form Table, chooser Value) Table {
	by := c.by
	by.Value = chooser
	return slices.Concat(Table{by}, c.common, form)
}

// done is a value that has been read.
type done struct{}

func (done) read(*Decoder, ast.Node) {}
func (done) initial() string         { return "" }
func (done) node() node              { return node{} }

// owners lists the forms that have a key, by its path within the map.
func (c *Choice) owners(path string) string {
	var owners []string
	for _, f := range c.forms {
		if f.Keys.has(path) {
			owners = append(owners, f.Name)
		}
	}
	return strings.Join(owners, ", ")
}

// now is the map as a table, in the form that is chosen.
func (c *Choice) now() Table {
	keys, _ := c.open()
	return c.whole(keys, c.by.Value)
}

// inside lists the keys of all forms for the reference, each with the forms that have it.
func (c *Choice) inside() (Table, string) {
	all := slices.Concat(Table{c.by}, c.common)
	for _, f := range c.forms {
		for _, k := range f.Keys {
			k.meaning = f.Name + ": " + k.meaning
			if i := slices.IndexFunc(all, func(other Key) bool { return other.alike(k) }); i >= 0 {
				all[i].meaning = f.Name + ", " + all[i].meaning
				continue
			}
			all = append(all, k)
		}
	}
	return all, "."
}

// alike says whether two keys differ in their forms alone.
func (k Key) alike(other Key) bool {
	_, a, _ := strings.Cut(k.meaning, ": ")
	_, b, _ := strings.Cut(other.meaning, ": ")
	return k.Name == other.Name && a == b && k.shown() == other.shown()
}

// short is a map for which a single value may stand.
type short struct {
	*Choice
	word Value
}

// ShortOr reads a single value by word, and a map by whole.
func ShortOr(word Value, whole *Choice) Value { return &short{whole, word} }

func (s *short) read(d *Decoder, n ast.Node) {
	if isSingle(n) {
		s.word.read(d, n)
		return
	}
	s.Choice.read(d, n)
}
