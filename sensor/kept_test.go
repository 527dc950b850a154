package sensor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeptFiles(t *testing.T) {
	folder := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k := keepFiles(os.DirFS(folder))
	want := func(name, text string) {
		t.Helper()
		if got, err := k.ReadFile(name); err != nil || string(got) != text {
			t.Errorf("%s: %q, %v; want %q", name, got, err, text)
		}
	}
	put("a", "1 2 3")
	want("a", "1 2 3")
	put("a", "4") // the same file, with another content
	want("a", "4")
	long := strings.Repeat("x", mostBytes+1)
	put("long", long)
	want("long", long)
	want("long", long)
	if _, err := k.ReadFile("missing"); err == nil {
		t.Error("a missing file is read")
	}
	k.closeUnused()
	want("a", "4")
	k.closeUnused()
	if len(k.open) != 1 {
		t.Errorf("%d files are open", len(k.open))
	}
	k.closeUnused()
	if len(k.open) != 0 {
		t.Errorf("%d files are open after a period in which none was read", len(k.open))
	}
	for i := range mostKept + 5 {
		name := fmt.Sprint(i)
		put(name, name)
		want(name, name)
	}
	if len(k.open) != mostKept {
		t.Errorf("%d files are open, want %d", len(k.open), mostKept)
	}
}
