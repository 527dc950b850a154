package need

import (
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
)

// ports are those that this process has taken.
var ports struct {
	sync.Mutex
	next int64
	kept []net.Listener
}

// FreeAddress is a loopback address on which a server of both UDP and TCP can listen. No other call returns it while this process runs,
// also not in a process that is tested at the same time, and its port is below those that the system assigns, so that no client takes it.
func FreeAddress(t testing.TB) string {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()
	if ports.next == 0 {
		ports.next = rand.Int64N(20_000) // packages are tested at the same time
	}
	for range 1000 {
		ports.next++
		port := 10_000 + ports.next%20_000
		address := fmt.Sprintf("127.0.0.1:%d", port)
		if reserve(port) && isFree(address) {
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

// reserve keeps a port from other processes until this one ends, by a socket of that name in Linux's abstract namespace.
func reserve(port int64) bool {
	if runtime.GOOS != "linux" {
		return true
	}
	kept, err := net.Listen("unix", fmt.Sprintf("@quell-test-port-%d", port))
	if err != nil {
		return false
	}
	ports.kept = append(ports.kept, kept)
	return true
}

func isFree(address string) bool {
	datagrams, err := net.ListenPacket("udp", address)
	if err != nil {
		return false
	}
	_ = datagrams.Close()
	streams, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	_ = streams.Close()
	return true
}
