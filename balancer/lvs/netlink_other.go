//go:build !linux

package lvs

import "errors"

// netlink stands for the kernel's table on systems other than Linux, which have none.
type netlink struct{}

func (*netlink) look(virtual) (*service, error) {
	return nil, errors.New("balancer.kind lvs needs Linux")
}

func (*netlink) setWeight(virtual, *realServer, int) error {
	return errors.New("balancer.kind lvs needs Linux")
}
