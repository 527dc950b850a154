package setting

import (
	"encoding/json"
	"io"
	"slices"
)

// object is a part of a JSON Schema.
type object = map[string]any

// Schema writes a table as a JSON Schema (draft 2020-12), with which editors complete and check files. It says which keys there are, what
// kind of value each has, its words and its meaning. Ranges, and rules between keys, are checked only when a file is read.
func Schema(w io.Writer, title string, keys Table) error {
	whole := keys.schema()
	whole["$schema"], whole["title"] = "https://json-schema.org/draft/2020-12/schema", title
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(whole)
}

func (s Table) schema() object {
	properties, required := object{}, []string{}
	for _, k := range s {
		properties[k.Name] = k.schema()
		if k.Required {
			required = append(required, k.Name)
		}
	}
	o := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		o["required"] = required
	}
	return o
}

// schema is that of the key's value, with the meaning and, if a file can have it, the default.
func (k Key) schema() object {
	o := k.Value.schema()
	about := k.meaning
	switch start := k.Value.initial(); {
	case k.standing != "":
		about += " (default: " + k.standing + ")"
	case start != "" && !k.Required:
		about += " (default: " + start + ")"
	}
	o["description"] = about
	return o
}

func (s *Scalar[T]) schema() object {
	if s.words != nil {
		return object{"enum": s.words}
	}
	o := object{"type": s.types}
	if s.pattern != "" {
		o["pattern"] = s.pattern
	}
	return o
}

func (l *List[T]) schema() object {
	blank := l.blank
	item := l.item(&blank).schema()
	list := object{"type": "array", "items": item}
	if l.least > 0 {
		list["minItems"] = l.least
	}
	if l.most > 0 {
		list["maxItems"] = l.most
	}
	if l.one {
		return object{"anyOf": []any{item, list}}
	}
	return list
}

func (w *WordList[T]) schema() object {
	return object{"anyOf": []any{
		object{"enum": slices.Concat(w.known, w.alone)},
		object{"type": "array", "items": object{"enum": w.known}, "minItems": 1, "uniqueItems": true},
	}}
}

// schema has one alternative for each form. That of the default may lack the choosing key.
func (c *Choice) schema() object {
	var forms []any
	for _, f := range c.forms {
		o := c.whole(f.Keys, done{}).schema()
		o["properties"].(object)[c.by.Name] = object{"const": f.Name, "description": c.by.meaning}
		if !c.by.Required && c.by.Value.initial() != f.Name {
			required, _ := o["required"].([]string)
			o["required"] = append(slices.Clone(required), c.by.Name)
		}
		forms = append(forms, o)
	}
	return object{"type": "object", "anyOf": forms}
}

func (done) schema() object { return object{} }

func (s *short) schema() object {
	return object{"anyOf": []any{s.word.schema(), s.Choice.schema()}}
}

func (p *pointer[T]) schema() object { return p.value(new(T)).schema() }

func (f *named[T]) schema() object { return object{"type": "string"} }
