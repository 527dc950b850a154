package balancer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/internal/outage"
	"github.com/quellhq/quell/internal/strictjson"
)

// Memory is the file in which a driver stores which server stands for which instance, one entry of type E for each.
//
// It is not safe for concurrent use.
type Memory[E any] struct {
	Path   string        // empty: nothing is stored
	About  string        // what the file says, for errors: "which server stands for which instance"
	Remedy string        // what to do if it is damaged
	Valid  func(*E) bool // whether an entry has all that the driver needs
	Logger *slog.Logger

	kept    []byte // the content of the file
	failing outage.Log
}

// Read returns the stored entries. A missing file is not an error, a damaged file is.
func (m *Memory[E]) Read() ([]*E, error) {
	m.failing = outage.Log{Logger: m.Logger, What: "keeping " + m.About}
	entries, err := m.read()
	m.kept = encode(entries)
	return entries, err
}

func (m *Memory[E]) read() ([]*E, error) {
	if m.Path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(m.Path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", m.About, err)
	}
	damaged := func(why error) error { return fmt.Errorf("%s is damaged: %s: %w", m.Path, m.Remedy, why) }
	var entries []*E
	if err := strictjson.Decode(data, &entries); err != nil {
		return nil, damaged(err)
	}
	for i, e := range entries {
		if e == nil || !m.Valid(e) {
			return nil, damaged(fmt.Errorf("entry %d", i))
		}
	}
	return entries, nil
}

// Keep stores the entries if they changed, and returns whether they did. If that fails, it is logged, and tried again at the next call:
// what a driver does for its instances is more important.
func (m *Memory[E]) Keep(entries []*E) (changed bool) {
	now := encode(entries)
	if bytes.Equal(now, m.kept) {
		return false
	}
	var err error
	if m.Path != "" {
		err = atomicfile.Write(m.Path, now, 0o600)
		atomicfile.LikeFolder(m.Path) // `quell release` may run as root
	}
	if m.failing.Report(err); err == nil {
		m.kept = now
	}
	return true
}

// encode returns the content of the file.
func encode[E any](entries []*E) []byte {
	data, _ := json.MarshalIndent(append([]*E{}, entries...), "", "  ")
	return append(data, '\n')
}
