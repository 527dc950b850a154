package cgroup

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// DiskOf returns the major:minor number of the whole disk that contains a folder. Limits apply to whole disks, not to partitions.
func DiskOf(dir string) (string, error) {
	var stat unix.Stat_t
	if err := unix.Stat(dir, &stat); err != nil {
		return "", fmt.Errorf("looking for the disk of %s: %w", dir, err)
	}
	device := fmt.Sprintf("%d:%d", unix.Major(uint64(stat.Dev)), unix.Minor(uint64(stat.Dev))) // Dev is signed on some systems
	folder := "/sys/dev/block/" + device
	if _, err := os.Stat(folder); err != nil {
		return "", fmt.Errorf("%s lies on no disk that can be limited (device %s)", dir, device)
	}
	if _, err := os.Stat(folder + "/partition"); err != nil {
		return device, nil
	}
	text, err := os.ReadFile(folder + "/../dev")
	if err != nil {
		return "", fmt.Errorf("looking for the disk of partition %s: %w", device, err)
	}
	return strings.TrimSpace(string(text)), nil
}
