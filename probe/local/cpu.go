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

// lead is how long before a computation its thread is woken; the thread then naps until the computation is due. lead is a bit more than the
// delay of Go's own timers. A thread that wakes later than that has waited for a processor.
const lead = 1200 * time.Microsecond

// cpuProbe computes for a fixed time and compares the elapsed time with its thread's processor time.
type cpuProbe struct {
	thread thread
	quota  quota
	run    time.Duration // of one probe
	work   func()        // computes for about run
	paid   time.Duration // the thread's processor time at the end of the last probe
}

// quota counts how often the processor quota stopped this process's own control group.
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

// processorPurse is the budget of probes that use processor time; guess is the expected time of one probe.
func processorPurse(o *Options, guess time.Duration) purse {
	return purse{perSecond: o.Budget * cores(o), most: o.rate(), cost: guess.Seconds()}
}

// cores returns the number of processors that the instance has.
func cores(o *Options) float64 {
	if o.Cores > 0 {
		return o.Cores
	}
	if own, err := sensor.OwnQuota(o.Root); err == nil && own.Cores() > 0 {
		return own.Cores()
	}
	return float64(runtime.NumCPU())
}

// probe returns the nominal time, multiplied by elapsed time over processor time. The elapsed time runs from when the computation was due
// until it was done; most waiting is before it begins, because it is too short to be interrupted often. A computation that runs slower, for
// example beside a busy hyper-thread, does not make the result longer. If the own group's quota stopped the probe, the result is an
// error, because no neighbour caused that.
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

// resolves returns an error if a clock's steps are too coarse to measure the given time.
func resolves(read func() time.Duration, length time.Duration, name string) error {
	const most = 200_000 // number of readings: some milliseconds, if the clock moves at each
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
