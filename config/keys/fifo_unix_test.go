//go:build unix

package keys

import (
	"path/filepath"
	"syscall"
	"testing"
)

// A FIFO without a writer counts as empty: a reload must not wait for ever.
func TestAFIFODoesNotBlock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := ReadFile(path); err != nil || len(data) != 0 {
		t.Errorf("%q, %v", data, err)
	}
}
