package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/strictjson"
	"github.com/quellhq/quell/setting"
)

// header are the keys of models.json that belong to no section.
var header = []string{"format", "trained"}

// known lists the keys of models.json that this version reads.
func known() []string {
	names := slices.Clone(header)
	for _, k := range kinds {
		names = append(names, k.keys...)
	}
	return names
}

// Decode reads the text of models.json. If it has mistakes, the error is one *quell.UserError that names line and path of each. where is
// put before the line's number.
func Decode(text []byte, where string) (*Models, error) {
	f := file{where: where}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(text, &top); err != nil {
		return nil, f.unreadable(text, err, "models.json")
	}
	names := known()
	f.layout = mapLayout(text, func(path string) bool { _, ok := top[path]; return path != "" && ok && !slices.Contains(names, path) })
	f.errs = f.layout.repeated
	m := f.models(top)
	if len(f.errs) == 0 {
		f.join(m.Validate())
	}
	if len(f.errs) > 0 {
		return nil, f.err()
	}
	return m, nil
}

// file is one JSON text while it is decoded, with the mistakes found so far.
type file struct {
	where  string
	layout *layout
	errs   []error
}

func (f *file) models(top map[string]json.RawMessage) *Models {
	maps.DeleteFunc(top, func(_ string, raw json.RawMessage) bool { return string(raw) == "null" }) // null counts as absent
	m := &Models{}
	f.format(top["format"])
	if raw, ok := top["trained"]; ok {
		m.Trained = &Trained{}
		f.strict("trained", raw, nil, m.Trained)
	}
	for _, k := range kinds {
		if text := k.texts(top); len(text) > 0 {
			m.Sections = append(m.Sections, k.decode(f, text))
		}
	}
	f.keep(m, top)
	return m
}

// texts returns the keys of a kind of section.
func (k kind) texts(top map[string]json.RawMessage) texts {
	out := texts{}
	for _, key := range k.keys {
		if raw, ok := top[key]; ok {
			out[key] = raw
		}
	}
	return out
}

// keep keeps unknown sections, because a newer version may have written them and Quell may have been downgraded since. A name that is
// similar to a known one is reported as a mistake, because otherwise a misspelt table would silently be left out.
func (f *file) keep(m *Models, top map[string]json.RawMessage) {
	names := known()
	for _, name := range sortedKeys(top) {
		if slices.Contains(names, name) {
			continue
		}
		if meant, ok := setting.Nearest(name, names); ok {
			f.addf(name, "unknown section, did you mean %q?", meant)
			continue
		}
		quell.Put(&m.Kept, name, top[name])
	}
}

func (f *file) format(raw json.RawMessage) {
	var tag string
	switch {
	case raw == nil:
		f.addf("format", "is missing; this file must say %q", Format)
	case json.Unmarshal(raw, &tag) != nil || tag != Format:
		f.addf("format", "is %s; this version reads %q", raw, Format)
	}
}

// tables reads a section: rows by resource.
func tables[R any](f *file, name string, raw json.RawMessage, required []string) map[quell.Resource][]R {
	if raw == nil {
		return nil
	}
	var byResource map[string][]json.RawMessage
	if err := json.Unmarshal(raw, &byResource); err != nil {
		f.addf(name, "must map resources to arrays of rows")
		return nil
	}
	out := make(map[quell.Resource][]R, len(byResource))
	for _, resource := range sortedKeys(byResource) {
		path := name + "." + resource
		var r quell.Resource
		if err := r.UnmarshalText([]byte(resource)); err != nil {
			f.addf(path, "%v", err)
			continue
		}
		rows := make([]R, len(byResource[resource]))
		for i, raw := range byResource[resource] {
			f.strict(fmt.Sprintf("%s[%d]", path, i), raw, required, &rows[i])
		}
		out[r] = rows
	}
	return out
}

// strict decodes one object. It reports required names that are missing, and unknown names.
func (f *file) strict(path string, raw json.RawMessage, required []string, dst any) {
	var names map[string]json.RawMessage
	if json.Unmarshal(raw, &names) != nil || names == nil {
		f.addf(path, "must be an object")
		return
	}
	for _, name := range required {
		if v, ok := names[name]; !ok || string(v) == "null" {
			f.addf(join(path, name), "is missing")
		}
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(dst); err != nil {
		field, problem := explain(err)
		f.addf(join(path, field), "%s", problem)
	} else if err := strictjson.CheckKeys(raw, dst); err != nil && len(f.layout.repeated) == 0 { // reported already
		f.addf(path, "%v", err)
	}
}

// explain returns the field that an error of encoding/json is about, if it is known, and what is wrong with it.
func explain(err error) (field, problem string) {
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return mismatch.Field, fmt.Sprintf("is a %s, must be a %s", mismatch.Value, mismatch.Type.Kind())
	}
	return "", strings.TrimPrefix(err.Error(), "json: ")
}

func join(path, field string) string {
	if path == "" || field == "" {
		return path + field
	}
	return path + "." + field
}

func (f *file) addf(path, format string, args ...any) {
	f.errs = append(f.errs, &quell.InvalidError{Path: path, Problem: fmt.Sprintf(format, args...)})
}

func (f *file) join(err error) { f.errs = append(f.errs, unjoined(err)...) }

// unjoined returns the errors that errors.Join combined.
func unjoined(err error) []error {
	var many interface{ Unwrap() []error }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &many):
		return many.Unwrap()
	}
	return []error{err}
}

// maxShown limits how many mistakes one message lists.
const maxShown = 20

// err puts a line number before every mistake found.
func (f *file) err() error {
	located := make([]error, 0, len(f.errs))
	for i, err := range f.errs {
		if i == maxShown {
			located = append(located, fmt.Errorf("and %d more", len(f.errs)-maxShown))
			break
		}
		line := 1
		if invalid, ok := errors.AsType[*quell.InvalidError](err); ok {
			line = f.layout.lineOf(invalid.Path)
		}
		located = append(located, fmt.Errorf("%s%d: %w", f.where, line, err))
	}
	return &quell.UserError{Err: errors.Join(located...)}
}

// unreadable is the error for a text that is no JSON object.
func (f *file) unreadable(text []byte, err error, what string) error {
	line := 1
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		line = lineAt(text, syntax.Offset)
	} else {
		err = errors.New("must hold one JSON object")
	}
	return &quell.UserError{Err: fmt.Errorf("%s%d: not a %s: %w", f.where, line, what, err)}
}
