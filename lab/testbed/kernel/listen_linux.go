package kernel

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/quellhq/quell/internal/cgroup"
)

// listens returns whether a process listens on a TCP port in the network of the given process. It asks the kernel instead of connecting,
// because a program that accepts only one client would take the test connection for that client.
func listens(pid, port int) bool {
	for _, file := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, file))
		if err == nil && slices.Contains(statesOf(string(text), port), listening) {
			return true
		}
	}
	return false
}

// listening is the code with which /proc/net/tcp marks listening sockets.
const listening = "0A"

// statesOf parses /proc/net/tcp for the states of the sockets on a port. After a heading, each line has number, local address, remote
// address and state.
func statesOf(table string, port int) (states []string) {
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		_, hex, _ := strings.Cut(fields[1], ":")
		if n, err := strconv.ParseUint(hex, 16, 16); err == nil && int(n) == port {
			states = append(states, fields[3])
		}
	}
	return states
}

// diskOf returns the major:minor number of the whole disk that contains a folder.
func diskOf(dir string) (string, error) {
	device, err := cgroup.DiskOf(dir)
	if err != nil {
		return "", userErrorf("%v: choose a folder on a disk with ext4 or xfs, or leave the disk's limit out", err)
	}
	return device, nil
}
