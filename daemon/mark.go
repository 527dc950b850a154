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

// mark is kept outside the bus's store and records that this installation has had a memory; see controller.Mark. There are two copies, in
// two folders. So if the memory and one copy are damaged together, the other copy still tells that the memory is an old one.
type mark struct{ copies [2]string }

func markIn(data string) mark {
	return mark{[2]string{filepath.Join(data, "installation.json"), filepath.Join(data, "installation", "copy.json")}}
}

// Read returns the newer one of the valid copies. Without one it returns what is wrong with a damaged copy, or an error that wraps
// quell.ErrNoData if there is no copy at all.
func (m mark) Read() (newest controller.Mark, err error) {
	var valid bool
	for _, path := range m.copies {
		found, damage := readMark(path)
		switch {
		case damage == nil && (!valid || found.Orders > newest.Orders):
			newest, valid = found, true
		case err == nil || !errors.Is(damage, quell.ErrNoData):
			err = damage
		}
	}
	if valid {
		return newest, nil
	}
	return controller.Mark{}, err
}

func readMark(path string) (found controller.Mark, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return found, fmt.Errorf("%s: %w", path, quell.ErrNoData)
	}
	if err != nil {
		return found, err
	}
	if err := json.Unmarshal(data, &found); err != nil {
		return found, fmt.Errorf("%s: %w", path, err)
	}
	if found.Format != controller.MarkFormat {
		return found, fmt.Errorf("%s: format is %q, not %q", path, found.Format, controller.MarkFormat)
	}
	return found, nil
}

// Write replaces both copies, each in one step, so that a crash leaves the old or the new one.
func (m mark) Write(next controller.Mark) error {
	data, err := json.MarshalIndent(next, "", "  ")
	if err != nil {
		return err
	}
	var failed error
	for _, path := range m.copies {
		failed = errors.Join(failed, writeMark(path, append(data, '\n')))
	}
	return failed
}

func writeMark(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(path, data, 0o600)
}
