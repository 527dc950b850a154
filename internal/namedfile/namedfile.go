// Package namedfile reads files that a configuration names. Such a file may be a FIFO, which must not stop a process that reads its
// configuration again.
package namedfile

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// patience is how long the writer of a FIFO may take.
const patience = 5 * time.Second

// Begin reads at most the first n bytes of a file. A FIFO without a writer counts as empty.
func Begin(path string, n int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	_ = f.SetReadDeadline(time.Now().Add(patience)) // regular files have no deadline
	return io.ReadAll(io.LimitReader(f, n))
}

// Read reads a file of at most n bytes. A larger one is an error.
func Read(path string, n int64) ([]byte, error) {
	data, err := Begin(path, n+1)
	if err == nil && int64(len(data)) > n {
		err = fmt.Errorf("%s is larger than %d bytes", path, n)
	}
	return data, err
}
