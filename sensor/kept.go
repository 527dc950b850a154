package sensor

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
)

// Limits of files that are kept open.
const (
	mostKept  = 500     // files
	mostBytes = 1 << 14 // of one file
)

// keptFiles is the machine's file system, for files of the kernel that are read again in each period. It keeps them open, because opening
// and closing takes longer than reading.
type keptFiles struct {
	root   fs.FS
	open   map[string]*keptFile
	long   map[string]bool // names of files that do not fit into the buffer
	buffer [mostBytes]byte
}

type keptFile struct {
	file fs.File
	at   io.ReaderAt
	used bool // since the last call of closeUnused
}

func keepFiles(root fs.FS) *keptFiles {
	return &keptFiles{root: root, open: map[string]*keptFile{}, long: map[string]bool{}}
}

// Open implements fs.FS. What it opens is not kept.
func (k *keptFiles) Open(name string) (fs.File, error) { return k.root.Open(name) }

// Stat implements fs.StatFS.
func (k *keptFiles) Stat(name string) (fs.FileInfo, error) { return fs.Stat(k.root, name) }

// ReadDir implements fs.ReadDirFS.
func (k *keptFiles) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(k.root, name) }

// ReadFile implements fs.ReadFileFS.
func (k *keptFiles) ReadFile(name string) ([]byte, error) {
	text, err := k.read(name)
	return bytes.Clone(text), err
}

// read returns a file's content, which is valid until the next call. A file that was kept open may be one that is gone, such as that of a
// group which was made again: then it is opened anew.
func (k *keptFiles) read(name string) ([]byte, error) {
	if f := k.open[name]; f != nil {
		if text, err := k.readAt(f); err == nil {
			return text, nil
		}
		k.close(name)
	}
	if k.long[name] || len(k.open) >= mostKept {
		return fs.ReadFile(k.root, name)
	}
	file, err := k.root.Open(name)
	if err != nil {
		return nil, err
	}
	at, ok := file.(io.ReaderAt)
	if !ok {
		return nil, errors.Join(file.Close(), errors.New("this file cannot be read again"))
	}
	f := &keptFile{file: file, at: at}
	k.open[name] = f
	text, err := k.readAt(f)
	if err == nil {
		return text, nil
	}
	k.close(name)
	if errors.Is(err, errLong) {
		k.long[name] = true
		return fs.ReadFile(k.root, name)
	}
	return nil, err
}

var errLong = errors.New("longer than the buffer")

func (k *keptFiles) readAt(f *keptFile) ([]byte, error) {
	f.used = true
	n, err := f.at.ReadAt(k.buffer[:], 0)
	switch {
	case errors.Is(err, io.EOF):
		return k.buffer[:n], nil
	case err == nil:
		err = errLong
	}
	return nil, err
}

// closeUnused closes files that were not read since its last call.
func (k *keptFiles) closeUnused() {
	for name, f := range k.open {
		if !f.used {
			k.close(name)
			continue
		}
		f.used = false
	}
}

func (k *keptFiles) close(name string) {
	_ = k.open[name].file.Close() // it was only read
	delete(k.open, name)
}
