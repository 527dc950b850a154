package agentless

import "testing"

func TestNamesFromOutside(t *testing.T) {
	for want, ids := range map[string][]string{"a is": {"a"}, "a, b are": {"a", "b"},
		"a, b, c and 997 more are": append([]string{"a", "b", "c"}, make([]string, 997)...)} {
		if got := enumerated(ids); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
