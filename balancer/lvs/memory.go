package lvs

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/atomicfile"
)

// entry is what is stored about an instance: its real server, and who took it out.
type entry struct {
	ID      string         `json:"id"`
	Address string         `json:"address"` // as it was given
	Numeric netip.AddrPort `json:"numeric"`
	Probe   string         `json:"probe,omitempty"`
	Leaving bool           `json:"leaving,omitempty"` // no longer requested, and its weight may not be 0 yet
	Drain   bool           `json:"drain,omitempty"`   // was requested to drain
	Held    bool           `json:"held,omitempty"`    // because a person asked Quell for it

	In map[string]*trace `json:"in,omitempty"` // by virtual service
}

// load reads the memory. A missing file is not an error, a damaged file is.
func load(path string) ([]*entry, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading which real server stands for which instance: %w", err)
	}
	damaged := func(why error) error {
		return fmt.Errorf("%s is damaged: delete it, and Quell finds the real servers by their addresses: %w", path, why)
	}
	var entries []*entry
	if err := quell.DecodeStrict(data, &entries); err != nil {
		return nil, damaged(err)
	}
	for i, e := range entries {
		if e == nil || e.ID == "" || !e.Numeric.IsValid() {
			return nil, damaged(fmt.Errorf("entry %d", i))
		}
	}
	return entries, nil
}

// encode returns what is stored.
func encode(entries []*entry) []byte {
	data, _ := json.MarshalIndent(append([]*entry{}, entries...), "", "  ")
	return append(data, '\n')
}

func save(path string, encoded []byte) error {
	if path == "" {
		return nil
	}
	return atomicfile.Write(path, encoded, 0o600)
}
