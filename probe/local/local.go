// Package local measures interference from inside an instance. Small probes measure how long its processors, its memory and its
// disk take for a fixed amount of work; neighbours on the same host make that longer.
//
// Probes use at most a fixed share of their resource, and their rate adapts to that. A resource that cannot be probed gives a
// reason, and the others are not affected.
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
	// MostBudget is the share of a resource that its probes may take, if no smaller one is set.
	MostBudget = 0.005
	// UsualRun and UsualBuffer are the default sizes of probes of processors and memory.
	UsualRun    = 500 * time.Microsecond
	UsualBuffer = 8 << 20
	// Where the budget allows it a resource is probed this often, and in short periods more often, for 8 probes in each of a second.
	usualSpacing = 250 * time.Millisecond
	leastSpacing = 125 * time.Millisecond
	perPeriod    = 8
	// again is how long a probe that cannot be made waits before it is tried again.
	again = time.Minute
	// stopWait is how long Run waits for a probe that hangs, for example on a disk that does not answer.
	stopWait = 2 * time.Second
)

// Options say what is probed, how often and with how much work.
type Options struct {
	Resources []quell.Resource // each one of Resources()
	// Period is the sampling period T.
	Period time.Duration
	// Budget is the share of a resource that its probes may take: of the processors' time, of the disk's operations. 0 means 0.5%, the most.
	Budget float64
	// Run is the processor time of one processor probe; 0 means 0.5 ms.
	Run time.Duration
	// Buffer is the memory that a memory probe reads, in bytes: more than a processor's private caches on any host. 0 means 8 MiB.
	Buffer int64
	// Folder is where the disk probe's file is made, of 4 MiB. It has no name once it is open, so nothing is left of it.
	Folder string
	// Writes makes the disk probe write and sync instead of reading.
	Writes bool
	// Cores are the processors of the instance, for the budget; 0 means the own group's quota, or those that this process may use.
	Cores float64
	// Operations is what the disk can do per second, for the budget; 0 means not known: one probe a second then.
	Operations float64
	// Root holds the machine's proc and sys, as os.DirFS("/") does: the own processor quota is read there.
	Root fs.FS
	Seed uint64
}

// prober takes one probe after the other of a resource, all on one OS thread.
type prober interface {
	// probe returns what one measured that was due that long ago. An error says why it tells nothing; what it cost counts all the same.
	probe(late time.Duration) (sample, error)
	close() error
}

// sample is what one probe measured.
type sample struct {
	ms   float64
	cost float64 // seconds of a processor, or operations of a disk
}

// kind is how one resource is probed.
type kind struct {
	resource quell.Resource
	// by describes a probe's work.
	by func(o *Options) quell.Probing
	// purse is the budget of the probes.
	purse func(o *Options) purse
	// open makes the prober, on the thread that will probe. It fails if the resource cannot be probed.
	open func(o *Options) (prober, error)
}

// kinds is the table of what can be probed.
var kinds = []kind{cpuKind, memoryKind, diskKind}

// Resources are those that can be probed from inside an instance.
func Resources() []quell.Resource {
	var list []quell.Resource
	for _, k := range kinds {
		list = append(list, k.resource)
	}
	return list
}

// rate is how many probes of a resource are wanted per second.
func (o *Options) rate() float64 {
	return 1 / max(leastSpacing, min(usualSpacing, o.Period/perPeriod)).Seconds()
}

// Probes measures an instance's own resources while Run runs. Its Sensors tell what was measured.
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

// Run probes until ctx ends. It returns nil when everything has stopped; for a probe that hangs it waits 2 s.
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

	prober prober // nil while the resource cannot be probed
	tried  time.Time
	purse  purse

	mu      sync.Mutex // guards what follows
	singles []float64  // ms, since the last Sample
	failed  error      // the last one; nil once a probe went well
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
			if obs.ProbeFailed == nil {
				obs.ProbeFailed = map[quell.Resource]string{}
			}
			obs.ProbeFailed[f.resource] = failed.Error()
		}
		return failed
	}
	by := f.by(f.opts)
	by.PeriodS, by.Count, by.From = f.opts.Period.Seconds(), len(singles), string(quell.FromAgent)
	stats.By = &by
	if obs.Probe == nil {
		obs.Probe = map[quell.Resource]quell.ProbeStats{}
	}
	obs.Probe[f.resource] = stats
	return nil
}

// follow probes one window after the other. Windows end with the sampling periods of all processes.
func (f *follower) follow(ctx context.Context, rng *rand.Rand) {
	runtime.LockOSThread() // its clocks are the thread's, which ends with this goroutine
	f.purse = f.kind.purse(f.opts)
	defer func() {
		if f.prober != nil {
			_ = f.prober.close() // nothing in it is wanted any more
		}
	}()
	for end := (time.Time{}); ; {
		start := time.Now()
		end = tick.After(end, start, f.opts.Period)
		if f.ready(start) {
			length := end.Sub(start)
			f.window(ctx, start, probe.Stratify(rng, f.purse.draw(length), length))
		}
		if !tick.SleepUntil(ctx, end) {
			return
		}
	}
}

// ready opens the prober, or tries to do so again after a while.
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
		f.purse.pay(s.cost)
		f.note(&s.ms, err)
		if broken := (*brokenError)(nil); errors.As(err, &broken) {
			_ = f.prober.close() // it is made anew
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

// brokenError says that a prober must be made again.
type brokenError struct{ error }

func (e *brokenError) Unwrap() error { return e.error }
