// Package terminal makes text safe to print on one.
package terminal

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Shown returns whether a character is safe to print on a terminal. Control characters can move the cursor and forge
// lines; characters that change the direction of text can reverse it.
func Shown(r rune) bool {
	return r != utf8.RuneError && !unicode.IsControl(r) && !unicode.Is(unicode.Cf, r) && r != '\u2028' && r != '\u2029'
}

// Printable makes untrusted text safe to print: unsafe characters are escaped as in Go strings, and only the first most bytes
// are kept.
func Printable(s string, most int) string {
	cut := len(s) > most
	if cut {
		s = s[:most]
	}
	if !cut && strings.IndexFunc(s, func(r rune) bool { return !Shown(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError:
			if c := s[i]; c >= utf8.RuneSelf && cut && len(s)-i < utf8.UTFMax {
				continue // a multi-byte character was cut
			}
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case Shown(r):
			b.WriteRune(r)
		case r < utf8.RuneSelf:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	if cut {
		b.WriteString("...")
	}
	return b.String()
}
