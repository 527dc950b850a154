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

// builtinOnly are the schedulings that HAProxy does not have.
var builtinOnly = []quell.Scheduling{quell.EWMA, quell.LeastTime, quell.Prequal}

// KernelPlayable returns why a kernel lab cannot play a scenario, as a *quell.InvalidError that says what to change. If runs are given,
// only they are checked; otherwise all runs.
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
		if (r.Balancer == "" || r.Balancer == scenario.HAProxy) && slices.Contains(builtinOnly, r.Scheduling) {
			return invalid(fmt.Sprintf("runs[%d].scheduling", i), "HAProxy has no %s: give the run balancer: builtin", r.Scheduling)
		}
	}
	if err := kernelErrors(sc); err != nil {
		return err
	}
	if err := kernelCredits(sc); err != nil {
		return err
	}
	return bearable(sc)
}

// kernelErrors refuses a timeline that makes instances answer with errors, if a lab's instances cannot be switched to that while they run.
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

// kernelHosts checks the hosts' names and sizes. All hosts must be equally large, because agents, probes and models have one size for
// all; only resources that are not limited may differ.
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

// KernelHost is a host of a scenario as a lab makes it. Processors and disk are limited only if the scenario uses them; see Contended.
func KernelHost(sc *scenario.Scenario, h scenario.Host) kernel.Host {
	made := kernel.Host{ID: h.ID, Network: h.Network}
	if Contended(sc, quell.CPU) || sc.Instances.Credits != nil {
		made.Cores = h.Cores
	}
	if Contended(sc, quell.Disk) {
		made.DiskIOPS = h.DiskIOPS
	}
	return made
}

// bearable refuses classes whose mean request, on an idle host, takes a large part of the time after which clients give up. Demands vary,
// so many requests would take longer than clients wait. The largest of many requests must not exceed the service's own limits either.
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
			operations /= demand.MostTime.Seconds() / most.Seconds() // the same ratio of bound to mean as for times
		}
		if c.Disk > operations {
			return invalid(fmt.Sprintf("workload.classes[%d].disk", i),
				"requests may ask for %d operations, and with spread %s for %.0f on average, not %g: give it less, or use quell sim",
				demand.MostDisk, sc.Workload.Spread, math.Floor(operations), c.Disk)
		}
	}
	return nil
}

// KernelTrainable returns why a lab cannot learn models for a scenario, as a *quell.InvalidError. A training fills each resource that the
// policy uses for its decisions. So requests must use all of these, and no other resource may be full before they are.
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

// Fills returns those of the given levels to which requests can fill a resource before another resource is full. The returned levels are
// those of the resource's training.
func Fills(sc *scenario.Scenario, r quell.Resource, levels []float64) []float64 {
	used := uses(sc.Workload, sc.Hosts[0])
	most := slices.Max(slices.Collect(maps.Values(used)))
	scaled := slices.Clone(levels)
	for i := range scaled {
		scaled[i] *= used[r] / most
	}
	return scaled
}
