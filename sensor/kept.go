package sensor

import (
	"errors"
	"io"
	"io/fs"
)

// mostKept is how many files are kept open at most.
const mostKept = 500

// keptFiles reads small files of /proc that are read again in each period. It keeps them open, because opening and closing takes longer
// than reading.
type keptFiles struct {
	root   fs.FS
	open   map[string]*keptFile
	buffer [256]byte
}

type keptFile struct {
	file fs.File
	at   io.ReaderAt
	used bool // since the last call of closeUnused
}

func keepFiles(root fs.FS) *keptFiles { return &keptFiles{root: root, open: map[string]*keptFile{}} }

// read returns a file's content, which is valid until the next call.
func (k *keptFiles) read(name string) ([]byte, error) {
	f := k.open[name]
	if f == nil {
		file, err := k.root.Open(name)
		if err != nil {
			return nil, err
		}
		at, ok := file.(io.ReaderAt)
		if !ok || len(k.open) >= mostKept {
			return nil, errors.Join(file.Close(), errNotKept)
		}
		f = &keptFile{file: file, at: at}
		k.open[name] = f
	}
	f.used = true
	n, err := f.at.ReadAt(k.buffer[:], 0)
	if errors.Is(err, io.EOF) {
		return k.buffer[:n], nil
	}
	if err == nil {
		err = errNotKept // it is longer than the buffer
	}
	k.close(name)
	return nil, err
}

var errNotKept = errors.New("this file cannot be kept open")

// readFile is like read, for any file.
func (k *keptFiles) readFile(name string) ([]byte, error) {
	text, err := k.read(name)
	if errors.Is(err, errNotKept) {
		return fs.ReadFile(k.root, name)
	}
	return text, err
}

// closeUnused closes files that were not read since its last call.
func (k *keptFiles) closeUnused() {
	if k == nil {
		return
	}
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
