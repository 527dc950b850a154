package middleware

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/internal/lockfile"
	"github.com/quellhq/quell/internal/strictjson"
)

// maxFile is the largest size of a configuration file, in bytes.
const maxFile = 4 << 20

// file is a configuration file that Quell may change. Beside it are hidden files: a lock, the candidate that is to replace it, and, while
// it is changed, a record of the original.
type file struct {
	link   string  // the path in the configuration
	path   string  // where link led when the agent started, without symbolic links
	record *record // nil while the file is the original
	last   *string // what this process left in the file; nil: nothing yet
	left   bool    // somebody edited it after Quell had changed it, so Quell changes it no more
	lost   *record // of a file that is left
	unread *unread // nil: no restored content waits for the server
	unlock func() error

	exchange func(path, with string) error // atomicfile.Exchange, except in tests
}

// record is what is stored about a changed file.
type record struct {
	Original []byte             `json:"original"`
	Wrote    []string           `json:"wrote"`  // SHA-256 of each content that Quell may have left in the file
	Values   map[string]float64 `json:"values"` // what Quell set
	// Shown are the values that the running server showed before the first change. A server need not show every parameter.
	Shown map[string]float64 `json:"shown,omitempty"`
	// Sum is the SHA-256 of all other fields. Earlier versions did not store it.
	Sum string `json:"sum,omitempty"`
}

// sumOf returns the checksum of a record's other fields.
func sumOf(r record) (string, error) {
	r.Sum = ""
	data, err := json.Marshal(r)
	return sum(string(data)), err
}

// errDamaged says that a record is not as it was written.
var errDamaged = errors.New("its content does not match its checksum")

// errEdited is the error if somebody else edited a file that Quell had changed.
var errEdited = errors.New("somebody edited it after Quell had changed it: it stays as it is now, and Quell changes it no more until the " +
	"agent is restarted")

// errMeanwhile is the error if somebody edits a file while Quell changes it.
var errMeanwhile = errors.New("somebody edited it during the change, so nothing is changed")

// SharedError is the error if another agent manages a file.
type SharedError struct{ Path string }

func (e *SharedError) Error() string {
	return fmt.Sprintf("another agent manages %s: take it out of one configuration, or stop the other agent; or this agent's configuration "+
		"names the file twice, once through a symbolic link: name it the same way each time", e.Path)
}

// openFile reserves a file and reads its record, if an agent that was killed left one.
func openFile(path string) (*file, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	if _, err := readPlain(resolved); err != nil { // before anything is made beside it
		return nil, err
	}
	f := &file{link: path, path: resolved, exchange: atomicfile.Exchange}
	if f.unlock, err = lockfile.Take(f.beside("lock"), 0o600); errors.Is(err, lockfile.ErrHeld) {
		return nil, &SharedError{path}
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
	if err := atomicfile.Remove(f.beside("new")); err != nil {
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
	err = strictjson.Decode(data, f.record)
	if err == nil && f.record.Sum != "" {
		var want string
		if want, err = sumOf(*f.record); err == nil && want != f.record.Sum {
			err = errDamaged
		}
	}
	if err != nil {
		return fmt.Errorf("%s, which records the original of %s, is damaged: look at the file and delete the record: %w",
			f.beside("original"), f.path, err)
	}
	return nil
}

// beside returns the path of a hidden file beside the file. Servers that read all files of a folder do not read hidden ones.
func (f *file) beside(what string) string {
	return filepath.Join(filepath.Dir(f.path), "."+filepath.Base(f.path)+".quell-"+what)
}

// same returns an error if the path in the configuration leads to another file than when the agent started.
func (f *file) same() error {
	now, err := filepath.EvalSymlinks(f.link)
	if err == nil && now != f.path {
		err = fmt.Errorf("%s: it is another file now than when the agent started (%s, was %s): restart the agent", f.link, now,
			f.path)
	}
	return err
}

// gone returns whether somebody put something else in the changed file's place that Quell must not replace, such as a symbolic link.
func (f *file) gone() bool {
	info, err := os.Lstat(f.path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular()
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
// errEdited, now and later. An edit of the restored original is nothing special, even if the server has not read the original yet.
func (f *file) read() (string, error) {
	data, err := f.content()
	if err != nil {
		return "", err
	}
	if f.record != nil && !f.expects(data) {
		drop := f.abandon
		if f.leftAs(string(f.record.Original)) {
			drop = f.forget
		}
		if err := drop(); err != nil {
			return "", err
		}
	}
	if f.left {
		return data, fmt.Errorf("%s: %w", f.path, errEdited)
	}
	return data, nil
}

func (f *file) content() (string, error) { return readOwn(f.path) }

// readOwn reads a file that Quell may replace, and follows no link.
func readOwn(path string) (string, error) {
	info, err := os.Lstat(path)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		err = fmt.Errorf("%s is a symbolic link", path)
	}
	if err != nil {
		return "", err
	}
	data, err := readPlain(path)
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

// expects returns whether a content of the changed file is Quell's. What a killed agent left is known from the record only. What this
// process left is known exactly: if a person puts the original back, or an earlier version, that is an edit like any other.
func (f *file) expects(content string) bool {
	if f.last != nil {
		return f.leftAs(content)
	}
	return content == string(f.record.Original) || slices.Contains(f.record.Wrote, sum(content))
}

func sum(content string) string {
	hash := sha256.Sum256([]byte(content))
	return hex.EncodeToString(hash[:])
}

// place puts a candidate in the file's place. First it records the file's present content, so that a killed agent's change is undone. If
// the present content is not before, which the candidate was made from, the error is errMeanwhile, and the record is the earlier one.
func (f *file) place(candidate, before, after string, values, shown map[string]float64) error {
	if now, err := f.content(); err != nil || now != before {
		return errors.Join(cmp.Or(err, errMeanwhile), os.Remove(candidate))
	}
	earlier := f.record
	next := record{Original: []byte(before), Values: values, Shown: shown}
	if earlier != nil {
		next.Original = earlier.Original
		next.Wrote = append(next.Wrote, sum(before))
	}
	next.Wrote = append(next.Wrote, sum(after))
	if err := f.note(&next); err != nil {
		return errors.Join(err, os.Remove(candidate))
	}
	err := f.replace(candidate, before, after)
	if err != nil && !f.leftAs(after) {
		err = errors.Join(err, f.note(earlier))
	}
	return err
}

// replace puts a candidate in the file's place, if before is there. Otherwise the error is errMeanwhile.
func (f *file) replace(candidate, before, after string) error {
	err := f.swap(candidate, before, after)
	if errors.Is(err, errors.ErrUnsupported) {
		err = f.overwrite(candidate, before)
	}
	now, wrong := f.content()
	if err == nil || !errors.Is(err, errMeanwhile) && wrong == nil && now == after { // perhaps only the folder was not synced
		f.last = &after
	}
	return err
}

// swap exchanges a candidate with the file, looks at what came out, and exchanges them again if that is an edit. What comes out then is the
// candidate, or an edit of that very moment, which goes back in turn.
func (f *file) swap(candidate, before, after string) error {
	awaited, placed := before, after
	for {
		err := f.exchange(candidate, f.path)
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			return err
		case err != nil && placed != after: // the candidate is the edit
			return errors.Join(err, os.Rename(candidate, f.path))
		case err != nil:
			return errors.Join(err, os.Remove(candidate))
		}
		out, err := readOwn(candidate)
		if err == nil && out == awaited {
			break
		}
		awaited, placed = placed, out
	}
	err := errors.Join(os.Remove(candidate), atomicfile.SyncFolder(f.path))
	if placed != after {
		err = errors.Join(errMeanwhile, err)
	}
	return err
}

// overwrite is for file systems without exchange. It loses an edit between the look at the file and the rename.
func (f *file) overwrite(candidate, before string) error {
	if now, err := f.content(); err != nil || now != before {
		return errors.Join(cmp.Or(err, errMeanwhile), os.Remove(candidate))
	}
	return atomicfile.Replace(f.path, candidate)
}

// leftAs returns whether the last thing that this process left in the file is this content.
func (f *file) leftAs(content string) bool { return f.last != nil && *f.last == content }

// back puts the content and the record of an earlier moment in place again, unless somebody edited the file since.
func (f *file) back(content string, earlier *record) error {
	if err := f.put(content); err != nil {
		return err
	}
	return f.note(earlier)
}

// put puts the content of an earlier moment in the changed file's place again, unless somebody edited the file since. The record stays.
func (f *file) put(content string) error {
	now, err := f.read()
	if err == nil && f.record == nil {
		err = fmt.Errorf("%s: %w", f.path, errEdited)
	}
	if err != nil || now == content && f.leftAs(content) {
		return err
	}
	candidate, err := f.draft(content)
	if err != nil {
		return err
	}
	if err = f.replace(candidate, now, content); errors.Is(err, errMeanwhile) {
		return errors.Join(fmt.Errorf("%s: %w", f.path, errEdited), f.abandon())
	}
	return err
}

// note stores the record of the present content; nil removes it.
func (f *file) note(r *record) error {
	if r == nil {
		return f.forget()
	}
	var err error
	if r.Sum, err = sumOf(*r); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := atomicfile.Write(f.beside("original"), append(data, '\n'), 0o600); err != nil {
		return err
	}
	f.record, f.unread = r, nil
	return nil
}

// abandon leaves the file to a person who edited it after Quell had changed it.
func (f *file) abandon() error {
	f.left, f.lost = true, f.record
	return f.forget()
}

// forget removes the record: the file is the original.
func (f *file) forget() error {
	f.record, f.last, f.unread = nil, nil, nil
	return atomicfile.Remove(f.beside("original"))
}
