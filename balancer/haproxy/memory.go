package haproxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/quellhq/quell"
)

// entry is what is kept of an instance: which server stands for it.
type entry struct {
	ID      string `json:"id"`
	Server  string `json:"server"`
	Address string `json:"address"` // as it was given
	Numeric string `json:"numeric"` // ip:port of the same
	Probe   string `json:"probe,omitempty"`
	Added   bool   `json:"added,omitempty"`   // at run time: not in HAProxy's configuration
	Leaving bool   `json:"leaving,omitempty"` // no longer asked for
}

// values copies what can be compared.
func values(entries []*entry) []entry {
	copied := make([]entry, len(entries))
	for i, e := range entries {
		copied[i] = *e
	}
	return copied
}

// loadEntries reads the memory; none is no mistake, a damaged one is.
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

func saveEntries(path string, entries []*entry) error {
	if path == "" {
		return nil
	}
	data, err := json.MarshalIndent(append([]*entry{}, entries...), "", "  ")
	if err == nil {
		err = replaceFile(path, append(data, '\n'), 0o600)
	}
	return err
}
