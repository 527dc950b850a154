package lockfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func TestTakeIsForOneAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	release, err := Take(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Take(path, 0o600); !errors.Is(err, ErrHeld) {
		t.Errorf("a second holder got %v", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if release, err = Take(path, 0o600); err != nil {
		t.Fatalf("after release: %v", err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}

// Take waits for a lock that is released within a moment, as when a child of a killed process holds it.
func TestTakeOutlastsAMoment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	synctest.Test(t, func(t *testing.T) {
		release, err := Take(path, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(outlast / 2)
			if err := release(); err != nil {
				t.Error(err)
			}
		}()
		next, err := Take(path, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if err := next(); err != nil {
			t.Error(err)
		}
	})
}

func TestHoldEndsWithTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows")
	open := func() *os.File {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		return file
	}
	first := open()
	if err := Hold(first); err != nil {
		t.Fatal(err)
	}
	if err := Hold(open()); !errors.Is(err, ErrHeld) {
		t.Errorf("a second holder got %v", err)
	}
	first.Close()
	if err := Hold(open()); err != nil {
		t.Errorf("after the first was closed: %v", err)
	}
}

func TestTakeSaysWhyItCannotOpen(t *testing.T) {
	if _, err := Take(filepath.Join(t.TempDir(), "missing", "lock"), 0o600); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
