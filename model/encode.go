package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/quellhq/quell"
)

// Encode writes models.json, one row per line. Invalid models are not written.
func (m *Models) Encode(w io.Writer) error {
	if err := m.Validate(); err != nil {
		return fmt.Errorf("writing models: %w", err)
	}
	text, err := m.text()
	if err != nil {
		return fmt.Errorf("writing models: %w", err)
	}
	_, err = w.Write(text)
	return err
}

func (m *Models) text() ([]byte, error) {
	p := printer{}
	p.section("format", Format)
	if m.Trained != nil {
		p.section("trained", m.Trained)
	}
	for _, k := range kinds {
		if i := slices.IndexFunc(m.Sections, k.is); i >= 0 {
			m.Sections[i].print(&p)
		}
	}
	for _, name := range sortedKeys(m.Kept) {
		p.section(name, m.Kept[name])
	}
	if p.err != nil {
		return nil, p.err
	}
	return append(p.buf.Bytes(), "\n}\n"...), nil
}

// printer lays out the sections; a section other than a table takes one line.
type printer struct {
	buf bytes.Buffer
	err error
}

func (p *printer) section(name string, value any) {
	p.name(name)
	p.value(value)
}

func (p *printer) name(name string) {
	separator := ",\n"
	if p.buf.Len() == 0 {
		separator = "{\n"
	}
	p.buf.WriteString(separator + "  ")
	p.value(name)
	p.buf.WriteString(": ")
}

func (p *printer) value(value any) {
	text, err := json.Marshal(value)
	p.buf.Write(text)
	p.err = errors.Join(p.err, err)
}

func printTables[R any](p *printer, name string, tables map[quell.Resource][]R) {
	if tables == nil {
		return
	}
	p.name(name)
	before := "{"
	for _, resource := range sortedKeys(tables) {
		fmt.Fprintf(&p.buf, "%s\n    %q: [", before, resource)
		before = ","
		for i, row := range tables[resource] {
			if i > 0 {
				p.buf.WriteByte(',')
			}
			p.buf.WriteString("\n      ")
			p.value(row)
		}
		p.buf.WriteString("\n    ]")
	}
	p.buf.WriteString("\n  }")
}
