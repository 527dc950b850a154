package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/outage"
	"github.com/quellhq/quell/internal/tick"
)

// Target is the probe server of one instance.
type Target struct {
	Instance string
	Address  string // host:port
}

// Options say what is probed, how often and with how many bytes.
type Options struct {
	Service string
	Sender  string // names this prober in its readings
	From    string // the kind of process that it runs in, such as balancer
	// Targets returns the instances to be probed now. It is called at least once a second.
	Targets func() []Target
	// Period is the sampling period T. Each period gives one reading per target.
	Period time.Duration
	// Count is the number of probes of a target per period, at least 8. 0 means one per 100 ms, or fewer if the budget would leave a probe
	// less than 4 kB; without a Capacity it means 8.
	Count int
	// Size is the number of bytes of one probe. 0 means the largest size that the budget allows, at most 1 MB.
	Size int64
	// Budget is the share of the capacity that the probes of a target may take. It is never exceeded. 0 means 2%.
	Budget float64
	// Capacity is a target's bandwidth in bit/s. If it is nil, Size is required and the budget is not enforced.
	Capacity *float64
	Token    string
	// Timeout ends a probe, which then counts as having taken that long. 0 means Period / Count: the time that the probe's bytes take on an
	// idle link, divided by Budget.
	Timeout time.Duration
	Publish func(context.Context, quell.Reading) error
	Seed    uint64
	Logger  *slog.Logger // nil is silent
	// Dial opens connections; nil means TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Stats counts what a prober has done so far.
type Stats struct {
	Measured      uint64 // downloads whose time was measured
	WarmUps       uint64 // first downloads on a connection; they do not count as probes
	Timeouts      uint64 // downloads that took at least the timeout, and count as taking it
	Refused       uint64 // attempts without a time
	Missed        uint64 // slots that passed while the previous download was still running
	StoodStill    uint64 // times that a target stood still, so that its timeouts did not count as probes
	PublishErrors uint64
	Bytes         uint64 // received; the headers' part is estimated
}

// Prober probes the instances of a service through their probe servers. It publishes one reading per instance and period. For each target
// it runs one goroutine and has one connection.
type Prober struct {
	opts Options
	size int64
	by   *quell.Probing // how it probes; part of every reading

	measured, warmUps, timeouts, refused, missed, stoodStill, publishErrors, bytes atomic.Uint64

	collected atomic.Uint64 // number of calls of Collect, so that each has other gaps
}

// NewProber checks o. A setting that cannot work is a *quell.UserError. A Size above the budget is shrunk to it.
func NewProber(o Options) (*Prober, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	size, err := fitSize(o)
	if err != nil {
		return nil, err
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if o.Size > size {
		o.Logger.Warn("probe.size is above the budget: smaller probes are sent", "asked", o.Size, "bytes", size)
	}
	by := quell.Probing{Bytes: size, Count: o.Count, PeriodS: o.Period.Seconds(), From: o.From}
	return &Prober{opts: o, size: size, by: &by}, nil
}

// Size returns the bytes of one probe.
func (p *Prober) Size() int64 { return p.size }

// Resource returns the resource whose interference downloads measure.
func (p *Prober) Resource() quell.Resource { return quell.Network }

// Probing describes how this prober probes.
func (p *Prober) Probing() quell.Probing { return *p.by }

// Stats returns the counts so far.
func (p *Prober) Stats() Stats {
	return Stats{
		Measured: p.measured.Load(), WarmUps: p.warmUps.Load(), Timeouts: p.timeouts.Load(), Refused: p.refused.Load(),
		Missed: p.missed.Load(), StoodStill: p.stoodStill.Load(), PublishErrors: p.publishErrors.Load(), Bytes: p.bytes.Load(),
	}
}

// follower is one target's goroutine.
type follower struct {
	target Target
	stop   context.CancelFunc
}

// Run probes until ctx ends. It starts and stops probing as targets come and go. It returns nil once everything has stopped.
func (p *Prober) Run(ctx context.Context) error {
	if p.opts.Targets == nil || p.opts.Publish == nil {
		return errors.New("a prober cannot run without Targets and Publish")
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	ticker := time.NewTicker(min(p.opts.Period, time.Second))
	defer ticker.Stop()
	followers := map[string]follower{}
	for {
		p.reconcile(ctx, &running, followers)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// reconcile starts and stops followers until there is one for each target.
func (p *Prober) reconcile(ctx context.Context, running *sync.WaitGroup, followers map[string]follower) {
	wanted := map[string]Target{}
	for _, t := range p.opts.Targets() {
		wanted[t.Instance] = t
	}
	for id, f := range followers {
		if wanted[id] != f.target {
			f.stop()
			delete(followers, id)
		}
	}
	for id, t := range wanted {
		if _, ok := followers[id]; ok {
			continue
		}
		own, stop := context.WithCancel(ctx)
		followers[id] = follower{target: t, stop: stop}
		running.Go(func() {
			defer stop()
			p.follow(own, t)
		})
	}
}

// follow publishes one window of a target after the other. Windows end with the sampling periods, which end at the same moments in all
// processes. The first window, and one after a probe that took long, may be longer or shorter than a period, and its number of probes is
// changed in proportion.
func (p *Prober) follow(ctx context.Context, t Target) {
	logger := p.opts.Logger.With("service", p.opts.Service, "instance", t.Instance)
	s, err := newSession(p.opts, t, p.size)
	if err != nil {
		logger.Error("not probing", "error", err)
		return
	}
	defer s.close()
	rng := p.random(t.Instance, 0)
	probing := outage.Log{Logger: logger.With("address", t.Address), What: "probing"}
	publishing := outage.Log{Logger: logger, What: "publishing probes"}
	for end := (time.Time{}); ; {
		start := time.Now()
		end = tick.After(end, start, p.opts.Period)
		length := end.Sub(start)
		singles, tried, err := p.window(ctx, s, start, Stratify(rng, p.countIn(length), length))
		if !tick.SleepUntil(ctx, end) {
			return // it was cut short because the instance was removed or the prober ends: no failure
		}
		if tried {
			probing.Report(err)
		}
		stats, ok := Summarise(singles)
		if !ok {
			continue
		}
		err = p.publish(ctx, t, time.Since(start), stats)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			p.publishErrors.Add(1)
		}
		publishing.Report(err)
	}
}

// countIn returns the number of probes in a window of the given length, at their usual spacing.
func (p *Prober) countIn(length time.Duration) int {
	return max(1, int(math.Round(float64(p.opts.Count)*float64(length)/float64(p.opts.Period))))
}

func (p *Prober) publish(ctx context.Context, t Target, window time.Duration, stats quell.ProbeStats) error {
	ctx, cancel := context.WithTimeout(ctx, p.opts.Period)
	defer cancel()
	stats.By = p.by
	return p.opts.Publish(ctx, quell.Reading{
		Service: p.opts.Service, Instance: t.Instance, Source: quell.FromProber, Sender: p.opts.Sender,
		Observation: quell.Observation{
			At:      time.Now().UTC(),
			WindowS: window.Seconds(),
			Probe:   map[quell.Resource]quell.ProbeStats{p.Resource(): stats},
		},
	})
}

// window makes one probe per slot and returns the times that count, in milliseconds. A slot that passed while the previous probe was still
// running is skipped, so that a slow target does not get bursts of probes. Timeouts at the end of a window count in the next one, if the
// target answers there and did not stand still. tried is true if any probe was made. If none succeeded, the error is that of the last
// probe.
func (p *Prober) window(ctx context.Context, s *session, start time.Time, slots []Slot) (singles []float64, tried bool, err error) {
	singles = make([]float64, 0, len(slots))
	well, answered, late := false, false, false
	for _, slot := range slots {
		if time.Since(start) > slot.Until {
			p.missed.Add(1)
			continue
		}
		if !tick.SleepUntil(ctx, start.Add(slot.At)) {
			return singles, tried, err
		}
		began := time.Now()
		r := s.probe(ctx)
		p.bytes.Add(uint64(r.bytes))
		if ctx.Err() != nil {
			return singles, tried, err
		}
		p.count(r.kind).Add(1)
		count, asleep := s.times(r, began)
		singles = append(singles, count...)
		p.noteAsleep(s, asleep)
		answered, late = answered || r.kind == measured || r.kind == warmUp, late || r.kind == timedOut
		tried, well = true, well || r.err == nil
		if err = r.err; well {
			err = nil
		}
	}
	if late && !answered { // a target that stands still for the whole window sends no reading either, and its probes are not used then
		s.doubt.held, singles = nil, append(singles, s.doubt.held...)
	}
	return singles, tried, err
}

// noteAsleep counts and logs that a target stood still for a time above 0.
func (p *Prober) noteAsleep(s *session, asleep time.Duration) {
	if asleep > 0 {
		p.stoodStill.Add(1)
		p.opts.Logger.Info("the instance stood still: its probes that timed out meanwhile do not count", "service", p.opts.Service,
			"address", s.address, "for", asleep.Round(beat))
	}
}

func (p *Prober) count(k kind) *atomic.Uint64 {
	return map[kind]*atomic.Uint64{measured: &p.measured, warmUp: &p.warmUps, timedOut: &p.timeouts, refused: &p.refused}[k]
}

// Collect probes one target for the given time, with the same spacing as Run. It returns the statistics and the single times in
// milliseconds. The first probe opens the connection and is not counted. If no probe finished, the error is quell.ErrNoData; if ctx ends,
// it is ctx's error. Run must not probe the same target meanwhile.
func (p *Prober) Collect(ctx context.Context, t Target, duration time.Duration) (quell.ProbeStats, []float64, error) {
	spacing := p.opts.Period / time.Duration(p.opts.Count)
	n := int(duration / spacing)
	if n < 2 {
		return quell.ProbeStats{}, nil, fmt.Errorf("probing instance %q: %v is too short for two probes %v apart", t.Instance, duration, spacing)
	}
	s, err := newSession(p.opts, t, p.size)
	if err != nil {
		return quell.ProbeStats{}, nil, err
	}
	defer s.close()
	start := time.Now()
	singles, _, last := p.window(ctx, s, start, Stratify(p.random(t.Instance, p.collected.Add(1)), n, duration))
	if !tick.SleepUntil(ctx, start.Add(duration)) {
		return quell.ProbeStats{}, singles, fmt.Errorf("probing instance %q: %w", t.Instance, ctx.Err())
	}
	stats, ok := Summarise(singles)
	if !ok {
		return stats, nil, errors.Join(fmt.Errorf("probing instance %q at %s: %w", t.Instance, t.Address, quell.ErrNoData), last)
	}
	stats.By = p.by
	return stats, singles, nil
}

// random returns the random source of the gaps between an instance's probes. The same seed gives the same gaps; each instance has different
// ones.
func (p *Prober) random(instance string, call uint64) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(instance))
	return rand.New(rand.NewPCG(p.opts.Seed+call, h.Sum64()))
}
