package lvs

import (
	"errors"
	"net/netip"
)

// kernel reads and changes the kernel's table of virtual services.
type kernel interface {
	// look reads a virtual service. If there is none, the error wraps errNoService.
	look(v virtual) (*service, error)
	// setWeight changes the weight of a real server and nothing else.
	setWeight(v virtual, r *realServer, weight int) error
}

var errNoService = errors.New("the kernel has no such virtual service")

// service is a virtual service as the kernel has it.
type service struct {
	scheduler string
	reals     []realServer
}

// realServer is a real server of a virtual service.
type realServer struct {
	address netip.AddrPort
	weight  int
	active  int64  // established connections
	kept    []attr // what setWeight repeats, so that it stays as it is
}

// attr is an attribute of a real server as the kernel encodes it.
type attr struct {
	kind  uint16
	value []byte
}

// find returns the real server of an instance: the one with the instance's address, or the only one on the same machine. It returns nil if
// there is none.
func (s *service) find(address netip.AddrPort) *realServer {
	var same *realServer
	for i := range s.reals {
		r := &s.reals[i]
		switch {
		case r.address == address:
			return r
		case r.address.Addr() != address.Addr():
		case same != nil:
			return nil // several ports of that machine: none is certain
		default:
			same = r
		}
	}
	return same
}

// sum returns the sum of all weights.
func (s *service) sum() (total int) {
	for i := range s.reals {
		total += s.reals[i].weight
	}
	return total
}
