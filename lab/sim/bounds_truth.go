package sim

import (
	"math"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// Poolings of least connections, fitted to this simulator: with requests of constant size and with requests that vary.
const (
	poolingConstant = 0.9
	poolingVaried   = 0.75
)

// presentMargin is by how much the others must carry more than the load before Present removes an instance: it does not know whether the
// load will rise again.
const presentMargin = 1.05

// present returns what the bound Present may know: the load of the last period, and what is true of the machines now.
func (f *foresight) present() *outlooks {
	now := f.s.w.now
	period := f.s.service.Sampling.Seconds()
	o := &outlooks{load: []float64{f.load(now-period, now)}, margin: presentMargin}
	f.look(o, func(host int, _ float64) []site {
		at := f.site(host, now, now)
		at.ready = true // what starts now counts: nothing of later is known
		return []site{at}
	})
	return o
}

// coming returns what the bound Foresight may know: load and machines until an instance that is started now is ready.
func (f *foresight) coming() *outlooks {
	t := f.truth()
	now, period := f.s.w.now, f.s.service.Sampling.Seconds()
	o := &outlooks{load: t.Load, startup: t.Startup, margin: 1}
	f.look(o, func(host int, ready float64) []site {
		sites := make([]site, len(t.Load))
		for i := range sites {
			from := now + float64(i)*period
			sites[i] = f.site(host, from, from+period)
			sites[i].ready = from >= ready-1e-9 && !(&outlook{f, host, ready}).fails(from+2*period)
		}
		return sites
	})
	return o
}

// look fills in the machines and the law of the group.
func (f *foresight) look(o *outlooks, of func(host int, ready float64) []site) {
	s := f.s
	startup := s.Scenario.Instances.Startup.Seconds()
	o.strain, o.group, o.law = s.Strain, make(map[string][]site, len(s.members)), f.pool()
	for _, in := range s.members {
		if !s.leaves(in) && in.state != quell.Failed {
			o.group[in.id] = of(in.host, in.started+startup)
		}
	}
	for _, host := range s.freeHosts() {
		o.free = append(o.free, of(host, s.w.now+startup))
	}
}

// pool is the law of the group for this workload: its ratio of the objective's metric to the mean begins where the sizes of the requests
// put it.
func (f *foresight) pool() pool {
	if f.grouped != nil {
		return *f.grouped
	}
	metric := f.s.service.SLO.Metric
	h := f.s.w.hosts[0]
	calm := f.s.physics(0, conditions{network: h.Network, cores: h.Cores, disk: h.DiskIOPS, memory: h.Memory, demand: 1})
	mean := 0.0
	for k := range calm.servers {
		mean += calm.mean(k)
	}
	law := pool{pooling: poolingConstant, threshold: f.s.service.SLO.Threshold.Seconds()}
	law.ratio = model.RatioOf(metric, calm.metric(0, metric)/mean)
	if calm.spread > 0 || len(calm.classes) > 1 {
		law.pooling = poolingVaried
	}
	f.grouped = &law
	return law
}

// site is a machine during an interval, under the largest use by neighbours in it.
func (f *foresight) site(host int, from, to float64) site {
	p := f.s.physics(host, f.conditions(host, from, to))
	at := site{servers: p.servers}
	for k := range p.servers {
		at.most[k] = math.Inf(1)
		if want := p.mean(k); want > 0 {
			left := math.Max(1-p.others[k], leastShare)
			at.most[k] = left * p.servers[k] / want
			at.seconds[k] = want * beside(p.others[k], p.servers[k])
		}
	}
	return at
}

// beside is the factor by which neighbours lengthen work, if the service has no other work there.
func beside(use, servers float64) float64 {
	use = math.Min(use, 1-leastShare)
	return 1 + math.Pow(use, math.Sqrt(2*(servers+1))-1)/(servers*(1-use))
}
