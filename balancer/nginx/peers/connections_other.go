//go:build !linux

package peers

import (
	"errors"
	"net/netip"
)

// Connections is only there on Linux.
func Connections() (map[netip.AddrPort]int64, error) { return nil, errors.ErrUnsupported }
