package builtin

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/quellhq/quell"
)

// BenchmarkApply changes the weights of all backends through the admin socket.
func BenchmarkApply(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			socket := filepath.Join(b.TempDir(), "balancer.sock")
			start(b, Options{Admin: socket, Health: checkedOnce()})
			client := NewClient(socket)
			backends := make([]quell.Backend, n)
			for round := 0; b.Loop(); round++ {
				for i := range backends {
					weight := 1 + 0.1*float64((i+round)%7)
					backends[i] = quell.Backend{ID: fmt.Sprintf("i%d", i+1), Address: "127.0.0.1:9", Weight: weight}
				}
				if err := client.Apply(b.Context(), backends); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
