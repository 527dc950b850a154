package experiment

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/testbed/demand"
	"github.com/quellhq/quell/lab/testbed/kernel"
)

// KernelPlayable returns what a kernel lab cannot play of a scenario, as a *quell.InvalidError that says what to do. It checks
// only the chosen runs; with none named, all.
func KernelPlayable(sc *scenario.Scenario, chosen ...scenario.Run) error {
	if err := Playable(sc, KernelResources()...); err != nil {
		return err
	}
	if err := kernelHosts(sc); err != nil {
		return err
	}
	for i, r := range sc.Runs {
		if len(chosen) > 0 && !slices.Contains(chosen, r) {
			continue
		}
		if r.Balancer == "" && (r.Scheduling == quell.EWMA || r.Scheduling == quell.Prequal) {
			return invalid(fmt.Sprintf("runs[%d].scheduling", i), "HAProxy has no %s: give the run balancer: builtin", r.Scheduling)
		}
	}
	if err := kernelErrors(sc); err != nil {
		return err
	}
	return bearable(sc)
}

// kernelErrors refuses what nginx cannot be told while it runs.
func kernelErrors(sc *scenario.Scenario) error {
	for i, e := range sc.Timeline {
		path := fmt.Sprintf("timeline[%d].errors", i)
		switch {
		case e.Errors == nil:
		case sc.Workload.Kind != scenario.File && sc.Workload.Kind != scenario.Video:
			return invalid(path, "a lab's instances answer by errors only where they serve files or videos: use quell sim")
		case e.Errors.Share != 0 && e.Errors.Share != 1:
			return invalid(path+".share", "a lab's instances answer all requests by errors or none: give 100%% or 0%%, or use quell sim")
		}
	}
	return nil
}

// kernelHosts checks names and sizes. Agents, probes and models have one size for all hosts; a resource that is not limited may
// differ.
func kernelHosts(sc *scenario.Scenario) error {
	first := KernelHost(sc, sc.Hosts[0])
	for i, h := range sc.Hosts {
		path := fmt.Sprintf("hosts[%d]", i)
		if want := fmt.Sprintf("h%d", i+1); h.ID != want {
			return invalid(path+".id", "a lab's hosts are h1, h2 and so on in order, not %s", h.ID)
		}
		made := KernelHost(sc, h)
		for _, r := range []struct {
			key       string
			has, like float64
		}{{"network", made.Network, first.Network}, {"cores", made.Cores, first.Cores}, {"disk_iops", made.DiskIOPS, first.DiskIOPS}} {
			if r.has != r.like {
				return invalid(path+"."+r.key, "a lab's hosts are alike: give all the same as h1, or use quell sim")
			}
		}
		if h.Memory != 1 {
			return invalid(path+".memory",
				"a lab's hosts have the memory bandwidth of the machine that it runs on: leave this out, or use quell sim")
		}
		if err := made.Check(); err != nil {
			return invalid(path, "%v", err)
		}
	}
	return nil
}

// KernelHost is a host of a scenario as a lab makes it: processors and disk are limited where they are contended.
func KernelHost(sc *scenario.Scenario, h scenario.Host) kernel.Host {
	made := kernel.Host{ID: h.ID, Network: h.Network}
	if Contended(sc, quell.CPU) {
		made.Cores = h.Cores
	}
	if Contended(sc, quell.Disk) {
		made.DiskIOPS = h.DiskIOPS
	}
	return made
}

// bearable refuses classes whose requests real clients would give up: mean requests that use a large part of the
// clients' time limit on an idle host. Demands vary, and the largest of many must not reach the service's own limits
// either.
func bearable(sc *scenario.Scenario) error {
	const most = patience / 4
	h := sc.Hosts[0]
	for i, c := range sc.Workload.Classes {
		seconds := c.CPU.Seconds()/min(1, h.Cores) + c.Disk/h.DiskIOPS + c.Memory.Seconds() + 8*float64(c.Network)/h.Network
		if seconds > most.Seconds() {
			return invalid(fmt.Sprintf("workload.classes[%d]", i),
				"its mean request takes %v on an idle host, and clients wait for %v: make it at most %v, or use quell sim",
				time.Duration(seconds*float64(time.Second)).Round(time.Millisecond), patience, most)
		}
		operations := float64(demand.MostDisk)
		if sc.Workload.Spread == scenario.Exponential {
			operations /= demand.MostTime.Seconds() / most.Seconds() // as far below the bound as times are
		}
		if c.Disk > operations {
			return invalid(fmt.Sprintf("workload.classes[%d].disk", i),
				"requests may ask for %d operations, and with spread %s for %.0f on average, not %g: give it less, or use quell sim",
				demand.MostDisk, sc.Workload.Spread, math.Floor(operations), c.Disk)
		}
	}
	return nil
}

// KernelTrainable says why a lab cannot learn models for a scenario, as a *quell.InvalidError. A training fills each resource that the
// policy goes by: requests must use it, and none of the others as much as to be full before all of these.
func KernelTrainable(sc *scenario.Scenario) error {
	const instead = "give models with --models, or play policies that need none (static, hpa, knapsack, lr)"
	trained := Felt(sc)
	used := uses(sc.Workload, sc.Hosts[0])
	most := 0.0
	for _, r := range trained {
		if used[r] == 0 {
			return invalid("workload.classes", "no class uses %s, and models of it are learned under load: give the classes some; or %s", r, instead)
		}
		most = max(most, used[r])
	}
	for _, r := range quell.Resources {
		if used[r] > most*(1+1e-9) {
			return invalid("workload.classes",
				"the mean request takes %.2g of a host's %s where it takes %.2g of the %s (seconds of the whole), and models are learned of %s "+
					"only: name %s in policy.resource as well, make its demands smaller, or hosts larger in it; or %s",
				used[r], r, most, join(trained), join(trained), r, instead)
		}
	}
	return nil
}

func join(list []quell.Resource) string {
	var words []string
	for _, r := range list {
		words = append(words, string(r))
	}
	return strings.Join(words, ", ")
}

// Fills are the levels of a training of one resource, of those given: as far as requests can fill it before another one is full.
func Fills(sc *scenario.Scenario, r quell.Resource, levels []float64) []float64 {
	used := uses(sc.Workload, sc.Hosts[0])
	most := slices.Max(slices.Collect(maps.Values(used)))
	scaled := slices.Clone(levels)
	for i := range scaled {
		scaled[i] *= used[r] / most
	}
	return scaled
}
