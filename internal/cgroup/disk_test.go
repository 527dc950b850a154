package cgroup

import (
	"testing"
	"testing/fstest"
)

func TestParseIO(t *testing.T) {
	const text = "rchar: 9\nwchar: 8\nsyscr: 7\nsyscw: 6\nread_bytes: 8192\nwrite_bytes: 4096\ncancelled_write_bytes: 4096\n"
	if bytes, err := parseIO(text); err != nil || bytes != 12288 {
		t.Errorf("%d bytes, %v", bytes, err)
	}
	for _, text := range []string{"", "read_bytes: 1\n", "read_bytes: x\nwrite_bytes: 1\n", "read_bytes: 9007199254740993\nwrite_bytes: 1\n"} {
		if _, err := parseIO(text); err == nil {
			t.Errorf("%q is no account", text)
		}
	}
}

// A process that ended after the list was read counts for nothing.
func TestDiskBytes(t *testing.T) {
	root := fstest.MapFS{
		"g/cgroup.procs": {Data: []byte("1\n2\n3\n")},
		"proc/1/io":      {Data: []byte("read_bytes: 1\nwrite_bytes: 2\n")},
		"proc/3/io":      {Data: []byte("read_bytes: 10\nwrite_bytes: 20\n")},
	}
	if bytes, err := DiskBytes(root, "g"); err != nil || bytes != 33 {
		t.Errorf("%d bytes, %v", bytes, err)
	}
	root["proc/2/io"] = &fstest.MapFile{Data: []byte("nothing\n")}
	if bytes, err := DiskBytes(root, "g"); err == nil {
		t.Errorf("%d bytes from a file that is no account", bytes)
	}
	if bytes, err := DiskBytes(root, "absent"); err == nil {
		t.Errorf("%d bytes of a group that is not there", bytes)
	}
}
