package budget

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

func testService() *quell.Service {
	s := quell.DefaultService()
	s.Name, s.SLO = "shop", slo99
	return &s
}

// answering is a ready instance with n response times, 95% of which are at most ms.
func answering(id string, n int, ms float64) quell.Instance {
	none := 0.0
	return quell.Instance{ID: id, State: quell.Ready, Observation: &quell.Observation{
		At: start, ErrorRate: &none, LatencyMS: &quell.Latency{P95: &ms, N: n}, Utilization: map[quell.Resource]float64{quell.Network: 0.5},
	}}
}

// What a period counts as, of time and of requests.
func TestJudge(t *testing.T) {
	rate, failed := 50.0, 0.5
	broken := answering("b", 100, 20)
	broken.Observation.ErrorRate = &failed
	silent := answering("b", 100, 200)
	silent.Observation.At = start.Add(-time.Minute)
	dead := func(rate float64) quell.Instance { // all its requests fail, so it has no response times
		o := &quell.Observation{At: start, WindowS: 10, RequestRate: &rate, ErrorRate: new(1.0)}
		return quell.Instance{ID: "b", State: quell.Ready, Observation: o}
	}
	half := answering("b", 5, 20)
	half.Observation.WindowS, half.Observation.RequestRate, half.Observation.ErrorRate = 10, new(1.0), &failed
	many := func(count, n int, ms float64) (all []quell.Instance) {
		for range count {
			all = append(all, answering("s", n, ms))
		}
		return all
	}
	untold := many(3, 5, 0)
	for i := range untold {
		untold[i].Observation.LatencyMS.P95 = nil
	}
	held := answering("b", 100, 200)
	held.Held = &quell.Held{By: "ann"}
	blind := answering("a", 100, 0)
	blind.Observation.LatencyMS.P95 = nil
	for name, c := range map[string]struct {
		instances        []quell.Instance
		judged           bool
		ofTime, ofOthers float64
	}{
		"all within":                     {[]quell.Instance{answering("a", 100, 79), answering("b", 100, 80)}, true, 0, 0},
		"the worst counts":               {[]quell.Instance{answering("a", 300, 20), answering("b", 100, 81)}, true, 1, 0.25},
		"one instance":                   {[]quell.Instance{answering("a", 100, 81)}, true, 1, 1},
		"failing requests":               {[]quell.Instance{answering("a", 100, 20), broken}, true, 1, 0.5},
		"all requests fail":              {[]quell.Instance{answering("a", 100, 20), dead(30)}, true, 1, 0.75},
		"those of the only instance":     {[]quell.Instance{dead(30)}, true, 1, 1},
		"half of few requests":           {[]quell.Instance{answering("a", 30, 20), half}, true, 1, 0.25},
		"a few requests fail":            {[]quell.Instance{answering("a", 100, 20), dead(0.9)}, true, 0, 0},
		"its agent is silent":            {[]quell.Instance{answering("a", 100, 20), silent}, true, 1, 0.5},
		"a held instance does not count": {[]quell.Instance{answering("a", 100, 20), held}, true, 0, 0},
		"small ones together":            {many(200, 9, 800), true, 1, 1},
		"small ones together, most fast": {append(many(20, 9, 20), answering("b", 9, 800)), true, 0, 0},
		"small ones beside a large one":  {append(many(2, 5, 200), answering("b", 90, 20)), true, 1, 0.1},
		"too few together":               {append(many(3, 3, 200), answering("b", 91, 20)), true, 0, 0},
		"small ones that fail":           {append(many(1, 2, 20), dead(0.8)), true, 1, 1},
		"few requests":                   {[]quell.Instance{answering("a", 9, 200)}, false, 0, 0},
		"no such metric":                 {[]quell.Instance{blind}, false, 0, 0},
		"no such metric, small ones":     {untold, false, 0, 0},
		"nobody is ready":                {[]quell.Instance{{ID: "a", State: quell.Failed}}, true, 1, 1},
		"no instance":                    {nil, false, 0, 0},
	} {
		s := &quell.Snapshot{At: start, Instances: c.instances, ArrivalRate: &rate}
		v := Judge(testService(), s)
		if v.Judged != c.judged || v.Missed(quell.OfTime) != c.ofTime || v.Missed(quell.OfRequests) != c.ofOthers {
			t.Errorf("%s: %+v, %v of time, %v of requests", name, v, v.Missed(quell.OfTime), v.Missed(quell.OfRequests))
		}
		if v.Unmeasured != strings.HasPrefix(name, "no such metric") {
			t.Errorf("%s: unmeasured %t", name, v.Unmeasured)
		}
	}
}

// Without a ready instance all requests are missed: those that the balancer sent to instances that fail, and those that it refused itself.
func TestNobodyIsReady(t *testing.T) {
	rate, none := 50.0, 0.0
	for name, c := range map[string]struct {
		arrival        *float64
		unserved, want float64 // want is how many requests are missed
	}{
		"sent to somebody":    {&rate, 0, 500},
		"refused":             {&none, 20, 200},
		"both":                {&rate, 20, 700},
		"no instance reports": {nil, 20, 200},
		"no requests":         {&none, 0, 0},
		"nobody reports":      {nil, 0, 0},
	} {
		s := &quell.Snapshot{At: start, ArrivalRate: c.arrival, Unserved: c.unserved, Instances: []quell.Instance{{ID: "a", State: quell.Failed}}}
		v := Judge(testService(), s)
		missed := c.want > 0
		if v.Down != missed || v.Judged != missed || v.Requests != c.want || missed != (v.Missed(quell.OfRequests) == 1) {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// The same holds without any instance.
func TestNobodyIsThere(t *testing.T) {
	for unserved, missed := range map[float64]bool{20: true, 0: false} {
		v := Judge(testService(), &quell.Snapshot{At: start, Unserved: unserved})
		if v.Down != missed || v.Judged != missed || v.Requests != unserved*10 {
			t.Errorf("%g a second: %+v", unserved, v)
		}
	}
}

// Each cause, by what a plan says of the instance that missed.
func TestCauses(t *testing.T) {
	slow := func() *quell.Snapshot {
		return &quell.Snapshot{At: start, Instances: []quell.Instance{answering("a", 100, 90), answering("b", 100, 200), answering("c", 200, 20)}}
	}
	of := func(change func(*quell.Plan, *quell.Snapshot)) (*quell.Snapshot, *quell.Plan) {
		s, p := slow(), &quell.Plan{}
		change(p, s)
		return s, p
	}
	failed := 0.5
	for want, change := range map[Cause]func(*quell.Plan, *quell.Snapshot){
		Unknown: func(p *quell.Plan, _ *quell.Snapshot) { // capacities are in the group's units, uses in those of each resource
			p.Capacity, p.Used = map[string]float64{"b": 0.45}, map[string]float64{"b": 0.89}
		},
		Neighbours: func(p *quell.Plan, _ *quell.Snapshot) {
			p.Severity, p.Cause = map[string]float64{"b": 1.5}, map[string]quell.Resource{"b": quell.Network}
		},
		OwnWork: func(p *quell.Plan, _ *quell.Snapshot) {
			p.OwnWork = map[string]quell.OwnWork{"b": {Resource: quell.Network, Use: 0.3}}
		},
		OwnLoad:  func(p *quell.Plan, _ *quell.Snapshot) { p.Used = map[string]float64{"b": 0.9} },
		Failures: func(_ *quell.Plan, s *quell.Snapshot) { s.Instances[1].Observation.ErrorRate = &failed },
		Releases: func(_ *quell.Plan, s *quell.Snapshot) { s.Instances[1].Replaces = "c" },
	} {
		s, p := of(change)
		v := Judge(testService(), s)
		if got := v.Causes(quell.OfTime, s, p, false); !maps.Equal(got, map[Cause]float64{want: 1}) {
			t.Errorf("of time: %v, want %s", got, want)
		}
		got := v.Causes(quell.OfRequests, s, p, false)
		if got[want] < 0.25 || got[want]+got[Unknown] != 0.5 && want != Unknown {
			t.Errorf("of requests: %v, want a quarter %s", got, want)
		}
	}
	s, p := of(func(p *quell.Plan, _ *quell.Snapshot) { p.Reasons = []quell.Reason{{Code: "overload"}} })
	v := Judge(testService(), s)
	if got := v.Causes(quell.OfTime, s, p, false); got[OwnLoad] != 1 {
		t.Errorf("overload: %v", got)
	}
	if got := v.Causes(quell.OfTime, s, p, true); got[Releases] != 1 {
		t.Errorf("while instances are replaced: %v", got)
	}
}

// Ten thousand instances that all miss the objective are judged in a time that grows with their number, not with its square.
func TestManyInstances(t *testing.T) {
	s, p := &quell.Snapshot{At: start}, &quell.Plan{Severity: map[string]float64{}, Cause: map[string]quell.Resource{}}
	for i := range 10_000 {
		id := fmt.Sprintf("i%d", i)
		s.Instances = append(s.Instances, answering(id, 100, 90))
		p.Severity[id], p.Cause[id] = 1, quell.Network
	}
	v := Judge(testService(), s)
	if parts := v.Causes(quell.OfRequests, s, p, false); parts[Neighbours] < 0.999 {
		t.Error(parts)
	}
	steps := testing.AllocsPerRun(1, func() { v := Judge(testService(), s); v.Causes(quell.OfRequests, s, p, false) })
	if steps > 1000 {
		t.Errorf("%v allocations", steps)
	}
}
