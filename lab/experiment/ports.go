package experiment

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports of experiments lie below those that systems hand out by themselves, so that no instance, probe or client
// takes one between its choice and its use.
const (
	firstPort = 20000
	lastPort  = 29999
)

// Ports picks ports of this machine. The zero value is ready; it is safe for concurrent use.
type Ports struct {
	mu    sync.Mutex
	given map[int]bool
}

// Free finds n loopback addresses that nothing listens on now, none of them given before.
func (p *Ports) Free(n int) ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.given == nil {
		p.given = map[int]bool{}
	}
	var addrs []string
	for range 100 * n {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		if p.given[port] || !free(addr) {
			continue
		}
		p.given[port] = true
		if addrs = append(addrs, addr); len(addrs) == n {
			return addrs, nil
		}
	}
	return nil, fmt.Errorf("no free port was found from %d to %d", firstPort, lastPort)
}

func free(addr string) bool {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	ln.Close()
	return true
}
