package balancer

import (
	"context"
	"net"
	"net/netip"

	"github.com/quellhq/quell/internal/hostaddr"
)

var resolver = &net.Resolver{PreferGo: true}

// Resolve returns the addresses that host:port stands for, at least one. The port may be a number or the name of a service.
func Resolve(ctx context.Context, address string) ([]netip.AddrPort, error) {
	if a, err := netip.ParseAddrPort(address); err == nil {
		return []netip.AddrPort{Plain(a)}, nil
	}
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ips, err := lookUp(ctx, host)
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

// lookUp returns a host's addresses, those of IPv4 first. Servers that always fail at IPv6 are borne where there is IPv4.
func lookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	ips, err := hostaddr.LookUp(ctx, resolver, host)
	if err == nil && len(ips) > 0 && ips[0].Unmap().Is4() {
		more, _ := resolver.LookupNetIP(ctx, "ip6", host)
		ips = append(ips, more...)
	}
	return ips, err
}

// Plain returns an address in the form in which addresses are compared: one of IPv4 is not written as one of IPv6.
func Plain(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
