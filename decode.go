package quell

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxLine bounds one line of JSON: a snapshot of 10,000 instances takes about 8 MB.
const maxLine = 64 << 20

// DecodeStrict decodes exactly one JSON value into v. Unknown and repeated fields, trailing data, and numbers that
// do not fit are errors.
func DecodeStrict(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.New("the JSON ends too early: the line is truncated")
		}
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the end of the JSON value")
	}
	return repeatedKey(data)
}

// repeatedKey reports a key that stands twice in one object, which encoding/json would silently let the last win.
func repeatedKey(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	type level struct {
		keys map[string]bool // nil in an array
		key  bool            // the next string is a key
	}
	var open []level
	for {
		tok, err := dec.Token()
		if err != nil {
			return nil // the value was decoded before, so this is its end
		}
		if d, ok := tok.(json.Delim); ok && (d == '}' || d == ']') {
			open = open[:len(open)-1]
			continue
		}
		if n := len(open); n > 0 && open[n-1].keys != nil {
			top := &open[n-1]
			if top.key {
				name := tok.(string)
				if top.keys[name] {
					return fmt.Errorf("field %q is given twice", name)
				}
				top.keys[name] = true
			}
			top.key = !top.key
			if !top.key {
				continue
			}
		}
		switch tok {
		case json.Delim('{'):
			open = append(open, level{keys: map[string]bool{}, key: true})
		case json.Delim('['):
			open = append(open, level{})
		}
	}
}

// Lines reads JSON lines: one object a line, empty lines skipped. Errors name the file and the line.
type Lines struct {
	name string
	r    *bufio.Reader
	line int
}

// NewLines reads from r; name stands in messages.
func NewLines(name string, r io.Reader) *Lines {
	return &Lines{name: name, r: bufio.NewReaderSize(r, 64<<10)}
}

// Next decodes the next line into v. It returns io.EOF at the end and a *UserError for a bad line.
func (l *Lines) Next(v any) error {
	for {
		data, err := l.read()
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(data)) == 0 {
			continue
		}
		if err := DecodeStrict(data, v); err != nil {
			return l.Errorf("%w", err)
		}
		return nil
	}
}

// Errorf makes a *UserError that names the file and the present line.
func (l *Lines) Errorf(format string, args ...any) error {
	return &UserError{fmt.Errorf("%s:%d: %w", l.name, l.line, fmt.Errorf(format, args...))}
}

func (l *Lines) read() ([]byte, error) {
	var data []byte
	for {
		part, err := l.r.ReadSlice('\n')
		data = append(data, part...)
		switch {
		case len(data) > maxLine:
			l.line++
			return nil, l.Errorf("the line is longer than %d MiB", maxLine>>20)
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(data) == 0:
			return nil, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return nil, fmt.Errorf("reading %s: %w", l.name, err)
		default:
			l.line++
			return data, nil
		}
	}
}

// SnapshotReader reads recorded snapshots, one a line, in order of time.
type SnapshotReader struct {
	lines *Lines
	last  *Snapshot
}

// NewSnapshotReader reads from r; name stands in messages.
func NewSnapshotReader(name string, r io.Reader) *SnapshotReader {
	return &SnapshotReader{lines: NewLines(name, r)}
}

// Next returns the next snapshot, io.EOF at the end, or a *UserError naming the line and every rule it breaks.
func (r *SnapshotReader) Next() (*Snapshot, error) {
	s := new(Snapshot)
	if err := r.lines.Next(s); err != nil {
		return nil, err
	}
	if err := s.Validate(); err != nil {
		return nil, r.lines.Errorf("%w", err)
	}
	if r.last != nil && s.At.Before(r.last.At) {
		return nil, r.lines.Errorf("at: time goes backwards, from %s to %s", timeText(r.last.At), timeText(s.At))
	}
	r.last = s
	return s, nil
}
