package include

import (
	"slices"
	"strings"
)

// Edit is a change of a file. A server is named once at most.
type Edit struct {
	file    *File
	changes []change
	added   []string
	serving int // servers that the file has afterwards
}

// change replaces what stands in the text from start to end.
type change struct {
	start, end int
	by         string
}

// Edit begins a change.
func (f *File) Edit() *Edit { return &Edit{file: f, serving: len(f.Servers)} }

// Set gives a server a weight and a state. Its other parameters stay.
func (e *Edit) Set(s *Server, weight int, down bool) {
	e.changes = append(e.changes, change{s.start, s.end, s.with(weight, down)})
}

// Remove removes a server, with its line if nothing else stands there.
func (e *Edit) Remove(s *Server) {
	start, end := e.file.whole(s.directive)
	e.changes = append(e.changes, change{start, end, ""})
	e.serving--
}

// Add adds a server after the last one.
func (e *Edit) Add(address string, weight int, down bool, parameters []string) {
	e.added = append(e.added, line(address, weight, down, parameters))
	e.serving++
}

// Text returns the file's text after the change. A file that has no server left gets one at the address Nobody, which goes as soon as there
// is another; nobody says whether that server comes or goes.
func (e *Edit) Text() (text string, nobody bool) {
	i := slices.IndexFunc(e.file.Servers, func(s *Server) bool { return s.Address == Nobody && s.Down })
	changes, added := slices.Clone(e.changes), slices.Clone(e.added)
	switch {
	case e.serving == 0:
		nobody, added = true, append(added, line(Nobody, 1, true, nil)+" # there is no instance")
	case e.serving > 1 && i >= 0:
		nobody, changes = true, append(changes, e.file.withComment(e.file.Servers[i].directive))
	}
	at, before, after := e.file.end()
	for _, line := range added {
		changes = append(changes, change{at, at, before + line + after})
	}
	return apply(e.file.Text, changes), nobody
}

// apply makes changes that do not overlap.
func apply(text string, changes []change) string {
	slices.SortStableFunc(changes, func(a, b change) int { return a.start - b.start })
	var b strings.Builder
	at := 0
	for _, c := range changes {
		b.WriteString(text[at:c.start] + c.by)
		at = c.end
	}
	return b.String() + text[at:]
}

// whole extends a directive to its whole line, if nothing else stands on that line.
func (f *File) whole(d directive) (start, end int) {
	start, end = d.start, d.end
	for start > 0 && (f.Text[start-1] == ' ' || f.Text[start-1] == '\t') {
		start--
	}
	for end < len(f.Text) && strings.IndexByte(" \t\r", f.Text[end]) >= 0 {
		end++
	}
	if (start > 0 && f.Text[start-1] != '\n') || (end < len(f.Text) && f.Text[end] != '\n') {
		return d.start, d.end
	}
	return start, min(end+1, len(f.Text))
}

// withComment removes a directive and what follows it on its line.
func (f *File) withComment(d directive) change {
	end := d.end
	if eol := strings.IndexByte(f.Text[end:], '\n'); eol >= 0 {
		end += eol + 1
	}
	return change{d.start, end, ""}
}

// end returns where new servers are added, and what stands before and after each: on lines of their own after the last server's line.
func (f *File) end() (at int, before, after string) {
	at = len(f.Text)
	if len(f.Servers) > 0 {
		s := f.Servers[len(f.Servers)-1]
		before = f.Text[strings.LastIndexByte(f.Text[:s.start], '\n')+1 : s.start]
		before = before[:len(before)-len(strings.TrimLeft(before, " \t"))]
		if eol := strings.IndexByte(f.Text[s.end:], '\n'); eol >= 0 {
			return s.end + eol + 1, before, "\n"
		}
	}
	if f.Text == "" || strings.HasSuffix(f.Text, "\n") {
		return at, before, "\n"
	}
	return at, "\n" + before, ""
}
