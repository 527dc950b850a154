package haproxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/atomicfile"
)

// entry is what is stored about an instance: which server belongs to it.
type entry struct {
	ID      string `json:"id"`
	Server  string `json:"server"`
	Address string `json:"address"` // as it was given
	Numeric string `json:"numeric"` // the same as ip:port
	Probe   string `json:"probe,omitempty"`
	Added   bool   `json:"added,omitempty"`   // at run time: not in HAProxy's configuration
	Leaving bool   `json:"leaving,omitempty"` // no longer requested
	Drain   bool   `json:"drain,omitempty"`   // was requested to drain
	Held    bool   `json:"held,omitempty"`    // because a person asked Quell for it

	At map[string]*trace `json:"at,omitempty"` // by HAProxy's socket
}

// loadEntries reads the memory. A missing file is not an error, a damaged file is.
func loadEntries(path string) ([]*entry, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading which server stands for which instance: %w", err)
	}
	var entries []*entry
	if err := quell.DecodeStrict(data, &entries); err != nil {
		return nil, fmt.Errorf("%s is damaged: delete it, and Quell finds the servers by their names and addresses: %w", path, err)
	}
	for i, e := range entries {
		if e == nil || e.ID == "" || !names.MatchString(e.Server) {
			return nil, fmt.Errorf("%s is damaged: delete it, and Quell finds the servers by their names and addresses: entry %d", path, i)
		}
	}
	return entries, nil
}

// encodeEntries returns what saveEntries writes.
func encodeEntries(entries []*entry) []byte {
	data, _ := json.MarshalIndent(append([]*entry{}, entries...), "", "  ")
	return append(data, '\n')
}

func saveEntries(path string, encoded []byte) error {
	if path == "" {
		return nil
	}
	return atomicfile.Write(path, encoded, 0o600)
}
