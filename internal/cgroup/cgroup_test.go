package cgroup

import (
	"testing"
	"testing/fstest"
)

const (
	nothing = "1 1 0:1 / / rw - ext4 /dev/sda rw\n"
	tmpfs   = "30 20 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
	unified = "33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw\n"
	joined  = "31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" +
		"32 30 0:28 / /sys/fs/cgroup/blk\\040io rw - cgroup cgroup rw,blkio\n"
	container = "31 30 0:27 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
)

func TestFind(t *testing.T) {
	for _, c := range []struct {
		name, mounts, controllers string
		unified                   bool
		folders                   map[string]string // of the group /docker/abc/x, by controller; "" where there is no tree
	}{
		{name: "nothing", mounts: nothing, folders: map[string]string{"cpu": "", "blkio": ""}},
		{name: "version 2", mounts: unified, controllers: "cpuset cpu io\n", unified: true,
			folders: map[string]string{"cpu": "sys/fs/cgroup/unified/docker/abc/x", "blkio": "sys/fs/cgroup/unified/docker/abc/x"}},
		{name: "both, the controllers with version 1", mounts: tmpfs + joined + unified, controllers: "memory\n", folders: map[string]string{
			"cpu": "sys/fs/cgroup/cpu,cpuacct/docker/abc/x", "cpuacct": "sys/fs/cgroup/cpu,cpuacct/docker/abc/x",
			"blkio": "sys/fs/cgroup/blk io/docker/abc/x"}},
		{name: "a container's part", mounts: container, folders: map[string]string{"cpu": "sys/fs/cgroup/cpu/x", "cpuacct": ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := fstest.MapFS{"proc/self/mountinfo": {Data: []byte(c.mounts)}}
			if c.controllers != "" {
				root["sys/fs/cgroup/unified/cgroup.controllers"] = &fstest.MapFile{Data: []byte(c.controllers)}
			}
			trees, err := Find(root)
			if err != nil || trees.Unified != c.unified {
				t.Fatalf("%+v, %v", trees, err)
			}
			for controller, want := range c.folders {
				tree, ok := trees.Of(controller)
				if got := tree.Folder("/docker/abc/x"); ok != (want != "") || ok && got != want {
					t.Errorf("%s: %q, %v; want %q", controller, got, ok, want)
				} else if group := tree.Group(got); ok && group != "/docker/abc/x" {
					t.Errorf("%s: the folder %q is of group %q", controller, got, group)
				}
			}
		})
	}
	if _, err := Find(fstest.MapFS{}); err == nil {
		t.Error("no mountinfo is no error")
	}
}

func TestOwn(t *testing.T) {
	own, err := Own(fstest.MapFS{"proc/self/cgroup": {Data: []byte("4:cpu,cpuacct:/a:b\nnonsense\n0::/c\n")}}, "proc/self/cgroup")
	if err != nil || len(own) != 3 || own["cpu"] != "/a:b" || own["cpuacct"] != "/a:b" || own[""] != "/c" {
		t.Errorf("%v, %v", own, err)
	}
	for _, root := range []fstest.MapFS{{}, {"proc/self/cgroup": {Data: []byte("\n")}}} {
		if own, err := Own(root, "proc/self/cgroup"); err == nil {
			t.Errorf("%v", own)
		}
	}
}
