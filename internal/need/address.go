package need

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
)

// nextPort counts the ports that this process has tried. It begins anywhere, because packages are tested at the same time.
var nextPort atomic.Int64

// FreeAddress is a loopback address on which a server of both UDP and TCP can listen. No other call in this process returns it, and its
// port is below those that the system assigns, so that no client takes it meanwhile.
func FreeAddress(t testing.TB) string {
	t.Helper()
	nextPort.CompareAndSwap(0, 1+rand.Int64N(20_000))
	for range 1000 {
		address := fmt.Sprintf("127.0.0.1:%d", 10_000+nextPort.Add(1)%20_000)
		datagrams, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		_ = datagrams.Close()
		if streams, err := net.Listen("tcp", address); err == nil {
			_ = streams.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}
