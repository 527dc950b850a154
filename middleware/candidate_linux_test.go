package middleware

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quellhq/quell/internal/need"
)

const defaultList = "system.posix_acl_default"

// accessFor is an access list, as the kernel has it, that lets a file's owner and one more user read and write.
func accessFor(user uint32) []byte {
	list := binary.LittleEndian.AppendUint32(nil, 2) // the version
	for _, entry := range []struct {
		tag, may uint16
		id       uint32
	}{{1, 6, ^uint32(0)}, {2, 6, user}, {4, 0, ^uint32(0)}, {16, 6, ^uint32(0)}, {32, 0, ^uint32(0)}} {
		list = binary.LittleEndian.AppendUint16(list, entry.tag)
		list = binary.LittleEndian.AppendUint16(list, entry.may)
		list = binary.LittleEndian.AppendUint32(list, entry.id)
	}
	return list
}

func setList(t *testing.T, path, name string, list []byte) {
	t.Helper()
	if err := unix.Setxattr(path, name, list, 0); errors.Is(err, unix.ENOTSUP) {
		t.Skip("the file system has no access lists")
	} else if err != nil {
		t.Fatal(err)
	}
}

func listOf(t *testing.T, path string) []byte {
	t.Helper()
	list, err := attribute(func(to []byte) (int, error) { return unix.Getxattr(path, accessList, to) })
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Without the list, the permissions of the group would be those of the list's mask.
func TestAnAccessListStays(t *testing.T) {
	r := newToy(t)
	want := accessFor(1234)
	setList(t, r.config, accessList, want)
	d := r.open()
	r.set(d, "workers", 20)
	if got := listOf(t, r.config); !bytes.Equal(got, want) {
		t.Errorf("the changed file has the list %v, want %v", got, want)
	}
	r.close(d)
	if got := listOf(t, r.config); !bytes.Equal(got, want) {
		t.Errorf("the restored file has the list %v, want %v", got, want)
	}
	if info, err := os.Stat(r.config); err != nil || info.Mode() != 0o660 {
		t.Errorf("permissions %v, %v", info.Mode(), err)
	}
}

// New files of some folders get an access list that the file did not have.
func TestAFolderGivesNoAccess(t *testing.T) {
	r := newToy(t)
	setList(t, filepath.Dir(r.config), defaultList, accessFor(1234))
	d := r.open()
	r.set(d, "workers", 20)
	if got := listOf(t, r.config); got != nil {
		t.Errorf("the changed file has the list %v", got)
	}
	r.close(d)
}

// A link that somebody puts in the candidate's place is not followed, and the file's owner stays.
func TestTheOwnerStays(t *testing.T) {
	need.Root(t)
	r := newToy(t)
	other := filepath.Join(r.dir, "other")
	if err := errors.Join(os.WriteFile(other, nil, 0o600), os.Chown(r.config, 1234, 1235), os.Chmod(r.config, 0o640)); err != nil {
		t.Fatal(err)
	}
	d := r.open()
	if err := os.Symlink(other, d.files[r.config].beside("new")); err != nil {
		t.Fatal(err)
	}
	r.set(d, "workers", 20)
	r.has(with(20), true)
	for path, want := range map[string]syscall.Stat_t{r.config: {Uid: 1234, Gid: 1235, Mode: 0o640}, other: {Mode: 0o600}} {
		var has syscall.Stat_t
		err := syscall.Stat(path, &has)
		if err != nil || has.Uid != want.Uid || has.Gid != want.Gid || has.Mode&0o777 != want.Mode {
			t.Errorf("%s belongs to %d and %d, with %o; %v", path, has.Uid, has.Gid, has.Mode, err)
		}
	}
	r.close(d)
}
