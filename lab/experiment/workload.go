package experiment

import (
	"fmt"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/testbed/kernel"
	"github.com/quellhq/quell/loadgen"
	"github.com/quellhq/quell/train"
)

// patience is how long a client waits for an answer.
const patience = 10 * time.Second

// generator prepares the requests of a run. The same seed gives the same requests on every rig. The first load, or the first users, are
// there from the beginning of the warm-up.
func generator(sc *scenario.Scenario, warmUp time.Duration) (o loadgen.Options, err error) {
	o = loadgen.Options{Path: "/file", Timeout: patience, Until: warmUp + sc.Duration}
	if sc.Workload.Kind == scenario.Users {
		users, err := usersOf(sc, warmUp)
		if err != nil {
			return o, err
		}
		o.Arrivals, o.Visit = users, users.Visit
		return o, nil
	}
	o.Arrivals, err = loadgen.NewArrivals(loadgen.ArrivalOptions{
		Process: processOf(sc.Workload.Arrivals), Rate: rates(sc, warmUp), Duration: o.Until, Seed: sc.Seed,
	})
	if err != nil {
		return o, err
	}
	o.Visit, err = visits(sc.Workload, sc.Seed, mixes(sc, warmUp)...)
	return o, err
}

// mixes is how the classes' shares change over a scenario with a recorded load. The first shares also hold during the warm-up.
func mixes(sc *scenario.Scenario, warmUp time.Duration) (steps []loadgen.MixStep) {
	for _, s := range sc.Mixes() {
		steps = append(steps, loadgen.MixStep{At: stretched(s.At, warmUp), Shares: s.Shares})
	}
	return steps
}

// rates is the scenario's load as rates of requests. The first rate also holds during the warm-up.
func rates(sc *scenario.Scenario, warmUp time.Duration) []loadgen.Step {
	var steps []loadgen.Step
	for _, s := range sc.Rates() {
		steps = append(steps, loadgen.Step{At: stretched(s.At, warmUp), PerSecond: s.PerSecond})
	}
	return steps
}

// stretched adds the warm-up to a time in a scenario. Time 0 stays 0, so the first load also holds during the warm-up.
func stretched(at, warmUp time.Duration) time.Duration {
	if at == 0 {
		return 0
	}
	return at + warmUp
}

func usersOf(sc *scenario.Scenario, warmUp time.Duration) (*loadgen.Users, error) {
	mix, err := mixOf(sc.Workload, sc.Seed)
	if err != nil {
		return nil, err
	}
	var steps []loadgen.UserStep
	for _, s := range sc.UserSteps() {
		steps = append(steps, loadgen.UserStep{At: stretched(s.At, warmUp), Users: s.Users})
	}
	return loadgen.NewUsers(mix, steps, sc.Workload.Think, "", sc.Seed)
}

// visits is what each arrival of an open workload requests; nil: one file. Workloads of users are included, because in a training their
// requests arrive like those of an open workload. The classes' shares change by the given steps.
func visits(w scenario.Workload, seed uint64, steps ...loadgen.MixStep) (loadgen.Visits, error) {
	switch w.Kind {
	case scenario.File:
		return nil, nil
	case scenario.Video:
		programme, err := loadgen.NewProgramme(loadgen.Video(w.Video), seed)
		if err != nil {
			return nil, err
		}
		return programme.Visits(""), nil
	}
	mix, err := mixOf(w, seed)
	if err != nil {
		return nil, err
	}
	return mix.Visits(""), mix.Over(steps)
}

func mixOf(w scenario.Workload, seed uint64) (*loadgen.Mix, error) {
	var classes []loadgen.Class
	for _, c := range w.Classes {
		classes = append(classes, loadgen.Class(c))
	}
	mix, err := loadgen.NewMix(classes, w.Spread == scenario.Exponential, seed)
	if err == nil && w.Application == scenario.Calendar {
		mix.Pages(kernel.CalendarPage)
	}
	return mix, err
}

// settled lengthens the runs of a training with video sessions, so that as many sessions end as begin: warm-up and measurement each last
// at least twice the mean length of a session.
func settled(plan train.Plan, w scenario.Workload) train.Plan {
	if w.Kind == scenario.Video {
		length := time.Duration(8 * float64(w.Video.Size) / w.Video.Rate * float64(time.Second))
		plan.WarmUp, plan.Run = max(plan.WarmUp, 2*length), max(plan.Run, 2*length)
	}
	return plan
}

func processOf(a scenario.Arrivals) loadgen.Process {
	switch a {
	case scenario.Deterministic, scenario.Bursty, scenario.Synchronised:
		return loadgen.Process(a)
	}
	return loadgen.Exponential
}

// loadable refuses a workload that needs a resource that the hosts do not have.
func loadable(w scenario.Workload, has func(quell.Resource) bool) error {
	for i, c := range w.Classes {
		for _, d := range []struct {
			resource quell.Resource
			key      string
			wanted   bool
		}{{quell.CPU, "cpu", c.CPU > 0}, {quell.Disk, "disk", c.Disk > 0}, {quell.Memory, "memory", c.Memory > 0},
			{quell.Network, "network", c.Network > 0}} {
			if d.wanted && !has(d.resource) {
				return refuse(fmt.Sprintf("workload.classes[%d].%s", i, d.key), fmt.Sprintf("work on %s", d.resource))
			}
		}
	}
	return nil
}
