// Package sim plays scenarios in virtual time. It is a deterministic simulator of single requests. Hosts, their links and the requests on
// them are simulated. For arrivals, balancing, policies, the guard of their decisions and the judging it uses the packages of the live
// system. It reads no clock and opens no connection or file: equal options give equal results, byte for byte.
package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/life"
	"github.com/quellhq/quell/loadgen"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// Options of a run. Scenario and Run are required. If another field is zero, the run does the same as on the emulated rig.
type Options struct {
	Scenario *scenario.Scenario // Run does not change it
	Run      scenario.Run
	Models   *model.Models // nil for policies that need no models
	Seed     uint64        // 0: the scenario's

	// The scenario can set the following, too. A field here that is not zero takes precedence.
	Discipline Discipline
	Fluid      bool // neighbours take their share evenly; see scenario.Neighbours
	Probing    Probing
	Faults     Faults
	Failures   []Failure
	WarmUp     time.Duration // how long the first load is offered before measuring starts; 0: four sampling periods

	Renewals []Renewal // replacements of instances that a person asks for

	// Strain is the utilisation up to which a bound may load machines, as a share of their capacity within the objective. Other
	// policies ignore it. The capacity is computed by the laws of queueing for one instance. 0: the value that turns out best; see hindsight.
	Strain float64

	Begin policy.State       // the controller's memory at the beginning, such as what it learned in an earlier run
	End   func(policy.State) // if not nil, called with the controller's memory at the end

	// Settings are parameters of the server on every instance, by name. Agents report them, and plans change them. They have no effect on how
	// long requests take.
	Settings map[string]float64

	// Sticky is the mean number of requests for which a user stays with one instance, as with a cookie of the balancer; 0: every request is
	// balanced. It has an effect on workloads of users only.
	Sticky int

	Windows   func(Window)          // if not nil, called with every judge window after its end, in order
	Snapshots func(*quell.Snapshot) // if not nil, called with every snapshot before the decision on it, in order
	Plans     func(*quell.Plan)     // if not nil, called with every plan, in order

	// Credits, if not nil, is called every minute with the balances of the instances that run, by the names of their hosts. It is called
	// only if the scenario's instances have credits.
	Credits func(at time.Duration, balances map[string]float64)

	// FastPlans is, if not nil, called with every plan of the fast policy, and with the snapshot of its decision. at is the time since
	// measuring began; it is negative during the warm-up.
	FastPlans func(at time.Duration, s *quell.Snapshot, p *quell.Plan)

	// ProberLink, if not nil, returns how many seconds a probe of a link waits on the prober's own link at a time since measuring began.
	ProberLink func(at time.Duration) float64

	check func(*simulation) error // for tests: called at the end
}

// Run plays one run of a scenario and measures it as the live rig does. It fails if the scenario has mistakes or models are missing.
// Overload is a result, not an error.
func Run(ctx context.Context, o Options) (scenario.Result, error) {
	if Bound(o.Run.Policy.Name) && o.Strain == 0 {
		return hindsight(ctx, o)
	}
	s, err := newSimulation(o)
	if err != nil {
		return scenario.Result{}, err
	}
	if err := s.play(ctx); err != nil {
		return scenario.Result{}, err
	}
	if o.check != nil {
		if err := o.check(s); err != nil {
			return scenario.Result{}, err
		}
	}
	if o.End != nil {
		o.End(s.state)
	}
	return s.result(), nil
}

// simulation is the state of one call of Run.
type simulation struct {
	Options
	seed     uint64
	service  quell.Service
	w        *world
	used     []kind // resources that the workload uses
	clients  *clients
	arrivals *loadgen.Arrivals // nil: users bring the load
	intended time.Duration     // of the newest request, since measuring started
	rng      *rand.Rand        // for the phases of periods and for faults
	probes   [][]probePlan     // how the resources are probed, by host

	boot, zero, end float64 // when load begins, when measuring starts, when both load and measuring end
	sampled         float64 // when the last snapshot was taken
	reportedAt      float64 // when the balancer's last window ended; before its first one, when load began
	offered         float64 // requests per second during the balancer's last window
	phase           float64 // sampling periods end this much after whole multiples of their length

	instances []*instance          // every instance that was ever started
	members   []*instance          // those that the scaler would list, in order of start
	byID      map[string]*instance // of members
	fleet     *life.Fleet          // what the controller knows of them
	roster    []life.Instance      // memory that look uses again
	steps     life.Steps           // memory that follow uses again
	weights   map[string]float64   // from the last plan
	spreading bool                 // a call of spread is on the agenda
	showing   bool                 // the provider shows balances at the next call of showCredits
	usedHosts int
	freed     []int // free hosts; the first has been free for longest
	paid      float64
	most      int

	balancer  *balancer
	cookies   []*instance // by user: the instance of the present session; see Sticky
	ejection  *ejection   // nil if the run has none
	patience  float64     // how long a request may take
	deadlines deadlines
	patrol    bool // a call of giveUp is on the agenda
	traffic   traffic
	account   *account
	evenness  evenness
	erring    erring

	engine    *policy.Engine
	fast      *fastStep  // nil without a fast policy
	foresight *foresight // only for bounds
	state     policy.State
	changes   []time.Duration
}

// validate returns the errors of the options themselves, each a *quell.InvalidError, joined.
func (o *Options) validate() error {
	held := len(o.Scenario.Instances.Weights)
	var errs []error
	for _, rule := range []struct {
		holds         bool
		path, problem string
	}{
		{o.Discipline == "" || slices.Contains(scenario.Disciplines, o.Discipline), "discipline", "unknown, known are sharing and fcfs"},
		{o.Probing.Count == 0 || o.Probing.Count >= leastProbes, "probing.count", "too few to tell interference from chance: at least 8"},
		{o.Probing.Budget >= 0 && o.Probing.Budget <= 1, "probing.budget", "must be a share of the link"},
		{o.Faults.Noise >= 0 && o.Faults.Noise <= 1, "faults.noise", "must be a share from 0 to 1"},
		{o.Faults.Lost >= 0 && o.Faults.Lost <= 1, "faults.lost", "must be a share from 0 to 1"},
		{o.Faults.Late >= 0, "faults.late", "must not be negative"},
		{o.WarmUp >= 0, "warm_up", "must not be negative"},
		{held == 0 || held == o.Scenario.Initial(o.Run), "instances.weights", "must be as many as the run begins with"},
		{o.Strain >= 0 && o.Strain <= mostStrain, "strain", "must be a share of what machines carry"},
	} {
		if !rule.holds {
			errs = append(errs, &quell.InvalidError{Path: rule.path, Problem: rule.problem})
		}
	}
	for i, r := range o.Renewals {
		if hostIndex(o.Scenario, r.Host) < 0 || r.At < 0 {
			errs = append(errs, &quell.InvalidError{Path: fmt.Sprintf("renewals[%d]", i),
				Problem: fmt.Sprintf("host %q at %v: must be a host of the scenario and a moment of it", r.Host, r.At)})
		}
	}
	for i, f := range o.Failures {
		if hostIndex(o.Scenario, f.Host) < 0 || f.At < 0 {
			errs = append(errs, &quell.InvalidError{Path: fmt.Sprintf("failures[%d]", i),
				Problem: fmt.Sprintf("host %q at %v: must be a host of the scenario and a moment of it", f.Host, f.At)})
		}
	}
	return errors.Join(errs...)
}

// playable returns what the simulator cannot play, as a *quell.InvalidError.
func playable(sc *scenario.Scenario) error {
	for i, e := range sc.Timeline {
		if n := e.Interfere; n != nil && n.Program != "" {
			return &quell.InvalidError{Path: fmt.Sprintf("timeline[%d].interfere.program", i),
				Problem: fmt.Sprintf("%s is a real program: use quell lab run, or give a resource and its use", n.Program)}
		}
	}
	return nil
}

func newSimulation(o Options) (*simulation, error) {
	if o.Scenario == nil {
		return nil, errors.New("a simulation needs a scenario")
	}
	if err := errors.Join(o.Scenario.Validate(), o.validate()); err != nil {
		return nil, &quell.UserError{Err: err}
	}
	if err := playable(o.Scenario); err != nil {
		return nil, &quell.UserError{Err: err}
	}
	s := &simulation{Options: o, state: o.Begin, seed: o.Seed, intended: math.MinInt64, byID: map[string]*instance{}}
	memory := life.NewMemory()
	s.fleet = life.NewFleet(&memory)
	if s.seed == 0 {
		s.seed = o.Scenario.Seed
	}
	sc := o.Scenario
	if s.WarmUp == 0 {
		s.WarmUp = sc.WarmUp
	}
	if s.Faults == (Faults{}) {
		s.Faults = Faults(sc.Readings)
	}
	if s.Discipline == "" {
		s.Discipline = sc.Stations.Discipline
	}
	s.Fluid = s.Fluid || sc.Stations.Neighbours == scenario.Fluid
	if scenario.Probing(s.Probing).IsZero() {
		s.Probing = Probing(sc.Probing)
	}
	s.Failures = slices.Clone(s.Failures)
	for _, f := range sc.Failures() {
		s.Failures = append(s.Failures, Failure(f))
	}
	if s.WarmUp == 0 {
		s.WarmUp = 4 * sc.Service.Sampling
	}
	s.rng = rand.New(rand.NewPCG(s.seed, 2))
	s.boot = sc.Instances.Startup.Seconds()
	s.reportedAt = s.boot
	s.zero = s.boot + s.WarmUp.Seconds()
	s.end = s.zero + sc.Duration.Seconds()
	s.account = newAccount(scenario.JudgeOptions{SLO: sc.Service.SLO, Duration: sc.Duration, Judging: sc.Judge})
	s.account.watch = o.Windows
	for _, prepare := range []func() error{s.prepareHosts, s.prepareLoad, s.preparePolicy} {
		if err := prepare(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *simulation) prepareHosts() (err error) {
	load := &s.Scenario.Workload
	classes := classesOf(load)
	s.used = resourcesOf(classes)
	s.w = newWorld(s.Scenario.Hosts, s.Discipline, s.seed, append(classes, s.Probing.classes()...)...)
	s.w.done, s.w.answers, s.w.cacheStretch = s.done, s.answers, load.CacheStretch
	if o := &s.Options; o.ProberLink != nil {
		s.w.proberLink = func(now float64) float64 { return o.ProberLink(duration(now - s.zero)) }
	}
	if s.clients, err = newClients(s.w, load, s.seed, s.end, s.ask); err != nil {
		return err
	}
	if err := s.clients.mixOver(s.Scenario, s.boot, s.zero); err != nil {
		return err
	}
	for _, h := range s.Scenario.Hosts {
		plans, err := s.Probing.plans(s.Scenario.Service.Sampling, h)
		if err != nil {
			return err
		}
		s.probes = append(s.probes, plans)
	}
	for _, f := range s.Failures {
		s.w.agenda.add(s.zero+f.At.Seconds(), func() { s.crash(f) })
	}
	for _, e := range s.Scenario.Erring() {
		host := hostIndex(s.Scenario, e.Host)
		s.w.agenda.add(s.zero+e.At.Seconds(), func() { s.erring.set(host, e.Share, s.seed) })
	}
	for _, r := range s.Scenario.Releases() {
		host := &s.w.hosts[hostIndex(s.Scenario, r.Host)]
		s.w.agenda.add(s.zero+r.At.Seconds(), func() { host.demand = r.Demand })
	}
	for _, r := range s.Renewals {
		s.w.agenda.add(s.zero+r.At.Seconds(), func() { s.renew(r.Host) })
	}
	return nil
}

func (s *simulation) prepareLoad() (err error) {
	s.arrivals, err = s.newArrivals()
	return err
}

// newArrivals makes the same arrivals as on the live rig. The first rate also holds during the warm-up. If users make the requests, there
// are no arrivals, and it returns nil.
func (s *simulation) newArrivals() (*loadgen.Arrivals, error) {
	if s.Scenario.Workload.Kind == scenario.Users {
		return nil, nil
	}
	var rates []loadgen.Step
	for i, step := range s.Scenario.Rates() {
		at := step.At + s.WarmUp
		if i == 0 {
			at = 0
		}
		rates = append(rates, loadgen.Step{At: at, PerSecond: step.PerSecond})
	}
	return loadgen.NewArrivals(loadgen.ArrivalOptions{
		Process: processOf(s.Scenario.Workload.Arrivals), Rate: rates, Duration: s.WarmUp + s.Scenario.Duration, Seed: s.seed,
	})
}

// processOf is the distribution of the gaps between arrivals.
func processOf(a scenario.Arrivals) loadgen.Process {
	switch a {
	case scenario.Deterministic, scenario.Bursty, scenario.Synchronised:
		return loadgen.Process(a)
	}
	return loadgen.Poisson
}

func (s *simulation) preparePolicy() (err error) {
	s.service = s.Scenario.Service
	s.service.Policy, s.service.Scheduling = s.Scenario.PolicyOf(s.Run), s.Run.Scheduling
	s.service.IdleFirst = idleFirst(s.Run)
	if n := s.Scenario.Size(s.Run); n > 0 {
		s.service.Group.Min, s.service.Group.Max = n, n
	}
	s.service.Group.Initial = s.Scenario.Initial(s.Run)
	if s.engine, err = s.newEngine(); err != nil {
		return err
	}
	if err = s.newFastStep(); err != nil {
		return err
	}
	if Bound(s.Run.Policy.Name) {
		if err = s.foresee(); err != nil {
			return err
		}
	}
	s.newEjection()
	s.balancer, err = newBalancer(s.Run, s.seed)
	return err
}

// play runs the events in order. After the end of the load it continues until the last request has ended.
func (s *simulation) play(ctx context.Context) error {
	s.schedule()
	arrival, _ := s.after(s.arrivals)
	for events := 0; s.w.now < s.end || s.traffic.open > 0; events++ {
		if events&0xffff == 0 {
			if err := s.mayGoOn(ctx); err != nil {
				return err
			}
		}
		if arrival < s.w.nextEvent() {
			s.w.now = arrival
			s.clients.arrive()
			arrival, _ = s.after(s.arrivals)
			continue
		}
		s.w.step()
	}
	return nil
}

// mostOpen is how many requests may be open at once. It limits the memory that an overload takes to a few GB.
const mostOpen = 10_000_000

func (s *simulation) mayGoOn(ctx context.Context) error {
	if s.traffic.open > mostOpen {
		return &quell.UserError{Err: fmt.Errorf("workload.load: more than %d requests are open at once, which fills memory: offer less, or "+
			"larger requests", mostOpen)}
	}
	return ctx.Err()
}

// after is when the next request or session arrives, in seconds of the simulated time. ok is false if there is none.
func (s *simulation) after(arrivals *loadgen.Arrivals) (at float64, ok bool) {
	if arrivals != nil {
		if after, ok := arrivals.Next(); ok {
			return s.boot + after.Seconds(), true
		}
	}
	return math.Inf(1), false
}

// schedule puts everything on the agenda that is known beforehand. The sampling periods of balancer, agents and controller end at the same
// moments; the first of these moments is random.
func (s *simulation) schedule() {
	period := s.service.Sampling
	firstEnd := s.boot + s.rng.Float64()*period.Seconds()
	s.phase = math.Mod(firstEnd, period.Seconds())
	s.order(life.First(s.service.Group), "")
	s.hasten(firstEnd)
	s.w.agenda.add(firstEnd, s.report)
	s.w.agenda.add(firstEnd+tick.Settle(period).Seconds(), s.sample)
	s.w.agenda.add(life.Watch(period).Seconds(), s.tend)
	hosts := map[string]int{}
	for i, h := range s.Scenario.Hosts {
		hosts[h.ID] = i
	}
	for _, c := range s.Scenario.Disturbances(s.seed) {
		s.w.agenda.add(s.zero+c.At.Seconds(), func() {
			if c.Own {
				s.w.chore(hosts[c.Host], c.Resource, c.Use)
			} else {
				s.w.interfere(hosts[c.Host], c.Resource, c.Use, s.Fluid)
			}
		})
	}
	s.scheduleUsers(s.w, s.clients)
	s.scheduleCredits()
	s.beginSweeps()
}

// scheduleUsers puts the arrivals and departures of users on the agenda of a world.
func (s *simulation) scheduleUsers(stage *world, c *clients) {
	if s.Scenario.Workload.Kind != scenario.Users {
		return
	}
	stage.agenda.add(s.boot, func() { c.setUsers(s.Scenario.Workload.Users) })
	for _, e := range s.Scenario.Timeline {
		if e.Users != nil {
			stage.agenda.add(s.zero+e.At.Seconds(), func() { c.setUsers(*e.Users) })
		}
	}
}

func (s *simulation) result() scenario.Result {
	sc, verdict, cost := s.Scenario, s.account.verdict(), s.instanceSeconds()
	r := scenario.Result{
		Scenario: sc.Name, Policy: s.Run.Policy.Name, Scheduling: s.Run.Scheduling, Fixed: sc.Size(s.Run), Seed: s.seed,
		DurationS: sc.Duration.Seconds(), Requests: verdict.Requests, Errors: verdict.Errors, LatencyMS: verdict.LatencyMS, SLO: verdict.SLO,
		InstanceSeconds: cost, MeanInstances: cost / sc.Duration.Seconds(), MaxInstances: s.most, Decisions: len(s.changes),
		SurplusUSD: s.surplus(), LargestOverMean: s.evenness.result(),
	}
	if r.Fixed == 0 || s.fast != nil || s.ejection != nil {
		r.ReactionS = scenario.Reactions(sc.Marks(), s.changes)
	}
	return r
}
