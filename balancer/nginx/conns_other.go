//go:build !linux

package nginx

import (
	"errors"
	"net/netip"
)

// openConns is only there on Linux.
func openConns() (map[netip.AddrPort]int64, error) { return nil, errors.ErrUnsupported }
