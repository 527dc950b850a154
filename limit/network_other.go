//go:build !linux

package limit

import "errors"

var errNoNetwork = errors.New("interfaces are limited on Linux only")

func newNetwork() (kind, error) { return nil, errNoNetwork }

func newIngress() (kind, error) { return nil, errNoNetwork }
