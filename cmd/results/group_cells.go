package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/policy/table"
)

// groupCell is what one simulated group measured: its balancer's rule, its size and use, and the response times of all requests.
type groupCell struct {
	Rule   string        `json:"rule"`  // scheduling
	Kind   string        `json:"kind"`  // of requests and instances; see poolKinds
	Size   int           `json:"n"`     // instances
	Use    float64       `json:"use"`   // of the group
	Answer quell.Latency `json:"times"` // of all requests
}

// The groups that are simulated. Requests take 10 ms of a link of 100 Mbit/s.
const (
	groupLink  = 100e6
	groupBytes = 125_000
	groupTime  = 200 * time.Second
)

var (
	poolSizes = []int{2, 3, 5, 10}
	poolUses  = []float64{0.3, 0.5, 0.7, 0.8, 0.88}
	// poolKinds are the kinds of groups: constant and exponential sizes of requests, instances of which each second one is twice as large,
	// and users who stay with an instance for 20 requests on average.
	poolKinds = []string{"constant", "exponential", "unequal", "sticky"}
)

// playGroups simulates every combination.
func playGroups(ctx context.Context) ([]groupCell, error) {
	var cells []groupCell
	for _, rule := range quell.Schedulings {
		if rule == quell.Prequal {
			continue
		}
		for _, kind := range poolKinds {
			if rule == quell.RoundRobin && kind == "unequal" {
				continue // equal shares overload the smaller ones
			}
			for _, n := range poolSizes {
				for _, use := range poolUses {
					cells = append(cells, groupCell{Rule: string(rule), Kind: kind, Size: n, Use: use})
				}
			}
		}
	}
	return cells, playAll(len(cells), func(i int) error { return cells[i].play(ctx, uint64(i)+1) })
}

func (c *groupCell) play(ctx context.Context, seed uint64) error {
	sc := c.scenario()
	sticky := 0
	if c.Kind == "sticky" {
		sticky = 20
	}
	r, err := sim.Run(ctx, sim.Options{Scenario: sc, Seed: seed, Sticky: sticky, Run: sc.Runs[0]})
	if err != nil {
		return fmt.Errorf("%s, %s, %d instances at %.2f: %w", c.Rule, c.Kind, c.Size, c.Use, err)
	}
	c.Answer = r.LatencyMS
	return nil
}

func (c *groupCell) scenario() *scenario.Scenario {
	service := quell.DefaultService()
	service.Name, service.Sampling, service.Policy = "group", time.Second, quell.Policy{Name: table.All.Plain()}
	service.SLO = quell.SLO{Metric: quell.P90, Threshold: time.Second}
	service.Group = quell.Group{Min: c.Size, Max: c.Size, Initial: c.Size, Startup: time.Second}
	sc := &scenario.Scenario{Name: "group", Duration: groupTime, Service: service, Judge: scenario.DefaultJudging(),
		WarmUp: 20 * time.Second, Probing: scenario.Probing{Count: 8, Budget: 0.001},
		Instances: scenario.Instances{Start: c.Size, Fixed: c.Size, Startup: 100 * time.Millisecond},
		Workload:  scenario.Workload{Kind: scenario.File, Arrivals: scenario.Poisson, Size: groupBytes}}
	room := 0.0
	for i := range c.Size {
		h := scenario.Host{ID: "h" + strconv.Itoa(i+1), Network: groupLink, Cores: 1, DiskIOPS: 1000, Memory: 1}
		if c.Kind == "unequal" && i%2 == 1 {
			h.Network *= 2
		}
		room += h.Network / groupLink
		sc.Hosts = append(sc.Hosts, h)
	}
	sc.Runs = []scenario.Run{{Policy: service.Policy, Scheduling: quell.Scheduling(c.Rule), Fixed: c.Size}}
	sc.Workload.Load = c.Use * room
	if c.Kind == "exponential" || c.Kind == "sticky" {
		sc.Workload.Kind, sc.Workload.Size = scenario.Classes, 0
		sc.Workload.Classes = []scenario.Class{{Name: "file", Share: 1, Network: groupBytes}}
		sc.Workload.Spread = scenario.Exponential
	}
	if c.Kind == "sticky" {
		sc.Workload.Kind, sc.Workload.Arrivals, sc.Workload.Load, sc.Workload.Spread = scenario.Users, "", 0, scenario.Fixed
		sc.Workload.Think = 2 * time.Second
		sc.Workload.Users = int(c.Use * room * 100 * 2)
	}
	return sc
}
