//go:build unix

package namedfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAFIFODoesNotBlock(t *testing.T) {
	if data, err := Read(fifo(t), 10); err != nil || len(data) != 0 {
		t.Errorf("without a writer: %q, %v", data, err)
	}
	path := fifo(t)
	writer, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if _, err := writer.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	if data, err := Begin(path, 4); err != nil || string(data) != "text" {
		t.Errorf("with a writer: %q, %v", data, err)
	}
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if _, err := Read(path, 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := Read(path, 10); err != nil || string(data) != "0123456789" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := Read(path, 9); err == nil || !strings.Contains(err.Error(), path+" is larger than 9 bytes") {
		t.Errorf("a file of 10 bytes: %v", err)
	}
	if data, err := Begin(path, 9); err != nil || string(data) != "012345678" {
		t.Errorf("%q, %v", data, err)
	}
}
