package local

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/sensor"
)

var cpuKind = kind{
	resource: quell.CPU,
	by:       func(o *Options) quell.Probing { return quell.Probing{RunMS: milliseconds(o.Run)} },
	purse:    func(o *Options) purse { return processorPurse(o, o.Run) },
	open:     openCPU,
}

// lead is how long before a computation its thread is woken, to nap for the rest: a bit more than what Go's timers are late by
// themselves. A thread that is later than that has waited for a processor.
const lead = 1200 * time.Microsecond

// cpuProbe computes for a fixed time and compares what that took with its own processor time.
type cpuProbe struct {
	thread thread
	quota  quota
	run    time.Duration // nominal
	work   func()        // computes for about run
	paid   time.Duration // the thread's processor time until the last probe
}

// counts how often the own group's processor quota stopped it
type quota interface{ Count() (uint64, error) }

func openCPU(o *Options) (prober, error) {
	t, err := openThread()
	if err != nil {
		return nil, err
	}
	if err := resolves(t.used, o.Run, "processor"); err != nil {
		return nil, errors.Join(err, t.close())
	}
	own, err := sensor.OwnQuota(o.Root)
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	n, x := calibrate(t, o.Run), uint64(seed)
	return &cpuProbe{thread: t, quota: own, run: o.Run, work: func() { x = spin(x, n) }, paid: t.used()}, nil
}

// processorPurse is the budget of probes that use processor time; guess is the time of one probe.
func processorPurse(o *Options, guess time.Duration) purse {
	return purse{perSecond: o.Budget * cores(o), most: o.rate(), cost: guess.Seconds()}
}

// cores are the processors that the instance has.
func cores(o *Options) float64 {
	if o.Cores > 0 {
		return o.Cores
	}
	if own, err := sensor.OwnQuota(o.Root); err == nil && own.Cores() > 0 {
		return own.Cores()
	}
	return float64(runtime.NumCPU())
}

// probe returns the nominal time, stretched by what the computation waited for a processor: from when it was due until it was done. It
// is too short to be interrupted often, so most of that is before it begins. A computation that is slower by itself, as beside a busy
// hyper-thread, counts for no more. Time for which the own quota stopped the group is no neighbour's doing: such a probe tells nothing.
func (p *cpuProbe) probe(late time.Duration) (sample, error) {
	due := p.thread.now() - late + lead
	stopped, err := p.quota.Count()
	if err != nil {
		return sample{}, err
	}
	if early := due - p.thread.now(); early > 0 {
		p.thread.nap(early)
	}
	used := p.thread.used()
	p.work()
	used, took := p.thread.used()-used, p.thread.now()-due
	s := sample{cost: (p.thread.used() - p.paid).Seconds()}
	p.paid = p.thread.used()
	stoppedSince, err := p.quota.Count()
	switch {
	case err != nil:
		return s, err
	case stoppedSince != stopped:
		return s, errOwnQuota
	case used <= 0:
		return s, errors.New("the thread's clock stood still through a probe")
	}
	s.ms = milliseconds(p.run) * float64(max(took, used)) / float64(used)
	return s, nil
}

func (p *cpuProbe) close() error { return p.thread.close() }

var errOwnQuota = errors.New("the own control group's processor quota stopped every probe: raise the quota, or run the agent outside " +
	"that group")

// calibrate returns how many rounds of spin take that much processor time.
func calibrate(t thread, run time.Duration) int {
	const rounds, tries = 100_000, 10
	best, x := time.Duration(0), uint64(seed)
	for range tries {
		before := t.used()
		x = spin(x, rounds)
		if took := t.used() - before; took > 0 && (best == 0 || took < best) {
			best = took
		}
	}
	return max(1, int(rounds*float64(run)/float64(max(best, 1))))
}

// seed is what spin begins with: anything but 0.
const seed = 88172645463325252

// spin computes without touching memory, and returns what the next call goes on with.
//
//go:noinline
func spin(x uint64, rounds int) uint64 {
	for range rounds {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// grain is the largest step of a clock relative to a time measured with it.
const grain = 0.05

// resolves returns whether a clock is precise enough to measure that time.
func resolves(read func() time.Duration, length time.Duration, name string) error {
	const most = 200_000 // readings: some milliseconds of a clock that moves at each
	step := time.Duration(0)
	before := read()
	for range most {
		after := read()
		if after > before {
			step = after - before
			break
		}
	}
	if step == 0 || float64(step) > grain*float64(length) {
		return fmt.Errorf("the %s clock moves in steps of %v, too coarse to measure %v", name, step, length)
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
