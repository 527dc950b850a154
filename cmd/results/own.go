package main

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
)

// ownFigures say what became of work that an instance itself does beside its requests.
type ownFigures struct {
	Trials int
	Named  int // in which own_work named the instance within two periods
	By     int // in which a plan also said which program it was
	Less   int // in which the instance's share was lower after two periods
	Wrong  int // periods in which an instance without such work was named

	It, Rival contender // PRIMA and least connections alone
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
	hosts := hostsOf(it)
	type span struct {
		host     string
		from, to float64
	}
	var spans []span
	for _, e := range sc.Timeline {
		if n := e.Interfere; n == nil || !n.Own {
			continue
		} else if n.Use > 0 {
			spans = append(spans, span{n.Host, e.At.Seconds(), sc.Duration.Seconds()})
		} else if i := len(spans) - 1; i >= 0 {
			spans[i].to = e.At.Seconds()
		}
	}
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
