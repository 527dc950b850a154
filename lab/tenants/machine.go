// Package tenants simulates a machine whose tenants, which are control groups, share its processors, under a policy for hosts. It is a
// model of the kernel's scheduler: it divides processor time by weights among the tasks that are ready, and stops a group that has used up
// its quota until the next period of 100 ms. Runs with the same options are the same.
package tenants

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/quellhq/quell/sensor"
)

// Tenant is a control group, and what its programs do.
type Tenant struct {
	Name  string
	Tasks int           // that work side by side
	Burst time.Duration // processor time, as alone, that a task needs between two sleeps; the mean
	Sleep time.Duration // the mean; 0: tasks never sleep
	Vary  float64       // of bursts and sleeps: 0, all are alike; 1, they have an exponential distribution

	// Memory is how much the programs need caches and memory that all share, from 0 to 1. Beside neighbours that use processors p of cores
	// c with Memory n, the work of a processor second falls by the factor 1 / (1 + Memory n p / c).
	Memory float64

	Away    []Span  // when the programs want nothing
	Weight  float64 // the kernel's, relative to its usual one; 0: 1
	Share   float64 // given to the policy; 0: none
	Reports bool    // it reports its progress
}

// Span is a part of a run.
type Span struct{ From, Until time.Duration }

// quotaPeriod is the kernel's usual one.
const quotaPeriod = 0.1 // seconds

// machine is the state of a simulated machine.
type machine struct {
	cores   float64
	now     float64 // seconds
	refills int     // periods of quotas that have begun
	groups  []*group
	around  []claim // the groups that the groups lie in
	claims  []claim // the groups' own
}

// claim is what a group asks for when processors are divided, and what it gets.
type claim struct{ weight, most, got float64 }

// group is the state of a tenant.
type group struct {
	Tenant
	within int // index of the group that it lies in; ascending
	rng    *rand.Rand
	tasks  []task  // empty if tasks never sleep
	weight float64 // relative to the kernel's usual one
	cap    float64 // processors; 0: none
	quota  float64 // processor seconds that are left of this period's

	ready int     // tasks that want to run
	rate  float64 // processors that it gets
	speed float64 // work of a processor second

	sums   // since the last reading
	demand sensor.Demand
}

// sums are a group's accounts, in seconds.
type sums struct{ run, wait, throttled, work float64 }

type task struct {
	left      float64 // seconds of work until it sleeps
	until     float64 // it sleeps until then
	run, wait float64 // seconds since the last reading
}

// newMachine returns a machine. A tenant's bursts and sleeps do not depend on its neighbours.
func newMachine(cores float64, tenants []Tenant, seed uint64) *machine {
	m := &machine{cores: cores, around: []claim{{weight: 1}}, claims: make([]claim, len(tenants))}
	for i, t := range tenants {
		g := &group{Tenant: t, rng: rand.New(rand.NewPCG(seed, uint64(i))), weight: usual(t.Weight), speed: 1}
		if t.Sleep > 0 {
			g.tasks = make([]task, t.Tasks)
			for j := range g.tasks {
				g.tasks[j] = task{left: g.draw(t.Burst), until: g.rng.Float64() * (t.Sleep + t.Burst).Seconds()}
			}
		}
		m.groups = append(m.groups, g)
	}
	return m
}

func usual(weight float64) float64 {
	if weight == 0 {
		return 1
	}
	return weight
}

func (g *group) draw(mean time.Duration) float64 {
	return mean.Seconds() * (1 - g.Vary + g.Vary*g.rng.ExpFloat64())
}

// until runs the machine from event to event: between two of them nothing changes.
func (m *machine) until(end float64) {
	for m.now < end {
		for m.now >= float64(m.refills)*quotaPeriod {
			for _, g := range m.groups {
				g.quota = g.cap * quotaPeriod
			}
			m.refills++
		}
		for _, g := range m.groups {
			g.ready = g.count(m.now)
		}
		m.divide()
		m.pass(m.next(end))
	}
}

// away returns whether the group wants nothing, and when that changes.
func (g *group) away(now float64) (away bool, until float64) {
	until = math.Inf(1)
	for _, s := range g.Away {
		from, end := s.From.Seconds(), s.Until.Seconds()
		switch {
		case now >= from && now < end:
			return true, end
		case now < from:
			until = min(until, from)
		}
	}
	return false, until
}

// count returns how many tasks want to run.
func (g *group) count(now float64) (ready int) {
	if away, _ := g.away(now); away {
		return 0
	}
	if g.Sleep == 0 {
		return g.Tasks
	}
	for _, t := range g.tasks {
		if t.until <= now {
			ready++
		}
	}
	return ready
}

func (g *group) stopped() bool { return g.cap > 0 && g.quota <= 0 }

// lie distributes the groups among this many groups that lie beside each other, all with the kernel's usual weight.
func (m *machine) lie(around int) {
	m.around = make([]claim, around)
	for i := range m.around {
		m.around[i].weight = 1
	}
	for i, g := range m.groups {
		g.within = i * around / len(m.groups)
	}
}

// divide divides the processors by weights, among the groups around first. A group gets at most one for each ready task.
func (m *machine) divide() {
	for i := range m.around {
		m.around[i].most = 0
	}
	claims := m.claims[:len(m.groups)]
	for i, g := range m.groups {
		claims[i] = claim{weight: g.weight}
		if !g.stopped() {
			claims[i].most = float64(g.ready)
		}
		m.around[g.within].most += claims[i].most
	}
	fill(m.around, m.cores)
	for first := 0; first < len(m.groups); {
		around := m.groups[first].within
		next := first + 1
		for next < len(m.groups) && m.groups[next].within == around {
			next++
		}
		left := m.around[around].got
		if left == m.around[around].most {
			left = math.Inf(1) // enough for all
		}
		fill(claims[first:next], left)
		first = next
	}
	for i, g := range m.groups {
		g.rate = claims[i].got
	}
	for _, g := range m.groups {
		others := 0.0
		for _, other := range m.groups {
			if other != g {
				others += other.Memory * other.rate / m.cores
			}
		}
		g.speed = 1 / (1 + g.Memory*others)
	}
}

// fill divides processors by weights. No claim gets more than its most.
func fill(claims []claim, processors float64) {
	open := 0.0
	for i := range claims {
		c := &claims[i]
		c.got = 0
		if c.most > 0 {
			c.got = -1 // not known yet
			open += c.weight
		}
	}
	for settled := false; !settled; {
		settled = true
		for i := range claims {
			if c := &claims[i]; c.got < 0 && c.most*open <= processors*c.weight {
				c.got = c.most
				open -= c.weight
				processors -= c.most
				settled = false
			}
		}
	}
	for i := range claims {
		if c := &claims[i]; c.got < 0 {
			c.got = processors * c.weight / open
		}
	}
}

// each returns how fast each ready task does its work.
func (g *group) each() float64 { return g.rate / float64(max(1, g.ready)) * g.speed }

// next returns how long nothing changes, at most until end.
func (m *machine) next(end float64) float64 {
	then := min(end, float64(m.refills)*quotaPeriod)
	for _, g := range m.groups {
		away, until := g.away(m.now)
		then = min(then, until)
		if g.cap > 0 && g.rate > 0 {
			then = min(then, m.now+g.quota/g.rate)
		}
		if away {
			continue
		}
		for _, t := range g.tasks {
			if t.until > m.now {
				then = min(then, t.until)
			} else if speed := g.each(); speed > 0 {
				then = min(then, m.now+t.left/speed)
			}
		}
	}
	const least = 1e-7 // seconds; so that rounding does not stop the clock
	return max(then-m.now, least)
}

// pass lets time pass.
func (m *machine) pass(seconds float64) {
	then := m.now + seconds
	for _, g := range m.groups {
		g.run += g.rate * seconds
		g.wait += (float64(g.ready) - g.rate) * seconds
		g.work += g.rate * g.speed * seconds
		if g.stopped() {
			g.throttled += min(float64(g.ready), m.cores) * seconds
		}
		const nothing = 1e-9 // seconds
		if g.quota -= g.rate * seconds; g.quota < nothing {
			g.quota = 0
		}
		if g.ready == 0 {
			continue
		}
		speed := g.each()
		for i := range g.tasks {
			t := &g.tasks[i]
			if t.until > m.now {
				continue
			}
			own := g.rate / float64(g.ready) * seconds
			t.run, t.wait = t.run+own, t.wait+seconds-own
			if t.left -= speed * seconds; t.left < nothing {
				t.left, t.until = g.draw(g.Burst), then+g.draw(g.Sleep)
			}
		}
	}
	m.now = then
}

// times are for how long each task ran and waited in a window of this length. Waiting is multiplied by wrong.
func (g *group) times(window, wrong float64) []sensor.TaskTime {
	list := make([]sensor.TaskTime, g.Tasks)
	for i := range list {
		run, wait := g.run/float64(g.Tasks), g.wait/float64(g.Tasks)
		if g.Sleep > 0 {
			run, wait = g.tasks[i].run, g.tasks[i].wait
		}
		list[i] = sensor.TaskTime{ID: i, Run: run, Wait: min(wait*wrong, window-run)}
	}
	return list
}

// begin begins a new window.
func (g *group) begin() {
	g.sums = sums{}
	for i := range g.tasks {
		g.tasks[i].run, g.tasks[i].wait = 0, 0
	}
}
