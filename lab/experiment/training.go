package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/testbed/emulated"
	"github.com/quellhq/quell/loadgen"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/probe"
	"github.com/quellhq/quell/train"
)

// Training is a training on emulated hosts in this process, or on the machines of a lab.
type Training struct {
	Kernel    *KernelHosts      // nil: emulated hosts
	Resources []quell.Resource  // resources for which live instances are probed; none: the network
	Hosts     int               // number of emulated hosts at once
	Bandwidth float64           // bit/s of each host's link
	Workload  scenario.Workload // what clients request; its load is ignored
	Budget    float64           // share of the link that probes may take
	Spacing   time.Duration     // mean time between two probes; 0: as on the emulated rig
	Probing   *quell.Probing    // how live instances are probed; replaces Budget and Spacing
	Seed      uint64
}

// Run starts the hosts, trains on them, and ends them. It ignores Options.Machines and Options.Seed.
func (t Training) Run(ctx context.Context, o train.Options) (rows []model.TrainingRow, err error) {
	o.Plan, o.Seed = settled(o.Plan, t.Workload), t.Seed
	err = t.On(ctx, func(ctx context.Context, machines []train.Machine) (err error) {
		o.Machines = machines
		rows, err = train.Run(ctx, o)
		return err
	})
	return rows, err
}

// On starts the hosts, calls work with them, and ends them. These machines also implement train.ProbedMachine.
func (t Training) On(ctx context.Context, work func(context.Context, []train.Machine) error) (err error) {
	if t.Spacing == 0 {
		t.Spacing = probeSpacing
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var hosts sync.WaitGroup
	defer hosts.Wait()
	defer cancel(nil)
	if t.Kernel != nil {
		defer func() { err = errors.Join(err, t.Kernel.stop()) }()
	}
	targets, token, err := t.targets(ctx, cancel, &hosts)
	if err != nil {
		return err
	}
	machines, err := train.Live(train.LiveOptions{
		Targets: targets, PerSecond: t.perSecond, Process: processOf(t.Workload.Arrivals), Seed: t.Seed,
		Visits: func(seed uint64) (loadgen.Visits, error) { return visits(t.Workload, seed) },
		Fresh:  t.Workload.Application != "", // as the balancer of its instances does
		Probe:  t.downloads(token),
	})
	if err != nil {
		return err
	}
	err = work(ctx, machines)
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		return cause
	}
	return err
}

// downloads are the options that make probes of the machines equal to those of live instances; nil if live instances are not probed by
// downloads.
func (t Training) downloads(token string) *probe.Options {
	if len(t.Resources) > 0 && !slices.Contains(t.Resources, quell.Network) {
		return nil
	}
	const count = 10 // probes per period; any number will do, because only spacing and budget are used
	o := &probe.Options{
		Service: "training", Sender: "trainer", From: "training", Token: token,
		Period: count * t.Spacing, Count: count, Budget: t.Budget, Capacity: &t.Bandwidth,
	}
	if p := t.Probing; p != nil {
		o.Period, o.Count, o.Size = time.Duration(p.PeriodS*float64(time.Second)), p.Count, p.Bytes
	}
	o.Timeout = o.Period
	return o
}

// perSecond is the rate of requests that fills a resource of a host; 0 if requests do not use it.
func (t Training) perSecond(r quell.Resource) float64 {
	demand, ok := uses(t.Workload, t.host())[r]
	if !ok {
		return 0
	}
	return 1 / demand
}

// uses is what a request takes of a host's resources, as the host's agent reports it, in seconds of the whole resource. No counter
// measures memory traffic, so the agent reports processor time for memory.
func uses(w scenario.Workload, h scenario.Host) map[quell.Resource]float64 {
	h.Memory = 1
	all := w.Demands(h)
	if h.Cores > 0 && all[quell.Memory] > 0 {
		all[quell.CPU] += all[quell.Memory] / h.Cores
	}
	if all[quell.CPU] > 0 {
		all[quell.Memory] = all[quell.CPU]
	}
	return all
}

// host is the size of each machine.
func (t Training) host() scenario.Host {
	if t.Kernel != nil {
		return t.Kernel.Host
	}
	return scenario.Host{Network: t.Bandwidth}
}

// targets returns the machines to train on, and the token that their probe servers require.
func (t Training) targets(
	ctx context.Context, cancel context.CancelCauseFunc, running *sync.WaitGroup,
) (targets []train.Target, token string, err error) {
	if t.Kernel != nil {
		t.Kernel.workload, t.Kernel.resources = t.Workload, t.Resources
		targets, err = t.Kernel.start(ctx)
		return targets, t.Kernel.token, err
	}
	targets, err = t.start(ctx, cancel, running)
	return targets, "", err
}

func (t Training) start(ctx context.Context, cancel context.CancelCauseFunc, running *sync.WaitGroup) ([]train.Target, error) {
	var targets []train.Target
	for i := range t.Hosts {
		h, err := emulated.NewHost(emulated.HostOptions{
			ID: fmt.Sprintf("h%d", i+1), Instance: "training", Listen: "127.0.0.1:0", Bandwidth: int64(t.Bandwidth),
			FileSize: t.Workload.Size, Seed: t.Seed + uint64(i), ProbeListen: "127.0.0.1:0", ProbeHandler: probe.NewServer(probe.ServerOptions{}),
		})
		if err != nil {
			return nil, err
		}
		if err := h.Listen(); err != nil {
			return nil, err
		}
		running.Go(func() {
			if err := h.Run(ctx); err != nil {
				cancel(err)
			}
		})
		targets = append(targets, target{h, t.Bandwidth / 8})
	}
	return targets, nil
}

// target gives the trainer access to an emulated host.
type target struct {
	*emulated.Host
	bytesPerSecond float64
}

func (t target) Service() string { return "http://" + t.Addr() }
func (t target) Probe() string   { return t.ProbeAddr() }

// Feels implements train.Target. It says whether an agent probes the resource: never here, because emulated machines have only the
// network, which is probed from outside.
func (t target) Feels(quell.Resource) bool { return false }

func (t target) Interfere(r quell.Resource, use float64) error {
	if r != emulated.Shared {
		return fmt.Errorf("neighbours of an emulated machine share its %s only, not its %s", emulated.Shared, r)
	}
	return t.SetInterference(use)
}

func (t target) Carried(quell.Resource) (train.Carried, error) {
	c := t.Counters()
	return train.Carried{Own: float64(c.Instance) / t.bytesPerSecond, Interfering: float64(c.Neighbours) / t.bytesPerSecond}, nil
}
