//go:build !linux

package bus

import (
	"errors"
	"fmt"
)

func fillDisk(string) int {
	return childFailed(fmt.Errorf("fill a small disk: %w", errors.ErrUnsupported))
}

func reopenDisk(dir string) int { return fillDisk(dir) }
