// Package examples holds configurations and scenarios that are shown to users, played by the demo and run by tests.
package examples

import _ "embed"

// NoisyNeighbour is the scenario that the demo plays.
//
//go:embed scenarios/noisy-neighbour.yaml
var NoisyNeighbour []byte
