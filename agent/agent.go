// Package agent reports from an instance: once per sampling period it reads the machine's sensors and publishes a reading. It also runs
// the probe server, and applies the settings that the controller orders. It is meant for small machines: it keeps one
// observation in memory and sleeps between readings.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/outage"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/probe"
	"github.com/quellhq/quell/sensor"
)

// Sampler reads the machine. Sample returns what was measured since the previous call, and the sensors that failed. The first call only
// sets the starting point. Subsample is called several times between two samples. *sensor.Set is a Sampler.
type Sampler interface {
	Sample(now time.Time) (quell.Observation, []sensor.Failure)
	Subsample()
}

var _ Sampler = (*sensor.Set)(nil)

// Options configure an agent.
type Options struct {
	Service  string
	Instance string
	// Period is the sampling period T.
	Period  time.Duration
	Sampler Sampler
	// Fast is the period of a fast policy that uses what agents measure. FastSampler reads the machine in these periods. Either both are set
	// or neither.
	Fast        time.Duration
	FastSampler Sampler
	// Counted returns how many requests the last sample of Sampler has counted, how many of them failed, and their response times as in
	// quell.Reading. Nil: the service does not measure its requests itself.
	Counted func() (requests, failed int64, latencyHDR []byte)
	// Publish sends one reading. It must finish within one period.
	Publish func(context.Context, quell.Reading) error
	// ProbeServer answers probes on ProbeListener while the agent runs. Either both are set or neither.
	ProbeServer   *probe.Server
	ProbeListener net.Listener
	// Setters are the drivers that apply settings, by the server whose parameters they set.
	Setters map[string]Setter
	// Tenancy returns what is told of the policy that divides the machine among control groups; nil, or its answer nil: nothing.
	Tenancy func() *quell.Tenancy
	Now     func() time.Time      // nil means time.Now
	Logger  *slog.Logger          // nil is silent
	Metrics prometheus.Registerer // nil registers none
}

// Agent publishes one reading per sampling period.
type Agent struct {
	opts       Options
	metrics    metrics
	publishing outage.Log
	sensing    map[string]*outage.Log // by sensor
	lacking    map[string]string      // why a sensor is not available, by sensor
	link       link                   // what the network sensor measures

	ordering sync.Mutex // held while an order is carried out

	beat tick.Beat // of the loop in Run

	mu      sync.Mutex             // guards reading
	reading map[string]*outage.Log // failures of reading back, by driver
}

// New checks o and registers the metrics.
func New(o Options) (*Agent, error) {
	switch {
	case o.Service == "" || o.Instance == "":
		return nil, &quell.UserError{Err: errors.New("agent: service and agent.instance must be set")}
	case o.Period <= 0:
		return nil, &quell.UserError{Err: fmt.Errorf("sampling: %v is no period", o.Period)}
	case o.Sampler == nil || o.Publish == nil:
		return nil, errors.New("an agent needs a Sampler and Publish")
	case (o.Fast > 0) != (o.FastSampler != nil):
		return nil, errors.New("a fast period needs a sampler, and a sampler a period")
	case (o.ProbeServer == nil) != (o.ProbeListener == nil):
		return nil, errors.New("a probe server needs a listener, and a listener a server")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Logger = o.Logger.With("service", o.Service, "instance", o.Instance)
	a := &Agent{opts: o, metrics: newMetrics(), sensing: map[string]*outage.Log{}, lacking: map[string]string{},
		reading: map[string]*outage.Log{}}
	a.publishing = outage.Log{Logger: o.Logger, What: "publishing"}
	for _, sampler := range []Sampler{o.Sampler, o.FastSampler} { // a counter that appears with its first failure shows no increase
		if set, ok := sampler.(*sensor.Set); ok && set != nil {
			a.metrics.expect(set.Names())
		}
	}
	if err := a.metrics.register(o.Metrics, o.ProbeServer); err != nil {
		return nil, fmt.Errorf("registering the agent's metrics: %w", err)
	}
	return a, nil
}

// Run samples and publishes until ctx ends. Then it stops the probe server and returns nil. Failing sensors or a failing bus do not end
// Run; a probe server that cannot start does (see probe.Server.Start).
func (a *Agent) Run(ctx context.Context) error {
	if a.opts.ProbeServer != nil {
		if err := a.opts.ProbeServer.Start(a.opts.ProbeListener); err != nil {
			return err
		}
		defer a.stopProbes(ctx)
	}
	if a.opts.Fast > 0 {
		running, stop := context.WithCancel(ctx)
		var fast sync.WaitGroup
		fast.Go(func() { a.runFast(running) })
		defer fast.Wait()
		defer stop()
	}
	a.sample() // sets the starting point; there is nothing to publish yet
	subsamples := tick.NewSubsamples(a.opts.Sampler, a.opts.Now)
	a.beat.Mark()
	for a.wait(ctx, a.opts.Period, subsamples) {
		a.report(ctx)
		a.beat.Mark()
	}
	return nil
}

// Alive returns an error if the loop of Run hangs. It comes round once per period.
func (a *Agent) Alive() error { return a.beat.Late(3*a.opts.Period + time.Minute) }

// wait waits for the end of a period. Meanwhile the sampler takes subsamples of the machine.
func (a *Agent) wait(ctx context.Context, period time.Duration, subsamples *tick.Subsamples) bool {
	now := a.opts.Now()
	return subsamples.Until(ctx, now.Add(tick.Until(now, period)))
}

// runFast publishes a reading of the machine once per fast period. Failures of its sensors are not logged, because the same sensors
// are read once per sampling period as well.
func (a *Agent) runFast(ctx context.Context) {
	a.opts.FastSampler.Sample(a.opts.Now()) // sets the starting point
	subsamples := tick.NewSubsamples(a.opts.FastSampler, a.opts.Now)
	for a.wait(ctx, a.opts.Fast, subsamples) {
		observation, _ := a.opts.FastSampler.Sample(a.opts.Now())
		a.publish(ctx, observation, true)
	}
}

// stopProbes gives open downloads a short time to finish.
func (a *Agent) stopProbes(ctx context.Context) {
	const moment = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), moment)
	defer cancel()
	if err := a.opts.ProbeServer.Shutdown(ctx); err != nil {
		a.opts.Logger.Warn("probes were cut off", "error", err)
	}
}

func (a *Agent) report(ctx context.Context) { a.publish(ctx, a.sample(), false) }

// publish sends a reading with the settings in force.
func (a *Agent) publish(ctx context.Context, o quell.Observation, fast bool) {
	reading := quell.Reading{
		Service: a.opts.Service, Instance: a.opts.Instance, Source: quell.FromAgent, Sender: a.opts.Instance, Fast: fast, Observation: o,
	}
	period := a.opts.Period
	if fast {
		period = a.opts.Fast
	} else {
		a.metrics.observations.Inc()
		if a.opts.Counted != nil {
			reading.Requests, reading.Errors, reading.LatencyHDR = a.opts.Counted()
		}
		if a.opts.Tenancy != nil {
			reading.Tenancy = a.opts.Tenancy()
		}
	}
	limited, cancel := context.WithTimeout(ctx, period)
	defer cancel()
	reading.Settings = a.inForce(limited)
	err := a.opts.Publish(limited, reading)
	if ctx.Err() != nil || fast {
		return // a bus that fails shows at the end of the sampling period
	}
	if err != nil {
		a.metrics.publishErrors.Inc()
	}
	a.publishing.Report(err)
}

// sample reads the machine and logs sensors that fail, recover or are not there.
func (a *Agent) sample() quell.Observation {
	obs, failures := a.opts.Sampler.Sample(a.opts.Now())
	failed := make(map[string]bool, len(failures))
	for _, f := range failures {
		failed[f.Sensor] = true
		if lack, ok := errors.AsType[*sensor.Unavailable](f.Err); ok {
			a.lacks(f.Sensor, lack)
			continue
		}
		a.metrics.sensorErrors.WithLabelValues(f.Sensor).Inc()
		if a.sensing[f.Sensor] == nil {
			a.sensing[f.Sensor] = &outage.Log{Logger: a.opts.Logger, What: "sensor " + f.Sensor}
		}
		a.sensing[f.Sensor].Report(f.Err)
	}
	a.noteLink()
	for resource, p := range obs.Probe {
		a.metrics.probes.WithLabelValues(string(resource)).Add(float64(p.N))
	}
	for name, o := range a.sensing {
		if !failed[name] {
			o.Report(nil)
		}
	}
	return obs
}

// link is a network interface and its capacity in bit/s.
type link struct {
	name     string
	capacity float64
	doubt    string // why the capacity may be wrong
}

// noteLink logs which network interface is measured, if the sampler tells it, when that is first known and when it changes. While the
// interface cannot be read, the sensor's failure is logged.
func (a *Agent) noteLink() {
	s, ok := a.opts.Sampler.(interface {
		Interface() (name string, capacity float64)
	})
	if !ok {
		return
	}
	var now link
	now.name, now.capacity = s.Interface()
	if d, ok := a.opts.Sampler.(interface{ Doubt() string }); ok {
		now.doubt = d.Doubt()
	}
	if now.name == "" || now == a.link {
		return
	}
	if now.doubt != "" && now.doubt != a.link.doubt {
		a.opts.Logger.Warn("the network's capacity may be wrong", "because", now.doubt)
	}
	a.link = now
	a.metrics.capacity.Reset()
	a.metrics.capacity.WithLabelValues(now.name).Set(now.capacity / 8)
	a.opts.Logger.Info("network use is measured", "interface", now.name, "capacity", fmt.Sprintf("%.4g Mbit/s", now.capacity/1e6))
}

// lacks logs once why the machine does not offer a sensor.
func (a *Agent) lacks(name string, why *sensor.Unavailable) {
	if a.lacking[name] != why.Error() {
		a.lacking[name] = why.Error()
		a.opts.Logger.Info("sensor "+name+" is not available", "because", why.Why, "possible", why.Do)
	}
}
