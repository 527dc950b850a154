//go:build !linux

package limit

import "errors"

func newNetwork() (kind, error) { return nil, errors.New("interfaces are limited on Linux only") }
