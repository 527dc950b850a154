package sensor

import (
	"math"
	"testing"

	"github.com/quellhq/quell"
)

// TestDiskOfOwnProcesses checks that only this process's group's bytes count if its group for disks also contains neighbours.
func TestDiskOfOwnProcesses(t *testing.T) {
	tree := func(own, read, group string) map[string]string {
		return map[string]string{
			"proc/self/mountinfo": blkioMount + "30 1 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n",
			"proc/self/cgroup":    "4:blkio:/host\n5:cpu:" + own + "\n",
			"proc/11/io":          "rchar: 9\nread_bytes: " + read + "\nwrite_bytes: 40960\n", "proc/12/io": "read_bytes: 0\nwrite_bytes: 0\n",
			"sys/fs/cgroup/cpu/host/vm/cgroup.procs":                             "11\n12\n13\n",
			"sys/fs/cgroup/blkio/host/blkio.throttle.io_serviced_recursive":      "8:0 Read " + group + "\nTotal 7\n",
			"sys/fs/cgroup/blkio/host/blkio.throttle.io_service_bytes_recursive": "8:0 Read 0\nTotal 0\n",
		}
	}
	o := Options{Cgroup: OwnCgroup, Capacity: map[quell.Resource]float64{quell.Disk: 100}}
	for own, want := range map[string]float64{"/host/vm": 0.02, "/host": 0.5, "/hosts": 0.5} { // own group: 20 operations in 10 s; else 500
		obs, err := sampled(t, o, diskSensor, files(tree(own, "0", "0")), files(tree(own, "81920", "500")))
		if err != nil || math.Abs(obs.Utilization[quell.Disk]-want) > 1e-9 {
			t.Errorf("own group %s: %v of the disk, want %v; %v", own, obs.Utilization[quell.Disk], want, err)
		}
	}
	broken := tree("/host/vm", "0", "0")
	broken["proc/12/io"] = "rchar: 9\n"
	if _, err := sampled(t, o, diskSensor, files(broken), files(broken)); err == nil {
		t.Error("an account without bytes is believed")
	}
	if _, err := sampled(t, o, diskSensor, files(tree("/host/vm", "4096", "0")), files(tree("/host/vm", "0", "0"))); err == nil {
		t.Error("a sum that goes back is believed")
	}
}
