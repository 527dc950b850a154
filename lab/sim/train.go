package sim

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/loadgen"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/train"
)

// Trainer makes training runs on a simulated machine like the scenario's first host, probed as the scenario's instances will be. It keeps
// no state between runs, so several may run at once.
type Trainer struct {
	Scenario   *scenario.Scenario
	Discipline Discipline
	Fluid      bool
	Probing    Probing
}

var (
	_ train.Machine       = (*Trainer)(nil)
	_ train.ProbedMachine = (*Trainer)(nil)
)

// Plan is the full plan of experiments with longer runs, which cost only computing time here.
func Plan() train.Plan {
	p := train.Full()
	p.Run, p.WarmUp = time.Minute, 5*time.Second
	return p
}

// Train makes every run of the plan for every resource that is probed and used, in virtual time, on all processors at once. The rows are
// ordered by resource, then by seed: equal arguments give equal rows.
func Train(ctx context.Context, sc *scenario.Scenario, plan train.Plan, seed uint64) (rows []model.TrainingRow, err error) {
	if err := sc.Validate(); err != nil {
		return nil, &quell.UserError{Err: err}
	}
	resources, err := trained(sc)
	if err != nil {
		return nil, err
	}
	machines := make([]train.Machine, runtime.GOMAXPROCS(0))
	for i := range machines {
		machines[i] = &Trainer{
			Scenario: sc, Discipline: sc.Stations.Discipline, Fluid: sc.Stations.Neighbours == scenario.Fluid, Probing: Probing(sc.Probing),
		}
	}
	for _, r := range resources {
		own := seed
		if r != quell.Network {
			own += trainingSeeds * uint64(1+kindOf(r))
		}
		part, err := train.Run(ctx, train.Options{Plan: planOf(sc, plan, r), Resource: r, Machines: machines, Seed: own})
		if err != nil {
			return nil, err
		}
		rows = append(rows, part...)
	}
	return rows, nil
}

// trainingSeeds separates the seeds of one resource's runs from those of another resource.
const trainingSeeds = 1 << 40

// trained lists the resources that are probed and that requests use, or in which neighbours slow requests down.
func trained(sc *scenario.Scenario) (list []quell.Resource, err error) {
	probed := sc.Probing.Probed()
	for _, r := range probed {
		if ownPart(sc, r) > 0 {
			list = append(list, r)
		}
	}
	if len(list) > 0 {
		return list, nil
	}
	return nil, &quell.UserError{Err: fmt.Errorf("workload.classes: nothing uses the %s, which the probes measure: training would learn "+
		"nothing; set probing.resources to what requests use, give --models, or run policies that need none", probed[0])}
}

// told is the resource whose utilisation stands for that of r. For memory it is the processors, if requests have no demand for memory;
// see substitute.
func told(sc *scenario.Scenario, r quell.Resource) quell.Resource {
	if r == quell.Memory && sc.Workload.CacheStretch > 0 && sc.Workload.Demands(sc.Hosts[0])[r] == 0 {
		return quell.CPU
	}
	return r
}

// ownPart is how much of a resource the service uses at a load of 1. Such a load fills the resource that requests use most.
func ownPart(sc *scenario.Scenario, r quell.Resource) float64 {
	return sc.Workload.Demands(sc.Hosts[0])[told(sc, r)] * sc.RatePerSecond(1)
}

// planOf adapts a plan to a resource. Levels of load refer to the resource that requests use most; on the resource r, neighbours take
// what the service leaves there.
func planOf(sc *scenario.Scenario, plan train.Plan, r quell.Resource) train.Plan {
	part := ownPart(sc, r)
	if len(plan.Only) > 0 || quell.AtMost(1, part) {
		return plan
	}
	most := cmp.Or(plan.Most, train.Busiest)
	uses := slices.Clone(plan.Interference)
	for step := 0.1; quell.AtMost(uses[len(uses)-1]+step, 0.8); {
		uses = append(uses, uses[len(uses)-1]+step)
	}
	for _, use := range uses {
		for _, level := range plan.Levels {
			if quell.AtMost(level*part+use, most) {
				plan.Only = append(plan.Only, train.Cell{Level: level, Interference: use})
			}
		}
	}
	return plan
}

// Measure implements train.Machine.
func (t *Trainer) Measure(ctx context.Context, r train.RunRequest) (model.TrainingRow, error) {
	plan, err := t.Probing.planOf(r.Resource, t.Scenario.Service.Sampling, t.Scenario.Hosts[0])
	if err != nil {
		return model.TrainingRow{}, err
	}
	row, _, err := t.run(ctx, r, plan)
	return row, err
}

// Probes implements train.ProbedMachine.
func (t *Trainer) Probes(ctx context.Context, r train.RunRequest, p train.Probing) ([]float64, error) {
	if r.Resource != quell.Network {
		return nil, &quell.UserError{Err: fmt.Errorf("probes of %s have a fixed size: only those of the %s can be chosen", r.Resource,
			quell.Network)}
	}
	_, singles, err := t.run(ctx, r, probePlan{
		resource: r.Resource, count: p.Count, spacing: p.Spacing().Seconds(),
		class: class{{kindOf(r.Resource), always(float64(p.Bytes) + headerBytes)}},
	})
	return singles, err
}

// run returns the row of a run and its single probe times.
func (t *Trainer) run(ctx context.Context, r train.RunRequest, plan probePlan) (model.TrainingRow, []float64, error) {
	sc := t.Scenario
	r.WarmUp, r.Run = settled(&sc.Workload, r.WarmUp, r.Run)
	arrivals, err := loadgen.NewArrivals(loadgen.ArrivalOptions{
		Process: processOf(sc.Workload.Arrivals), Duration: r.WarmUp + r.Run, Seed: r.Seed,
		Rate: []loadgen.Step{{PerSecond: sc.RatePerSecond(r.Level)}},
	})
	if err != nil {
		return model.TrainingRow{}, nil, err
	}
	e, err := t.prepare(r, plan)
	if err != nil {
		return model.TrainingRow{}, nil, err
	}
	var w *windows
	if r.Alternate == nil {
		e.w.interfere(0, r.Resource, r.Interference, t.Fluid)
	} else {
		w = e.alternate(r, t.Fluid)
	}
	row, err := e.run(ctx, r, arrivals)
	if w != nil {
		row.Windows = w.list
	}
	return row, e.prober.singles, err
}

// prepare makes the machine and the clients of a run.
func (t *Trainer) prepare(r train.RunRequest, plan probePlan) (e *exercise, err error) {
	sc := t.Scenario
	world := newWorld(sc.Hosts[:1], t.Discipline, r.Seed, append(classesOf(&sc.Workload), class{{kindOf(r.Resource), always(0)}})...)
	world.cacheStretch = sc.Workload.CacheStretch
	e = &exercise{resource: r.Resource, told: told(sc, r.Resource), from: r.WarmUp.Seconds(), w: world}
	e.classes = make([][]time.Duration, len(sc.Workload.Classes))
	if e.clients, err = newClients(world, &sc.Workload, r.Seed, (r.WarmUp + r.Run).Seconds(), e.ask); err != nil {
		return nil, err
	}
	e.w.done = e.done
	e.prober = newProber(e.w, plan, 0, 0, r.Seed)
	return e, nil
}

// settled gives workloads of sessions time to become steady: before a run counts, as many sessions must end as begin.
func settled(load *scenario.Workload, warmUp, run time.Duration) (time.Duration, time.Duration) {
	if load.Kind != scenario.Video {
		return warmUp, run
	}
	length := duration(8 * float64(load.Video.Size) / load.Video.Rate)
	return max(warmUp, 2*length), max(run, 4*length)
}

// exercise is one training run.
type exercise struct {
	resource  quell.Resource
	told      quell.Resource // the resource whose utilisation stands for that of the trained one; see substitute
	w         *world
	clients   *clients
	prober    *prober
	from      float64 // when the run begins to count
	open      int
	asked     int // requests so far
	latencies []time.Duration
	classes   [][]time.Duration // the response times by class, if the workload's classes have names
	connects  []float64         // how long connections took, in milliseconds
	usedAt    [kinds]float64    // what each resource had carried for the service when the run began to count
	signsAt   signs             // what the host had counted by then
	row       model.TrainingRow
	over      bool
}

func (e *exercise) run(ctx context.Context, r train.RunRequest, arrivals *loadgen.Arrivals) (model.TrainingRow, error) {
	e.row = model.TrainingRow{Resource: r.Resource, Level: r.Level, InterferingLevel: &r.Interference, Seed: r.Seed,
		DurationS: r.Run.Seconds(), Observation: &quell.Observation{}}
	e.w.agenda.add(e.from, func() { e.measure(r.Run.Seconds()) })
	for events := 0; !e.over || e.open > 0; events++ {
		if events&0xffff == 0 && ctx.Err() != nil {
			return e.row, ctx.Err()
		}
		if err := e.offer(arrivals); err != nil {
			return e.row, err
		}
	}
	if len(e.latencies) == 0 {
		return e.row, fmt.Errorf("no request was made in %v: %w", r.Run, quell.ErrNoData)
	}
	e.row.Requests = int64(len(e.latencies))
	e.row.RequestRate = float64(len(e.latencies)) / r.Run.Seconds()
	e.row.LatencyMS = scenario.Summarize(e.latencies)
	e.observe(r.Run.Seconds())
	return e.row, nil
}

// observe adds to the row's observation what clients measured of the service, as a balancer would report it.
func (e *exercise) observe(length float64) {
	o, rate, failed, latency := e.row.Observation, e.row.RequestRate, 0.0, e.row.LatencyMS // copies: the row outlives the exercise
	o.RequestRate, o.ErrorRate, o.LatencyMS = &rate, &failed, &latency
	if len(e.connects) > 0 && o.TCP != nil {
		o.TCP["connect_ms_p90"] = p90(e.connects)
	}
	if len(e.classes) == 0 {
		return
	}
	o.RequestRates, o.LatencyByClassMS = map[string]float64{}, map[string]quell.Latency{}
	for i, latencies := range e.classes {
		name := e.clients.load.Classes[i].Name
		o.RequestRates[name] = float64(len(latencies)) / length
		if len(latencies) > 0 {
			o.LatencyByClassMS[name] = scenario.Summarize(latencies)
		}
	}
}

// sense adds to the row's observation what the machine's sensors would measure.
func (e *exercise) sense(length float64) {
	o := e.row.Observation
	o.At, o.WindowS, o.Utilization = time.Unix(0, int64(duration(e.w.now))).UTC(), length, map[quell.Resource]float64{}
	for _, k := range resourcesOf(e.clients.classes) {
		o.Utilization[quell.Resources[k]] = min(1, max(0, (e.w.peek(0, k, ownService)-e.usedAt[k])/length))
	}
	o.Utilization[e.resource] = e.row.Utilization
	machineSigns(o, e.clients.load, e.w.hosts[0].Cores, e.signsAt, e.w.signs(0))
}

// offer plays the world until the next request arrives and submits it.
func (e *exercise) offer(arrivals *loadgen.Arrivals) error {
	after, ok := arrivals.Next()
	if !ok {
		if e.w.nextEvent() < e.from+2*e.row.DurationS+clientTimeout {
			e.w.step()
			return nil
		}
		return fmt.Errorf("requests do not end: a utilisation of %v beside %v is too much", e.row.Level, *e.row.InterferingLevel)
	}
	for e.w.nextEvent() <= after.Seconds() {
		e.w.step()
	}
	e.w.now = after.Seconds()
	e.clients.arrive()
	return nil
}

func (e *exercise) ask(o order) {
	if ms, ok := e.w.connectMS(0); ok && e.w.now >= e.from {
		e.connects = append(e.connects, ms)
	}
	ref := e.w.submitSized(o.work, o.size, ownService, 0, 0)
	e.w.requests[ref].session, e.w.requests[ref].sort = o.session, o.class
	e.open++
	e.asked++
}

func (e *exercise) done(ref int32) {
	r := &e.w.requests[ref]
	if r.owner == ownProbe {
		e.prober.arrived(ref)
		return
	}
	if r.entered >= e.from {
		latency := duration(e.w.now - r.entered)
		e.latencies = append(e.latencies, latency)
		if len(e.classes) > 0 {
			e.classes[r.sort] = append(e.classes[r.sort], latency)
		}
	}
	e.open--
	e.clients.answered(r.session)
	e.w.leave(ref)
}

// measure sends probes and reads utilisations during the part of the run that counts.
func (e *exercise) measure(length float64) {
	own, neighbours := e.carried()
	e.signsAt = e.w.signs(0)
	for _, k := range resourcesOf(e.clients.classes) {
		e.usedAt[k] = e.w.peek(0, k, ownService)
	}
	e.prober.window(e.w.now, length, max(2, int(length/e.prober.plan.spacing)), func() {
		p, _ := e.prober.statistics()
		e.row.ProbeMS, e.row.By = model.ProbeRun{Mean: p.MeanMS, Stddev: p.StddevMS, N: p.N}, p.By
		e.row.Observation.Probe = map[quell.Resource]quell.ProbeStats{e.resource: p}
	})
	e.w.agenda.add(e.w.now+length, func() {
		ownAfter, neighboursAfter := e.carried()
		e.row.Utilization = min(1, max(0, (ownAfter-own)/length))
		e.row.Interfering = min(1, max(0, (neighboursAfter-neighbours)/length))
		e.sense(length)
		e.w.agenda.add(e.w.now+e.prober.plan.spacing, func() { e.over = true }) // the last probe has returned by then
	})
}

// carried is how much of the resource the service and its neighbours have used so far, in seconds of the whole resource.
func (e *exercise) carried() (own, neighbours float64) {
	neighbours = e.w.carried(0, e.resource, ownNeighbours)
	s := &e.w.stations[e.w.hosts[0].stations[kindOf(e.resource)]]
	return e.w.carried(0, e.told, ownService), neighbours + (1-s.share)*e.w.now
}
