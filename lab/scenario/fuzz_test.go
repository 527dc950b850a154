package scenario

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell/internal/golden"
)

// FuzzParse checks that no file makes the parser panic, and that every accepted scenario is valid.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range append(files, "testdata/scenario.yaml") {
		f.Add(readFile(f, path))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse("fuzz.yaml", data)
		if err != nil {
			golden.Mistakes(t, err)
		} else if err := s.Validate(); err != nil {
			t.Errorf("accepted a scenario that is not valid: %v", err)
		}
	})
}

// FuzzTrace checks that every accepted trace is valid in a scenario.
func FuzzTrace(f *testing.F) {
	for _, text := range []string{"0,0.1\n2.5,50%\n", "seconds,use\n0,0\n", "# x\n1,1\n2,0", "1e9,1\n", "-0,0\n", "\"0\",\"1\"\n",
		"0,0.1\n0,0.1\n"} {
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
