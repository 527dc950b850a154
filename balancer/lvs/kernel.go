package lvs

import (
	"errors"
	"net/netip"
)

// kernel reads and changes the kernel's table of virtual services.
type kernel interface {
	// look reads a virtual service. If there is none, the error wraps errNoService.
	look(v virtual) (*service, error)
	// setWeight changes the weight of a real server, which look returned, and nothing else.
	setWeight(v virtual, r *realServer, weight int) error
}

var errNoService = errors.New("the kernel has no such virtual service")

// service is a virtual service as the kernel has it.
type service struct {
	scheduler string
	reals     []realServer

	at  map[netip.AddrPort]*realServer // made by the first find, as are the other two
	on  map[netip.Addr]*realServer     // by machine; nil for a machine that has several
	sum int                            // of all weights
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
	if s.at == nil {
		s.index()
	}
	if r := s.at[address]; r != nil {
		return r
	}
	return s.on[address.Addr()]
}

func (s *service) index() {
	s.at, s.on = make(map[netip.AddrPort]*realServer, len(s.reals)), make(map[netip.Addr]*realServer, len(s.reals))
	for i := range s.reals {
		r := &s.reals[i]
		s.at[r.address] = r
		s.sum += r.weight
		if _, several := s.on[r.address.Addr()]; several {
			r = nil
		}
		s.on[s.reals[i].address.Addr()] = r
	}
}
