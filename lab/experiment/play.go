// Package experiment plays a scenario on a rig of real processes and measures the result. The demo, trainings and the labs use it.
package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/loadgen"
	"github.com/quellhq/quell/policy/table"
)

// Group is a running group of instances with its own balancer and controller. Neighbours can be put beside the instances.
type Group interface {
	// URL is the address to which clients connect.
	URL() string
	// Interfere sets how much of a host's resources a neighbour uses.
	Interfere(host string, use map[quell.Resource]float64) error
	// Status asks the controller for its status.
	Status(ctx context.Context) (controller.Status, error)
	// Hold fixes fractions of the traffic, by instance.
	Hold(ctx context.Context, weights map[string]float64) error
	// Release ends what Hold fixed.
	Release(ctx context.Context, weights map[string]float64) error
	// Changes returns the times since the given one, in order, at which plans that changed something were applied.
	Changes(ctx context.Context, since time.Time) ([]time.Time, error)
}

// Erring is a Group whose instances can be made to answer every request by an error.
type Erring interface {
	// SetErring makes the instance on a host answer every request by an error from now on, or ends that.
	SetErring(host string, erring bool) error
}

// Working is a group whose instances can do work of their own beside their requests.
type Working interface {
	// Work sets how much of a host's resources processes of the instance itself use. It ends the use of resources that the map lacks.
	Work(host string, use map[quell.Resource]float64) error
}

// Programmed is a Group beside whose instances neighbours can run real programs.
type Programmed interface {
	// RunPrograms makes the neighbour of a host run these programs at these strengths, and no other.
	RunPrograms(host string, strengths map[scenario.Program]float64) error
}

// Player is one run of a scenario together with the group that plays it.
type Player struct {
	Run   scenario.Run
	Group Group
}

// Options of Play. Scenario and Players are required.
type Options struct {
	Scenario *scenario.Scenario
	Players  []Player
	WarmUp   time.Duration                       // how long the first load is offered before measuring starts
	Watch    func(Frame)                         // called about once a second
	Sample   func(player int, s scenario.Sample) // called for each measured request; must be quick

	Resources []quell.Resource // the resources of the groups' hosts; see Playable
}

// Frame is the state of a play at one moment.
type Frame struct {
	At       time.Duration // since measuring started; negative during the warm-up
	Load     float64
	Disturbs map[string]float64 // by host with neighbours: what these use
	Runs     []RunFrame
}

// RunFrame is the part of a frame about one run. Err is why there is no status.
type RunFrame struct {
	Run       scenario.Run
	Status    controller.Status
	Err       error
	LatencyMS float64 // the objective's metric of the slowest instance over the last judge window; 0 before any has enough requests
	Requests  int64
	Errors    int64
	Violation time.Duration // violation time so far
}

// StartDelay is the time from the call of Play to the first load.
const StartDelay = 100 * time.Millisecond

// watchEvery is the time between two frames.
const watchEvery = time.Second

// Play offers the same requests at the same moments to every group, puts neighbours beside instances as the timeline says, and returns
// one result for each player, in order.
func Play(ctx context.Context, o Options) ([]scenario.Result, error) {
	if err := Playable(o.Scenario, o.Resources...); err != nil {
		return nil, &quell.UserError{Err: err}
	}
	for _, player := range o.Players {
		if err := player.Group.Hold(ctx, o.Scenario.Instances.Held()); err != nil {
			return nil, fmt.Errorf("holding the first weights: %w", err)
		}
	}
	p := &play{Options: o, start: time.Now().Add(StartDelay)}
	p.zero = p.start.Add(o.WarmUp)
	for _, player := range o.Players {
		p.tracks = append(p.tracks, newTrack(o.Scenario, player))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var parts sync.WaitGroup
	p.offer(ctx, cancel, &parts)
	background, stop := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	watchers.Go(func() { p.watch(background) })
	parts.Go(func() {
		if err := p.disturb(ctx); err != nil {
			cancel(err)
		}
	})
	parts.Go(func() {
		if err := p.err(ctx); err != nil {
			cancel(err)
		}
	})
	p.mark(ctx)
	parts.Wait()
	stop()
	watchers.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return p.results(ctx)
}

type play struct {
	Options
	start, zero time.Time
	tracks      []*track
}

// track measures one run.
type track struct {
	Player
	sc *scenario.Scenario

	mu           sync.Mutex // guards what follows
	judge        *scenario.Judge
	recent       *recent
	last         controller.Status
	err          error
	most         int
	before       controller.Status
	after        controller.Status
	accountError error
	warnings     []string
}

func newTrack(sc *scenario.Scenario, player Player) *track {
	return &track{
		Player: player, sc: sc, recent: &recent{of: sc.Judge},
		judge: scenario.NewJudge(scenario.JudgeOptions{SLO: sc.Service.SLO, Duration: sc.Duration, Judging: sc.Judge}),
	}
}

// offer starts a load generator for each group. All have the same seed.
func (p *play) offer(ctx context.Context, cancel context.CancelCauseFunc, parts *sync.WaitGroup) {
	for i, t := range p.tracks {
		o, err := generator(p.Scenario, p.WarmUp)
		if err != nil {
			cancel(err)
			return
		}
		o.URL, o.Start, o.Report = t.Group.URL(), p.start, func(s loadgen.Sample) { p.note(i, t.add(s, p.WarmUp)) }
		runner, err := loadgen.New(o)
		if err != nil {
			cancel(err)
			return
		}
		parts.Go(func() { t.warn(runner.Run(ctx).Warnings) })
	}
}

// warn records the generator's warnings about its own accuracy.
func (t *track) warn(warnings []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.warnings = warnings
}

// add records a request. It returns the request with times relative to the start of measuring, which are negative during the warm-up.
func (t *track) add(s loadgen.Sample, warmUp time.Duration) scenario.Sample {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recent.add(s)
	counted := scenario.Sample{
		Intended: s.Intended - warmUp, Finished: s.Finished - warmUp, Instance: s.Instance,
		Latency: s.Latency(), Failed: s.Failed(),
	}
	t.judge.Add(counted)
	return counted
}

func (p *play) note(player int, s scenario.Sample) {
	if p.Sample != nil && s.Intended >= 0 {
		p.Sample(player, s)
	}
}

// disturb changes the neighbours on every group's hosts at the moments of the timeline.
func (p *play) disturb(ctx context.Context) error {
	for _, c := range p.Scenario.Disturbances(p.Scenario.Seed) {
		if !tick.SleepUntil(ctx, p.zero.Add(c.At)) {
			return nil
		}
		for _, t := range p.tracks {
			if err := p.apply(t.Group, c); err != nil {
				return fmt.Errorf("disturbing host %s: %w", c.Host, err)
			}
		}
	}
	return nil
}

// apply changes a group's neighbours as the scenario wants them from a change on.
func (p *play) apply(g Group, c scenario.Change) error {
	if c.Own {
		works, ok := g.(Working)
		if !ok {
			return errors.New("its instances do no work of their own")
		}
		return works.Work(c.Host, p.Scenario.OwnWorkAt(c.Host, c.At))
	}
	if c.Program == "" {
		return g.Interfere(c.Host, p.Scenario.InterferenceAt(c.Host, c.At))
	}
	runs, ok := g.(Programmed)
	if !ok {
		return fmt.Errorf("its neighbours run no %s", c.Program)
	}
	return runs.RunPrograms(c.Host, p.Scenario.ProgramsAt(c.Host, c.At))
}

// err makes instances answer by errors, or ends that, at the moments of the timeline.
func (p *play) err(ctx context.Context) error {
	for _, e := range p.Scenario.Erring() {
		if !tick.SleepUntil(ctx, p.zero.Add(e.At)) {
			return nil
		}
		for _, t := range p.tracks {
			group, ok := t.Group.(Erring)
			if !ok {
				return fmt.Errorf("errors on host %s: its instances cannot be told to answer by errors", e.Host)
			}
			if err := group.SetErring(e.Host, e.Share > 0); err != nil {
				return fmt.Errorf("errors on host %s: %w", e.Host, err)
			}
		}
	}
	return nil
}

// Playable returns why a scenario cannot be played on hosts that have these resources, as a *quell.InvalidError. If no resources are
// given, they are those of emulated hosts: the network only.
func Playable(sc *scenario.Scenario, resources ...quell.Resource) error {
	emulated := len(resources) == 0
	if emulated {
		resources = []quell.Resource{quell.Network}
	}
	has := func(r quell.Resource) bool { return slices.Contains(resources, r) }
	if err := loadable(sc.Workload, has); err != nil {
		return err
	}
	if sc.Readings != (scenario.Readings{}) {
		return refuse("readings", "lost, late and noisy readings")
	}
	if sc.Stations != (scenario.Stations{}) {
		return refuse("stations", "another discipline than the machines have")
	}
	if sc.Probing.Count != 0 || sc.Probing.Budget != 0 {
		return refuse("probing", "other probing than the balancer does")
	}
	for _, r := range sc.Probing.Resources {
		if !has(r) {
			return refuse("probing.resources", fmt.Sprintf("probes of the %s", r))
		}
	}
	if sc.Services > 1 {
		return refuse("services", "more than one service")
	}
	if sc.Instances.Credits != nil && emulated {
		return refuse("instances.credits", "a burstable instance")
	}
	for i, r := range sc.Runs {
		if emulated && r.Balancer == scenario.HAProxy {
			return refuse(fmt.Sprintf("runs[%d].balancer", i), "HAProxy")
		}
	}
	for i, e := range sc.Timeline {
		path := fmt.Sprintf("timeline[%d]", i)
		if e.Fail != nil {
			return refuse(path+".fail", "the failure of an instance")
		}
		if e.Release != nil {
			return refuse(path+".release", "another release of the service")
		}
		if e.Errors != nil && emulated {
			return refuse(path+".errors", "errors of an instance")
		}
		if n := e.Interfere; n != nil && n.Program != "" {
			if emulated {
				return refuse(path+".interfere.program", "a real program")
			}
			continue
		}
		if n := e.Interfere; n != nil && n.Own && (emulated || n.Resource == quell.Memory) {
			return refuse(path+".interfere.own", fmt.Sprintf("work of an instance's own on %s", n.Resource))
		}
		if n := e.Interfere; n != nil && !has(n.Resource) {
			return refuse(path+".interfere.resource", fmt.Sprintf("interference on %s", n.Resource))
		}
	}
	return nil
}

func refuse(path, what string) error {
	return invalid(path, "%s cannot be played on these machines: use quell sim", what)
}

func invalid(path, format string, args ...any) error {
	return &quell.InvalidError{Path: path, Problem: fmt.Sprintf(format, args...)}
}

// mark reads the counters of every group when measuring starts and when it ends.
func (p *play) mark(ctx context.Context) {
	if !tick.SleepUntil(ctx, p.zero) {
		return
	}
	held := p.Scenario.Instances.Held()
	p.each(func(t *track) {
		status, err := t.Group.Status(ctx)
		t.before, t.accountError = status, errors.Join(err, t.Group.Release(ctx, held))
	})
	if !tick.SleepUntil(ctx, p.zero.Add(p.Scenario.Duration)) {
		return
	}
	p.each(func(t *track) {
		status, err := t.Group.Status(ctx)
		t.after, t.accountError = status, errors.Join(t.accountError, err)
	})
}

func (p *play) each(do func(*track)) {
	var all sync.WaitGroup
	for _, t := range p.tracks {
		all.Go(func() { do(t) })
	}
	all.Wait()
}

// watch makes frames of the groups' states while the load is offered.
func (p *play) watch(ctx context.Context) {
	for next := p.start; tick.SleepUntil(ctx, next); next = next.Add(watchEvery) {
		at := time.Since(p.zero)
		p.each(func(t *track) { t.look(ctx) })
		if ctx.Err() != nil {
			return // the runs have ended meanwhile: their controllers' silence is no news
		}
		if p.Watch != nil {
			p.Watch(p.frame(at))
		}
	}
}

func (t *track) look(ctx context.Context) {
	status, err := t.Group.Status(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
	if err != nil {
		return
	}
	t.last = status
	alive := 0
	for _, in := range status.Instances {
		if in.State != quell.Failed {
			alive++
		}
	}
	t.most = max(t.most, alive)
}

func (p *play) frame(at time.Duration) Frame {
	f := Frame{At: at, Load: p.Scenario.LoadAt(max(0, at)), Disturbs: map[string]float64{}}
	for _, h := range p.Scenario.Hosts {
		for _, use := range p.Scenario.InterferenceAt(h.ID, max(0, at)) {
			if use > 0 {
				f.Disturbs[h.ID] = use
			}
		}
		for _, use := range p.Scenario.OwnWorkAt(h.ID, max(0, at)) {
			f.Disturbs[h.ID] = max(use, f.Disturbs[h.ID])
		}
		for _, strength := range p.Scenario.ProgramsAt(h.ID, max(0, at)) {
			f.Disturbs[h.ID] = strength
		}
	}
	for _, t := range p.tracks {
		t.mu.Lock()
		verdict := t.judge.Verdict()
		f.Runs = append(f.Runs, RunFrame{
			Run: t.Run, Status: t.last, Err: t.err, LatencyMS: t.recent.slowest(t.sc.Service.SLO.Metric),
			Requests: verdict.Requests, Errors: verdict.Errors,
			Violation: time.Duration(verdict.SLO.ViolationS * float64(time.Second)),
		})
		t.mu.Unlock()
	}
	return f
}

func (p *play) results(ctx context.Context) ([]scenario.Result, error) {
	var results []scenario.Result
	for _, t := range p.tracks {
		if t.accountError != nil {
			return nil, fmt.Errorf("reading the counters of %s: %w", Title(p.Scenario, t.Run), t.accountError)
		}
		changes, err := t.Group.Changes(ctx, p.zero)
		if err != nil {
			return nil, fmt.Errorf("reading the journal of %s: %w", Title(p.Scenario, t.Run), err)
		}
		results = append(results, t.result(p.zero, changes))
	}
	return results, nil
}

func (t *track) result(zero time.Time, changes []time.Time) scenario.Result {
	verdict := t.judge.Verdict()
	seconds := t.after.InstanceSeconds - t.before.InstanceSeconds
	var since []time.Duration
	for _, c := range changes {
		since = append(since, c.Sub(zero))
	}
	r := scenario.Result{
		Scenario: t.sc.Name, Policy: t.Run.Policy.Name, Scheduling: t.Run.Scheduling, Balancer: string(t.Run.Balancer), Fixed: t.sc.Size(t.Run),
		Seed:      t.sc.Seed,
		DurationS: t.sc.Duration.Seconds(), Requests: verdict.Requests, Errors: verdict.Errors,
		LatencyMS: verdict.LatencyMS, SLO: verdict.SLO,
		InstanceSeconds: seconds, MeanInstances: seconds / t.sc.Duration.Seconds(), MaxInstances: t.most,
		Decisions: t.after.Decisions - t.before.Decisions, Warnings: t.warnings,
	}
	if r.Fixed == 0 || t.Run.Policy.Fast.Name != "" || t.Run.Ejection != "" {
		r.ReactionS = scenario.Reactions(t.sc.Marks(), since)
	}
	return r
}

// Title names a run for people.
func Title(sc *scenario.Scenario, run scenario.Run) string {
	name := run.Policy.Name
	if own := table.All.Difference(sc.PolicyOf(scenario.Run{Policy: quell.Policy{Name: name}}), sc.PolicyOf(run)); own != "" {
		name += " (" + own + ")"
	}
	title := fmt.Sprintf("%s/%s", name, run.Scheduling)
	if run.Balancer != "" {
		title = fmt.Sprintf("%s/%s-%s", name, run.Balancer, run.Scheduling)
	}
	if run.Ejection != "" {
		title += " ejection " + string(run.Ejection)
	}
	if run.Models == scenario.Learn {
		title += " learning"
	}
	if n := sc.Size(run); n > 0 {
		title = fmt.Sprintf("%s x%d", title, n)
	}
	return title
}

// recent keeps the response times of the last moments, for display.
type recent struct {
	of      scenario.Judging
	samples []loadgen.Sample
}

func (r *recent) add(s loadgen.Sample) {
	r.samples = append(r.samples, s)
	old := 0
	for old < len(r.samples) && s.Finished-r.samples[old].Finished > r.of.Window {
		old++
	}
	r.samples = r.samples[old:]
}

// slowest is the metric of the slowest of the instances that answered as many requests as a judge needs.
func (r *recent) slowest(m quell.Metric) (most float64) {
	latencies := map[string][]time.Duration{}
	for _, s := range r.samples {
		if !s.Failed() {
			latencies[s.Instance] = append(latencies[s.Instance], s.Latency())
		}
	}
	for _, of := range latencies {
		if len(of) >= r.of.Requests {
			summary := scenario.Summarize(of)
			v, _ := summary.Of(m)
			most = max(most, v)
		}
	}
	return most
}
