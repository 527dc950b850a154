package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/internal/lockfile"
)

// folder is the state folder: instances.json, its lock, and the logs.
type folder struct {
	dir   string
	close func() error // releases the lock
}

// openFolder makes the folder if it is missing, and locks it: two drivers in one folder would each not know the
// other's instances. The lock ends with the process in any case.
func openFolder(dir string) (*folder, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the state folder: %w", err)
	}
	release, err := lockfile.Take(filepath.Join(dir, "lock"), 0o644)
	if errors.Is(err, lockfile.ErrHeld) {
		return nil, &quell.UserError{Err: fmt.Errorf("state folder %s %w: stop that one, or give this one a folder of its own", dir, ErrInUse)}
	}
	if err != nil {
		return nil, fmt.Errorf("locking the state folder %s: %w", dir, err)
	}
	return &folder{dir: dir, close: release}, nil
}

func (f *folder) path() string         { return filepath.Join(f.dir, "instances.json") }
func (f *folder) log(id string) string { return filepath.Join(f.dir, id+".log") }

// load reads instances.json. seen is when the file was last touched: at that time the instances were alive.
func (f *folder) load() (l *ledger, seen time.Time, err error) {
	data, err := os.ReadFile(f.path())
	if errors.Is(err, fs.ErrNotExist) {
		return newLedger(), time.Time{}, nil
	}
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("reading the list of instances: %w", err)
	}
	info, err := os.Stat(f.path())
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("reading the list of instances: %w", err)
	}
	if l, err = decodeLedger(data); err != nil {
		return nil, time.Time{}, &quell.UserError{Err: fmt.Errorf("%s: %w. The instances it lists may still be running: "+
			"repair the file, or delete it: on Linux they are found again by their mark. Elsewhere end them first, by the pids in it",
			f.path(), err)}
	}
	return l, info.ModTime(), nil
}

// save replaces instances.json in one step, so that a crash leaves the old or the new file.
func (f *folder) save(l *ledger, now time.Time) error {
	data, err := l.encode()
	if err == nil {
		err = f.replace(data, now)
	}
	if err != nil {
		return fmt.Errorf("writing the list of instances: %w", err)
	}
	return nil
}

func (f *folder) replace(data []byte, now time.Time) error {
	if err := os.MkdirAll(f.dir, 0o755); err != nil { // the parent folder may have been emptied
		return err
	}
	if err := atomicfile.Write(f.path(), data, 0o644); err != nil {
		return err
	}
	return f.touch(now)
}

// touch records that the listed instances are still alive.
func (f *folder) touch(now time.Time) error { return os.Chtimes(f.path(), now, now) }
