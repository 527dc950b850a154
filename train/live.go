package train

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/loadgen"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/probe"
)

// Target is a machine that training can load and disturb.
type Target interface {
	// Service is the URL of the service, Probe the address of the probe server.
	Service() string
	Probe() string
	// Interfere sets the share of a resource that an interferer asks for. It also returns an error if an interferer has
	// ended by itself since the last call.
	Interfere(r quell.Resource, use float64) error
	// Carried returns how much of a resource the service and the interferer have used since the target was started, in seconds
	// of the whole resource. A difference over a run, divided by its length, is a utilisation.
	Carried(r quell.Resource) (Carried, error)
}

// Carried is accumulated use, in seconds of the whole resource.
type Carried struct {
	Own, Interfering float64
	Sensed           quell.Observation // the sensors' measurements since the previous call; empty if there are no sensors
}

// LiveOptions configure how targets are loaded and probed. All but Visits, MaxLatency and Seed are required.
type LiveOptions struct {
	Targets    []Target                     // a machine each
	PerSecond  func(quell.Resource) float64 // arrivals per second that fill a resource, to turn a level into a rate; 0: requests do not use it
	Process    loadgen.Process
	Visits     func(seed uint64) (loadgen.Visits, error) // what a run's arrivals request; nil: one GET /file each
	Probe      probe.Options                             // Targets and Publish are not used
	MaxLatency time.Duration                             // a request that takes longer counts as failed; 0: 30 s
	Seed       uint64                                    // of the probes
}

// Live returns machines that are loaded over HTTP, in real time.
func Live(o LiveOptions) ([]Machine, error) {
	if len(o.Targets) == 0 {
		return nil, errors.New("training needs at least one target")
	}
	var machines []Machine
	for i, target := range o.Targets {
		options := o.Probe
		options.Seed = o.Seed + uint64(i)
		options.Targets = func() []probe.Target { return nil }
		options.Publish = func(context.Context, quell.Reading) error { return nil }
		prober, err := probe.NewProber(options)
		if err != nil {
			return nil, err
		}
		machines = append(machines, &live{LiveOptions: o, target: target, prober: prober})
	}
	return machines, nil
}

// live is one target.
type live struct {
	LiveOptions
	target Target
	prober *probe.Prober
}

var _ ProbedMachine = (*live)(nil)

// Measure implements Machine.
func (m *live) Measure(ctx context.Context, r RunRequest) (model.TrainingRow, error) {
	row, _, err := m.run(ctx, r, m.prober)
	return row, err
}

// leastCount is the smallest number of downloads per period of a prober.
const leastCount = 8

// Probes implements ProbedMachine.
func (m *live) Probes(ctx context.Context, r RunRequest, p Probing) ([]float64, error) {
	o := m.Probe
	o.Count = p.Count * ((leastCount + p.Count - 1) / p.Count)
	o.Period = time.Duration(o.Count) * p.Spacing()
	o.Size, o.Timeout, o.Capacity, o.Seed = p.Bytes, 0, nil, r.Seed
	o.Targets = func() []probe.Target { return nil }
	o.Publish = func(context.Context, quell.Reading) error { return nil }
	prober, err := probe.NewProber(o)
	if err != nil {
		return nil, err
	}
	_, singles, err := m.run(ctx, r, prober)
	return singles, err
}

// run loads, disturbs and probes the target. The run fails if the interferer has ended by itself.
func (m *live) run(ctx context.Context, r RunRequest, prober *probe.Prober) (_ model.TrainingRow, _ []float64, err error) {
	if err := m.can(r, prober); err != nil {
		return model.TrainingRow{}, nil, err
	}
	defer func() { err = errors.Join(err, m.target.Interfere(r.Resource, 0)) }()
	if err := m.target.Interfere(r.Resource, r.Interference); err != nil {
		return model.TrainingRow{}, nil, err
	}
	recorder := loadgen.NewRecorder()
	runner, err := m.runner(r, recorder)
	if err != nil {
		return model.TrainingRow{}, nil, err
	}
	var load sync.WaitGroup
	load.Go(func() { runner.Run(ctx) })
	row, singles, err := m.collect(ctx, r, prober)
	load.Wait()
	if err != nil {
		return row, nil, err
	}
	if err := ctx.Err(); err != nil {
		return row, nil, err
	}
	row, err = r.fill(row, recorder)
	return row, singles, err
}

// can refuses resources that cannot be measured or loaded.
func (m *live) can(r RunRequest, prober *probe.Prober) error {
	if felt := prober.Resource(); felt != r.Resource {
		return &quell.UserError{Err: fmt.Errorf("no probe measures %s yet, only %s: set train.resource to that", r.Resource, felt)}
	}
	if r.Level > 0 && !(m.PerSecond(r.Resource) > 0) {
		return &quell.UserError{Err: fmt.Errorf("requests use no %s, so they cannot load it", r.Resource)}
	}
	return nil
}

// runner offers a run's load, and records requests after its warm-up.
func (m *live) runner(r RunRequest, recorder *loadgen.Recorder) (*loadgen.Runner, error) {
	end := r.WarmUp + r.Run
	arrivals, err := loadgen.NewArrivals(loadgen.ArrivalOptions{
		Process: m.Process, Rate: []loadgen.Step{{PerSecond: r.Level * m.PerSecond(r.Resource)}}, Duration: end, Seed: r.Seed,
	})
	if err != nil {
		return nil, err
	}
	o := loadgen.Options{
		URL: m.target.Service(), Arrivals: arrivals, Path: "/file", Until: end, Timeout: m.MaxLatency,
		Report: func(s loadgen.Sample) {
			if s.Intended >= r.WarmUp {
				recorder.Record(s)
			}
		},
	}
	if m.Visits != nil {
		if o.Visit, err = m.Visits(r.Seed); err != nil {
			return nil, err
		}
	}
	return loadgen.New(o)
}

// collect probes during the measured part of a run, and reads what was used in that time.
func (m *live) collect(ctx context.Context, r RunRequest, prober *probe.Prober) (model.TrainingRow, []float64, error) {
	select {
	case <-ctx.Done():
		return model.TrainingRow{}, nil, ctx.Err()
	case <-time.After(r.WarmUp):
	}
	before, err := m.target.Carried(r.Resource)
	if err != nil {
		return model.TrainingRow{}, nil, err
	}
	began := time.Now()
	p, singles, err := prober.Collect(ctx, probe.Target{Instance: "training", Address: m.target.Probe()}, r.Run)
	if err != nil {
		return model.TrainingRow{}, nil, err
	}
	after, err := m.target.Carried(r.Resource)
	if err != nil {
		return model.TrainingRow{}, nil, err
	}
	seconds := time.Since(began).Seconds()
	sensed := after.Sensed
	sensed.At, sensed.WindowS = time.Now().UTC(), seconds
	sensed.Probe = map[quell.Resource]quell.ProbeStats{r.Resource: p}
	return model.TrainingRow{
		Resource:    r.Resource,
		Utilization: (after.Own - before.Own) / seconds,
		Interfering: (after.Interfering - before.Interfering) / seconds,
		ProbeMS:     model.ProbeRun{Mean: p.MeanMS, Stddev: p.StddevMS, N: p.N},
		By:          p.By,
		DurationS:   seconds,
		Observation: &sensed,
	}, singles, nil
}

// fill adds the requested load and the requests' results to a row.
func (r RunRequest) fill(row model.TrainingRow, recorder *loadgen.Recorder) (model.TrainingRow, error) {
	total := recorder.Total()
	if r.Level > 0 && (total.Requests == 0 || total.LatencyMS.N == 0) {
		return row, fmt.Errorf("no request succeeded: %d of %d failed", total.Errors, total.Requests)
	}
	row.Level, row.InterferingLevel, row.Seed = r.Level, &r.Interference, r.Seed
	row.LatencyMS, row.Requests, row.Errors = total.LatencyMS, total.Requests, total.Errors
	row.RequestRate = float64(total.Requests) / r.Run.Seconds()
	if r.Interference == 0 {
		row.Interfering = 0
	}
	row.Utilization = math.Min(row.Utilization, 1)
	r.observe(row, recorder)
	return row, nil
}

// observe adds the clients' measurements to a row's observation, as a balancer would report them.
func (r RunRequest) observe(row model.TrainingRow, recorder *loadgen.Recorder) {
	o := row.Observation
	o.Utilization = maps.Clone(o.Utilization)
	if o.Utilization == nil {
		o.Utilization = map[quell.Resource]float64{}
	}
	o.Utilization[r.Resource] = row.Utilization
	o.RequestRate = &row.RequestRate
	if row.Requests > 0 {
		failed := float64(row.Errors) / float64(row.Requests)
		o.ErrorRate = &failed
	}
	if row.LatencyMS.N > 0 {
		o.LatencyMS = &row.LatencyMS
	}
	for class, stats := range recorder.Classes() {
		if o.RequestRates == nil {
			o.RequestRates, o.LatencyByClassMS = map[string]float64{}, map[string]quell.Latency{}
		}
		o.RequestRates[class] = float64(stats.Requests) / r.Run.Seconds()
		if stats.LatencyMS.N > 0 {
			o.LatencyByClassMS[class] = stats.LatencyMS
		}
	}
}
