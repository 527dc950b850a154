package main

import (
	"bytes"
	"fmt"
	"reflect"
	"unicode/utf8"

	"github.com/quellhq/quell/internal/terminal"
)

// longestText is how many bytes of a text from the bus are shown.
const longestText = 4 << 10

// printable makes every text in a value from the bus safe to print on a terminal. v is a pointer to the value.
func printable(v any) { clean(reflect.ValueOf(v).Elem()) }

func clean(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(terminal.Printable(v.String(), longestText))
	case reflect.Pointer:
		if !v.IsNil() {
			clean(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			clean(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				clean(v.Field(i))
			}
		}
	case reflect.Map:
		cleanMap(v)
	}
}

// cleanMap makes a map's keys and values safe. It replaces them, because reflect cannot change them in place.
func cleanMap(v reflect.Value) {
	if v.IsNil() {
		return
	}
	cleaned := reflect.MakeMapWithSize(v.Type(), v.Len())
	for it := v.MapRange(); it.Next(); {
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		key.Set(it.Key())
		value.Set(it.Value())
		clean(key)
		clean(value)
		cleaned.SetMapIndex(key, value)
	}
	v.Set(cleaned)
}

// printableJSON escapes unsafe characters in the strings of JSON, without changing their meaning.
func printableJSON(data []byte) []byte {
	if bytes.IndexFunc(data, func(r rune) bool { return r > '~' && !terminal.Shown(r) }) < 0 {
		return data
	}
	var b bytes.Buffer
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		switch {
		case r <= '~' || terminal.Shown(r):
			b.Write(data[:n])
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		data = data[n:]
	}
	return b.Bytes()
}
