package middleware

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell/internal/need"
)

// templated returns a toy whose file is written from a template.
func templated(t *testing.T, text string) (r *toy, template string) {
	t.Helper()
	r = newToy(t)
	template = filepath.Join(r.dir, "toy.tmpl")
	if err := os.WriteFile(template, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s := r.server.Settings
	s.server, s.Template = Template.Defaults().server, template
	s.Parameters[0].Initial, s.Parameters[1].Initial = 10, 5
	return r, template
}

const sound = "# from a template\nworkers {{.workers}}\nother {{.other}}\n"

func TestATemplate(t *testing.T) {
	r, template := templated(t, sound)
	d := r.open()
	r.inForce(d, map[string]float64{"workers": 10, "other": 5})
	r.set(d, "workers", 20.5)
	r.set(d, "other", 0)
	r.has("# from a template\nworkers 20.5\nother 0\n", true)
	r.inForce(d, map[string]float64{"workers": 20.5, "other": 0})
	for text, want := range map[string]string{
		"workers {{.workers":                "the template does not parse: template: " + template + ":1",
		`{{template "more"}}`:               `template "more" not defined`,
		"{{define \"x\"}}{{.workers{{end}}": "the template does not parse",
		"workers {{.threads}}":              `map has no entry for key "threads"`,
		"workers {{.workers.x}}":            "the template fails",
		"x {{.workers}}\nworkers 66\n":      "the server's check does not accept the new file",
		"x {{.workers}}\nworkers 77\n":      "the old one is back and in force",
	} {
		if err := os.WriteFile(template, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := d.Set(t.Context(), "workers", 30); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
		r.has("# from a template\nworkers 20.5\nother 0\n", true)
		r.inForce(d, map[string]float64{"workers": 20.5, "other": 0})
	}
	r.write("mine\n")
	if _, err := d.InForce(t.Context()); !errors.Is(err, errEdited) {
		t.Errorf("what somebody wrote instead: %v", err)
	}
	r.close(d)
	r.has("mine\n", false)
}

func TestTemplatesThatFailAtTheStart(t *testing.T) {
	for text, want := range map[string]string{"{{": "does not parse", "{{.none}}": "the template fails",
		`{{template "more"}}`: "the template fails", "": ""} {
		r, template := templated(t, text)
		if text == "" {
			if err := os.Remove(template); err != nil {
				t.Fatal(err)
			}
			want = "reading the template"
		}
		if _, err := Open(t.Context(), r.server, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
		r.has(original, false)
	}
}

// A check that cannot be told another file's name sees the new content at the file's own place, and nobody else does.
func TestTheCheckSeesTheNewFileInPlace(t *testing.T) {
	need.Root(t)
	need.Program(t, "unshare")
	r := newToy(t)
	r.server.Settings.Check = []string{"sh", "-c", `grep "workers 20" "$0" && grep -q "workers 10" "$1"`, r.config, r.config + ".again"}
	if err := os.Link(r.config, r.config+".again"); err != nil { // shows the file as it is outside the check
		t.Fatal(err)
	}
	d := r.open()
	if err := d.Set(t.Context(), "workers", 21); err == nil {
		t.Error("the check did not see the new file")
	}
	if got := r.read(r.config); got != original {
		t.Errorf("the check's file system is not its own: %q", got)
	}
	r.set(d, "workers", 20)
	r.close(d)
}
