package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/atomicfile"
)

// mark is a file, outside the bus's store, which records that this installation has had a memory; see controller.Mark.
type mark struct{ path string }

func markIn(data string) mark { return mark{filepath.Join(data, "installation.json")} }

// Read returns an error that wraps quell.ErrNoData if there is no mark. An invalid mark is an error too.
func (m mark) Read() (controller.Mark, error) {
	var found controller.Mark
	data, err := os.ReadFile(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return found, fmt.Errorf("%s: %w", m.path, quell.ErrNoData)
	}
	if err != nil {
		return found, err
	}
	if err := json.Unmarshal(data, &found); err != nil {
		return found, fmt.Errorf("%s: %w", m.path, err)
	}
	if found.Format != controller.MarkFormat {
		return found, fmt.Errorf("%s: format is %q, not %q", m.path, found.Format, controller.MarkFormat)
	}
	return found, nil
}

// Write replaces the mark in one step, so that a crash leaves the old or the new one.
func (m mark) Write(next controller.Mark) error {
	data, err := json.MarshalIndent(next, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(m.path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(m.path, append(data, '\n'), 0o600)
}
