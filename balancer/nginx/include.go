package nginx

import (
	"fmt"
	"slices"
	"strconv"
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

// server is a server of an upstream, as a line of the include file declares it.
type server struct {
	directive
	address string // with its port
	weight  int    // 1 if none is given
	down    bool
}

// servers returns the servers among the directives. A weight that nginx would refuse is an error, because nothing else could be said of it.
func servers(list []directive) (found []server, err error) {
	for _, d := range list {
		if d.words[0] != "server" || len(d.words) < 2 {
			continue
		}
		s := server{directive: d, address: withPort(d.words[1]), weight: 1, down: slices.Contains(d.words[2:], "down")}
		for _, w := range d.words[2:] {
			number, given := strings.CutPrefix(w, "weight=")
			if !given {
				continue
			}
			if s.weight, err = strconv.Atoi(number); err != nil || s.weight < 1 {
				return nil, fmt.Errorf("line %d: %q is no weight of nginx", d.row, w)
			}
		}
		found = append(found, s)
	}
	return found, nil
}

// withPort adds the port that nginx takes if none is written.
func withPort(address string) string {
	host := address[strings.LastIndexByte(address, ']')+1:]
	if strings.HasPrefix(address, "unix:") || strings.Contains(host, ":") {
		return address
	}
	return address + ":80"
}

// with returns the server's directive with another weight and state. All its other parameters stay, in their order.
func (s *server) with(weight int, down bool) string {
	words := slices.DeleteFunc(slices.Clone(s.words), func(w string) bool { return strings.HasPrefix(w, "weight=") || w == "down" })
	return line(words[1], weight, down, words[2:])
}

// line writes the directive of a server.
func line(address string, weight int, down bool, parameters []string) string {
	words := []string{"server", address}
	if weight != 1 {
		words = append(words, "weight="+strconv.Itoa(weight))
	}
	if down {
		words = append(words, "down")
	}
	return strings.Join(append(words, parameters...), " ") + ";"
}

// edit is a change of the text: what stands from start to end is replaced.
type edit struct {
	start, end int
	by         string
}

// apply makes the edits, which do not overlap.
func apply(text string, edits []edit) string {
	slices.SortStableFunc(edits, func(a, b edit) int { return a.start - b.start })
	var b strings.Builder
	at := 0
	for _, e := range edits {
		b.WriteString(text[at:e.start] + e.by)
		at = e.end
	}
	return b.String() + text[at:]
}

// whole extends a directive to its whole line, if nothing else stands on that line.
func whole(text string, d directive) (start, end int) {
	start, end = d.start, d.end
	for start > 0 && (text[start-1] == ' ' || text[start-1] == '\t') {
		start--
	}
	for end < len(text) && strings.IndexByte(" \t\r", text[end]) >= 0 {
		end++
	}
	if (start > 0 && text[start-1] != '\n') || (end < len(text) && text[end] != '\n') {
		return d.start, d.end
	}
	return start, min(end+1, len(text))
}
