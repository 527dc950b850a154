package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/loadgen"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/probe"
)

// Target is a machine that training can load and disturb.
type Target interface {
	// Service is the URL of the service, Probe the address of the probe server.
	Service() string
	Probe() string
	// Feels says whether the machine probes a resource itself.
	Feels(quell.Resource) bool
	// Interfere sets the share of a resource that an interferer asks for. It also returns an error if an interferer has ended by
	// itself since the last call.
	Interfere(r quell.Resource, use float64) error
	// Carried returns how much of a resource the service and the interferer have used since the target was started, in seconds
	// of the whole resource. A difference over a run, divided by its length, is a utilisation.
	Carried(r quell.Resource) (Carried, error)
}

// Carried is how much of a resource was used so far, in seconds of the whole resource.
type Carried struct {
	Own, Interfering float64
	// Sensed is what the machine's sensors and its own probes measured since the previous call; empty if it has none.
	Sensed quell.Observation
}

// LiveOptions say how targets are loaded and probed. All but Visits, Fresh, MaxLatency and Seed are required. The network is probed by
// downloads from outside, other resources by the targets themselves.
type LiveOptions struct {
	Targets    []Target                     // the machines
	PerSecond  func(quell.Resource) float64 // arrivals per second that use a resource fully; for the rate of a level; 0: it is not used
	Process    loadgen.Process
	Visits     func(seed uint64) (loadgen.Visits, error) // what a run's arrivals request; nil: one GET /file each
	Probe      *probe.Options                            // options of downloads, without Targets and Publish; nil: no downloads
	Fresh      bool                                      // make a new connection for each request, and measure how long that takes
	MaxLatency time.Duration                             // a request that takes longer counts as failed; 0: 30 s
	Seed       uint64                                    // seed of the probes
	MaxFailed  float64                                   // larger shares of failed requests end a run; 0: only 1 does
	MaxOff     float64                                   // share by which a run's load may be off; else it is an OffError; 0: by any
}

// Live returns machines that are loaded over HTTP, in real time.
func Live(o LiveOptions) ([]Machine, error) {
	if len(o.Targets) == 0 {
		return nil, errors.New("training needs at least one target")
	}
	var machines []Machine
	for i, target := range o.Targets {
		m := &live{LiveOptions: o, target: target}
		if o.Probe != nil {
			options := *o.Probe
			options.Seed = o.Seed + uint64(i)
			var err error
			if m.prober, err = newProber(options); err != nil {
				return nil, err
			}
		}
		machines = append(machines, m)
	}
	return machines, nil
}

// newProber makes a prober that publishes nothing: it only collects.
func newProber(o probe.Options) (*probe.Prober, error) {
	o.Targets = func() []probe.Target { return nil }
	o.Publish = func(context.Context, quell.Reading) error { return nil }
	return probe.NewProber(o)
}

// live is one target.
type live struct {
	LiveOptions
	target Target
	prober *probe.Prober // prober of downloads; nil: there are none
}

var (
	_ ProbedMachine  = (*live)(nil)
	_ WatchedMachine = (*live)(nil)
)

// Measure implements Machine.
func (m *live) Measure(ctx context.Context, r RunRequest) (model.TrainingRow, error) {
	if r.Alternate != nil {
		return m.alternate(ctx, r)
	}
	row, _, err := m.run(ctx, r, m.prober)
	if err == nil && m.MaxFailed > 0 && float64(row.Errors) > m.MaxFailed*float64(row.Requests) {
		return row, fmt.Errorf("%d of %d requests failed, so the run says nothing about the resource: does the instance serve all paths?",
			row.Errors, row.Requests)
	}
	return row, err
}

// leastCount is the smallest number of downloads per period of a prober.
const leastCount = 8

// Probes implements ProbedMachine.
func (m *live) Probes(ctx context.Context, r RunRequest, p Probing) ([]float64, error) {
	if m.Probe == nil {
		return nil, errors.New("there are no downloads to choose the number and size of")
	}
	o := *m.Probe
	o.Count = p.Count * ((leastCount + p.Count - 1) / p.Count)
	o.Period = time.Duration(o.Count) * p.Spacing()
	o.Size, o.Timeout, o.Capacity, o.Seed = p.Bytes, 0, nil, r.Seed
	prober, err := newProber(o)
	if err != nil {
		return nil, err
	}
	_, singles, err := m.run(ctx, r, prober)
	return singles, err
}

// Watch implements WatchedMachine.
func (m *live) Watch(ctx context.Context, r RunRequest, period time.Duration) ([]quell.Observation, error) {
	var seen []quell.Observation
	_, err := m.loaded(ctx, r, func(*sent) error {
		began, err := m.carried(r.Resource)
		for range int(r.Run / period) {
			if err != nil {
				return err
			}
			var w window
			w, began, err = m.window(ctx, r, m.prober, period, began)
			seen = append(seen, w.sensed)
		}
		return err
	})
	return seen, err
}

// run makes a run that is measured as one window.
func (m *live) run(ctx context.Context, r RunRequest, prober *probe.Prober) (row model.TrainingRow, singles []float64, err error) {
	var w window
	load, err := m.loaded(ctx, r, func(*sent) (err error) {
		began, err := m.carried(r.Resource)
		if err == nil {
			w, _, err = m.window(ctx, r, prober, r.Run, began)
		}
		return err
	})
	if err != nil {
		return row, nil, err
	}
	if row, err = w.row(r); err != nil {
		return row, nil, err
	}
	row, err = m.fill(row, r, load)
	return row, w.singles, err
}

// OffError says that a run was loaded otherwise than wanted, so it says nothing about its cell.
type OffError struct{ Wanted, Came float64 } // requests per second

func (e *OffError) Error() string {
	return fmt.Sprintf("%.3g requests/s were wanted, %.3g were sent in time: the client's machine or the way to the instance was too slow",
		e.Wanted, e.Came)
}

// fewOff is how many requests a load may always be off: at low rates a single late one is a large share.
const fewOff = 3

// fill adds the requested load and the requests' results to a row, unless the load that came is far from the wanted one.
func (m *live) fill(row model.TrainingRow, r RunRequest, load *sent) (model.TrainingRow, error) {
	wanted, came := float64(load.Total().Requests), float64(load.came)
	if m.MaxOff > 0 && math.Abs(came-wanted) > max(fewOff, m.MaxOff*wanted) {
		return row, &OffError{Wanted: wanted / r.Run.Seconds(), Came: came / r.Run.Seconds()}
	}
	return r.fill(row, load.Recorder)
}

// row makes a row without the results of requests.
func (w *window) row(r RunRequest) (row model.TrainingRow, err error) {
	p, ok := w.sensed.Probe[r.Resource]
	if !ok || p.N == 0 {
		return row, fmt.Errorf("no probe of the machine's %s came back: %w", r.Resource, quell.ErrNoData)
	}
	return model.TrainingRow{
		Resource:    r.Resource,
		Utilization: w.own / w.seconds,
		Interfering: w.interfering / w.seconds,
		ProbeMS:     model.ProbeRun{Mean: p.MeanMS, Stddev: p.StddevMS, N: p.N},
		By:          p.By,
		DurationS:   w.seconds,
		Observation: &w.sensed,
	}, nil
}

// loaded loads and disturbs the target, and calls during after the warm-up, with what records the requests. If the interferer cannot be
// ended, because it has ended by itself, the run is an error.
func (m *live) loaded(ctx context.Context, r RunRequest, during func(*sent) error) (_ *sent, err error) {
	if err := m.can(r); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.target.Interfere(r.disturbed(), 0)) }()
	if err := m.target.Interfere(r.disturbed(), r.Interference); err != nil {
		return nil, err
	}
	recorder := &sent{Recorder: loadgen.NewRecorder()}
	runner, err := m.runner(r, recorder)
	if err != nil {
		return nil, err
	}
	loading, stop := context.WithCancel(ctx)
	defer stop()
	var load sync.WaitGroup
	load.Go(func() { runner.Run(loading) })
	if tick.Sleep(ctx, r.WarmUp) {
		err = during(recorder)
	}
	if err != nil {
		stop()
	}
	load.Wait()
	return recorder, cmp.Or(err, ctx.Err())
}

// can checks whether the target can be loaded and measured as requested. If not, the error says why.
func (m *live) can(r RunRequest) error {
	if felt := m.prober != nil && r.Resource == m.prober.Resource() || m.target.Feels(r.Resource); !felt {
		return &quell.UserError{Err: fmt.Errorf("nothing probes the %s of these machines: train another resource (train.resource)", r.Resource)}
	}
	if r.Level > 0 && !(m.PerSecond(r.Resource) > 0) {
		return &quell.UserError{Err: fmt.Errorf("requests use no %s, so they cannot load it", r.Resource)}
	}
	return nil
}

// sent records the requests that are due after the warm-up.
type sent struct {
	*loadgen.Recorder
	came int64 // requests that really were sent after the warm-up and before the run's end
}

func (l *sent) add(s loadgen.Sample, warmUp, end time.Duration) {
	if s.Intended >= warmUp {
		l.Record(s)
	}
	if s.Sent >= warmUp && s.Sent < end && !errors.Is(s.Err, loadgen.ErrShed) {
		l.came++
	}
}

// runner makes what sends a run's load.
func (m *live) runner(r RunRequest, recorder *sent) (*loadgen.Runner, error) {
	end := r.WarmUp + r.Run
	arrivals, err := loadgen.NewArrivals(loadgen.ArrivalOptions{
		Process: m.Process, Rate: []loadgen.Step{{PerSecond: r.Level * m.PerSecond(r.Resource)}}, Duration: end, Seed: r.Seed,
	})
	if err != nil {
		return nil, err
	}
	o := loadgen.Options{
		URL: m.target.Service(), Arrivals: arrivals, Path: "/file", Until: end, Timeout: m.MaxLatency, Fresh: m.Fresh,
		Report: func(s loadgen.Sample) { recorder.add(s, r.WarmUp, end) },
	}
	if m.Visits != nil {
		if o.Visit, err = m.Visits(r.Seed); err != nil {
			return nil, err
		}
	}
	return loadgen.New(o)
}

// window is what was measured of a target between two readings.
type window struct {
	seconds          float64
	own, interfering float64           // use by the service and the interferer, in seconds of the whole resource
	sensed           quell.Observation // with all probes
	singles          []float64         // of downloads, in milliseconds
}

// carriedAt is what was used until a moment.
type carriedAt struct {
	Carried
	at time.Time
}

func (m *live) carried(r quell.Resource) (carriedAt, error) {
	c, err := m.target.Carried(r)
	return carriedAt{c, time.Now()}, err
}

// window probes for a while and computes what the service and the interferer used since began. It returns the reading at the window's
// end, with which the next window begins: the processors' accounts advance in steps of some milliseconds, so two readings at one moment
// would have no processor time between them.
func (m *live) window(ctx context.Context, r RunRequest, prober *probe.Prober, length time.Duration, began carriedAt) (
	w window, ended carriedAt, err error) {
	var downloads quell.ProbeStats
	if prober == nil {
		if !tick.Sleep(ctx, length) {
			return w, ended, ctx.Err()
		}
	} else {
		target := probe.Target{Instance: "training", Address: m.target.Probe()}
		if downloads, w.singles, err = prober.Collect(ctx, target, length); err != nil {
			return w, ended, err
		}
	}
	if ended, err = m.carried(r.Resource); err != nil {
		return w, ended, err
	}
	w.seconds = ended.at.Sub(began.at).Seconds()
	w.own, w.interfering, w.sensed = ended.Own-began.Own, ended.Interfering-began.Interfering, ended.Sensed
	w.sensed.At, w.sensed.WindowS = ended.at.UTC(), w.seconds
	w.sensed.Probe = maps.Clone(w.sensed.Probe)
	if prober != nil {
		quell.Put(&w.sensed.Probe, prober.Resource(), downloads)
	}
	return w, ended, nil
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
	quell.Put(&o.Utilization, r.Resource, row.Utilization)
	o.RequestRate = &row.RequestRate
	if row.Requests > 0 {
		o.ErrorRate = new(float64(row.Errors) / float64(row.Requests))
	}
	if row.LatencyMS.N > 0 {
		o.LatencyMS = &row.LatencyMS
	}
	if ms := recorder.Total().ConnectMS; ms != nil {
		if o.TCP = maps.Clone(o.TCP); o.TCP == nil {
			o.TCP = map[string]float64{}
		}
		o.TCP["connect_ms_p90"] = *ms
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
