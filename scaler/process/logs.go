package process

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// keptLogs is how many logs of ended instances are kept.
const keptLogs = 20

// openLog opens the file to which an instance writes directly, so that it can outlive this process. It is opened for
// appending, so that the instance continues at the start after cutLog.
func (f *folder) openLog(id string) (*os.File, error) {
	return os.OpenFile(f.log(id), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
}

// cutLog moves the last limit bytes of a log that is larger than limit to NAME.log.1 and empties it. It cannot rename
// the file, which the instance has open; lines that are written during the copy are lost.
func (f *folder) cutLog(id string, limit int64) error {
	info, err := os.Stat(f.log(id))
	if err != nil || info.Size() <= limit {
		return err
	}
	if err := copyTail(f.log(id), f.log(id)+".1", limit); err != nil {
		return fmt.Errorf("cutting the log of %s: %w", id, err)
	}
	return os.Truncate(f.log(id), 0)
}

func copyTail(from, to string, bytes int64) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	if _, err := src.Seek(-bytes, io.SeekEnd); err != nil {
		return err
	}
	_, err = io.CopyN(dst, src, bytes)
	return err
}

// pruneLogs removes the oldest logs of ended instances.
func (f *folder) pruneLogs(listed func(id string) bool) error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	var old []fs.FileInfo
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".log")
		if info, err := e.Info(); ok && err == nil && !listed(id) {
			old = append(old, info)
		}
	}
	slices.SortFunc(old, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	var errs []error
	for _, info := range old[:max(0, len(old)-keptLogs)] {
		name := filepath.Join(f.dir, info.Name())
		os.Remove(name + ".1") // usually there is none
		errs = append(errs, os.Remove(name))
	}
	return errors.Join(errs...)
}
