package sensor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// event is a kind of event, and one of that kind.
type event struct {
	kind   uint32
	number uint64
}

// events are the kernel's names of the pairs.
var events = [][2]event{
	Instructions: {{unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES}, {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_INSTRUCTIONS}},
	Cache: {{unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CACHE_MISSES},
		{unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CACHE_REFERENCES}},
}

// KernelEvents counts events in the kernel. Folders of control groups are below root.
func KernelEvents(root string) OpenEvents {
	return func(pair Pair, processor int, folder string) (io.ReadCloser, error) {
		return openEvents(events[pair], processor, root, folder)
	}
}

// openEvents counts two events as a group, so that the kernel counts both at the same time or none.
func openEvents(events [2]event, processor int, root, folder string) (io.ReadCloser, error) {
	pid, flags := -1, unix.PERF_FLAG_FD_CLOEXEC
	if folder != "" {
		group, err := os.Open(filepath.Join(root, folder))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, errGone
		}
		if err != nil {
			return nil, err
		}
		defer group.Close()
		pid, flags = int(group.Fd()), flags|unix.PERF_FLAG_PID_CGROUP
	}
	leader, err := openEvent(events[0], pid, processor, -1, flags)
	if err != nil {
		return nil, err
	}
	follower, err := openEvent(events[1], pid, processor, int(leader.Fd()), flags)
	if err != nil {
		return nil, errors.Join(err, leader.Close())
	}
	return &eventPair{leader, follower}, nil
}

func openEvent(e event, pid, processor, leader, flags int) (*os.File, error) {
	attributes := unix.PerfEventAttr{
		Type: e.kind, Config: e.number, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Read_format: unix.PERF_FORMAT_GROUP | unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING,
	}
	fd, err := unix.PerfEventOpen(&attributes, pid, processor, leader, flags)
	if err != nil {
		return nil, fmt.Errorf("perf_event_open on processor %d: %w", processor, err)
	}
	return os.NewFile(uintptr(fd), "perf_event"), nil
}

// eventPair reads both counts from the leader.
type eventPair struct{ leader, follower *os.File }

func (p *eventPair) Read(data []byte) (int, error) { return p.leader.Read(data) }

func (p *eventPair) Close() error { return errors.Join(p.follower.Close(), p.leader.Close()) }
