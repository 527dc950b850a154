package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The probe's file has no name while it is open, so no file remains, however the agent ends.
func TestDiskProbeLeavesNothing(t *testing.T) {
	for _, writes := range []bool{false, true} {
		folder := filepath.Join(diskFolder(t), "made")
		p, err := openDisk(&Options{Settings: Settings{Folder: folder, Writes: writes}, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(folder); len(left) > 0 || err != nil {
			t.Errorf("writes %t: %v is there, %v", writes, left, err)
		}
		var size unix.Stat_t
		if err := unix.Fstat(p.(*diskProbe).file, &size); err != nil || size.Size != fileBytes {
			t.Errorf("a file of %d bytes, %v", size.Size, err)
		}
		told := 0
		for range 20 { // an operation whose time includes waiting for a processor is skipped
			if s, err := p.probe(0); err == nil && s.ms > 0 && s.cost == 1 {
				told++
			}
		}
		if told == 0 {
			t.Errorf("writes %t: no probe told anything", writes)
		}
		if err := p.close(); err != nil {
			t.Error(err)
		}
	}
}

func TestDiskThatCannotBeProbed(t *testing.T) {
	const folder = "/srv/probe"
	for want, err := range map[string]error{
		"/srv/probe is read-only: set agent.probing.folder":        unix.EROFS,
		"the disk of /srv/probe is full":                           unix.ENOSPC,
		"or the quota used up":                                     unix.EDQUOT,
		"has no direct reads and writes (O_DIRECT)":                unix.EINVAL,
		"making the probe's file in /srv/probe: permission denied": unix.EACCES,
	} {
		if got := noFile(folder, fmt.Errorf("wrapped: %w", err)); !strings.Contains(strings.ReplaceAll(got.Error(), "wrapped: ", ""), want) {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
	for want, fs := range map[string]unix.Statfs_t{
		"is in memory, not on a disk":                            {Type: unix.TMPFS_MAGIC, Bavail: 1 << 20, Bsize: 4096},
		"is nearly full (4 MB are free, the probe leaves 67 MB)": {Bavail: 1000, Bsize: 4096},
		"is read-only": {Flags: unix.ST_RDONLY, Bavail: 1 << 20, Bsize: 4096},
	} {
		if err := serves(folder, &fs); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := serves(folder, &unix.Statfs_t{Bavail: 1 << 20, Bsize: 4096}); err != nil {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	below := Settings{Folder: filepath.Join(file, "below")}
	if _, err := openDisk(&Options{Settings: below}); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a folder in a file: %v", err)
	}
}

// A file system in memory is recognised on a live machine.
func TestDiskInMemory(t *testing.T) {
	var fs unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		t.Skip("/dev/shm is no file system in memory here")
	}
	folder, err := os.MkdirTemp("/dev/shm", "quell")
	if err != nil {
		t.Skip(err)
	}
	defer os.RemoveAll(folder)
	if _, err := openDisk(&Options{Settings: Settings{Folder: folder}}); err == nil || !strings.Contains(err.Error(), "is in memory") {
		t.Error(err)
	}
	if left, _ := os.ReadDir(folder); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
