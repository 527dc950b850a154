package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/quellhq/quell"
)

// frontsPressed are the settings at which a neighbour makes the objective miss, so that shares must move: the requests use half of the
// links, a neighbour 0.7 of one. The objective is a tail, because least connections alone keeps the mean. A calm time lets Quell learn what
// the servers carry.
func frontsPressed() strangerSettings {
	s := strangerAt(time.Second, 25*time.Second, 15*time.Second, 8*time.Second)
	s.Load, s.Swing, s.Metric, s.Threshold, s.Uses = 0.5, 0, quell.P95, 45*time.Millisecond, []float64{0.7, 0.7, 0.7, 0.7}
	return s
}

// frontsSettle is how long load is offered before the first neighbour where nothing is learned.
const frontsSettle = 8 * time.Second

// frontsWay is a way to share requests, with Quell or without.
type frontsWay struct {
	name, title string
	front       front
	quell       bool
}

// frontsWays are the ways in the order of the page, those of a balancer together.
func frontsWays() []frontsWay {
	with := func(name, title string) frontsWay {
		behind, err := frontOf(name)
		if err != nil {
			panic(err) // a name below is wrong
		}
		return frontsWay{name, title, behind, true}
	}
	alone := func(name, title string, serve func(*strangerFleet, []frontServer) error) frontsWay {
		return frontsWay{name, title, front{name: name, title: title, serve: serve}, false}
	}
	sooner := with("nginx", "Quell, nginx with `least_conn`, `reload_every: 3s`")
	sooner.name, sooner.front.quell = "nginx-3s", func(f *strangerFleet) string { return f.nginxSection(", reload_every: 3s") }
	return []frontsWay{
		with("haproxy", "Quell, HAProxy with `leastconn`"),
		alone("haproxy-leastconn", "HAProxy, `leastconn`", serveHAProxy),
		with("nginx", "Quell, nginx with `least_conn`"),
		sooner,
		alone("nginx-leastconn", "nginx, `least_conn`", serveNginxBy("least_conn")),
		alone("nginx-random", "nginx, `random two least_conn`", serveNginxBy("random two least_conn")),
		with("envoy", "Quell, Envoy with `LEAST_REQUEST`"),
		with("reports", "Quell, Envoy by load reports"),
		alone("envoy-wrr", "Envoy, weighted round robin by utilisation", serveEnvoyByUse(envoyByUse)),
		alone("envoy-wrr-outlier", "the same with outlier detection", serveEnvoyByUse(ejecting(envoyByUse))),
		alone("envoy-least", "Envoy, `LEAST_REQUEST`", serveEnvoyAlone(envoyLeast)),
		alone("envoy-least-outlier", "the same with outlier detection", serveEnvoyAlone(ejecting(envoyLeast))),
	}
}

// frontsRuns are the ways that are played in one run, by the run's name.
var frontsRuns = map[string][]string{
	"pressed-haproxy": {"haproxy", "haproxy-leastconn"},
	"pressed-nginx":   {"nginx", "nginx-3s", "nginx-leastconn", "nginx-random"},
	"pressed-envoy":   {"envoy", "reports", "envoy-wrr", "envoy-wrr-outlier", "envoy-least", "envoy-least-outlier"},
}

// frontsSample is a request while neighbours come and go.
type frontsSample struct {
	At     time.Time // when it was due
	MS     float64
	Failed bool
}

// frontsSamples keeps requests.
type frontsSamples struct {
	mu  sync.Mutex
	all []frontsSample
}

func (s *frontsSamples) add(v frontsSample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, v)
}

// frontsRivalry is what was seen in a way.
type frontsRivalry struct {
	fleet   strangerRecord
	samples []frontsSample
}

// frontsPressedRow is a way on the page. All but Failed and Requests are of the times in which a neighbour was there.
type frontsPressedRow struct {
	MeanMS   float64       `json:"meanMS"`
	P95MS    float64       `json:"p95MS"`
	P99MS    float64       `json:"p99MS"`
	Over     float64       `json:"over"`   // share of the requests that took longer than the objective
	AboveS   int           `json:"aboveS"` // seconds whose 95th percentile was above the objective
	Seconds  int           `json:"seconds"`
	Requests int           `json:"requests"` // of the whole time
	Failed   int           `json:"failed"`
	Onsets   []frontsOnset `json:"onsets"`
	Cost     strangerCost  `json:"cost"`
}

// frontsOnset is what followed the arrival of a neighbour. Times are in seconds since then, negative: never.
type frontsOnset struct {
	MovedS float64 `json:"movedS"` // until the server's share in a plan in force was below 0.95 of what it had been
	HeldS  float64 `json:"heldS"`  // until three seconds followed whose 95th percentile was within the objective; 0: it was never missed
}

// playPressed plays the ways of a run one after the other.
func playPressed(ctx context.Context, d *frontsData, names []string, keep func() error) error {
	for _, way := range frontsWays() {
		if !slices.Contains(names, way.name) {
			continue
		}
		fmt.Fprintln(os.Stderr, "fronts:", way.title)
		r, err := way.play(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		row := newFrontsPressedRow(r)
		fmt.Fprintf(os.Stderr, "fronts: %+v\n", row)
		d.Pressed[way.name] = row
		if err := keep(); err != nil {
			return err
		}
	}
	return nil
}

func (w frontsWay) play(ctx context.Context) (r *frontsRivalry, err error) {
	f, err := newStrangerFleet(filepath.Join("bin", "quell"), w.front, frontsPressed())
	if err != nil {
		return nil, err
	}
	r = &frontsRivalry{fleet: strangerRecord{Settings: f.set, Machines: f.names}}
	return r, errors.Join(f.press(ctx, r, w.quell), f.close())
}

// press offers load, and lets neighbours come.
func (f *strangerFleet) press(ctx context.Context, r *frontsRivalry, watched bool) error {
	if err := f.serve(); err != nil {
		return err
	}
	if err := f.awaitFront(ctx); err != nil {
		return err
	}
	var samples frontsSamples
	load := strangerLoad{samples: &samples}
	stop := f.startUsers(ctx, &load)
	defer stop()
	calm := frontsSettle
	r.fleet.Began = time.Now()
	if watched {
		calm = f.set.Calm
		if err := f.watch(); err != nil {
			return err
		}
		if err := f.awaitKnowing(ctx, &r.fleet); err != nil {
			return err
		}
	}
	if err := wait(ctx, calm); err != nil {
		return err
	}
	meter, err := f.meter()
	if err != nil {
		return err
	}
	for i, use := range f.set.Uses {
		if err := f.visit(ctx, &r.fleet, i%len(f.names), use); err != nil {
			return err
		}
	}
	if r.fleet.Beside, err = meter.cost(); err != nil {
		return err
	}
	if watched {
		if err := f.told(&r.fleet); err != nil {
			return err
		}
	}
	stop()
	r.samples = samples.all
	r.fleet.Requests, r.fleet.Failed = int(load.requests.Load()), int(load.failed.Load())
	return nil
}

func newFrontsPressedRow(r *frontsRivalry) frontsPressedRow {
	objective := float64(r.fleet.Settings.Threshold) / float64(time.Millisecond)
	row := frontsPressedRow{Requests: r.fleet.Requests, Failed: r.fleet.Failed, Cost: r.fleet.Beside}
	var took []float64
	var sum float64
	over := 0
	for _, v := range r.fleet.Visits {
		for _, s := range r.samples {
			if s.At.Before(v.From) || !s.At.Before(v.To) {
				continue
			}
			took, sum = append(took, s.MS), sum+s.MS
			if s.Failed || s.MS > objective {
				over++
			}
		}
		tails := r.tails(v)
		row.Seconds += len(tails)
		for _, tail := range tails {
			if tail > objective {
				row.AboveS++
			}
		}
		onset := frontsOnset{MovedS: -1, HeldS: heldAfter(tails, objective)}
		if len(r.fleet.Told) > 0 {
			onset.MovedS = r.fleet.reaction(v)
		}
		row.Onsets = append(row.Onsets, onset)
	}
	slices.Sort(took)
	n := float64(max(1, len(took)))
	row.MeanMS, row.Over, row.P95MS, row.P99MS = sum/n, float64(over)/n, quantile(took, 0.95), quantile(took, 0.99)
	return row
}

// tails are the 95th percentiles of the response times of the whole seconds of a neighbour's time; a second without requests has 0.
func (r *frontsRivalry) tails(v strangerVisit) []float64 {
	took := make([][]float64, int(v.To.Sub(v.From).Seconds()))
	for _, s := range r.samples {
		if i := int(math.Floor(s.At.Sub(v.From).Seconds())); i >= 0 && i < len(took) {
			took[i] = append(took[i], s.MS)
		}
	}
	tails := make([]float64, len(took))
	for i, second := range took {
		slices.Sort(second)
		tails[i] = quantile(second, 0.95)
	}
	return tails
}

// frontsHeld is how many seconds within the objective count as holding it.
const frontsHeld = 3

// heldAfter returns after how many seconds the objective was held again: 0 if it never was missed, negative if it was not held again.
func heldAfter(tails []float64, objective float64) float64 {
	above := func(tail float64) bool { return tail > objective }
	missed := slices.IndexFunc(tails, above)
	if missed < 0 {
		return 0
	}
	for i := missed; i+frontsHeld <= len(tails); i++ {
		if !slices.ContainsFunc(tails[i:i+frontsHeld], above) {
			return float64(i)
		}
	}
	return -1
}
