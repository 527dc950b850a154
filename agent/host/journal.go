package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/quellhq/quell/bus"
)

// journalBytes is the limit of a journal on disk: the present file and the one before it.
const journalBytes = 16 << 20

// journal is a file of JSON lines, each a bus.Entry. When it reaches its limit it is renamed, which replaces the previous file.
type journal struct {
	path string
	most int64 // bytes of one file

	file *os.File
	size int64
}

// append writes an entry. After an error nothing of the entry is in the file, and the next call opens the file again.
func (j *journal) append(e bus.Entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	if err := j.write(append(line, '\n')); err != nil {
		return fmt.Errorf("writing the journal: %w", errors.Join(err, j.close()))
	}
	return nil
}

func (j *journal) write(line []byte) error {
	if j.file != nil && j.size+int64(len(line)) > j.most {
		if err := errors.Join(j.close(), os.Rename(j.path, j.aside())); err != nil {
			return err
		}
	}
	if err := j.open(); err != nil {
		return err
	}
	n, err := j.file.WriteAt(line, j.size)
	if err != nil {
		if n > 0 { // the disk is full: remove the incomplete line
			err = errors.Join(err, j.file.Truncate(j.size))
		}
		return err
	}
	j.size += int64(n)
	return nil
}

// aside returns the path of the previous file.
func (j *journal) aside() string { return j.path + ".1" }

// open continues after the last whole line. It removes an incomplete line that a killed agent left.
func (j *journal) open() error {
	if j.file != nil {
		return nil
	}
	file, err := os.OpenFile(j.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	size, err := wholeLines(file)
	if err == nil {
		err = file.Truncate(size)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	j.file, j.size = file, size
	return nil
}

// wholeLines returns where the last whole line of a file ends.
func wholeLines(file *os.File) (int64, error) {
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	const step = 64 << 10
	for end > 0 {
		from := max(0, end-step)
		part := make([]byte, end-from)
		if _, err := file.ReadAt(part, from); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			return from + int64(i) + 1, nil
		}
		end = from
	}
	return 0, nil
}

func (j *journal) close() error {
	if j.file == nil {
		return nil
	}
	err := j.file.Close()
	j.file = nil
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	return err
}
