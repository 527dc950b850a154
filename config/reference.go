package config

import (
	"fmt"
	"io"
	"strings"
)

// Reference prints a Markdown table of every key of a configuration file: key, default, meaning.
func Reference(w io.Writer) error {
	f := defaults()
	return printTable(w, fileKeys(&f))
}

// ScenarioReference prints the same table of a scenario file.
func ScenarioReference(w io.Writer) error { return printTable(w, newScenarioFile().keys()) }

func printTable(w io.Writer, keys section) error {
	var b strings.Builder
	b.WriteString("| key | default | meaning |\n|---|---|---|\n")
	keys.rows(&b, "")
	_, err := io.WriteString(w, b.String())
	return err
}

// table is a value that holds further keys.
type table interface{ table() section }

func (s section) table() section { return s }

// items is a list whose items are tables.
func (l *list[T]) table() section {
	blank := l.blank
	if inner, ok := l.item(&blank).(table); ok {
		return inner.table()
	}
	return nil
}

func (s section) rows(b *strings.Builder, prefix string) {
	for _, k := range s {
		fmt.Fprintf(b, "| `%s%s` | %s | %s |\n", prefix, k.name, k.shown(), k.meaning)
		inner, ok := k.value.(table)
		if !ok {
			continue
		}
		if _, isSection := k.value.(interface{ names() []string }); isSection {
			inner.table().rows(b, prefix+k.name+".")
		} else {
			inner.table().rows(b, prefix+k.name+"[].")
		}
	}
}

// shown says what a key is without the file.
func (k key) shown() string {
	switch initial := k.value.initial(); {
	case k.required:
		return "required"
	case k.standing != "":
		return k.standing
	case initial != "":
		return "`" + initial + "`"
	}
	return ""
}
