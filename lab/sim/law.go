package sim

import (
	"math"
	"sort"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// conditions are everything except its own load on which a machine's response time depends.
type conditions struct {
	network, cores, disk, memory float64
	demand                       float64        // of the release; see scenario.Release
	uses                         [kinds]float64 // utilisation by neighbours
}

// law is how the objective's metric grows with an instance's rate of requests while conditions stay the same.
//
// Under processor sharing, work that takes d alone takes d / (1 - rho) on average, whatever the distribution of sizes; rho is the use of
// the resource by all (Kleinrock, Queueing Systems II, 4.4). With c servers, the waiting part is that of M/M/c in Sakasegawa's
// approximation. For the variance, the formula for M/M/1 is used, with work of a mean s that gives the same second moment, 2 rho s =
// lambda E[S^2] (Ott, J. Appl. Prob. 21, 1984): 2 rho s d / (1 - rho)^3 - 2 rho s^2 (1 - exp(-(1 - rho) d / s)) / (1 - rho)^4. The
// response time of a class is assumed to be gamma distributed with this mean and variance, to which the spread of sizes adds; percentiles
// are those of the mixture of all classes. All this holds for one instance under Poisson arrivals; a balancer that considers open
// connections does better.
type law struct {
	rates   []float64 // evenly spaced, up to the rate that saturates the machine
	seconds []float64 // the metric at each rate; it never falls
}

// lawPoints is the number of rates in the table of a law.
const lawPoints = 64

func (s *simulation) newLaw(host int, c conditions) *law {
	p := s.physics(host, c)
	most := p.saturation()
	if most <= 0 {
		return &law{rates: []float64{0}, seconds: []float64{math.Inf(1)}}
	}
	l := &law{}
	for i := range lawPoints {
		rate := most * float64(i) / lawPoints
		l.rates = append(l.rates, rate)
		seconds := p.metric(rate, s.service.SLO.Metric)
		if i > 0 {
			seconds = math.Max(seconds, l.seconds[i-1])
		}
		l.seconds = append(l.seconds, seconds)
	}
	return l
}

// within is the highest rate at which the metric is at most this many seconds.
func (l *law) within(seconds float64) float64 {
	i := sort.Search(len(l.seconds), func(i int) bool { return l.seconds[i] > seconds })
	switch {
	case i == 0:
		return 0
	case i == len(l.seconds):
		return l.rates[i-1]
	}
	part := (seconds - l.seconds[i-1]) / (l.seconds[i] - l.seconds[i-1])
	return l.rates[i-1] + part*(l.rates[i]-l.rates[i-1])
}

// physics is a machine's resources, and how much the workload and others use of them.
type physics struct {
	classes  [][kinds]float64 // seconds of one server of each resource for a request of mean size
	shares   []float64        // share of each class among the requests
	spread   float64          // variance of a request's size, whose mean is 1
	servers  [kinds]float64
	others   [kinds]float64 // use by neighbours and probes
	othersSq [kinds]float64 // arrival rate times the second moment of their work
}

func (s *simulation) physics(host int, c conditions) *physics {
	load, h := &s.Scenario.Workload, &s.w.hosts[host]
	p := &physics{classes: s.clients.seconds(h, c.demand, 1+load.CacheStretch*c.uses[kindOf(quell.Memory)]), shares: s.clients.shares()}
	if len(load.Classes) > 0 && load.Spread == scenario.Exponential {
		p.spread = 1
	}
	for k := range p.servers {
		p.servers[k] = 1
		if k == int(kindOf(quell.CPU)) {
			p.servers[k] = h.Cores
		}
		work := neighbourSeconds
		if k == int(kindOf(quell.Network)) {
			work = neighbourBytes / h.perSecond[k]
		}
		p.others[k], p.othersSq[k] = c.uses[k], c.uses[k]*p.servers[k]*work
	}
	for _, probe := range s.probes[host] {
		k := kindOf(probe.resource)
		work := probe.class[0].amount.next() / h.perSecond[k]
		p.others[k] += work / probe.spacing / p.servers[k]
		p.othersSq[k] += work * work / probe.spacing
	}
	return p
}

// seconds is, for each class, how long a request of mean size takes one server of each resource. demand is that of the release, and stretch
// the factor by which neighbours in the caches lengthen processor time.
func (c *clients) seconds(h *host, demand, stretch float64) (list [][kinds]float64) {
	for _, class := range c.classes {
		var d [kinds]float64
		for _, want := range class {
			d[want.resource] += demand * want.amount.next() / h.perSecond[want.resource]
		}
		d[kindOf(quell.CPU)] *= stretch
		list = append(list, d)
	}
	return list
}

// shares is the share of each class among the requests.
func (c *clients) shares() []float64 {
	if len(c.load.Classes) == 0 {
		return []float64{1}
	}
	shares, sum := make([]float64, len(c.load.Classes)), 0.0
	for _, class := range c.load.Classes {
		sum += class.Share
	}
	for i, class := range c.load.Classes {
		shares[i] = class.Share / sum
	}
	return shares
}

// saturation is the lowest rate, in requests per second, at which a resource is fully used.
func (p *physics) saturation() float64 {
	most := math.Inf(1)
	for k := range p.servers {
		if want := p.mean(k); want > 0 {
			most = math.Min(most, (1-p.others[k])*p.servers[k]/want)
		}
	}
	return math.Max(0, most)
}

func (p *physics) mean(k int) (sum float64) {
	for i, d := range p.classes {
		sum += p.shares[i] * d[k]
	}
	return sum
}

// metric is the objective's metric, in seconds, at a rate below saturation.
func (p *physics) metric(rate float64, m quell.Metric) float64 {
	means, variances := p.moments(rate)
	var mean, most float64
	for i := range means {
		mean += p.shares[i] * means[i]
		most = math.Max(most, means[i]+10*math.Sqrt(variances[i]))
	}
	part, ok := parts[m]
	if !ok {
		return mean
	}
	low, high := 0.0, most
	for range 30 {
		middle := (low + high) / 2
		if p.reached(means, variances, middle) < part {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

// parts are the shares of requests that the percentiles refer to.
var parts = map[quell.Metric]float64{quell.P50: 0.5, quell.P90: 0.9, quell.P95: 0.95, quell.P99: 0.99}

// moments are the mean and the variance of each class's response time.
func (p *physics) moments(rate float64) (means, variances []float64) {
	var slower, used, typical [kinds]float64
	for k, c := range p.servers {
		use, second := p.others[k], p.othersSq[k]
		for i, d := range p.classes {
			use += rate * p.shares[i] * d[k] / c
			second += rate * p.shares[i] * d[k] * d[k] * (1 + p.spread)
		}
		used[k] = math.Min(use, 1-1e-9)
		slower[k] = 1 + math.Pow(used[k], math.Sqrt(2*(c+1))-1)/(c*(1-used[k]))
		if use > 0 {
			typical[k] = second / (2 * c * use)
		}
	}
	means, variances = make([]float64, len(p.classes)), make([]float64, len(p.classes))
	for i, d := range p.classes {
		for k := range d {
			means[i] += d[k] * slower[k]
			variances[i] += noise(d[k], used[k], typical[k]) / p.servers[k]
		}
		variances[i] += p.spread * means[i] * means[i]
	}
	return means, variances
}

// noise is the variance of the time that work of length d takes on a resource with utilisation use, if all other work has mean length s.
func noise(d, use, s float64) float64 {
	if d == 0 || s == 0 {
		return 0
	}
	free := 1 - use
	return 2 * use * s * (d - s/free*-math.Expm1(-free*d/s)) / (free * free * free)
}

// reached is the share of requests whose response time is at most this many seconds.
func (p *physics) reached(means, variances []float64, seconds float64) (sum float64) {
	for i, mean := range means {
		if variances[i] <= 0 {
			if mean <= seconds {
				sum += p.shares[i]
			}
			continue
		}
		g := distuv.Gamma{Alpha: mean * mean / variances[i], Beta: mean / variances[i]}
		sum += p.shares[i] * g.CDF(seconds)
	}
	return sum
}
