package builtin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/quellhq/quell"
)

// memory keeps the last backends in a file beside the admin socket, so that traffic flows at once when the balancer
// restarts, whether or not there is a controller. The controller's next word replaces it.
type memory struct{ path string }

func memoryFor(adminSocket string) memory { return memory{adminSocket + ".backends.json"} }

// load returns nil, nil where nothing was kept.
func (m memory) load() ([]quell.Backend, error) {
	data, err := os.ReadFile(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the last backends: %w", err)
	}
	var backends []quell.Backend
	if err := quell.DecodeStrict(data, &backends); err != nil {
		return nil, fmt.Errorf("reading the last backends from %s: %w", m.path, err)
	}
	if err := checkBackends(backends); err != nil {
		return nil, fmt.Errorf("reading the last backends from %s: %w", m.path, err)
	}
	return backends, nil
}

// save replaces the file as a whole: a crash leaves the old or the new list.
func (m memory) save(backends []quell.Backend) error {
	data, err := json.MarshalIndent(backends, "", "  ")
	if err != nil {
		return fmt.Errorf("keeping the backends: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(m.path), filepath.Base(m.path)+".*")
	if err != nil {
		return fmt.Errorf("keeping the backends: %w", err)
	}
	_, err = tmp.Write(append(data, '\n'))
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), m.path)
	}
	if err != nil {
		os.Remove(tmp.Name())
		return fmt.Errorf("keeping the backends: %w", err)
	}
	return nil
}
