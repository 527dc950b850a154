//go:build !linux

package sensor

import (
	"errors"
	"io"
)

// KernelEvents returns a function that fails: only Linux has perf_event_open.
func KernelEvents(string) OpenEvents {
	return func(Pair, int, string) (io.ReadCloser, error) { return nil, errors.ErrUnsupported }
}
