package balancer

import (
	"context"
	"net"
	"net/netip"
)

// resolver takes no half answers: by itself the resolver returns the addresses of one kind if the server fails at the other kind, and an
// instance would seem to have moved.
var resolver = &net.Resolver{PreferGo: true, StrictErrors: true}

// Resolve returns the addresses that host:port stands for, at least one. The port may be a number or the name of a service.
func Resolve(ctx context.Context, address string) ([]netip.AddrPort, error) {
	if a, err := netip.ParseAddrPort(address); err == nil {
		return []netip.AddrPort{Plain(a)}, nil
	}
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ips, err := resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	port, err := resolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return nil, err
	}
	list := make([]netip.AddrPort, len(ips))
	for i, ip := range ips {
		list[i] = Plain(netip.AddrPortFrom(ip, uint16(port)))
	}
	return list, nil
}

// Plain returns an address in the form in which addresses are compared: one of IPv4 is not written as one of IPv6.
func Plain(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
