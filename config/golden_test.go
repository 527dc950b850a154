package config

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares with a file, or writes it with go test ./config -update.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; run the test with -update if it should:\n%s", path, got)
	}
}

// parseAny reads a file as what its name says it is.
func parseAny(name string, data []byte) (err error) {
	if strings.HasPrefix(name, "scenario-") {
		_, err = ParseScenario(name, data)
	} else {
		_, err = Parse(name, data)
	}
	return err
}

// TestBadFiles holds every rule against a file that breaks it, and the message against the file beside it.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no bad files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			err = parseAny(filepath.Base(file), data)
			var user *quell.UserError
			var list Problems
			if !errors.As(err, &user) || !errors.As(err, &list) || len(list) == 0 {
				t.Fatalf("got %v, want a *quell.UserError that wraps Problems", err)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".err", []byte(err.Error()+"\n"))
		})
	}
}

func TestReferenceGolden(t *testing.T) {
	var b bytes.Buffer
	if err := Reference(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/reference.md", b.Bytes())
	b.Reset()
	if err := ScenarioReference(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/scenario-reference.md", b.Bytes())
}
