package balancer

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/quellhq/quell"
)

// Memory is the file in which a driver stores which server stands for which instance, one entry of type E for each.
type Memory[E any] struct {
	Path   string        // empty: nothing is stored
	About  string        // what the file says, for errors: "which server stands for which instance"
	Remedy string        // what to do if it is damaged
	Valid  func(*E) bool // whether an entry has all that the driver needs
}

// Read returns the stored entries. A missing file is not an error, a damaged file is.
func (m Memory[E]) Read() ([]*E, error) {
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
	if err := quell.DecodeStrict(data, &entries); err != nil {
		return nil, damaged(err)
	}
	for i, e := range entries {
		if e == nil || !m.Valid(e) {
			return nil, damaged(fmt.Errorf("entry %d", i))
		}
	}
	return entries, nil
}

// EncodeMemory returns the content of the file.
func EncodeMemory[E any](entries []*E) []byte {
	data, _ := json.MarshalIndent(append([]*E{}, entries...), "", "  ")
	return append(data, '\n')
}
