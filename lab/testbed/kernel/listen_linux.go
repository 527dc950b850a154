package kernel

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
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
	var stat unix.Stat_t
	if err := unix.Stat(dir, &stat); err != nil {
		return "", fmt.Errorf("looking for the disk of %s: %w", dir, err)
	}
	device := fmt.Sprintf("%d:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev))
	folder := "/sys/dev/block/" + device
	if _, err := os.Stat(folder); err != nil {
		return "", userErrorf("%s lies on no disk that can be limited (device %s): choose a folder on a disk with ext4 or xfs, or leave the "+
			"disk's limit out", dir, device)
	}
	if _, err := os.Stat(folder + "/partition"); err != nil {
		return device, nil
	}
	text, err := os.ReadFile(folder + "/../dev") // limits apply to the whole disk, not to a partition
	if err != nil {
		return "", fmt.Errorf("looking for the disk of partition %s: %w", device, err)
	}
	return strings.TrimSpace(string(text)), nil
}
