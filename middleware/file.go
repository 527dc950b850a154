package middleware

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/internal/lockfile"
)

// maxFile is the largest size of a configuration file, in bytes.
const maxFile = 4 << 20

// file is a configuration file that Quell may change. Beside it are hidden files: a lock, the candidate that is to replace it, and, while
// it is changed, a record of the original.
type file struct {
	path   string  // without symbolic links
	record *record // nil while the file is the original
	left   bool    // somebody edited it after Quell had changed it, so Quell changes it no more
	unlock func() error
}

// record is what is stored about a changed file.
type record struct {
	Original []byte             `json:"original"`
	Wrote    []string           `json:"wrote"`  // SHA-256 of each content that Quell may have left in the file
	Values   map[string]float64 `json:"values"` // what Quell set
}

// errEdited is the error if somebody else edited a file that Quell had changed.
var errEdited = errors.New("somebody edited it after Quell had changed it: it stays as it is now, and Quell changes it no more until the " +
	"agent is restarted")

// openFile reserves a file and reads its record, if an agent that was killed left one.
func openFile(path string) (*file, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	if _, err := readPlain(resolved); err != nil { // before anything is made beside it
		return nil, err
	}
	f := &file{path: resolved}
	if f.unlock, err = lockfile.Take(f.beside("lock"), 0o600); errors.Is(err, lockfile.ErrHeld) {
		return nil, fmt.Errorf("another agent manages %s: take it out of one configuration, or stop the other agent; or this agent's "+
			"configuration names the file twice, once through a symbolic link: name it the same way each time", path)
	} else if err != nil {
		return nil, fmt.Errorf("reserving %s: %w", path, err)
	}
	if err := f.recall(); err != nil {
		return nil, errors.Join(err, f.unlock())
	}
	return f, nil
}

// recall reads the record and removes a candidate that was left over.
func (f *file) recall() error {
	if err := os.Remove(f.beside("new")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	data, err := os.ReadFile(f.beside("original"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f.record = &record{}
	if err := quell.DecodeStrict(data, f.record); err != nil {
		return fmt.Errorf("%s, which records the original of %s, is damaged: look at the file and delete the record: %w",
			f.beside("original"), f.path, err)
	}
	return nil
}

// beside returns the path of a hidden file beside the file. Servers that read all files of a folder do not read hidden ones.
func (f *file) beside(what string) string {
	return filepath.Join(filepath.Dir(f.path), "."+filepath.Base(f.path)+".quell-"+what)
}

// original returns the content of before Quell changed the file.
func (f *file) original() (string, error) {
	if f.record == nil {
		return f.content()
	}
	return string(f.record.Original), nil
}

// set returns the values that Quell gave the file; nil if it is the original.
func (f *file) set() map[string]float64 {
	if f.record == nil {
		return nil
	}
	return f.record.Values
}

// read returns the file's content. If somebody edited the file after Quell had changed it, read drops the record, and the error is
// errEdited, now and later.
func (f *file) read() (string, error) {
	data, err := f.content()
	if err != nil {
		return "", err
	}
	if f.record != nil && !f.record.expects(data) {
		f.left = true
		if err := f.forget(); err != nil {
			return "", err
		}
	}
	if f.left {
		return data, fmt.Errorf("%s: %w", f.path, errEdited)
	}
	return data, nil
}

func (f *file) content() (string, error) {
	data, err := readPlain(f.path)
	return string(data), err
}

// readPlain reads a regular file of at most maxFile bytes, and refuses others: reading a FIFO may never end, and a file that is put in the
// place of a socket cuts off its clients.
func readPlain(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is %s: name a regular file", path, irregular(info.Mode()))
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return os.ReadFile(path)
}

// irregular says what a file is that is not regular.
func irregular(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}

// expects returns whether a content is Quell's or the original.
func (r *record) expects(content string) bool {
	return content == string(r.Original) || slices.Contains(r.Wrote, sum(content))
}

func sum(content string) string {
	hash := sha256.Sum256([]byte(content))
	return hex.EncodeToString(hash[:])
}

// place puts a candidate in the file's place. First it records the file's present content, so that a killed agent's change is undone. If
// the present content is not before, which the candidate was made from, place returns an error.
func (f *file) place(candidate, before, after string, values map[string]float64) error {
	if now, err := f.content(); err != nil || now != before {
		return errors.Join(err, errors.New("somebody edited it during the change, so nothing is changed"), os.Remove(candidate))
	}
	next := record{Original: []byte(before), Values: values}
	if f.record != nil {
		next.Original = f.record.Original
		next.Wrote = append(next.Wrote, sum(before))
	}
	next.Wrote = append(next.Wrote, sum(after))
	if err := f.note(&next); err != nil {
		return errors.Join(err, os.Remove(candidate))
	}
	return atomicfile.Replace(f.path, candidate)
}

// back puts the content and the record of an earlier moment in place again, unless somebody edited the file since.
func (f *file) back(content string, earlier *record) error {
	if _, err := f.read(); err != nil {
		return err
	}
	candidate, err := f.draft(content)
	if err != nil {
		return err
	}
	if err := atomicfile.Replace(f.path, candidate); err != nil {
		return err
	}
	return f.note(earlier)
}

// note stores a record; nil removes it.
func (f *file) note(r *record) error {
	if r == nil {
		return f.forget()
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := atomicfile.Write(f.beside("original"), append(data, '\n'), 0o600); err != nil {
		return err
	}
	f.record = r
	return nil
}

// forget removes the record.
func (f *file) forget() error {
	f.record = nil
	if err := os.Remove(f.beside("original")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
