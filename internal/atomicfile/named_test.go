//go:build unix

package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A link stays a link, whether its target exists or not.
func TestWriteNamedFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	target, link, chain := filepath.Join(dir, "sub", "file"), filepath.Join(dir, "link"), filepath.Join(dir, "chain")
	if err := errors.Join(os.Symlink(filepath.Join("sub", "file"), link), os.Symlink("link", chain)); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"first", "second"} {
		if err := WriteNamed(chain, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		check(t, target, text, 0o644)
	}
	for _, path := range []string{link, chain} {
		if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeSymlink {
			t.Errorf("%s is no link any more: %v, %v", path, info, err)
		}
	}
	circle := filepath.Join(dir, "circle")
	if err := os.Symlink("circle", circle); err != nil {
		t.Fatal(err)
	}
	if err := WriteNamed(circle, nil, 0o644); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a link to itself: %v", err)
	}
}

// A pipe is written into, and stays a pipe.
func TestWriteNamedWritesIntoAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(path, os.O_RDWR, 0) // does not wait for a writer
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := WriteNamed(path, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeNamedPipe {
		t.Fatalf("the pipe was replaced: %v, %v", info, err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(reader, got); err != nil || string(got) != "text" {
		t.Errorf("the pipe has %q, %v", got, err)
	}
}

// The error has the name that the user gave, not that of a temporary file.
func TestWriteNamedRefusesAFolderByItsName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := WriteNamed(path, nil, 0o644); err == nil || !strings.Contains(err.Error(), path+": is a directory") {
		t.Errorf("a folder: %v", err)
	}
	alone(t, filepath.Dir(path))
}
