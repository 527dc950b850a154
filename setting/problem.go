package setting

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one mistake in a file.
type Problem struct {
	File         string
	Line, Column int // counted from 1; 0 if the file could not be read at all
	Text         string
	Hint         string // what to do about it; may be empty
}

func (p Problem) Error() string {
	text := p.Text
	if p.Hint != "" {
		text += " (" + p.Hint + ")"
	}
	if p.Line == 0 {
		return fmt.Sprintf("%s: %s", p.File, text)
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, text)
}

// Problems are all mistakes in a file, ordered by place.
type Problems []Problem

// shown limits the length of an error message.
const shown = 50

func (p Problems) Error() string {
	lines := make([]string, 0, min(len(p), shown)+1)
	for _, problem := range p[:min(len(p), shown)] {
		lines = append(lines, problem.Error())
	}
	if len(p) > shown {
		lines = append(lines, fmt.Sprintf("%s: and %d more", p[0].File, len(p)-shown))
	}
	return strings.Join(lines, "\n")
}

// Sort orders problems by their places.
func (p Problems) Sort() {
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// Nearest returns the known word that a misspelt one was probably meant to be.
func Nearest(word string, known []string) (string, bool) {
	best, at := 1+max(1, len(word)/3), ""
	for _, k := range known {
		if d := distance(strings.ToLower(word), k); d < best {
			best, at = d, k
		}
	}
	return at, at != ""
}

// Suggest returns the end of a message about an unknown word: the nearest known word or, if none is near, all of them.
func Suggest(word string, known []string) string {
	if near, ok := Nearest(word, known); ok {
		return fmt.Sprintf(", did you mean %q?", near)
	}
	return fmt.Sprintf(" (known: %s)", strings.Join(known, ", "))
}

// distance counts the letters to insert, delete, change or swap with their neighbour to turn a into b (optimal string alignment).
// For very long words it does not count and returns a large distance.
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
