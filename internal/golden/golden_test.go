package golden

import (
	"strings"
	"testing"
)

// Of a long page only the first line that differs is shown; short texts are shown whole.
func TestDifferencesAreShownBriefly(t *testing.T) {
	page := strings.Repeat("the same\n", 50)
	if got, want := difference([]byte("new\n"+page), []byte(page)), "line 1\ngot:  new\nwant: the same"; got != want {
		t.Errorf("a long page: %q, want %q", got, want)
	}
	if got, want := difference([]byte("new\n"), []byte("old\n")), "got:\nnew\n\nwant:\nold\n"; got != want {
		t.Errorf("a line: %q, want %q", got, want)
	}
}
