package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell"
)

// FuzzParse holds that no file brings the parsers down, that what they accept is valid, and that what they refuse is
// refused with places inside the file.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range append(files, "testdata/full.yaml", "testdata/scenario.yaml") {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, odd := range []string{"", "\x00", "a: &a *a", "? ", "- - -", "{[", "!!", "%YAML 1.2\n---\na: 1", "&a &b c", "<<: {}", "a: |\n", "\t", "{? : }", "!<", "*"} {
		f.Add([]byte(odd))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		lines := strings.Count(string(data), "\n") + strings.Count(string(data), "\r") + 1
		file, err := Parse("fuzz.yaml", data)
		checkError(t, err, lines)
		if err == nil && (file.Service.Name == "" || file.Service.SLO.Threshold <= 0 || file.Service.Group.Min > file.Service.Group.Max) {
			t.Errorf("accepted %+v", file.Service)
		}
		s, err := ParseScenario("fuzz.yaml", data)
		checkError(t, err, lines)
		if err == nil && s.Validate() != nil {
			t.Errorf("accepted a scenario that is not valid: %v", s.Validate())
		}
	})
}

func checkError(t *testing.T, err error, lines int) {
	t.Helper()
	if err == nil {
		return
	}
	var user *quell.UserError
	var list Problems
	if !errors.As(err, &user) || !errors.As(err, &list) || len(list) == 0 {
		t.Fatalf("got %v, want a *quell.UserError that wraps Problems", err)
	}
	for _, p := range list {
		if p.Line < 1 || p.Line > lines+1 || p.Column < 1 || p.Text == "" {
			t.Fatalf("problem %+v in a file of %d lines", p, lines)
		}
	}
}

// FuzzTrace holds that an accepted trace is one that a scenario accepts.
func FuzzTrace(f *testing.F) {
	for _, text := range []string{"0,0.1\n2.5,50%\n", "seconds,use\n0,0\n", "# x\n1,1\n2,0", "1e9,1\n", "-0,0\n", "\"0\",\"1\"\n", "0,0.1\n0,0.1\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		points, err := parseTrace(strings.NewReader(text))
		if err != nil {
			return
		}
		for i, p := range points {
			if p.After < 0 || i > 0 && p.After <= points[i-1].After || !(p.Use >= 0 && p.Use <= 1) {
				t.Fatalf("accepted %v", points)
			}
		}
	})
}
