package sim

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/table"
)

// Policies lists what Run can play: the policies that can be configured, and the bounds, which only a simulator can have.
func Policies() []string {
	names := append(table.All.Names(), Bounds...)
	slices.Sort(names)
	return names
}

func (s *simulation) newEngine() (*policy.Engine, error) {
	switch name := s.service.Policy.Name; name {
	case Clairvoyant:
		return newClairvoyant(s.service, func() *Truth { return s.foresight.truth() }), nil
	case Present:
		return newBound(s.service, name, func() *outlooks { return s.foresight.present() }), nil
	case Foresight:
		return newBound(s.service, name, func() *outlooks { return s.foresight.coming() }), nil
	}
	if s.Run.Models == scenario.Learn {
		return table.All.NewLearningEngine(s.service, nil)
	}
	return table.All.NewEngine(s.service, s.Models)
}

// Strains are the values of Options.Strain that hindsight tries.
var Strains = []float64{0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.7}

const mostStrain = 100

// hindsight plays a bound's run with every strain and returns the best result: among those with the least violation, the cheapest.
func hindsight(ctx context.Context, o Options) (best scenario.Result, err error) {
	whole := o
	o.Windows, o.Plans, o.End, o.check = nil, nil, nil, nil
	for _, strain := range Strains {
		o.Strain = strain
		r, err := Run(ctx, o)
		if err != nil {
			return scenario.Result{}, err
		}
		if whole.Strain == 0 || better(&r, &best) {
			best, whole.Strain = r, strain
		}
	}
	if whole.Windows == nil && whole.Plans == nil && whole.End == nil && whole.check == nil {
		return best, nil
	}
	return Run(ctx, whole)
}

func better(a, b *scenario.Result) bool {
	return cmp.Or(cmp.Compare(a.SLO.ViolationS, b.SLO.ViolationS), cmp.Compare(a.InstanceSeconds, b.InstanceSeconds)) < 0
}

// foresight knows the future of a simulation: the work that will be requested, the neighbours' use, and which machines will fail.
type foresight struct {
	s     *simulation
	asked []float64             // requests in each interval of binSeconds, from boot on
	uses  [][2 * kinds][]moment // what neighbours use, by host and resource, and then what own work does
	fails map[int][]float64     // when the instance on a host fails
	needs map[int][]moment      // the demands of the releases on a host
	laws  map[conditions]*law   // the laws computed so far

	grouped *pool // the law of the group; nil: not computed yet
}

// moment is a change of neighbours' use, or of a release's demand: the time, and the value from then on.
type moment struct{ at, use float64 }

const binSeconds = 0.1

func (s *simulation) foresee() error {
	f := &foresight{s: s, uses: make([][2 * kinds][]moment, len(s.w.hosts)), fails: map[int][]float64{}, needs: map[int][]moment{},
		laws: map[conditions]*law{}}
	for _, c := range s.Scenario.Disturbances(s.seed) {
		k := kindOf(c.Resource)
		if c.Own {
			k += kinds
		}
		uses := &f.uses[hostIndex(s.Scenario, c.Host)][k]
		*uses = append(*uses, moment{s.zero + c.At.Seconds(), c.Use})
	}
	for _, c := range s.Failures {
		host := hostIndex(s.Scenario, c.Host)
		f.fails[host] = append(f.fails[host], s.zero+c.At.Seconds())
	}
	for _, r := range s.Scenario.Releases() {
		host := hostIndex(s.Scenario, r.Host)
		f.needs[host] = append(f.needs[host], moment{s.zero + r.At.Seconds(), r.Demand})
	}
	s.foresight = f
	return f.dryRun()
}

// dryRun lets the clients, with the seed of the run, make their requests to a service that answers at once, and counts the requests.
// Open arrivals are exactly those of the run. Users make as many requests as they would if answers took no time.
func (f *foresight) dryRun() error {
	s := f.s
	f.asked = make([]float64, int((s.end-s.boot)/binSeconds)+1)
	stage := &world{}
	var clients *clients
	clients, err := newClients(stage, &s.Scenario.Workload, s.seed, s.end, func(o order) {
		bin := min(int((stage.now-s.boot)/binSeconds), len(f.asked)-1)
		f.asked[bin] += o.size * o.work[0].amount.next() / clients.classes[o.class][0].amount.next()
		clients.answered(o.session)
	})
	if err == nil {
		err = clients.mixOver(s.Scenario, s.boot, s.zero)
	}
	if err != nil {
		return err
	}
	arrivals, err := s.newArrivals()
	if err != nil {
		return err
	}
	s.scheduleUsers(stage, clients)
	for {
		next, open := s.after(arrivals)
		for stage.agenda.next() < next {
			e := stage.agenda.pop()
			stage.now = e.at
			e.do()
		}
		if !open {
			return nil
		}
		stage.now = next
		clients.arrive()
	}
}

// truth returns what the clairvoyant may know now.
func (f *foresight) truth() *Truth {
	s := f.s
	period := s.service.Sampling.Seconds()
	startup := int(s.Scenario.Instances.Startup.Seconds()/period+1e-9) + 1
	t := &Truth{Load: make([]float64, startup+2), Startup: startup, Strain: s.Strain, Machines: make(map[string]Machine, len(s.members))}
	for i := range t.Load {
		at := s.w.now + float64(i)*period
		t.Load[i] = f.load(at-period/2, at+period*3/2)
	}
	for _, in := range s.members {
		if in.state == quell.Failed || s.leaves(in) {
			continue
		}
		t.Machines[in.id] = &outlook{f, in.host, in.started + s.Scenario.Instances.Startup.Seconds()}
	}
	for _, host := range s.freeHosts() {
		t.Free = append(t.Free, &outlook{f, host, s.w.now + s.Scenario.Instances.Startup.Seconds()})
	}
	return t
}

// load is the mean rate of requests during an interval.
func (f *foresight) load(from, to float64) float64 {
	first := min(max(0, int((from-f.s.boot)/binSeconds)), len(f.asked)-1)
	last := min(max(first+1, int((to-f.s.boot)/binSeconds)), len(f.asked))
	sum := 0.0
	for _, n := range f.asked[first:last] {
		sum += n
	}
	return sum / (float64(last-first) * binSeconds)
}

// outlook is the future of an instance on a host.
type outlook struct {
	f     *foresight
	host  int
	ready float64
}

// Within implements Machine.
func (o *outlook) Within(period int, ms float64) float64 {
	s := o.f.s
	length := s.service.Sampling.Seconds()
	from := s.w.now + float64(period)*length
	if from < o.ready-1e-9 || o.fails(from+2*length) {
		return 0
	}
	return o.f.law(o.host, from, from+length).within(ms / 1000)
}

// fails says whether the instance will have failed by a time.
func (o *outlook) fails(by float64) bool {
	return slices.ContainsFunc(o.f.fails[o.host], func(at float64) bool { return at >= o.f.s.w.now && at < by })
}

// law is the law of a host during an interval, under the largest use by neighbours of each resource in this interval.
func (f *foresight) law(host int, from, to float64) *law {
	c := f.conditions(host, from, to)
	l := f.laws[c]
	if l == nil {
		l = f.s.newLaw(host, c)
		f.laws[c] = l
	}
	return l
}

// most returns the largest use during an interval. An interval without length is a moment.
func most(uses []moment, from, to float64) (most float64) {
	for i, m := range uses {
		over := math.Inf(1)
		if i+1 < len(uses) {
			over = uses[i+1].at
		}
		if (m.at < to || m.at <= from) && over > from {
			most = max(most, m.use)
		}
	}
	return most
}

// conditions are those of a host during an interval, with the largest use of each resource by neighbours and by own work.
func (f *foresight) conditions(host int, from, to float64) conditions {
	h := &f.s.w.hosts[host]
	c := conditions{network: h.Network, cores: h.Cores, disk: h.DiskIOPS, memory: h.Memory, demand: f.demand(host, to)}
	for k := range c.uses {
		c.uses[k] = most(f.uses[host][k], from, to) + most(f.uses[host][k+kinds], from, to)
	}
	return c
}

// demand is what a request on a host needs just before a time.
func (f *foresight) demand(host int, before float64) float64 {
	demand := 1.0
	for _, m := range f.needs[host] {
		if m.at < before {
			demand = m.use
		}
	}
	return demand
}

// freeHosts lists the hosts that start would take, in its order.
func (s *simulation) freeHosts() []int {
	var hosts []int
	for i := s.usedHosts; i < len(s.Scenario.Hosts); i++ {
		hosts = append(hosts, i)
	}
	return append(hosts, s.freed...)
}
