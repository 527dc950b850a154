package quell

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"strings"
	"sync"
)

// maxLine is the limit of one line of JSON: a snapshot of 10,000 instances takes about 8 MB.
const maxLine = 64 << 20

// DecodeStrict decodes exactly one JSON value into v. Unknown and repeated fields, trailing data, and numbers that
// do not fit are errors.
func DecodeStrict(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.New("the JSON ends too early: the line is truncated")
		}
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the end of the JSON value")
	}
	return CheckKeys(data, v)
}

// CheckKeys returns an error if data gives a field twice, or writes its name in other upper and lower case than the type of v does.
// encoding/json accepts both: it keeps the last of two equal fields, and takes "ID" for "id". Before CheckKeys is called, data must have
// been decoded into v or into a value of the same type.
func CheckKeys(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	w := keyWalker{next: reflect.TypeOf(v)}
	for {
		tok, err := dec.Token()
		if err != nil {
			return nil // the value was decoded before, so this is its end
		}
		if err := w.take(tok); err != nil {
			return err
		}
	}
}

// keyWalker walks through the tokens of a value together with the type that they are decoded into.
type keyWalker struct {
	open []container
	next reflect.Type // type of the next value; nil: any
}

type container struct {
	keys   map[string]bool         // seen so far; nil in an array
	key    bool                    // the next string is a key
	fields map[string]reflect.Type // fields of a struct
	elem   reflect.Type            // element type of a map or an array
}

func (w *keyWalker) take(tok json.Token) error {
	switch tok {
	case json.Delim('}'), json.Delim(']'):
		w.open = w.open[:len(w.open)-1]
		w.after()
		return nil
	case json.Delim('{'), json.Delim('['):
		w.open = append(w.open, enter(w.next, tok == json.Delim('{')))
		w.next = w.open[len(w.open)-1].elem
		return nil
	}
	if n := len(w.open); n > 0 && w.open[n-1].key {
		return w.open[n-1].name(tok.(string), &w.next)
	}
	w.after()
	return nil
}

// after is called at the end of a value. It prepares the walker for the next key or the next element.
func (w *keyWalker) after() {
	if n := len(w.open); n > 0 {
		top := &w.open[n-1]
		top.key = top.keys != nil
		w.next = top.elem
	}
}

func (c *container) name(key string, next *reflect.Type) error {
	if c.keys[key] {
		return fmt.Errorf("field %q is given twice", key)
	}
	c.keys[key], c.key, *next = true, false, c.elem
	if c.fields == nil {
		return nil
	}
	t, ok := c.fields[key]
	if !ok {
		return fmt.Errorf("unknown field %q: fields are written in lower case", key)
	}
	*next = t
	return nil
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// enter opens an object or an array that is decoded into a value of type t.
func enter(t reflect.Type, object bool) container {
	c := container{key: object}
	if object {
		c.keys = map[string]bool{}
	}
	for t != nil && t.Kind() == reflect.Pointer && !t.Implements(unmarshaler) {
		t = t.Elem()
	}
	if t == nil || t.Implements(unmarshaler) || reflect.PointerTo(t).Implements(unmarshaler) {
		return c
	}
	switch t.Kind() {
	case reflect.Struct:
		c.fields = fieldsOf(t)
	case reflect.Map, reflect.Slice, reflect.Array:
		c.elem = t.Elem()
	}
	return c
}

// fieldCache holds the result of fieldsOf by type.
var fieldCache sync.Map

// fieldsOf returns the types of a struct's fields by JSON name. Fields of embedded structs are included.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if known, ok := fieldCache.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			maps.Copy(fields, fieldsOf(f.Type))
		case !f.IsExported() || name == "-":
		case name == "":
			fields[f.Name] = f.Type
		default:
			fields[name] = f.Type
		}
	}
	fieldCache.Store(t, fields)
	return fields
}

// Lines reads JSON lines: one object per line, empty lines are skipped. Errors name the file and the line.
type Lines struct {
	name string
	r    *bufio.Reader
	line int
}

// NewLines reads from r; name is used in messages.
func NewLines(name string, r io.Reader) *Lines {
	return &Lines{name: name, r: bufio.NewReaderSize(r, 64<<10)}
}

// Next decodes the next line into v. It returns io.EOF at the end and a *UserError for a bad line.
func (l *Lines) Next(v any) error {
	for {
		data, err := l.read()
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(data)) == 0 {
			continue
		}
		if err := DecodeStrict(data, v); err != nil {
			return l.Errorf("%w", err)
		}
		return nil
	}
}

// Errorf makes a *UserError that names the file and the present line.
func (l *Lines) Errorf(format string, args ...any) error {
	return &UserError{fmt.Errorf("%s:%d: %w", l.name, l.line, fmt.Errorf(format, args...))}
}

func (l *Lines) read() ([]byte, error) {
	var data []byte
	for {
		part, err := l.r.ReadSlice('\n')
		data = append(data, part...)
		switch {
		case len(data) > maxLine:
			l.line++
			return nil, l.Errorf("the line is longer than %d MiB", maxLine>>20)
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(data) == 0:
			return nil, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return nil, fmt.Errorf("reading %s: %w", l.name, err)
		default:
			l.line++
			return data, nil
		}
	}
}

// SnapshotReader reads recorded snapshots, one per line, in order of time.
type SnapshotReader struct {
	lines *Lines
	last  *Snapshot
}

// NewSnapshotReader reads from r; name is used in messages.
func NewSnapshotReader(name string, r io.Reader) *SnapshotReader {
	return &SnapshotReader{lines: NewLines(name, r)}
}

// Errorf makes a *UserError that names the file and the line of the last snapshot.
func (r *SnapshotReader) Errorf(format string, args ...any) error {
	return r.lines.Errorf(format, args...)
}

// Next returns the next snapshot, io.EOF at the end, or a *UserError naming the line and every rule it breaks.
func (r *SnapshotReader) Next() (*Snapshot, error) {
	s := new(Snapshot)
	if err := r.lines.Next(s); err != nil {
		return nil, err
	}
	if err := s.Validate(); err != nil {
		return nil, r.lines.Errorf("%w", err)
	}
	if r.last != nil && s.At.Before(r.last.At) {
		return nil, r.lines.Errorf("at: time goes backwards, from %s to %s", timeText(r.last.At), timeText(s.At))
	}
	r.last = s
	return s, nil
}
