// Package training is an agent's part of a training on its own machine: it disturbs the machine as it is told, and measures it. Everything
// ends when the training is told to end, when it is not renewed in time, and when the agent ends.
package training

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/sensor"
)

// Interferer uses a resource until it is closed; see interfere.Child.
type Interferer interface {
	// Used returns what it has used so far, in seconds of the whole resource, and tells it to go on for a time. If it has ended, that is an
	// error.
	Used(lasts time.Duration) (float64, error)
	Close()
}

// Meter is a set of sensors and probes for one training. The agent's own go on beside them.
type Meter struct {
	Sample func(now time.Time) (quell.Observation, []sensor.Failure)
	Run    func(ctx context.Context) error // probes until ctx ends
	Close  func()
	Feels  []quell.Resource // the resources that it probes
	// Counts says whether it counts an interferer's use of a resource as the service's.
	Counts func(quell.Resource) bool
}

// Options of a Machine. Now and Logger have defaults.
type Options struct {
	Refuse func() error // why this machine may not be trained on now; nil: it may
	Open   func() (Meter, error)
	Start  func(r quell.Resource, use float64, lasts time.Duration) (Interferer, error)
	Now    func() time.Time
	Logger *slog.Logger
}

// Machine is the machine of an agent. Its methods are safe for concurrent use.
type Machine struct {
	o Options

	mu         sync.Mutex // guards the fields below
	meter      *Meter     // nil: no training is in progress
	stop       func()     // ends the meter's probes, and waits for that
	end        *time.Timer
	serial     int // of the last end that was set: one that comes late does nothing
	interferer Interferer
	resource   quell.Resource // that it uses
	use        float64
	counted    float64                    // what of its use is in interfering already
	own        map[quell.Resource]float64 // used by the service, in seconds of the whole resource
	inter      map[quell.Resource]float64 // likewise, by interferers
	before     map[quell.Resource]float64 // what inter was at the last reading
}

// New returns the machine, which does nothing yet.
func New(o Options) *Machine {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Machine{o: o}
}

// Order does a part of a training. The first one begins it.
func (m *Machine) Order(t bus.Training) (done bus.Trained, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	lasts := time.Duration(t.ForS * float64(time.Second))
	if lasts <= 0 {
		m.finish("it was told to end")
		return done, nil
	}
	if err := m.o.Refuse(); err != nil {
		m.finish(err.Error())
		return done, err
	}
	if err := m.begin(lasts); err != nil {
		return done, err
	}
	if err := m.keep(lasts); err != nil {
		return done, err
	}
	if t.Resource != "" && (t.Resource != m.resource || t.Use != m.use) {
		if err := m.interfere(t.Resource, t.Use, lasts); err != nil {
			return done, err
		}
	}
	done.Feels = m.meter.Feels
	if t.Read {
		m.read(&done)
	}
	return done, nil
}

// Close ends a training that is in progress.
func (m *Machine) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.finish("the agent ends")
}

// begin opens the meter, or lets the training go on for a time.
func (m *Machine) begin(lasts time.Duration) error {
	if m.meter != nil {
		m.endAfter(lasts)
		return nil
	}
	meter, err := m.o.Open()
	if err != nil {
		return fmt.Errorf("opening sensors for the training: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := meter.Run(ctx); err != nil {
			m.o.Logger.Warn("the probes of a training ended", "error", err)
		}
	})
	m.meter, m.stop = &meter, func() { cancel(); running.Wait() }
	m.own, m.inter, m.before = map[quell.Resource]float64{}, map[quell.Resource]float64{}, nil
	meter.Sample(m.o.Now()) // sets the starting point
	m.endAfter(lasts)
	m.o.Logger.Info("a training begins on this machine")
	return nil
}

// endAfter ends the training after a time, unless it is called again before. An earlier call has no effect then, even if its time is over
// and its function waits for the lock.
func (m *Machine) endAfter(lasts time.Duration) {
	if m.end != nil {
		m.end.Stop()
	}
	m.serial++
	serial := m.serial
	m.end = time.AfterFunc(lasts, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if serial == m.serial {
			m.finish("it was not renewed in time")
		}
	})
}

// keep lets the interferer go on for a time, and notes what it has used. If the interferer has ended by itself, keep forgets it and returns
// an error; the next call does nothing.
func (m *Machine) keep(lasts time.Duration) error {
	if m.interferer == nil {
		return nil
	}
	used, err := m.interferer.Used(lasts)
	if err != nil {
		m.quiet()
		return fmt.Errorf("the interferer of the %s: %w", m.resource, err)
	}
	m.inter[m.resource] += used - m.counted
	m.counted = used
	return nil
}

// interfere replaces the interferer.
func (m *Machine) interfere(r quell.Resource, use float64, lasts time.Duration) (err error) {
	m.quiet()
	if m.resource = r; use == 0 {
		return nil
	}
	if m.interferer, err = m.o.Start(r, use, lasts); err != nil {
		m.interferer = nil
		return err
	}
	m.use = use
	return nil
}

// quiet ends the interferer.
func (m *Machine) quiet() {
	if m.interferer != nil {
		m.interferer.Close()
	}
	m.interferer, m.resource, m.use, m.counted = nil, "", 0, 0
}

// read ends a window of the sensors.
func (m *Machine) read(done *bus.Trained) {
	obs, failures := m.meter.Sample(m.o.Now())
	for _, f := range failures {
		if lack := (*sensor.Unavailable)(nil); !errors.As(f.Err, &lack) {
			done.Failures = append(done.Failures, fmt.Sprintf("%s: %v", f.Sensor, f.Err))
		}
	}
	for r, use := range obs.Utilization {
		seconds := use * obs.WindowS
		if m.meter.Counts(r) {
			seconds -= m.inter[r] - m.before[r]
		}
		m.own[r] += max(0, seconds)
	}
	m.before = maps.Clone(m.inter) // also if a sensor failed: what it did not count in this window is not taken from the next
	done.Own, done.Interfering = maps.Clone(m.own), map[quell.Resource]float64{}
	for r := range m.own {
		done.Interfering[r] = m.inter[r]
	}
	done.Observation = &obs
}

// finish ends the training, if one is in progress.
func (m *Machine) finish(why string) {
	if m.meter == nil {
		return
	}
	m.quiet()
	m.end.Stop()
	m.stop()
	if m.meter.Close != nil {
		m.meter.Close()
	}
	m.meter = nil
	m.serial++
	m.o.Logger.Info("the training on this machine ended", "because", why)
}
