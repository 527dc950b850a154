// Package hostaddr looks up the addresses of hosts, those of IPv4 first.
package hostaddr

import (
	"context"
	"errors"
	"net"
	"net/netip"
)

// Resolver is the part of net.Resolver that is used.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// LookUp returns a host's addresses of IPv4, or if it has none, those of IPv6. It takes no half answers: asked for both at once, a resolver
// returns those of one kind if the server fails at the other, and an instance would seem to have moved.
func LookUp(ctx context.Context, r Resolver, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	list, err := r.LookupNetIP(ctx, "ip4", host)
	if failed := new(net.DNSError); errors.As(err, &failed) && failed.IsNotFound {
		return r.LookupNetIP(ctx, "ip6", host)
	}
	return list, err
}
