package middleware

import (
	"fmt"
	"strings"
	"text/template"
)

// Template is any server whose configuration file is made from a template.
var Template = kindOf(&server{name: "template"}, "any server: its file is made from a template, and a command makes it read the file")

// rendered are parameters of a file that is made from a template. The file itself does not show their values.
type rendered struct {
	path    string             // of the template
	initial map[string]float64 // what the original file has
}

func (r rendered) values(_ string, names []string, set map[string]float64) (map[string]float64, error) {
	values := map[string]float64{}
	for _, name := range names {
		values[name] = r.initial[name]
		if v, changed := set[name]; changed {
			values[name] = v
		}
	}
	return values, nil
}

func (r rendered) word(_, name string) string { return number(r.initial[name]) }

func (r rendered) with(_ string, values map[string]float64) (string, error) {
	source, err := readPlain(r.path)
	if err != nil {
		return "", fmt.Errorf("reading the template: %w", err)
	}
	parsed, err := template.New(r.path).Option("missingkey=error").Parse(string(source))
	if err != nil {
		return "", fmt.Errorf("the template does not parse: %w", err)
	}
	words := make(map[string]string, len(values))
	for name, v := range values {
		words[name] = number(v)
	}
	var out strings.Builder
	if err := parsed.Execute(&out, words); err != nil {
		return "", fmt.Errorf("the template fails: %w", err)
	}
	return out.String(), nil
}
