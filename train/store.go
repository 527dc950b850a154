package train

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/internal/lockfile"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/model/modelfile"
)

// Settings are the values on which a training's rows depend, by names that users know. Rows measured under different settings
// cannot be combined.
type Settings map[string]string

// differences lists the settings that differ in other, sorted by name.
func (s Settings) differences(other Settings) []string {
	all := maps.Clone(s)
	maps.Copy(all, other)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if was, is := orNothing(other[name]), orNothing(s[name]); was != is {
			out = append(out, fmt.Sprintf("%s was %s and is %s", name, was, is))
		}
	}
	return out
}

func orNothing(value string) string {
	if value == "" {
		return "not given"
	}
	return value
}

// Store is a file of training rows to which a training appends, and from which it continues after an interruption. A second file
// next to it has the settings under which the rows were measured. Only one process at a time can use a store.
type Store struct {
	path  string
	file  *os.File
	size  int64 // of the complete lines
	rows  []model.TrainingRow
	added int // rows saved since the store was opened
}

// settingsSuffix, added to the name of a store's file, is the name of the file with its settings.
const settingsSuffix = ".settings"

// OpenStore opens the rows at path, or creates the file. An incomplete last line is cut off; complete rows stay. If rows were
// measured under other settings, the error is a *quell.UserError that names the differences. If fresh is set, the file of existing
// rows gets another name, and the store begins empty.
func OpenStore(path string, settings Settings, fresh bool) (*Store, error) {
	s := &Store{path: path}
	if err := s.open(); err != nil {
		return nil, err
	}
	if fresh && s.size > 0 {
		if err := errors.Join(setAside(path), s.file.Close()); err != nil {
			return nil, err
		}
		if err := s.open(); err != nil {
			return nil, err
		}
	}
	if err := s.begin(settings); err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	return s, nil
}

// open opens the file and locks it; the lock ends when the process ends, however it ends.
func (s *Store) open() error {
	if info, err := os.Stat(s.path); err == nil && !info.Mode().IsRegular() {
		return &quell.UserError{Err: fmt.Errorf("opening the training rows: %s is not a regular file", s.path)}
	}
	file, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return &quell.UserError{Err: fmt.Errorf("opening the training rows: %w", err)}
	}
	if err := lockfile.Hold(file); err != nil {
		if errors.Is(err, lockfile.ErrHeld) {
			err = &quell.UserError{Err: fmt.Errorf("%s is being written by another training: wait for it, or name another file", s.path)}
		}
		return errors.Join(err, file.Close())
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	s.file, s.size = file, info.Size()
	return nil
}

// setAside renames the file of rows at path, and the file with their settings, to the first free name.
func setAside(path string) error {
	for n := 1; ; n++ {
		aside := fmt.Sprintf("%s.%d", path, n)
		if _, err := os.Lstat(aside); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err := os.Rename(path, aside); err != nil {
			return fmt.Errorf("setting the rows of %s aside: %w", path, err)
		}
		if err := os.Rename(path+settingsSuffix, aside+settingsSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("setting the settings of %s aside: %w", path, err)
		}
		return nil
	}
}

// begin compares the stored settings with the given ones, or stores these if there are none.
func (s *Store) begin(settings Settings) error {
	if s.size == 0 {
		return s.writeSettings(settings)
	}
	if err := s.compare(settings); err != nil {
		return err
	}
	if err := s.mend(); err != nil {
		return err
	}
	if s.size == 0 {
		return nil
	}
	var err error
	s.rows, err = modelfile.LoadTraining(s.path)
	return err
}

func (s *Store) compare(settings Settings) error {
	data, err := os.ReadFile(s.path + settingsSuffix)
	if errors.Is(err, os.ErrNotExist) {
		return &quell.UserError{Err: fmt.Errorf("%s exists already, and no %s%s says how its rows were measured: name another file, or "+
			"give --fresh, which sets it aside", s.path, s.path, settingsSuffix)}
	}
	if err != nil {
		return fmt.Errorf("reading the settings of the training rows: %w", err)
	}
	var before Settings
	if err := json.Unmarshal(data, &before); err != nil {
		return &quell.UserError{Err: fmt.Errorf("%s%s: not the settings of a training: %w; name another file with --out, or give --fresh", s.path,
			settingsSuffix, err)}
	}
	if differing := settings.differences(before); len(differing) > 0 {
		return &quell.UserError{Err: fmt.Errorf("the rows of %s were measured otherwise: %s; go back to that, name another file, or give "+
			"--fresh, which sets them aside", s.path, strings.Join(differing, ", "))}
	}
	return nil
}

// writeSettings replaces the settings in one step: a crash leaves the old or the new ones.
func (s *Store) writeSettings(settings Settings) error {
	data, err := json.MarshalIndent(settings, "", " ")
	if err != nil {
		return fmt.Errorf("encoding the settings of a training: %w", err)
	}
	path := s.path + settingsSuffix
	if err := atomicfile.Write(path, append(data, '\n'), 0o644); err != nil {
		return s.failed(fmt.Errorf("writing the settings of a training: %w", err))
	}
	return nil
}

// mend completes the last line if only its line break is missing, and cuts it off otherwise.
func (s *Store) mend() error {
	data, err := io.ReadAll(s.file)
	if err != nil {
		return fmt.Errorf("reading the training rows: %w", err)
	}
	whole := int64(bytes.LastIndexByte(data, '\n') + 1)
	last := data[whole:]
	if len(last) == 0 {
		return nil
	}
	if _, err := model.ReadTraining(bytes.NewReader(last), "line "); err == nil {
		return s.append([]byte{'\n'})
	}
	if err := s.file.Truncate(whole); err != nil {
		return fmt.Errorf("cutting off a row that was half written: %w", err)
	}
	s.size = whole
	return nil
}

// Rows are the rows that existed when the store was opened.
func (s *Store) Rows() []model.TrainingRow { return s.rows }

// Save appends a row and waits until it is on the disk. A row that could not be written completely is removed.
func (s *Store) Save(row model.TrainingRow) error {
	data, err := json.Marshal(row)
	if err != nil {
		return fmt.Errorf("encoding a training row: %w", err)
	}
	if err := s.append(append(data, '\n')); err != nil {
		return err
	}
	s.added++
	return nil
}

// Added is how many rows were saved since the store was opened.
func (s *Store) Added() int { return s.added }

// In returns the options of a training that continues with the store's rows and saves its own there.
func (s *Store) In(o Options) Options {
	o.Rows, o.Save = s.rows, s.Save
	return o
}

func (s *Store) append(data []byte) error {
	_, err := s.file.WriteAt(data, s.size)
	if err == nil {
		err = s.file.Sync()
	}
	if err != nil {
		return s.failed(errors.Join(fmt.Errorf("writing a training row: %w", err), s.file.Truncate(s.size)))
	}
	s.size += int64(len(data))
	return nil
}

// failed adds to an error about a full disk what to do about it.
func (s *Store) failed(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("the disk under %s is full; free some space and give the same command again, the rows so far are kept: %w", s.path, err)
	}
	return err
}

// Close unlocks the store.
func (s *Store) Close() error { return s.file.Close() }
