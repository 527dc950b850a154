//go:build !linux

package interfere

import "errors"

func openDisk(Options) (worker, error) {
	return nil, errors.New("the disk's interferer needs Linux")
}
