package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agentless"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
)

// agentlessScenario is ten minutes of four instances; from the fourth minute on a neighbour uses a part of one link.
const agentlessScenario = `
scenario: agentless
duration: 10m
service:
  slo: {metric: mean, threshold: 40ms}
  sampling: 10s
  policy: {name: static}
  group: {min: 4, max: 4, startup: 10s}
hosts: [{id: h, count: 4, network: 40Mbps}]
instances: {start: 4, fixed: 4, startup: 1s}
workload: {kind: file, arrivals: poisson, size: 50KB, load: 1.6}
timeline: [{at: 1s, load: 1.6}, {at: 150s, load: 2}%s]
runs: [{policy: static, scheduling: leastconn, fixed: 4}]
`

// agentlessResult is what was found from outside.
type agentlessResult struct {
	Seed    uint64   `json:"seed"`
	Host    int      `json:"host"` // beside which the neighbour is; 0: there is none
	Use     float64  `json:"use"`
	Slowed  []string `json:"slowed"`  // instances that were found slowed, in order
	FoundS  float64  `json:"found_s"` // seconds from the neighbour's beginning until it was found
	Correct bool     `json:"correct"` // exactly that one, or none
}

func playAgentless(ctx context.Context, seed uint64, calm bool) (r agentlessResult, err error) {
	rng := rand.New(rand.NewPCG(seed, 45))
	r, event := agentlessResult{Seed: seed, Slowed: []string{}}, ""
	if !calm {
		r.Host, r.Use = 1+rng.IntN(4), 0.3+0.3*rng.Float64()
		event = fmt.Sprintf(", {at: 200s, interfere: {host: h%d, resource: network, use: %.2f}}", r.Host, r.Use)
	}
	sc, err := scenario.Parse("agentless.yaml", []byte(strings.TrimSpace(fmt.Sprintf(agentlessScenario, event))))
	if err != nil {
		return r, err
	}
	var memory agentless.Memory
	found, windows := map[string]bool{}, 0
	_, err = sim.Run(ctx, sim.Options{Scenario: sc, Run: sc.Runs[0], Seed: seed, Snapshots: func(s *quell.Snapshot) {
		var findings []agentless.Finding
		windows++
		findings, memory = agentless.Judge(memory, s.At, fromOutside(s), sc.Service.SLO.ThresholdMS())
		for _, f := range findings {
			if f.Slowed && !found[f.ID] {
				found[f.ID] = true
				if r.Slowed = append(r.Slowed, f.ID); len(r.Slowed) == 1 {
					r.FoundS = float64(windows-4)*sc.Service.Sampling.Seconds() - 200 // four windows of warm-up
				}
			}
		}
	}})
	r.Correct = calm && len(r.Slowed) == 0 || !calm && len(r.Slowed) == 1 && r.Slowed[0] == fmt.Sprintf("i%d", r.Host)
	return r, err
}

// fromOutside returns what can be seen of a snapshot's instances without an agent.
func fromOutside(s *quell.Snapshot) (samples []agentless.Sample) {
	for _, in := range s.Instances {
		o := in.Observation
		if o == nil {
			continue
		}
		sample := agentless.Sample{ID: in.ID, Rate: o.RequestRate}
		if ms, ok := o.LatencyMS.Of(quell.Mean); ok {
			sample.LatencyMS = &ms
		}
		if p, ok := o.Probe[quell.Network]; ok {
			sample.ProbeMS = &p
		}
		samples = append(samples, sample)
	}
	return samples
}

// playAgentlessAll plays ten neighbours and ten calm times.
func playAgentlessAll(ctx context.Context, d *adviceData) error {
	d.Agentless = make([]agentlessResult, 2*adviceSeeds)
	return playAll(len(d.Agentless), func(i int) (err error) {
		d.Agentless[i], err = playAgentless(ctx, uint64(adviceFirstSeed+i/2), i%2 == 1)
		return err
	})
}
