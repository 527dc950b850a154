package setting

import (
	"io"
	"slices"
	"strconv"
	"strings"
)

// Write writes a table's values as a file; reading that file gives the same values. It leaves out keys without a value, and keys
// that have the same value in defaults, a table of the same keys. given returns whether a user wrote the key at a path: such a key
// is written even at its default, because a default may change, and because some keys mean more when they are written. Defaults and
// given may be nil.
func Write(w io.Writer, t, defaults Table, given func(path string) bool) error {
	if given == nil {
		given = func(string) bool { return false }
	}
	lines := t.lines("", defaults, given)
	if len(lines) == 0 {
		return nil
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}

// node is a value as YAML: text on the line of its key, or lines below that line. If there is neither, there is no value.
type node struct {
	inline string
	lines  []string
}

func (s *Scalar[T]) node() node {
	if s.start == "" || !s.quoted {
		return node{inline: s.start}
	}
	return node{inline: strconv.Quote(s.start)}
}

func (w *WordList[T]) node() node { return node{inline: w.initial()} }

func (s Table) node() node {
	return node{lines: s.lines("", nil, func(string) bool { return false })}
}

// lines returns the YAML lines of the keys that differ from the defaults or that a user wrote. path is where the table is.
func (s Table) lines(path string, defaults Table, given func(string) bool) (lines []string) {
	for _, k := range s {
		n, standing := k.Value.node(), node{}
		at := Join(path, k.Name)
		if d, ok := defaults.find(k.Name); ok {
			standing = d.Value.node()
			switch inner := k.Value.(type) {
			case Table:
				n.lines, standing = inner.lines(at, d.Value.(Table), given), node{}
			case *Choice:
				n.lines, standing = inner.lines(at, d.Value.(*Choice), given), node{}
			}
		}
		switch {
		case !given(at) && n.inline == standing.inline && slices.Equal(n.lines, standing.lines):
		case n.inline != "":
			lines = append(lines, k.Name+": "+n.inline)
		case len(n.lines) > 0:
			lines = append(append(lines, k.Name+":"), indented("  ", n.lines)...)
		}
	}
	return lines
}

// lines are those of the keys that differ from the defaults or that a user wrote. The keys of a form are compared with those of the same
// form.
func (c *Choice) lines(path string, defaults *Choice, given func(string) bool) []string {
	standing := slices.Concat(Table{defaults.by}, defaults.common)
	for _, f := range c.forms {
		if f.Name == c.by.Value.initial() {
			standing = append(standing, f.Keys...)
		}
	}
	return c.now().lines(path, standing, given)
}

func (l *List[T]) node() node {
	var words, lines []string
	for i := range *l.dst {
		n := l.item(&(*l.dst)[i]).node()
		if n.inline != "" {
			words = append(words, n.inline)
		} else if len(n.lines) > 0 {
			item := indented("  ", n.lines)
			item[0] = "- " + n.lines[0]
			lines = append(lines, item...)
		}
	}
	if len(words) > 0 {
		return node{inline: "[" + strings.Join(words, ", ") + "]"}
	}
	return node{lines: lines}
}

func (o *Optional[T]) node() node {
	if *o.dst == nil {
		return node{}
	}
	return o.keys(*o.dst).node()
}

// node returns no value, because the name of the other file is not kept.
func (f *named[T]) node() node { return node{} }

func indented(by string, lines []string) []string {
	moved := make([]string, len(lines))
	for i, line := range lines {
		moved[i] = by + line
	}
	return moved
}
