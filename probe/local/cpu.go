package local

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/sensor"
)

var cpuKind = kind{
	resource:  quell.CPU,
	by:        func(o *Options) quell.Probing { return quell.Probing{RunMS: milliseconds(o.Run)} },
	allowance: func(o *Options) allowance { return processorAllowance(o, o.Run) },
	open:      openCPU,
}

// ahead is how long before a computation its thread is woken; the thread then naps until the computation is due. ahead is longer than the
// usual delay of Go's timers, and shorter than the 10 ms after which Go's monitor thread attends to a sleeping thread: that would take more
// processor time than the computation.
const ahead = 5 * time.Millisecond

// cpuProbe computes for a fixed time and compares the elapsed time with its thread's processor time.
type cpuProbe struct {
	thread  thread
	quota   quota
	run     time.Duration // of one probe
	work    func()        // computes for about run
	paid    time.Duration // the thread's processor time at the end of the last probe
	ready   time.Duration // how long the thread had waited for a processor by the end of the last probe
	stopped time.Duration // how long the quota had stopped the group when it was last read
	watched bool          // the quota stopped the group lately, so it is read before and after each computation
}

// quota tells for how long the processor quota has stopped this process's own control group.
type quota interface{ Stopped() (time.Duration, error) }

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
	stopped, err := own.Stopped()
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	n, x := calibrate(t, o.Run), uint64(seed)
	ready, err := t.waited()
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return &cpuProbe{thread: t, quota: own, run: o.Run, work: func() { x = spin(x, n) }, paid: t.used(), ready: ready, stopped: stopped}, nil
}

// processorAllowance is the budget of probes that use processor time; guess is the expected time of one probe.
func processorAllowance(o *Options, guess time.Duration) allowance {
	return allowance{perSecond: o.Budget * cores(o), most: o.rate(), cost: guess.Seconds()}
}

// cores returns the number of processors that the instance has.
func cores(o *Options) float64 {
	if o.Cores > 0 {
		return o.Cores
	}
	if own, err := sensor.OwnQuota(o.Root); err == nil && own.Cores() > 0 {
		return math.Min(own.Cores(), float64(processors())) // a quota may exceed the machine
	}
	return float64(processors())
}

// probe returns the nominal time, multiplied by elapsed time over processor time. The elapsed time runs from when the computation was due
// until it was done; most waiting is before it begins, because it is too short to be interrupted often. A computation that runs slower, for
// example beside a busy hyper-thread, does not make the result longer. Time in which the own group's quota stopped the thread is
// subtracted, because no neighbour caused it. If it is most of the waiting, or if the process was paused, the result is an error.
func (p *cpuProbe) probe(late time.Duration) (sample, error) {
	due, before, err := p.due(late)
	if err != nil {
		return sample{}, err
	}
	used := p.thread.used()
	p.work()
	used, took := p.thread.used()-used, p.thread.now()-due
	s := sample{cost: (p.thread.used() - p.paid).Seconds()}
	p.paid = p.thread.used()
	if used <= 0 {
		return s, errors.New("the thread's clock stood still through a probe")
	}
	waited := max(took-used, 0)
	own, err := p.ownStop(before, waited)
	if err != nil {
		return s, err
	}
	paused, err := p.paused(waited)
	switch {
	case err != nil:
		return s, err
	case own > p.run && own > waited/2:
		return s, errOwnQuota
	case paused:
		return s, errPaused
	}
	s.ms = milliseconds(p.run) * float64(used+waited-own) / float64(used)
	return s, nil
}

// due waits until the computation is due. It returns that moment, and for how long the quota had stopped the group shortly before it, or
// at the last reading if the quota is not watched or the thread was woken too late.
func (p *cpuProbe) due(late time.Duration) (at, stopped time.Duration, err error) {
	at, stopped = p.thread.now()-late+ahead, p.stopped
	if p.thread.now() >= at {
		return at, stopped, nil
	}
	if p.watched {
		if stopped, err = p.quota.Stopped(); err != nil {
			return at, stopped, err
		}
	}
	p.thread.nap(at - p.thread.now())
	return at, stopped, nil
}

// ownStop returns how much of a probe's waiting time the own quota may have caused. The quota is only read if that matters, because reading
// it takes long: if the probe waited, or if the quota stopped the group lately. If it was not read for some time, a stop may have been
// before the probe; it then counts as the probe's, and the next probes are watched.
func (p *cpuProbe) ownStop(before, waited time.Duration) (time.Duration, error) {
	if !p.watched && waited <= p.run/2 {
		return 0, nil
	}
	after, err := p.quota.Stopped()
	if err != nil {
		return 0, err
	}
	p.watched, p.stopped = after > p.stopped, after
	return min(after-before, waited), nil
}

// paused returns whether somebody paused this process or its machine (SIGSTOP, a frozen control group, a suspended virtual machine) for
// most of the time that a probe waited. The thread was not ready to run then, so the kernel does not count it as waiting.
func (p *cpuProbe) paused(waited time.Duration) (bool, error) {
	before := p.ready
	var err error
	p.ready, err = p.thread.waited()
	return waited > leastPause && p.ready-before < waited/10, err
}

// leastPause is longer than a host that runs keeps a virtual processor waiting.
const leastPause = time.Second

var errPaused = errors.New("this process or its machine was paused through every probe")

func (p *cpuProbe) close() error { return p.thread.close() }

var errOwnQuota = errors.New("the own control group's processor quota stopped every probe: raise the quota, or run the agent outside " +
	"that group")

// calibrate returns how many rounds of spin take the given processor time.
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

// seed is the number that spin starts from; it may be anything but 0.
const seed = 88172645463325252

// spin computes without touching memory, and returns the number from which the next call continues.
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

// grain is the largest accepted ratio of a clock's step to the time measured with that clock.
const grain = 0.05

// resolves returns an error if a clock's steps are too coarse to measure the given time. The smallest of several steps counts, because
// whatever interrupts the thread between two readings makes a step longer.
func resolves(read func() time.Duration, length time.Duration, name string) error {
	const readings = 200_000 // some milliseconds, if the clock moves at each
	const steps = 50
	smallest := time.Duration(0)
	before := read()
	for n, seen := 0, 0; n < readings && seen < steps; n++ {
		after := read()
		if step := after - before; step > 0 {
			seen++
			if smallest == 0 || step < smallest {
				smallest = step
			}
		}
		before = after
	}
	if smallest == 0 || float64(smallest) > grain*float64(length) {
		return fmt.Errorf("the %s clock moves in steps of %v, too coarse to measure %v", name, smallest, length)
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
