package kernel

import (
	"net/netip"
	"strconv"
)

// Role is the purpose of a place.
type Role string

// The places of a lab. There is one Client and one Balancer, and one of the others per host. Sink receives what the host's interferer
// sends, so that bytes are counted where they arrive.
const (
	Client    Role = "client"
	Balancer  Role = "lb"
	Instance  Role = "vm"
	Neighbour Role = "nb"
	Sink      Role = "sink"
)

// front is the cgroup of the places that are on no host, agents that of programs which requests need not wait for (Place.Aside).
const front, agents = "front", "agents"

// Place is where a process runs: a network namespace and, on a host, a cgroup. It is identified by names, so that any process of a lab
// can find it.
type Place struct {
	namespace string
	prefix    string
	group     string // path below the prefix's cgroup, as "h1/vm"
	address   netip.Addr
}

// PlaceOf returns the place of a role; host is "" for Client and Balancer. It does not check that the place exists.
func PlaceOf(prefix, host string, role Role) (Place, error) {
	if err := checkPrefix(prefix); err != nil {
		return Place{}, err
	}
	switch role {
	case Client, Balancer:
		if host != "" {
			return Place{}, userErrorf("place %s: it lies on no host, but %q is given", role, host)
		}
		last := byte(2)
		if role == Balancer {
			last = 3
		}
		return Place{namespace: prefix + "-" + string(role), prefix: prefix, group: front, address: address(0, last)}, nil
	case Instance, Neighbour, Sink:
		number, err := hostNumber(host)
		if err != nil {
			return Place{}, err
		}
		p := Place{namespace: prefix + "-" + host + "-" + string(role), prefix: prefix}
		switch role {
		case Instance:
			p.address, p.group = address(number, 2), host+"/vm"
		case Neighbour:
			p.address, p.group = address(number, 3), host+"/nb"
		case Sink:
			p.address, p.group = address(number, 4), front
		}
		return p, nil
	}
	return Place{}, userErrorf("place %q: there are %s, %s, %s, %s and %s", role, Client, Balancer, Instance, Neighbour, Sink)
}

// Aside returns the same place outside its cgroup, for a program that hardly delays the service, however much it computes.
func (p Place) Aside() Place {
	p.group = agents
	return p
}

// Address is the place's address in the lab's network 10.77.0.0/16.
func (p Place) Address() netip.Addr { return p.address }

// Namespace is the name of the place's network namespace, as `ip netns` shows it.
func (p Place) Namespace() string { return p.namespace }

func address(host, last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, host, last}) }

// hostNumber returns the number in a host's id.
func hostNumber(id string) (byte, error) {
	if m := hostPattern.FindStringSubmatch(id); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil && n <= 254 {
			return byte(n), nil
		}
	}
	return 0, userErrorf("host %q: the lab's hosts are called h1 to h254", id)
}
