package experiment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/daemon"
)

// Mix is a fleet behind a real HAProxy on the loopback interface, as other people run theirs: clients cancel, stream, are refused and stick
// to servers; a server refuses connections for moments, so that requests move; and people take servers out in every way that HAProxy has.
// A controller drives it, with an autoscaler and the policy that cuts outliers. A Mix is to show that nothing of this costs an instance its
// share, or its life, that is not at fault.
type Mix struct {
	Length   time.Duration // of the whole run
	Round    time.Duration // of all acts, one after the other; then they begin again
	Sampling time.Duration
	Rate     float64 // of ordinary requests per second, on average
	Log      *slog.Logger
}

// HourOfMix is the run of the page docs/results/mix.md.
var HourOfMix = Mix{Length: time.Hour, Round: 5 * time.Minute, Sampling: 5 * time.Second, Rate: 95}

// MixRecord is what was seen in a run.
type MixRecord struct {
	Began     time.Time      `json:"began"`
	LengthS   float64        `json:"length_s"`
	SamplingS float64        `json:"sampling_s"`
	Acts      []MixAct       `json:"acts"`
	Ends      []MixEnd       `json:"ends"`   // instances that were stopped
	Starts    int            `json:"starts"` // instances that were started after the beginning
	Looks     []MixLook      `json:"-"`
	Shares    []MixShare     `json:"shares"`   // judged from the looks
	Zeros     bool           `json:"zeros"`    // seconds in which an instance got nothing were judged as well
	Clients   map[string]int `json:"clients"`  // requests by kind and what the client saw
	Counters  []MixCounters  `json:"counters"` // of HAProxy, by server
	Plans     int            `json:"plans"`
	Cuts      map[string]int `json:"cuts"`  // plans in which the policy that cuts outliers held an instance back
	Events    []string       `json:"-"`     // of the journal
	Named     int            `json:"named"` // acts that the journal names
}

// MixEnd is the stop of an instance by the scaler.
type MixEnd struct {
	At       time.Time `json:"at"`
	Instance string    `json:"instance"`
	Held     string    `json:"held,omitempty"`   // the act that kept it out at that time
	Anyway   bool      `json:"anyway,omitempty"` // that act changed nothing: it had just started, and had the weight 0 of Quell's
}

// Play runs the mix in a folder until its length is over.
func (m Mix) Play(ctx context.Context, dir string) (r *MixRecord, err error) {
	if m.Log == nil {
		m.Log = slog.New(slog.DiscardHandler)
	}
	f, err := newMixFleet(m, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	r = &MixRecord{Began: time.Now(), LengthS: m.Length.Seconds(), SamplingS: m.Sampling.Seconds(), Cuts: map[string]int{}}
	ctx, cancel := context.WithTimeout(ctx, m.Length+time.Minute)
	defer cancel()
	control, stop := context.WithCancel(ctx)
	var programs sync.WaitGroup
	failed := make(chan error, 1+len(f.instances))
	programs.Go(func() { failed <- daemon.Controller(control, f.config, nil, m.Log) })
	for _, in := range f.instances {
		programs.Go(func() { failed <- f.report(control, in) })
	}
	defer programs.Wait()
	defer stop()
	ended := time.After(m.Length)
	clients, leave := context.WithCancel(ctx)
	crowd := f.visit(clients)
	acts := f.act(clients)
	looks := f.watch(clients)
	select {
	case err = <-failed:
		err = fmt.Errorf("the controller or an agent ended: %w", err)
	case <-ctx.Done():
		err = ctx.Err()
	case <-ended:
	}
	r.Counters, err = joined(f.counters())(err)
	plans := f.judgePlans(ctx, r)
	leave()
	r.Clients, r.Acts, r.Looks = crowd(), acts(), looks()
	r.Ends, r.Starts = f.stops(), f.starts()
	r.Shares, r.Zeros, r.Named = r.shares(), true, r.named()
	r.excuse()
	return r, errors.Join(err, plans)
}

// joined adds an earlier error to a result.
func joined[T any](v T, err error) func(error) (T, error) {
	return func(earlier error) (T, error) { return v, errors.Join(earlier, err) }
}

// judgePlans reads the journal.
func (f *mixFleet) judgePlans(ctx context.Context, r *MixRecord) error {
	file, err := daemon.Drivers().Load(f.config)
	if err != nil {
		return err
	}
	conn, err := daemon.Connect(file)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.History(mixService).Read(ctx, r.Began, func(e bus.Entry) error {
		r.note(&e)
		return nil
	})
}

// note counts what an entry of the journal says.
func (r *MixRecord) note(e *bus.Entry) {
	if e.Plan == nil {
		if e.Text != "" {
			r.Events = append(r.Events, e.Text)
		}
		return
	}
	r.Plans++
	for id, f := range e.Plan.Factor {
		if f.Left(e.Plan.At) < 1 {
			r.Cuts[id]++
		}
	}
}

const mixService = "shop"

// mixConfig is the controller's configuration.
const mixConfig = `service: shop
slo: {metric: p95, threshold: 500ms}
sampling: %v
policy: {name: hpa, resource: cpu, utilization: 40%%, fast: {name: outlier, sampling: %v}}
group: {min: 6, max: 9, startup: 15s}
data: %s
listen: off
bus: {listen: %q}
balancer:
  kind: haproxy
  drain: 10s
  health: {interval: 1s}
  classes:
    - {name: downloads, path: /download, objective: false}
  haproxy: {sockets: [%s], backend: app, log: %q}
scaler:
  kind: command
  start: [curl, -sSf, --data-binary, "@-", %q]
  stop: [curl, -sSf, --data-binary, "@-", %q]
  list: [curl, -sSf, %q]
`

// settle writes the configuration of Quell.
func (f *mixFleet) settle(sampling time.Duration) error {
	scaler := "http://" + f.scaler.Addr().String()
	text := fmt.Sprintf(mixConfig, sampling, min(time.Second, sampling/2), filepath.Join(f.dir, "data"), f.bus, f.socket, f.logs,
		scaler+"/start", scaler+"/stop", scaler+"/list")
	f.config = filepath.Join(f.dir, "quell.yaml")
	return os.WriteFile(f.config, []byte(text), 0o600)
}

// report runs the agent of an instance while it exists, whose only sensor reads the instance's own use of its processors.
func (f *mixFleet) report(ctx context.Context, in *mixInstance) error {
	file, err := daemon.Drivers().Load(f.config)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		err = daemon.Report(ctx, file, in.id, in, f.mix.Log)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		_ = pause(ctx, time.Second) // the controller's bus may not be there yet
	}
	return nil
}

// sensed is an observation of an instance's processors.
func sensed(now time.Time, use float64) quell.Observation {
	return quell.Observation{At: now, Utilization: map[quell.Resource]float64{quell.CPU: use}}
}
