// Package local measures interference from inside an instance. Small probes measure how long its processors, its memory and its disk take
// for a fixed amount of work. Neighbours on the same host make that time longer.
//
// Probes use at most a fixed share of their resource; their rate is lowered to stay within it. If a resource cannot be probed, its sensor
// reports why, and the other resources are still probed.
package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/probe"
	"github.com/quellhq/quell/sensor"
)

const (
	// MostBudget is the largest share of a resource that its probes may take, and the default.
	MostBudget = 0.005
	// UsualRun is the default processor time of a processor probe. UsualBuffer is the default size of a memory probe's buffer, in bytes.
	UsualRun    = 250 * time.Microsecond
	UsualBuffer = 8 << 20
	// If the budget allows it, a resource is probed every usualSpacing, or perPeriod times per sampling period if that is more often, but not
	// more often than every leastSpacing.
	usualSpacing = 250 * time.Millisecond
	leastSpacing = 125 * time.Millisecond
	perPeriod    = 16
	// again is the time until opening a prober that could not be opened is tried again.
	again = time.Minute
	// reckon is the time after which the budget is computed again: the own quota and the number of processors may change.
	reckon = 10 * time.Second
	// stopWait is how long Run waits for a probe that hangs, for example on a disk that does not answer.
	stopWait = 2 * time.Second
)

// Options say what is probed, how often, and on what machine.
type Options struct {
	Settings
	// Period is the sampling period T.
	Period time.Duration
	// Cores is the number of processors of the instance, for the budget. 0 means the quota of this process's control group, or the processors
	// that this process may use; both may change while it probes.
	Cores float64
	// Operations is how many operations per second the disk can do, for the budget. 0 means unknown: then there is one probe per second.
	Operations float64
	// Root contains the machine's proc and sys, as os.DirFS("/") does. From it the quota of this process's control group is read.
	Root fs.FS
	Seed uint64
}

// prober makes the probes of one resource, one after the other, all on one OS thread.
type prober interface {
	// probe makes one probe, which was due that long ago. After an error there is no measured time, but the sample's cost still counts.
	probe(late time.Duration) (sample, error)
	close() error
}

// sample is what one probe measured.
type sample struct {
	ms   float64
	cost float64 // seconds of a processor, or operations of a disk
}

// kind describes how one resource is probed.
type kind struct {
	resource quell.Resource
	// by describes a probe's work.
	by func(o *Options) quell.Probing
	// allowance is the budget of the probes.
	allowance func(o *Options) allowance
	// open makes the prober, on the thread that will probe. It fails if the resource cannot be probed.
	open func(o *Options) (prober, error)
}

// kinds lists the resources that can be probed.
var kinds = []kind{cpuKind, memoryKind, diskKind}

// Resources returns the resources that can be probed from inside an instance.
func Resources() []quell.Resource {
	var list []quell.Resource
	for _, k := range kinds {
		list = append(list, k.resource)
	}
	return list
}

// rate is the wanted number of probes per second of a resource.
func (o *Options) rate() float64 {
	return 1 / max(leastSpacing, min(usualSpacing, o.Period/perPeriod)).Seconds()
}

// Probes measures an instance's own resources while Run runs. Its Sensors report the results.
type Probes struct {
	opts      Options
	followers []*follower
}

// New checks o. It opens nothing yet. Invalid settings are a *quell.UserError.
func New(o Options) (*Probes, error) {
	o.Budget = cmp.Or(o.Budget, MostBudget)
	o.Run = cmp.Or(o.Run, UsualRun)
	o.Buffer = cmp.Or(o.Buffer, UsualBuffer)
	if o.Root == nil || o.Period <= 0 {
		return nil, errors.New("probes need a Root and a Period")
	}
	if !(o.Budget > 0 && o.Budget <= MostBudget) || o.Run < 0 || o.Buffer < leastBuffer {
		return nil, &quell.UserError{Err: fmt.Errorf("agent.probing: a budget of %v, a run of %v and a buffer of %d bytes make no probes",
			o.Budget, o.Run, o.Buffer)}
	}
	p := &Probes{opts: o}
	for _, r := range o.Resources {
		i := slices.IndexFunc(kinds, func(k kind) bool { return k.resource == r })
		if i < 0 {
			return nil, &quell.UserError{Err: fmt.Errorf("agent.probes: no probe on the instance measures %s", r)}
		}
		p.followers = append(p.followers, &follower{kind: kinds[i], opts: &p.opts})
	}
	return p, nil
}

// Run probes until ctx ends. It returns nil when everything has stopped, or after 2 s if a probe hangs.
func (p *Probes) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for i, f := range p.followers {
		running.Go(func() { f.follow(ctx, rand.New(rand.NewPCG(p.opts.Seed, uint64(i)))) })
	}
	stopped := make(chan struct{})
	go func() { running.Wait(); close(stopped) }()
	<-ctx.Done()
	select {
	case <-stopped:
	case <-time.After(stopWait):
	}
	return nil
}

// Sensors has one sensor per resource. Each reports the probes since its previous reading, or why there are none.
func (p *Probes) Sensors() []sensor.Sensor {
	var list []sensor.Sensor
	for _, f := range p.followers {
		list = append(list, f)
	}
	return list
}

// follower probes one resource.
type follower struct {
	kind
	opts *Options

	prober    prober // nil while the resource cannot be probed
	tried     time.Time
	allowance allowance
	filled    time.Time // when the allowance's income was computed

	mu      sync.Mutex // guards what follows
	singles []float64  // times since the last Sample, in ms
	failed  error      // error of the last probe, nil if it succeeded
}

// Name implements sensor.Sensor.
func (f *follower) Name() string { return "probe of " + string(f.resource) }

// Sample implements sensor.Sensor.
func (f *follower) Sample(_ time.Time, obs *quell.Observation) error {
	f.mu.Lock()
	singles, failed := f.singles, f.failed
	f.singles = nil
	f.mu.Unlock()
	stats, ok := probe.Summarise(singles)
	if !ok {
		if failed != nil {
			quell.Put(&obs.ProbeFailed, f.resource, failed.Error())
		}
		return failed
	}
	by := f.by(f.opts)
	by.PeriodS, by.Count, by.From = f.opts.Period.Seconds(), len(singles), string(quell.FromAgent)
	stats.By = &by
	quell.Put(&obs.Probe, f.resource, stats)
	return nil
}

// follow makes the probes of one window after the other. All windows end at multiples of the sampling period, in every process at the same
// moments.
func (f *follower) follow(ctx context.Context, rng *rand.Rand) {
	runtime.LockOSThread() // the thread's clocks are used, and the thread ends with this goroutine
	defer func() {
		if f.prober != nil {
			_ = f.prober.close() // an error does not matter, because nothing is read from it any more
		}
	}()
	for end := (time.Time{}); ; {
		start := time.Now()
		end = tick.After(end, start, f.opts.Period)
		f.budget(start)
		if f.ready(start) {
			length := end.Sub(start)
			f.window(ctx, start, probe.Stratify(rng, f.allowance.draw(length), length))
		}
		if !tick.SleepUntil(ctx, end) {
			return
		}
	}
}

// budget computes the income of the allowance, unless that was done less than the time reckon ago. What is saved stays, and so does the
// measured cost of probes.
func (f *follower) budget(now time.Time) {
	if !f.filled.IsZero() && now.Sub(f.filled) < reckon {
		return
	}
	p := f.kind.allowance(f.opts)
	if !f.filled.IsZero() {
		p.cost, p.saved, p.due = f.allowance.cost, f.allowance.saved, f.allowance.due
	}
	f.allowance, f.filled = p, now
}

// ready returns whether the prober is open. If the prober is not open, ready tries to open it, at most once in the time again.
func (f *follower) ready(now time.Time) bool {
	if f.prober != nil {
		return true
	}
	if !f.tried.IsZero() && now.Sub(f.tried) < again {
		return false
	}
	f.tried = now
	p, err := f.open(f.opts)
	if err != nil {
		f.note(nil, fmt.Errorf("%s cannot be probed: %w", f.resource, err))
		return false
	}
	f.prober = p
	return true
}

// window makes one probe per slot. A slot that passed while the previous probe was still running is skipped.
func (f *follower) window(ctx context.Context, start time.Time, slots []probe.Slot) {
	for _, slot := range slots {
		if time.Since(start) > slot.Until {
			continue
		}
		if !tick.SleepUntil(ctx, start.Add(slot.At)) {
			return
		}
		s, err := f.prober.probe(time.Since(start.Add(slot.At)))
		f.allowance.pay(s.cost)
		f.note(&s.ms, err)
		if _, ok := errors.AsType[*brokenError](err); ok {
			_ = f.prober.close() // ready opens a new one
			f.prober, f.tried = nil, time.Now()
			return
		}
	}
}

// note records the result of a probe.
func (f *follower) note(ms *float64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed = err; err == nil {
		f.singles = append(f.singles, *ms)
	}
}

// brokenError says that the prober cannot be used any more and must be opened again.
type brokenError struct{ error }

func (e *brokenError) Unwrap() error { return e.error }
