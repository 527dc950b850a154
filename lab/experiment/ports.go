package experiment

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// The ports of experiments are below those that operating systems assign to clients, so that no other program gets a port between the
// moment when it is chosen and the moment when it is opened.
const (
	firstPort = 20000
	lastPort  = 29999
)

// Ports picks free ports of this machine. The zero value is ready; it is safe for concurrent use.
type Ports struct {
	mu    sync.Mutex
	given map[int]bool
}

// Free returns n loopback addresses on which nothing listens now, and which it has not returned before.
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
