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

	at  map[netip.AddrPort]*realServer // made by index, as are the other two
	on  map[netip.Addr]*realServer     // by machine; nil for a machine that has several
	sum float64                        // of the weights: all of them, or those of the instances
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
	if r := s.at[address]; r != nil {
		return r
	}
	return s.on[address.Addr()]
}

// index prepares find. On a machine that several instances share, an instance has no real server but the one with its own address: any
// other may be that of another instance.
func (s *service) index(shared map[netip.Addr]bool) {
	s.at, s.on, s.sum = make(map[netip.AddrPort]*realServer, len(s.reals)), make(map[netip.Addr]*realServer, len(s.reals)), 0
	for i := range s.reals {
		r := &s.reals[i]
		s.at[r.address] = r
		s.sum += float64(r.weight)
		machine := r.address.Addr()
		if _, several := s.on[machine]; several || shared[machine] {
			r = nil
		}
		s.on[machine] = r
	}
}

// count makes the sum of each view that of these instances' weights: other real servers have no part in the shares.
func count(views []*service, instances []*entry) {
	for _, view := range views {
		if view == nil {
			continue
		}
		view.sum = 0
		for _, e := range instances {
			if r := view.find(e.Numeric); r != nil {
				view.sum += float64(r.weight)
			}
		}
	}
}

// sharedMachines returns the machines on which there are several instances.
func sharedMachines(instances []*entry) map[netip.Addr]bool {
	first, shared := make(map[netip.Addr]netip.AddrPort, len(instances)), map[netip.Addr]bool{}
	for _, e := range instances {
		machine := e.Numeric.Addr()
		if other, there := first[machine]; there && other != e.Numeric {
			shared[machine] = true
		}
		first[machine] = e.Numeric
	}
	return shared
}
