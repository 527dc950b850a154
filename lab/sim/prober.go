package sim

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// Probing says how instances are probed. The zero value means that they are probed as on the emulated rig.
type Probing scenario.Probing

// The rules by which a prober of the live system chooses its probes.
const (
	probeSpacing  = 100 * time.Millisecond
	leastProbes   = scenario.LeastProbes
	defaultBudget = 0.02
	leastBytes    = 1_000
	mostBytes     = 1_000_000
)

// The largest cost of an agent's probes: a share of the resource for all probes, and an amount for each. The amounts are half a
// millisecond of a processor, half a millisecond of the reference machine's memory bandwidth, or one disk operation of 4 KiB.
const (
	machineBudget   = 0.005
	mostProbeS      = 0.0005
	diskProbeBytes  = 4 << 10
	chasedBytes     = 64 << 20
	operationsOfOne = 1
)

// probePlan is how one resource of one host is probed.
type probePlan struct {
	resource quell.Resource
	count    int
	spacing  float64 // mean seconds between two probes
	class    class
	by       *quell.Probing
}

// classes are classes of requests that use the probed resources, so that a world has stations for these.
func (p Probing) classes() (list []class) {
	for _, r := range scenario.Probing(p).Probed() {
		list = append(list, class{{kindOf(r), always(0)}})
	}
	return list
}

// plans are the probe plans of a host. The link is probed as by a prober of the live system, other resources as by an agent.
func (p Probing) plans(sampling time.Duration, h scenario.Host) (plans []probePlan, err error) {
	for _, r := range scenario.Probing(p).Probed() {
		plan, err := p.planOf(r, sampling, h)
		if err != nil {
			return nil, err
		}
		plans = append(plans, plan)
	}
	return plans, nil
}

func (p Probing) planOf(r quell.Resource, sampling time.Duration, h scenario.Host) (probePlan, error) {
	if r == quell.Network {
		return p.plan(sampling, h.Network)
	}
	return p.machinePlan(r, sampling, h), nil
}

// machinePlan is how an agent probes a resource of its machine: as often as the link is probed, or less often if the budget requires it.
func (p Probing) machinePlan(r quell.Resource, sampling time.Duration, h scenario.Host) probePlan {
	count := p.perPeriod(sampling)
	by := &quell.Probing{PeriodS: sampling.Seconds(), From: string(quell.FromAgent)}
	spare := machineBudget * sampling.Seconds() // of the whole resource, in one period
	amount := 0.0
	switch r {
	case quell.Disk:
		count = max(1, min(count, int(spare*h.DiskIOPS)))
		amount, by.Bytes = operationsOfOne, diskProbeBytes
	case quell.CPU:
		amount = min(mostProbeS, spare*h.Cores/float64(count))
		by.RunMS = 1000 * amount
	default:
		amount = min(mostProbeS, spare*h.Memory/float64(count))
		by.Bytes = chasedBytes
	}
	by.Count = count
	spacing := sampling.Seconds() / float64(count)
	return probePlan{resource: r, count: count, spacing: spacing, class: class{{kindOf(r), always(amount)}}, by: by}
}

// perPeriod is the number of probes of the link in a sampling period.
func (p Probing) perPeriod(sampling time.Duration) int {
	return cmp.Or(p.Count, max(leastProbes, int(sampling/probeSpacing)))
}

func (p Probing) plan(sampling time.Duration, bitsPerSecond float64) (probePlan, error) {
	p.Count = p.perPeriod(sampling)
	if p.Budget == 0 {
		p.Budget = defaultBudget
	}
	spacing := sampling.Seconds() / float64(p.Count)
	bytes := math.Floor(p.Budget*bitsPerSecond/8*spacing) - headerBytes
	if bytes < leastBytes {
		return probePlan{}, &quell.UserError{Err: fmt.Errorf("a link of %.4g bit/s leaves %.0f bytes for each of %d probes in %v, which need "+
			"%d: give the hosts more network, or sample less often",
			bitsPerSecond, bytes, p.Count, sampling, leastBytes)}
	}
	bytes = min(bytes, mostBytes) + headerBytes
	by := &quell.Probing{Bytes: int64(bytes) - headerBytes, Count: p.Count, PeriodS: sampling.Seconds(), From: "balancer"}
	downloads := class{{kindOf(quell.Network), always(bytes)}}
	return probePlan{resource: quell.Network, count: p.Count, spacing: spacing, class: downloads, by: by}, nil
}

// prober probes a resource of one host, one window after another. A window has n equal parts, and in each part one probe is sent at a
// random moment. If a probe takes longer than a part, it counts as having taken as long as a part. The first probe of a link opens the
// connection and does not count.
type prober struct {
	w        *world
	plan     probePlan
	host     int
	instance int32
	rng      *rand.Rand

	warm    bool // probes count from now on
	stopped bool
	slots   []float64
	slot    int
	ref     int32 // reference of the probe that is under way
	singles []float64
	then    func()
}

// proberStream selects the probers' random numbers, which differ from those of arrivals, neighbours and faults. machineProbers gives each
// resource of a machine random numbers of its own.
const (
	proberStream   = 1 << 32
	machineProbers = 1 << 40
)

func newProber(w *world, plan probePlan, host int, instance int32, seed uint64) *prober {
	stream := proberStream + uint64(instance)
	if plan.resource != quell.Network {
		stream += machineProbers * uint64(1+kindOf(plan.resource))
	}
	return &prober{w: w, plan: plan, host: host, instance: instance, ref: nobody, rng: rand.New(rand.NewPCG(seed, stream)),
		warm: plan.resource != quell.Network}
}

// newProbers makes a prober for each plan of a host.
func newProbers(w *world, plans []probePlan, host int, instance int32, seed uint64) (probers []*prober) {
	for _, plan := range plans {
		probers = append(probers, newProber(w, plan, host, instance, seed))
	}
	return probers
}

// window sends n probes during length seconds from start on, and calls then after the last one. The single probe times, in milliseconds,
// are valid until the next window.
func (p *prober) window(start, length float64, n int, then func()) {
	p.slots, p.slot, p.singles, p.then = p.slots[:0], 0, p.singles[:0], then
	part := length / float64(n)
	for k := range n {
		p.slots = append(p.slots, start+(float64(k)+p.rng.Float64())*part)
	}
	p.schedule()
}

func (p *prober) schedule() {
	if p.slot == len(p.slots) {
		p.then()
		return
	}
	p.w.agenda.add(max(p.w.now, p.slots[p.slot]), p.send)
}

func (p *prober) send() {
	if p.stopped {
		return
	}
	ref := p.w.submit(p.plan.class, ownProbe, p.host, p.instance)
	life := p.w.requests[ref].life
	p.ref = ref
	p.w.agenda.add(p.w.now+p.plan.spacing, func() {
		if p.ref == ref && p.w.requests[ref].life == life {
			p.w.abandon(p.ref, p.host)
			p.measured(p.plan.spacing)
		}
	})
}

// arrived is called when the probe under way has returned.
func (p *prober) arrived(ref int32) {
	took := p.w.now - p.w.requests[ref].entered
	p.w.leave(ref)
	p.measured(took)
}

func (p *prober) measured(seconds float64) {
	p.ref = nobody
	if p.plan.resource == quell.Network && p.w.proberLink != nil {
		seconds = math.Min(p.plan.spacing, seconds+p.w.proberLink(p.w.now))
	}
	if p.warm {
		p.singles = append(p.singles, seconds*1000)
	}
	p.warm = true
	p.slot++
	p.schedule()
}

// stop ends probing.
func (p *prober) stop() {
	p.stopped = true
	if p.ref != nobody {
		p.w.abandon(p.ref, p.host)
		p.ref = nobody
	}
}

// statistics summarise the probes of the window; false if there are none.
func (p *prober) statistics() (quell.ProbeStats, bool) {
	n := float64(len(p.singles))
	if n == 0 {
		return quell.ProbeStats{}, false
	}
	var sum, squares float64
	for _, ms := range p.singles {
		sum += ms
	}
	mean := sum / n
	for _, ms := range p.singles {
		squares += (ms - mean) * (ms - mean)
	}
	stats := quell.ProbeStats{MeanMS: mean, N: len(p.singles), By: p.plan.by}
	if n > 1 {
		stats.StddevMS = math.Sqrt(squares / (n - 1))
	}
	return stats, true
}
