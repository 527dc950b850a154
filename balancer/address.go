package balancer

import (
	"context"
	"net"
	"net/netip"
)

// Resolve returns the addresses that host:port stands for, at least one. The port may be a number or the name of a service.
func Resolve(ctx context.Context, address string) ([]netip.AddrPort, error) {
	if a, err := netip.ParseAddrPort(address); err == nil {
		return []netip.AddrPort{Plain(a)}, nil
	}
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
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
