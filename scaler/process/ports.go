package process

import (
	"fmt"
	"net"
	"strconv"
)

// pickPorts finds n free ports of 127.0.0.1 that are not in used. Another process may take one before the instance
// does; the instance then exits and counts as failed.
func pickPorts(n int, within PortRange, used map[int]bool) ([]int, error) {
	var held []net.Listener // held until all are picked, so that they differ
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	var ports []int
	try := func(port int) bool {
		l, err := net.Listen("tcp", address(port))
		if err != nil {
			return false
		}
		held = append(held, l)
		if port = l.Addr().(*net.TCPAddr).Port; !used[port] {
			ports = append(ports, port)
		}
		return true
	}
	if within == (PortRange{}) {
		// The system may pick one that was assigned to an instance that does not listen yet: then pick again.
		for range n + 2*len(used) {
			if len(ports) < n && !try(0) {
				break
			}
		}
	} else {
		for p := within.First; p <= within.Last && len(ports) < n; p++ {
			if !used[p] {
				try(p)
			}
		}
	}
	if len(ports) < n {
		return nil, fmt.Errorf("no free port on 127.0.0.1%s", within)
	}
	return ports, nil
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// String returns the range as text for the end of a message, "" for the zero value.
func (p PortRange) String() string {
	if p == (PortRange{}) {
		return ""
	}
	return fmt.Sprintf(" in %d-%d", p.First, p.Last)
}
