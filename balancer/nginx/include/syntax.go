package include

import (
	"fmt"
	"strings"
)

// directive is a directive of the include file: its words, and where it stands in the text.
type directive struct {
	words      []string
	start, end int // of its first byte, and after its semicolon
	row        int // line of its first byte, from 1
}

// parse splits the text of an include file into directives, in the syntax of nginx's configuration. Comments are left out.
func parse(text string) ([]directive, error) {
	s := scanner{text: text, row: 1}
	var list []directive
	for {
		d, err := s.directive()
		if err != nil || d == nil {
			return list, err
		}
		list = append(list, *d)
	}
}

// scanner reads the syntax of nginx's configuration.
type scanner struct {
	text    string
	at, row int
}

// directive reads the next directive; nil at the end of the text.
func (s *scanner) directive() (*directive, error) {
	s.space()
	if s.at == len(s.text) {
		return nil, nil
	}
	d := &directive{start: s.at, row: s.row}
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ';':
			if len(d.words) == 0 {
				return nil, fmt.Errorf("line %d: a semicolon ends nothing", s.row)
			}
			s.at++
			d.end = s.at
			return d, nil
		case '{', '}':
			return nil, fmt.Errorf("line %d: a block has no place among the servers of an upstream", s.row)
		}
		word, err := s.word()
		if err != nil {
			return nil, err
		}
		d.words = append(d.words, word)
		s.space()
	}
	return nil, fmt.Errorf("line %d: a semicolon is missing after %q", d.row, strings.Join(d.words, " "))
}

// space skips white space and comments.
func (s *scanner) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case '\n':
			s.row++
		case ' ', '\t', '\r':
		case '#':
			if end := strings.IndexByte(s.text[s.at:], '\n'); end >= 0 {
				s.at += end
			} else {
				s.at = len(s.text)
			}
			continue
		default:
			return
		}
		s.at++
	}
}

// word reads a word, which may be quoted.
func (s *scanner) word() (string, error) {
	var b strings.Builder
	quote, row := byte(0), s.row
	for ; s.at < len(s.text); s.at++ {
		c := s.text[s.at]
		switch {
		case c == '\\' && s.at+1 < len(s.text):
			s.at++
			b.WriteByte(s.text[s.at])
		case quote != 0 && c == quote:
			s.at++
			return b.String(), nil
		case quote != 0:
			b.WriteByte(c)
		case b.Len() == 0 && (c == '"' || c == '\''):
			quote = c
		case strings.IndexByte(" \t\r\n;{}", c) >= 0:
			return b.String(), nil
		default:
			b.WriteByte(c)
		}
		if c == '\n' {
			s.row++
		}
	}
	if quote != 0 {
		return "", fmt.Errorf("line %d: a quotation mark is not closed", row)
	}
	return b.String(), nil
}
