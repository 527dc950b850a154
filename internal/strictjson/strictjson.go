// Package strictjson decodes JSON that others wrote: unknown and repeated fields are errors.
package strictjson

import (
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

// Decode decodes exactly one JSON value into v. Unknown and repeated fields, trailing data, and numbers that
// do not fit are errors.
func Decode(data []byte, v any) error {
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
