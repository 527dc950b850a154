package golden

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Says fails the test for each phrase that a page below docs lacks. Tests make phrases from the constants of the code, so that a page
// cannot state other ones. How a page breaks its lines does not matter.
func Says(t testing.TB, page string, phrases ...string) {
	t.Helper()
	root := "."
	for len(root) < 30 {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		root = filepath.Join(root, "..")
	}
	data, err := os.ReadFile(filepath.Join(root, "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(data)), " ")
	for _, phrase := range phrases {
		if !strings.Contains(text, phrase) {
			t.Errorf("docs/%s does not say %q", page, phrase)
		}
	}
}

// words are the numbers that pages write out.
var words = []string{"no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"}

// Word returns a small number as pages write it.
func Word(n int) string { return words[n] }
