package setting

import (
	"fmt"
	"io"
	"strings"
)

// Currents lists the values of all keys of a table, as written in a file.
func (s Table) Currents(prefix string, into map[string]string) {
	for _, k := range s {
		path := Join(prefix, k.Name)
		switch v := k.Value.(type) {
		case Table:
			v.Currents(path, into)
		case *Choice:
			v.now().Currents(path, into)
		case *short:
			v.now().Currents(path, into)
		case interface{ current() string }:
			into[path] = v.current()
		default:
			into[path] = v.initial()
		}
	}
}

// Print writes a Markdown table of every key: key, default, meaning.
func Print(w io.Writer, keys Table) error {
	var b strings.Builder
	b.WriteString("| key | default | meaning |\n|---|---|---|\n")
	keys.rows(&b, "")
	_, err := io.WriteString(w, b.String())
	return err
}

// holder is a value that contains further keys. behind is the text between the value's name and the name of a key inside it.
type holder interface {
	inside() (keys Table, behind string)
}

func (s Table) inside() (Table, string) { return s, "." }

func (l *List[T]) inside() (Table, string) {
	blank := l.blank
	if item, ok := l.item(&blank).(holder); ok {
		keys, _ := item.inside()
		return keys, "[]."
	}
	return nil, ""
}

// Reader returns who reads the key at a path, as the innermost declaration says, and the rest of the path inside that declaration's key.
func (s Table) Reader(path string) (reader any, rest string) {
	name, rest := path, ""
	if i := strings.IndexAny(path, ".["); i >= 0 {
		name, rest = path[:i], strings.TrimPrefix(path[i:], ".")
	}
	k, known := s.find(name)
	if !known {
		return nil, ""
	}
	if v, ok := k.Value.(holder); ok && rest != "" {
		keys, _ := v.inside()
		if reader, within := keys.Reader(rest); reader != nil {
			return reader, within
		}
	}
	return k.reader, rest
}

func (s Table) rows(b *strings.Builder, prefix string) {
	for _, k := range s {
		fmt.Fprintf(b, "| `%s%s` | %s | %s |\n", prefix, k.Name, k.shown(), k.meaning)
		if v, ok := k.Value.(holder); ok {
			keys, behind := v.inside()
			keys.rows(b, prefix+k.Name+behind)
		}
	}
}

// shown is the value that a key has without a file, as the reference shows it.
func (k Key) shown() string {
	switch initial := k.Value.initial(); {
	case k.Required:
		return "required"
	case k.standing != "":
		return k.standing
	case initial != "":
		return "`" + initial + "`"
	}
	return ""
}
