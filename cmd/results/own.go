package main

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
)

// ownFigures say what became of work that an instance itself does beside its requests.
type ownFigures struct {
	Trials int
	Named  int // in which own_work named the instance within two periods
	By     int // in which a plan also said which program it was
	Less   int // in which the plan gave the instance a lower share after two periods
	Fewer  int // in which the instance got fewer of the requests from the third period on
	Wrong  int // periods in which an instance without such work was named

	// What an instance gets of the requests beside its own work, over what it got before: the median of the trials.
	Gets, GetsRival float64

	It, Rival contender // PRIMA and least connections alone
}

// span is a time in which an instance does work of its own, in seconds.
type span struct {
	host     string
	from, to float64
}

// settleWork is how many periods own work may still be named after its end: the period in which it ends is one of it.
const settleWork = 2

// sumOwn counts the trials of one resource.
func sumOwn(f *partFigures, _ string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	records := plays[0]
	if slices.Contains(records, nil) {
		f.Missing = "live"
		return nil
	}
	all := contenders(sc, plays)
	own := &ownFigures{It: all[0], Rival: all[1]}
	f.Own = own
	it, period := records[0], sc.Service.Sampling.Seconds()
	hosts, spans := hostsOf(it), ownSpans(sc)
	ratios := gets(it, spans, period)
	own.Fewer = len(ratios) - len(slices.DeleteFunc(slices.Clone(ratios), func(r float64) bool { return r < 1 }))
	own.Gets, own.GetsRival = medianOf(ratios), medianOf(gets(records[1], spans, period))
	for _, s := range spans {
		own.Trials++
		named, by := false, false
		for _, c := range it.Causes {
			for id, work := range c.Own {
				if hosts[id] != s.host {
					continue
				}
				if c.AtS > s.from && c.AtS <= s.from+(2+1)*period { // the period in which it begins is not whole
					named = true
				}
				by = by || c.AtS > s.from && c.AtS <= s.to && work.By != ""
			}
		}
		if named {
			own.Named++
		}
		if by {
			own.By++
		}
		if before, after := shareAt(it, hosts, s.host, s.from), shareAt(it, hosts, s.host, s.from+3*period); after < 0.98*before {
			own.Less++
		}
	}
	for _, c := range it.Causes {
		for id := range c.Own {
			if c.AtS >= 0 && !slices.ContainsFunc(spans, func(s span) bool {
				return hosts[id] == s.host && c.AtS > s.from && c.AtS <= s.to+settleWork*period
			}) {
				own.Wrong++
			}
		}
	}
	return nil
}

// ownSpans returns when which host's instance does work of its own.
func ownSpans(sc *scenario.Scenario) (spans []span) {
	for _, e := range sc.Timeline {
		if n := e.Interfere; n == nil || !n.Own {
			continue
		} else if n.Use > 0 {
			spans = append(spans, span{n.Host, e.At.Seconds(), sc.Duration.Seconds()})
		} else if i := len(spans) - 1; i >= 0 {
			spans[i].to = e.At.Seconds()
		}
	}
	return spans
}

// gets returns for each span the instance's part of all requests from the third period on, over that of as long a time before.
func gets(r *experiment.Record, spans []span, period float64) (ratios []float64) {
	hosts := hostsOf(r)
	part := func(host string, from, to float64) float64 {
		of, all := 0.0, 0.0
		for _, s := range r.Samples {
			if s.AtS >= from && s.AtS < to {
				all++
				if hosts[s.Instance] == host {
					of++
				}
			}
		}
		return of / max(1, all)
	}
	for _, s := range spans {
		from := s.from + 2*period
		if before := part(s.host, s.from-(s.to-from), s.from); before > 0 {
			ratios = append(ratios, part(s.host, from, s.to)/before)
		}
	}
	return ratios
}

// medianOf returns NaN if there are no values.
func medianOf(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return stat.Quantile(0.5, stat.LinInterp, values, nil)
}

// hostsOf returns the host of each instance, by its address.
func hostsOf(r *experiment.Record) map[string]string {
	hosts := map[string]string{}
	for _, m := range r.Moments {
		for _, in := range m.Instances {
			if at, err := netip.ParseAddrPort(in.Address); err == nil { // 10.77.N.2 is the address of the instance on host hN
				hosts[in.ID] = fmt.Sprintf("h%d", at.Addr().As4()[2])
			}
		}
	}
	return hosts
}

// shareAt returns the share that the last plan before a time gave the instance on a host.
func shareAt(r *experiment.Record, hosts map[string]string, host string, at float64) (share float64) {
	for _, s := range r.Shares {
		if s.AtS > at {
			break
		}
		for id, w := range s.Shares {
			if hosts[id] == host {
				share = w
			}
		}
	}
	return share
}

// P95OverRival is PRIMA's p95 over that of least connections alone.
func (o *ownFigures) P95OverRival() float64 {
	return o.It.latency(quell.P95) / o.Rival.latency(quell.P95)
}
