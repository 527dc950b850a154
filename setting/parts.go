package setting

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
)

// Optional is a map of keys that a file may lack. If it lacks the map, the destination stays nil.
type Optional[T any] struct {
	Table // for the reference
	dst   **T
	keys  func(*T) Table
	agree func(d *Decoder, path string)
}

// Maybe reads a map of keys that a file may lack. If it lacks the map, dst stays nil.
func Maybe[T any](dst **T, keys func(*T) Table) *Optional[T] {
	return &Optional[T]{Table: keys(new(T)), dst: dst, keys: keys}
}

// Then adds a check that compares keys of the map; path is the map's path in the file.
func (o *Optional[T]) Then(agree func(d *Decoder, path string)) *Optional[T] {
	o.agree = agree
	return o
}

func (o *Optional[T]) read(d *Decoder, n *Node) {
	*o.dst = new(T)
	o.keys(*o.dst).read(d, n)
	if o.agree != nil {
		o.agree(d, d.path)
	}
}

// pointer is a value that a file may lack. If it lacks the value, the destination stays nil.
type pointer[T any] struct {
	dst   **T
	value func(*T) Value
}

// Pointer reads a value that a file may lack. If it lacks the value, dst stays nil. The function value makes the reader.
func Pointer[T any](dst **T, value func(*T) Value) Value { return &pointer[T]{dst, value} }

func (p *pointer[T]) read(d *Decoder, n *Node) {
	v := new(T)
	p.value(v).read(d, n)
	if !d.broken[d.path] {
		*p.dst = v
	}
}

func (p *pointer[T]) initial() string { return "" }

func (p *pointer[T]) current() string {
	if *p.dst == nil {
		return ""
	}
	return p.value(*p.dst).initial()
}

func (p *pointer[T]) node() node {
	if *p.dst == nil {
		return node{}
	}
	return p.value(*p.dst).node()
}

// named is a value that is read from another file. The configuration names that file by its path, absolute or relative to the
// configuration's folder.
type named[T any] struct {
	dst   *T
	what  string
	parse func(d *Decoder, data []byte) (T, error)
}

// FileOf reads another file, whose path the value is, with the function parse; the text what names its content in messages.
func FileOf[T any](dst *T, what string, parse func(io.Reader) (T, error)) Value {
	return &named[T]{dst, what, func(_ *Decoder, data []byte) (T, error) { return parse(bytes.NewReader(data)) }}
}

// TableOf reads another file of the same format, whose path the value is; the text what names its content in messages. The decoder
// that parse gets calls the file by the name alias.
func TableOf[T any](dst *T, what, alias string, parse func(d *Decoder, data []byte) (T, error)) Value {
	return &named[T]{dst, what, func(d *Decoder, data []byte) (T, error) { return parse(NewDecoder(alias, d.source), data) }}
}

func (f *named[T]) initial() string { return "" }

func (f *named[T]) read(d *Decoder, n *Node) {
	var name string
	Text(&name).read(d, n)
	if name == "" {
		return
	}
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(d.file), path)
	}
	data, err := d.source.Read(path)
	var v T
	if err == nil {
		v, err = f.parse(d, data)
	}
	if err != nil {
		d.problem(n, fmt.Sprintf("the %s %s: %v", f.what, Shorten(name), err), "")
		return
	}
	*f.dst = v
}
