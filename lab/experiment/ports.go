package experiment

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"

	"github.com/quellhq/quell/setting"
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

// Range returns n successive ports that it has not returned before. Whoever uses them leaves out those on which something listens.
func (p *Ports) Range(n int) (setting.Ports, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.given == nil {
		p.given = map[int]bool{}
	}
	for range 100 {
		first := firstPort + rand.IntN(lastPort-firstPort-n+2)
		if !p.anyGiven(first, n) {
			for port := range n {
				p.given[first+port] = true
			}
			return setting.Ports{First: first, Last: first + n - 1}, nil
		}
	}
	return setting.Ports{}, fmt.Errorf("no %d successive ports were found from %d to %d", n, firstPort, lastPort)
}

func (p *Ports) anyGiven(first, n int) bool {
	for port := range n {
		if p.given[first+port] {
			return true
		}
	}
	return false
}

func free(addr string) bool {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	ln.Close()
	return true
}
