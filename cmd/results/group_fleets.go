package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/policy/table"
)

// calmFleet is a fleet without neighbours: the smallest fixed group that holds the objective, and what PRIMA keeps
// that learns in place, with
// capacities of single instances and of the group.
type calmFleet struct {
	SLO      string   `json:"objective"`
	Load     float64  `json:"load"`
	Smallest int      `json:"smallest"` // misses in at most 1% of the time
	Single   fleetRun `json:"single"`   // pooling: 0
	Pooled   fleetRun `json:"pooled"`   // pooling: learned
}

// fleetRun has means over seeds.
type fleetRun struct {
	Size   float64 `json:"size"`
	Missed float64 `json:"missed"` // part of the time
}

// The calm fleets. Runs begin cold, with twice as many instances as the load fills.
const (
	fleetHosts = 24
	fleetTime  = 10 * time.Minute
	fleetMiss  = 0.01
)

var (
	fleetLoads = []float64{1.2, 2.5, 5, 8}
	fleetSLOs  = []quell.SLO{
		{Metric: quell.P90, Threshold: 45 * time.Millisecond}, {Metric: quell.Mean, Threshold: 25 * time.Millisecond},
		{Metric: quell.P95, Threshold: 60 * time.Millisecond}, {Metric: quell.P99, Threshold: 80 * time.Millisecond},
	}
	fleetSeeds = []uint64{71, 72}
)

// playFleets plays every objective at every load.
func playFleets(ctx context.Context) ([]calmFleet, error) {
	var fleets []calmFleet
	for _, slo := range fleetSLOs {
		for _, load := range fleetLoads {
			f := calmFleet{SLO: fmt.Sprintf("%s within %v", slo.Metric, slo.Threshold), Load: load}
			if err := f.play(ctx, slo); err != nil {
				return nil, err
			}
			fleets = append(fleets, f)
		}
	}
	return fleets, nil
}

func (f *calmFleet) play(ctx context.Context, slo quell.SLO) (err error) {
	for f.Smallest = int(math.Ceil(f.Load)); f.Smallest < fleetHosts; f.Smallest++ {
		run, err := f.mean(ctx, slo, quell.Policy{Name: table.All.Plain()}, f.Smallest)
		if err != nil {
			return err
		}
		if run.Missed <= fleetMiss {
			break
		}
	}
	single, err := poolingPolicy("0")
	if err != nil {
		return err
	}
	if f.Single, err = f.mean(ctx, slo, single, 0); err != nil {
		return err
	}
	pooled, err := poolingPolicy("learned")
	if err != nil {
		return err
	}
	f.Pooled, err = f.mean(ctx, slo, pooled, 0)
	return err
}

// poolingPolicy is the default policy with a pooling.
func poolingPolicy(pooling string) (quell.Policy, error) {
	text := fmt.Sprintf("scenario: pooled\nduration: 10s\nservice: {slo: {metric: mean, threshold: 40ms}, "+
		"policy: {name: %[1]s, pooling: %[2]s}}\nhosts: [{id: h, count: 1, network: 40Mbps}]\ninstances: {start: 1, fixed: 1}\n"+
		"workload: {kind: file, arrivals: poisson, size: 50KB, load: 0.1}\nruns: [{policy: %[1]s}]\n", table.All.Default(), pooling)
	sc, err := scenario.Parse("pooled.yaml", []byte(text))
	if err != nil {
		return quell.Policy{}, err
	}
	return sc.Service.Policy, nil
}

// mustPool is poolingPolicy for a value that is known to be right.
func mustPool(pooling string) quell.Policy {
	p, err := poolingPolicy(pooling)
	if err != nil {
		panic(err)
	}
	return p
}

// mean plays a policy, or a fixed size, with each seed.
func (f *calmFleet) mean(ctx context.Context, slo quell.SLO, p quell.Policy, fixed int) (mean fleetRun, err error) {
	for _, seed := range fleetSeeds {
		sc := f.scenario(slo, p)
		if sc.Runs[0].Fixed = fixed; fixed > 0 {
			sc.Runs[0].Models = ""
		}
		r, err := sim.Run(ctx, sim.Options{Scenario: sc, Run: sc.Runs[0], Seed: seed})
		if err != nil {
			return mean, err
		}
		mean.Size += r.MeanInstances / float64(len(fleetSeeds))
		mean.Missed += r.SLO.ViolationS / fleetTime.Seconds() / float64(len(fleetSeeds))
	}
	return mean, nil
}

func (f *calmFleet) scenario(slo quell.SLO, p quell.Policy) *scenario.Scenario {
	service := quell.DefaultService()
	service.Name, service.Sampling, service.SLO, service.Policy = "calm", time.Second, slo, p
	start := int(math.Ceil(2 * f.Load))
	service.Group = quell.Group{Min: 1, Max: fleetHosts, Initial: start, Startup: 10 * time.Second}
	sc := &scenario.Scenario{Name: "calm", Duration: fleetTime, Service: service, Judge: scenario.DefaultJudging(),
		Instances: scenario.Instances{Start: start, Fixed: start, Startup: 3 * time.Second},
		Workload:  scenario.Workload{Kind: scenario.File, Arrivals: scenario.Poisson, Size: groupBytes, Load: f.Load}}
	for i := range fleetHosts {
		sc.Hosts = append(sc.Hosts, scenario.Host{ID: "h" + strconv.Itoa(i+1), Network: groupLink, Cores: 1, DiskIOPS: 1000, Memory: 1})
	}
	sc.Runs = []scenario.Run{{Policy: p, Scheduling: quell.LeastConn, Models: scenario.Learn}}
	return sc
}

// put adds the figures of fleets, or replaces them.
func (d *groupData) put(fleets []calmFleet) {
	d.Fleets = fleets
	slices.SortStableFunc(d.Fleets, func(a, b calmFleet) int { return strings.Compare(a.SLO, b.SLO) })
}
