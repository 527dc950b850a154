package config

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell/internal/golden"
)

// FuzzParse checks that no file makes the parser panic, that accepted files are valid, and that mistakes have places
// inside the file.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range append(files, "testdata/full.yaml") {
		f.Add(read(f, path))
	}
	for _, odd := range []string{"", "\x00", "a: &a *a", "? ", "- - -", "{[", "!!", "%YAML 1.2\n---\na: 1", "&a &b c", "<<: {}", "a: |\n",
		"\t", "{? : }", "!<", "*"} {
		f.Add([]byte(odd))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		lines := strings.Count(string(data), "\n") + strings.Count(string(data), "\r") + 1
		file, err := drivers.Parse("fuzz.yaml", data)
		checkError(t, err, lines)
		if err == nil && !file.Local() && (file.Service.SLO.Threshold <= 0 || file.Service.Group.Min > file.Service.Group.Max) {
			t.Errorf("accepted %+v", file.Service)
		}
	})
}

func checkError(t *testing.T, err error, lines int) {
	t.Helper()
	if err == nil {
		return
	}
	for _, p := range golden.Mistakes(t, err) {
		if p.Line < 1 || p.Line > lines+1 || p.Column < 1 || p.Text == "" {
			t.Fatalf("problem %+v in a file of %d lines", p, lines)
		}
	}
}
