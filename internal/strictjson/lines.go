package strictjson

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/quellhq/quell"
)

// maxLine is the limit of one line of JSON: a snapshot of 10,000 instances takes about 8 MB.
const maxLine = 64 << 20

// Lines reads JSON lines: one object per line, empty lines are skipped. Errors name the file and the line.
type Lines struct {
	name string
	r    *bufio.Reader
	line int
}

// NewLines reads from r; name is used in messages.
func NewLines(name string, r io.Reader) *Lines {
	return &Lines{name: name, r: bufio.NewReaderSize(r, 64<<10)}
}

// Next decodes the next line into v. It returns io.EOF at the end and a *quell.UserError for a bad line.
func (l *Lines) Next(v any) error {
	for {
		data, err := l.read()
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(data)) == 0 {
			continue
		}
		if err := Decode(data, v); err != nil {
			return l.Errorf("%w", err)
		}
		return nil
	}
}

// Errorf makes a *quell.UserError that names the file and the present line.
func (l *Lines) Errorf(format string, args ...any) error {
	return &quell.UserError{Err: fmt.Errorf("%s:%d: %w", l.name, l.line, fmt.Errorf(format, args...))}
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

// SnapshotReader reads recorded snapshots, one per line, in order of time.
type SnapshotReader struct {
	lines *Lines
	last  *quell.Snapshot
}

// NewSnapshotReader reads from r; name is used in messages.
func NewSnapshotReader(name string, r io.Reader) *SnapshotReader {
	return &SnapshotReader{lines: NewLines(name, r)}
}

// Errorf makes a *quell.UserError that names the file and the line of the last snapshot.
func (r *SnapshotReader) Errorf(format string, args ...any) error {
	return r.lines.Errorf(format, args...)
}

// Next returns the next snapshot, io.EOF at the end, or a *quell.UserError naming the line and every rule it breaks.
func (r *SnapshotReader) Next() (*quell.Snapshot, error) {
	s := new(quell.Snapshot)
	if err := r.lines.Next(s); err != nil {
		return nil, err
	}
	if err := s.Validate(); err != nil {
		return nil, r.lines.Errorf("%w", err)
	}
	if r.last != nil && s.At.Before(r.last.At) {
		return nil, r.lines.Errorf("at: time goes backwards, from %s to %s", stamp(r.last.At), stamp(s.At))
	}
	r.last = s
	return s, nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
