// Package peers tells where nginx's servers are: the addresses that their names stand for, and how many connections this machine has to
// them.
package peers

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/nginx/include"
)

// Names resolves addresses of servers as nginx does when it reads its configuration. Its methods may be called concurrently, and its zero
// value is ready.
type Names struct {
	mu    sync.Mutex
	known map[string][]netip.AddrPort
}

// Of returns the addresses that a server's address stands for; none if it cannot be resolved.
func (n *Names) Of(ctx context.Context, address string) []netip.AddrPort {
	address = include.WithPort(address)
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

// Numeric returns the numeric addresses of all instances; an empty list for one whose name cannot be resolved.
func (n *Names) Numeric(ctx context.Context, addresses map[string]string) map[string][]string {
	list := make(map[string][]string, len(addresses))
	for id, address := range addresses {
		list[id] = []string{}
		for _, a := range n.Of(ctx, address) {
			list[id] = append(list[id], a.String())
		}
	}
	return list
}

// Busy returns whether this machine has connections to an instance.
func (n *Names) Busy(ctx context.Context, addresses map[string]string) bool {
	open, err := Connections()
	for _, address := range addresses {
		if err == nil && n.Open(ctx, open, address) > 0 {
			return true
		}
	}
	return false
}

// Open returns how many of the open connections are to a server.
func (n *Names) Open(ctx context.Context, open map[netip.AddrPort]int64, address string) (sum int64) {
	for _, a := range n.Of(ctx, address) {
		sum += open[a]
	}
	return sum
}

// Same returns whether two addresses stand for the same server.
func (n *Names) Same(ctx context.Context, a, b string) bool {
	others := n.Of(ctx, b)
	return slices.ContainsFunc(n.Of(ctx, a), func(x netip.AddrPort) bool { return slices.Contains(others, x) })
}

// Forget drops what was resolved, because nginx resolves again when it is reloaded.
func (n *Names) Forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known = nil
}
