package nginx

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"github.com/quellhq/quell/balancer"
)

// names resolves addresses of servers as nginx does when it reads its configuration.
type names struct {
	mu    sync.Mutex
	known map[string][]netip.AddrPort
}

// of returns the addresses that a server's address stands for; none if it cannot be resolved.
func (n *names) of(ctx context.Context, address string) []netip.AddrPort {
	if a, err := netip.ParseAddrPort(address); err == nil {
		return []netip.AddrPort{balancer.Plain(a)}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if list, found := n.known[address]; found {
		return list
	}
	list, err := balancer.Resolve(ctx, address)
	if err != nil {
		return nil // asked again next time
	}
	if n.known == nil {
		n.known = map[string][]netip.AddrPort{}
	}
	n.known[address] = list
	return list
}

// same returns whether two addresses stand for the same server.
func (n *names) same(ctx context.Context, a, b string) bool {
	others := n.of(ctx, b)
	return slices.ContainsFunc(n.of(ctx, a), func(x netip.AddrPort) bool { return slices.Contains(others, x) })
}

// forget drops what was resolved, because nginx resolves again when it is reloaded.
func (n *names) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known = nil
}
