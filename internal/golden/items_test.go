package golden

import (
	"strings"
	"testing"
)

// Of each list that changed, the first item that differs is named, and no other.
func TestDifferences(t *testing.T) {
	lists := func(a, b []any) []List { return []List{{"one", a}, {"two: x", b}} }
	same := []any{"a", "b", "c"}
	file := digests(t, lists(same, same))
	for name, c := range map[string]struct {
		items []any
		want  string
	}{
		"the same":  {same, ""},
		"a change":  {[]any{"a", "B", "C"}, "two: x: number 2 of 3 is the first that differs:\n\"B\"\n"},
		"one more":  {[]any{"a", "b", "c", "d"}, "two: x: number 4 of 4 is the first that differs:\n\"d\"\n"},
		"one fewer": {[]any{"a", "b"}, "two: x: ends after 2; 1 more were recorded\n"},
	} {
		if got := Differences(t, file, lists(same, c.items)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := Differences(t, nil, lists(same, same)); !strings.Contains(got, "one: not recorded") {
		t.Errorf("without a file: %q", got)
	}
}
