// Package examples holds configurations and scenarios that are shown to users, played by the demo and run by tests.
package examples

import (
	"embed"
	"strings"
)

// Fleet is the scenario that the demo plays.
//
//go:embed demo/fleet.yaml
var Fleet []byte

// NoisyNeighbour is a service of a few machines with two neighbours, in 70 seconds.
//
//go:embed scenarios/noisy-neighbour.yaml
var NoisyNeighbour []byte

//go:embed lab/*.yaml
var lab embed.FS

// Lab returns the experiments of the kernel lab by name.
func Lab() map[string][]byte {
	library := map[string][]byte{}
	entries, _ := lab.ReadDir("lab") // it is compiled in
	for _, e := range entries {
		data, _ := lab.ReadFile("lab/" + e.Name())
		library[strings.TrimSuffix(e.Name(), ".yaml")] = data
	}
	return library
}
