package setting

import (
	"slices"
	"strings"
)

// Form is one form of a Choice: a value of the choosing key, and the further keys that a map with this value may have.
type Form struct {
	Name string
	Keys Table
}

// Choice is a map in which the value of one key decides which further keys it may have.
type Choice struct {
	by     Key
	common Table                               // keys that every form has
	forms  []Form                              // their keys have the values from before a file is read
	open   func() (keys Table, closing func()) // returns the keys of the chosen form, and a function to call after they were read
}

// ChoiceBy makes a map whose further keys depend on by. forms is used for messages and the reference. open is called once, after
// the key by was read.
func ChoiceBy(by Key, forms []Form, open func() (keys Table, closing func())) *Choice {
	return &Choice{by: by, forms: forms, open: open}
}

// Kind is a driver that a configuration can choose, with its own settings.
type Kind[S interface{ Keys() Table }] struct {
	Name, About string
	Defaults    func() S // makes the settings as they are before a file is read; their Keys write into them
}

// ByKind makes a map in which the key kind chooses a driver, whose settings have the further keys. If there is no kind yet, a file must
// name one. If a file names a driver of the list unsupported, the error says that Quell does not support it.
func ByKind[S interface{ Keys() Table }](kind *string, settings *S, kinds []Kind[S], unsupported ...string) *Choice {
	names, about, forms := make([]string, len(kinds)), make([]string, len(kinds)), make([]Form, len(kinds))
	for i, k := range kinds {
		names[i], about[i], forms[i] = k.Name, k.Name+": "+k.About, Form{k.Name, k.Defaults().Keys()}
	}
	before := *kind
	by := Opt("kind", OneOf(kind, names, unsupported...), strings.Join(about, "; "))
	by.Required = before == ""
	return ChoiceBy(by, forms, func() (Table, func()) {
		if *kind == "" {
			return nil, func() {}
		}
		if *kind != before {
			*settings, before = kinds[slices.Index(names, *kind)].Defaults(), *kind
		}
		return (*settings).Keys(), func() {}
	})
}

// Beside adds keys that the map may have whatever its form.
func (c *Choice) Beside(common ...Key) *Choice {
	c.common = common
	return c
}

func (c *Choice) initial() string { return "" }

func (c *Choice) node() node { return c.now().node() }

func (c *Choice) read(d *Decoder, n *Node) {
	entries, ok := d.entries(n)
	if !ok {
		return
	}
	c.choose(d, entries)
	by := Join(d.path, c.by.Name)
	if c.by.Required && !d.Given(by) {
		d.ProblemAt(n.Place, by+" is missing", c.by.meaning)
		d.MarkBroken(by)
	}
	if d.broken[by] {
		return // it is not known which form the other keys belong to
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

// choose reads the choosing key, wherever it is in the map.
func (c *Choice) choose(d *Decoder, entries []Pair) {
	for _, e := range entries {
		if e.Name == c.by.Name {
			d.step(c.by.Name, e.Value, func(inner *Node) { c.by.Value.read(d, inner) })
			return
		}
	}
}

// whole is the map as a table: the choosing key with its value, the common keys, and the keys of one form.
func (c *Choice) whole(form Table, chooser Value) Table {
	by := c.by
	by.Value = chooser
	return slices.Concat(Table{by}, c.common, form)
}

// done is a value that has already been read.
type done struct{}

func (done) read(*Decoder, *Node) {}
func (done) initial() string      { return "" }
func (done) node() node           { return node{} }

// owners lists the forms that have the key at a path within the map.
func (c *Choice) owners(path string) string {
	var owners []string
	for _, f := range c.forms {
		if f.Keys.has(path) {
			owners = append(owners, f.Name)
		}
	}
	return strings.Join(owners, ", ")
}

// now is the table of the chosen form's keys, with their present values.
func (c *Choice) now() Table {
	keys, _ := c.open()
	return c.whole(keys, c.by.Value)
}

// inside lists, for the reference, the keys of all forms; each key's meaning begins with the forms that have it.
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

// alike returns whether two keys are the same apart from the forms that they belong to.
func (k Key) alike(other Key) bool {
	_, a, _ := strings.Cut(k.meaning, ": ")
	_, b, _ := strings.Cut(other.meaning, ": ")
	return k.Name == other.Name && a == b && k.shown() == other.shown()
}

// short is a map that can also be written as a single value.
type short struct {
	*Choice
	word Value
}

// ShortOr uses word to read a single value, and whole to read a map.
func ShortOr(word Value, whole *Choice) Value { return &short{whole, word} }

func (s *short) read(d *Decoder, n *Node) {
	if isSingle(n) {
		s.word.read(d, n)
		return
	}
	s.Choice.read(d, n)
}
