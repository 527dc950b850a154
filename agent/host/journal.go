package host

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/internal/atomicfile"
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

// journalOf returns the journal in an agent's folder.
func journalOf(dir string) *journal {
	return &journal{path: filepath.Join(dir, "journal.jsonl"), most: journalBytes / 2}
}

// ReadJournal calls fn with the entries in the journal of an agent's folder that are not older than since, oldest first. The agent may run
// meanwhile. If fn returns an error, ReadJournal stops and returns it. If there is no journal, the error wraps quell.ErrNoData. Lines that
// cannot be decoded are skipped and reported at the end; an incomplete last line is not reported.
func ReadJournal(dir string, since time.Time, fn func(bus.Entry) error) error {
	files, err := journalOf(dir).files()
	if err != nil {
		return fmt.Errorf("reading the agent's journal: %w", err)
	}
	if len(files) == 0 {
		return fmt.Errorf("%w: no agent has kept a journal in %s: start quell agent with agent.policy", quell.ErrNoData, dir)
	}
	damaged := 0
	for _, f := range files {
		if err == nil {
			err = eachEntry(f, func(e bus.Entry) error {
				if e.At.Before(since) {
					return nil
				}
				return fn(e)
			}, &damaged)
		}
		err = errors.Join(err, f.Close())
	}
	if err == nil && damaged > 0 {
		err = fmt.Errorf("%d damaged lines in the journal in %s were skipped", damaged, dir)
	}
	return err
}

// files opens the existing ones of the previous and the present file. If the agent renames the present file in between, both names lead to
// the same file, and they are opened again.
func (j *journal) files() ([]*os.File, error) {
	for {
		var files []*os.File
		var infos []os.FileInfo
		for _, path := range []string{j.path, j.aside()} {
			f, err := os.Open(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			var info os.FileInfo
			if err == nil {
				files = append(files, f)
				info, err = f.Stat()
			}
			if err != nil {
				return nil, errors.Join(err, closeAll(files))
			}
			infos = append(infos, info)
		}
		if len(infos) < 2 || !os.SameFile(infos[0], infos[1]) {
			slices.Reverse(files)
			return files, nil
		}
		if err := closeAll(files); err != nil {
			return nil, err
		}
	}
}

func closeAll(files []*os.File) (err error) {
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// eachEntry calls fn with the entries of a file, and counts the lines that are no entries.
func eachEntry(r io.Reader, fn func(bus.Entry) error, damaged *int) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the agent's journal: %w", err)
		}
		var e bus.Entry
		if json.Unmarshal(line, &e) != nil || e.At.IsZero() || e.Kind == bus.PlanEntry && e.Plan == nil {
			*damaged++
			continue
		}
		if err := fn(e); err != nil {
			return err
		}
	}
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
	size, err := atomicfile.WholeLines(file)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	j.file, j.size = file, size
	return nil
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
