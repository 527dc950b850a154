package quell

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Shown says whether a character can be shown on a terminal as it is. Control characters can move the cursor and forge
// lines, characters that change the direction of text can turn it around.
func Shown(r rune) bool {
	return r != utf8.RuneError && !unicode.IsControl(r) && !unicode.Is(unicode.Cf, r) && r != '\u2028' && r != '\u2029'
}

// Printable makes text from outside fit to be shown: what cannot be shown is escaped as in Go, and what exceeds the given number
// of bytes is cut off.
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
				continue // the cut went through a character
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
