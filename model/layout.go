package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/quellhq/quell"
)

// layout records the line of each path in a JSON text, and which names are given twice in one object, because encoding/json
// reports neither.
type layout struct {
	text     []byte
	lines    map[string]int
	repeated []error
	counted  int // number of bytes of text whose line breaks have been counted in line
	line     int
}

// maxDepth limits how deep objects are mapped. Quell's files are never nested deeper.
const maxDepth = 10

// mapLayout returns the layout of text, which must be valid JSON. It does not look inside values whose path opaque accepts.
func mapLayout(text []byte, opaque func(path string) bool) *layout {
	l := &layout{text: text, lines: map[string]int{}, line: 1}
	l.value(json.NewDecoder(bytes.NewReader(text)), "", 0, opaque)
	return l
}

// lineOf returns the line of the path, or of the nearest existing part around it.
func (l *layout) lineOf(path string) int {
	for {
		if line, ok := l.lines[path]; ok {
			return line
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return l.lines[""]
		}
		path = path[:cut]
	}
}

func (l *layout) value(d *json.Decoder, path string, depth int, opaque func(string) bool) {
	if depth > maxDepth || opaque(path) {
		var skipped json.RawMessage
		if d.Decode(&skipped) == nil {
			l.mark(path, d.InputOffset()-int64(len(skipped)))
		}
		return
	}
	token, err := d.Token()
	if err != nil {
		return
	}
	l.mark(path, d.InputOffset())
	switch token {
	case json.Delim('{'):
		l.object(d, path, depth, opaque)
	case json.Delim('['):
		for i := 0; d.More(); i++ {
			l.value(d, fmt.Sprintf("%s[%d]", path, i), depth+1, opaque)
		}
		_, _ = d.Token()
	}
}

func (l *layout) object(d *json.Decoder, path string, depth int, opaque func(string) bool) {
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return
		}
		name, _ := token.(string)
		child := name
		if path != "" {
			child = path + "." + name
		}
		if seen[name] {
			l.repeated = append(l.repeated, &quell.InvalidError{Path: child, Problem: "is given twice"})
		}
		seen[name] = true
		l.value(d, child, depth+1, opaque)
	}
	_, _ = d.Token()
}

// mark records the line of a path once; offsets must increase.
func (l *layout) mark(path string, offset int64) {
	l.line += bytes.Count(l.text[l.counted:offset], []byte("\n"))
	l.counted = int(offset)
	if _, ok := l.lines[path]; !ok {
		l.lines[path] = l.line
	}
}

// lineAt returns the line of a byte offset.
func lineAt(text []byte, offset int64) int {
	offset = min(max(offset, 0), int64(len(text)))
	return 1 + bytes.Count(text[:offset], []byte("\n"))
}
