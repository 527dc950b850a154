package terminal

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"web-1":                  "web-1",
		"Größe 5µs":              "Größe 5µs",
		"a\x1b[2J\x1b]0;pwned\a": `a\x1b[2J\x1b]0;pwned\x07`,
		"one\ntwo\tthree\r":      `one\x0atwo\x09three\x0d`,
		"\u009b31m":              `\u009b31m`,
		"\x9b":                   `\x9b`,
		"abc\u202edef":           `abc\u202edef`,
		"line\u2028end":          `line\u2028end`,
		"\U000e0041":             `\U000e0041`,
	} {
		if got := Printable(in, 1000); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
	if got := Printable(strings.Repeat("ä", 100), 11); got != "äääää..." {
		t.Errorf("cut to %q", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		s, most := rapid.String().Draw(t, "s"), rapid.IntRange(0, 50).Draw(t, "most")
		got := Printable(s, most)
		if strings.ContainsFunc(got, func(r rune) bool { return !Shown(r) }) || len(got) > 12*most+3 {
			t.Errorf("%q is shown as %q", s, got)
		}
	})
}
