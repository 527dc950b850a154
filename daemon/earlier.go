package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"

	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/atomicfile"
)

// earlier is the file in a data folder by which `quell release` tells the next controller that it released the balancer while none ran.
type earlier struct{ data string }

func (e earlier) path() string { return filepath.Join(e.data, "released.json") }

// Released returns the release, nil if there is no file.
func (e earlier) Released() (*controller.Released, error) {
	text, err := os.ReadFile(e.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r controller.Released
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", e.path(), err)
	}
	return &r, nil
}

// Taken removes the file.
func (e earlier) Taken() error {
	if err := os.Remove(e.path()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (e earlier) store(r controller.Released) error {
	text, err := json.Marshal(r)
	if err == nil {
		err = os.MkdirAll(e.data, 0o700)
	}
	if err == nil {
		err = atomicfile.Write(e.path(), append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("the balancer is released, but the next controller is not told of it and will set weights again: %w", err)
	}
	atomicfile.LikeFolder(e.path())
	return nil
}

// person names who runs this command.
func person() string {
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	if u, err := user.Current(); err == nil {
		return u.Username + "@" + host
	}
	return host
}
