package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWriteReplacesContentAndPermissions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, c := range []struct {
		text string
		mode os.FileMode
	}{{"first", 0o644}, {"second", 0o600}, {"", 0o666}} {
		if err := Write(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		check(t, path, c.text, c.mode)
	}
}

func TestCreateLeavesAFileAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := Create(path, []byte("first"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Create(path, []byte("second"), 0o644); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second time: %v", err)
	}
	check(t, path, "first", 0o600)
}

func TestAFailureLeavesWhatWasThere(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "folder")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("text"), 0o644); err == nil {
		t.Error("a folder was replaced by a file")
	}
	missing := filepath.Join(dir, "none", "file")
	if err := Write(missing, nil, 0o644); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), " "+missing+": ") {
		t.Errorf("in a folder that is not there: %v", err)
	}
	alone(t, dir)
}

// What finish does is done before anybody finds the file under its name.
func TestWriteWithFinishesTheFileFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	err := WriteWith(path, []byte("text"), 0o600, func(file *os.File) error {
		if info, err := file.Stat(); err != nil || info.Mode() != 0o600 {
			t.Errorf("the unfinished file has %v, %v", info.Mode(), err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the unfinished file is in its place: %v", err)
		}
		return file.Chmod(0o640)
	})
	if err != nil {
		t.Fatal(err)
	}
	check(t, path, "text", 0o640)
	refused := errors.New("refused")
	if err := WriteWith(path, nil, 0o600, func(*os.File) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("finish failed: %v", err)
	}
	check(t, path, "text", 0o640)
}

func TestExchange(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	if err := errors.Join(os.WriteFile(first, []byte("text"), 0o600), os.Symlink("elsewhere", second)); err != nil {
		t.Fatal(err)
	}
	if err := Exchange(first, second); errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(second)
	if target, wrong := os.Readlink(first); err != nil || wrong != nil || string(data) != "text" || target != "elsewhere" {
		t.Errorf("the names have %q, %v and %q, %v", data, err, target, wrong)
	}
	if err := Exchange(first, filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("with a file that is not there: %v", err)
	}
}

func check(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil || string(data) != text {
		t.Errorf("the file holds %q, %v, want %q", data, err, text)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != mode {
		t.Errorf("the file has %v, %v, want %v", info.Mode(), err, mode)
	}
	alone(t, filepath.Dir(path))
}

// alone checks that nothing else is left in a folder.
func alone(t *testing.T, dir string) {
	t.Helper()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
}
