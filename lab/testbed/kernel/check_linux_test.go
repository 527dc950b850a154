package kernel

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/need"
)

// Before a lab makes a folder on a disk, it tries the disk there. The trial leaves no file.
func TestCheckDisk(t *testing.T) {
	dir := t.TempDir()
	if _, err := diskOf(dir); err != nil {
		need.Skip(t, "needs its temporary files on a disk: "+err.Error())
	}
	err := CheckDisk(filepath.Join(dir, "to", "be", "made"))
	if errors.Is(err, syscall.EINVAL) {
		need.Skip(t, "needs its temporary files on a disk: "+err.Error())
	}
	if left, _ := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, and %v stay", err, left)
	}
}

// A file system that exists only in memory is refused.
func TestCacheOnly(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	err := onThread(func() error { // in a mount namespace that ends with the thread
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		if err := unix.Mount("ramfs", dir, "ramfs", 0, ""); err != nil {
			return err
		}
		file := filepath.Join(dir, "disk.data")
		if err := os.WriteFile(file, make([]byte, diskBlock), 0o600); err != nil {
			return err
		}
		if err := CheckDisk(filepath.Join(dir, "out")); !errors.As(err, new(*quell.UserError)) ||
			!strings.Contains(err.Error(), "lies on no disk") {
			t.Errorf("the folder: %v", err)
		}
		if _, err := openDisk(file); !errors.As(err, new(*quell.UserError)) || !errors.Is(err, syscall.EINVAL) ||
			!strings.Contains(err.Error(), "cannot read past its cache") {
			t.Errorf("the file: %v", err)
		}
		return nil
	})
	if errors.Is(err, unix.EPERM) {
		need.Skip(t, "needs mount namespaces: "+err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
}
