package builtin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/internal/strictjson"
)

// memory stores the last backends and the owner in files next to the admin socket. With them, a restarted balancer passes requests on at
// once, even if no controller runs, and no other controller can take it over before the owner returns.
type memory struct{ backends, owner string }

func memoryFor(adminSocket string) memory {
	return memory{adminSocket + ".backends.json", adminSocket + ".owner.json"}
}

// kept is the stored form of a backend.
type kept struct {
	quell.Backend
	ByHand *quell.Held `json:"by_hand,omitempty"`
}

// load returns nil, nil if nothing is stored.
func (m memory) load() ([]kept, error) {
	var backends []kept
	err := read(m.backends, &backends)
	if err == nil {
		specs := make([]quell.Backend, len(backends))
		for i, b := range backends {
			specs[i] = b.Backend
		}
		err = checkBackends(specs)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the last backends from %s: %w", m.backends, err)
	}
	return backends, nil
}

// loadOwner returns the zero value if there was no owner.
func (m memory) loadOwner() (owner quell.Owner, err error) {
	if err := read(m.owner, &owner); err != nil {
		return quell.Owner{}, fmt.Errorf("reading the last owner from %s: %w", m.owner, err)
	}
	return owner, nil
}

// read reads a file into v. If there is no file, v stays unchanged.
func read(path string, v any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return strictjson.Decode(data, v)
}

func (m memory) save(backends []kept) error {
	if err := replace(m.backends, append([]kept{}, backends...)); err != nil { // store an empty list, not null
		return fmt.Errorf("keeping the backends: %w", err)
	}
	return nil
}

func (m memory) saveOwner(owner quell.Owner) error {
	if err := replace(m.owner, owner); err != nil {
		return fmt.Errorf("keeping the owner: %w", err)
	}
	return nil
}

// replace writes a file. If the machine crashes, the file has either its old or its new content.
func replace(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(data, '\n'), 0o600)
}
