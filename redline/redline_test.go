package redline

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// service is a service of three under processor sharing: a request takes 10 ms alone, and 100 of them per second use a machine whole.
type service struct {
	load    float64                     // requests per second
	hidden  float64                     // use of i1 by neighbours
	share   float64                     // of i1
	part    func(share float64) float64 // of the requests that i1 gets; nil: its share
	change  func(*quell.Snapshot)
	elapsed int
}

var slo = quell.SLO{Metric: quell.Mean, Threshold: 50 * time.Millisecond}

func (s *service) period() Period {
	s.elapsed++
	snapshot := &quell.Snapshot{At: time.Unix(int64(10*s.elapsed), 0), ArrivalRate: &s.load}
	part := s.share
	if s.part != nil {
		part = s.part(s.share)
	}
	for i, share := range []float64{s.share, (1 - s.share) / 2, (1 - s.share) / 2} {
		rate := s.load * part
		if i > 0 {
			rate = s.load * (1 - part) / 2
		}
		u := rate / 100
		in := quell.Instance{ID: fmt.Sprintf("i%d", i+1), State: quell.Ready, Weight: &share, Observation: &quell.Observation{WindowS: 10,
			RequestRate: &rate, Utilization: map[quell.Resource]float64{quell.Network: u}}}
		if i == 0 {
			u += s.hidden
		}
		ms := 10 / math.Max(1e-3, 1-u)
		p99 := 4.6 * ms
		in.Observation.LatencyMS = &quell.Latency{Mean: &ms, P99: &p99, N: int(10 * rate)}
		snapshot.Instances = append(snapshot.Instances, in)
	}
	if s.change != nil {
		s.change(snapshot)
	}
	return Period{Snapshot: snapshot}
}

func newService() *service { return &service{load: 120, share: 1. / 3} }

// test plays a test; before is called before each period.
func test(t *testing.T, s *service, before func(period int)) (*Test, int) {
	t.Helper()
	began := s.share
	test, err := New(Options{Instance: "i1", SLO: slo, Risk: 0.01}, s.period())
	if err != nil {
		t.Fatal(err)
	}
	for n := range 500 {
		before(n)
		rate := s.load * s.share
		m := test.Next(s.period())
		if m.Done {
			if m.Share != began {
				t.Errorf("at the end the share is %g, before it was %g", m.Share, began)
			}
			return test, n
		}
		if s.load*m.Share > 1.1501*rate {
			t.Errorf("period %d: from %.1f to %.1f requests/s in one step", n, rate, s.load*m.Share)
		}
		s.share = m.Share
	}
	t.Fatal("the test does not end")
	return nil, 0
}

func TestFindsTheLimit(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*service)
		want   float64 // utilisation; 0: not enough load
	}{
		"alone":           {func(*service) {}, 0.8},
		"with neighbours": {func(s *service) { s.hidden = 0.3 }, 0.5},
		"little load":     {func(s *service) { s.load = 50 }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService()
			c.change(s)
			x, _ := test(t, s, func(int) {})
			r := x.Result()
			if r.Interrupted || r.Rate == nil || r.Use == nil {
				t.Fatalf("%+v", r)
			}
			if c.want == 0 {
				if !strings.Contains(r.Why, "not enough load") {
					t.Errorf("it ended because %s", r.Why)
				}
				return
			}
			if off := r.Use.Value/c.want - 1; math.Abs(off) > 0.02 || r.Resource != quell.Network || r.Over > 0 {
				t.Errorf("%s, want %.2f", r.Text(slo), c.want)
			}
		})
	}
}

// At whichever period something happens, the test ends in it, and says so.
func TestIsInterruptedInEveryPeriod(t *testing.T) {
	_, whole := test(t, newService(), func(int) {})
	sick := func(id string, state quell.State) func(*quell.Snapshot) {
		return func(s *quell.Snapshot) { find(s, id).State = state }
	}
	for name, c := range map[string]struct {
		change func(*quell.Snapshot)
		want   string
	}{
		"it fails":            {sick("i1", quell.Failed), "i1 is failed"},
		"another one fails":   {sick("i2", quell.Failed), "the instances in rotation changed"},
		"another one is held": {func(s *quell.Snapshot) { find(s, "i3").Held = &quell.Held{By: "ann"} }, "the instances in rotation changed"},
		"it is held":          {func(s *quell.Snapshot) { find(s, "i1").Held = &quell.Held{By: "ann"} }, "taken out of rotation by ann"},
		"it is gone":          {func(s *quell.Snapshot) { s.Instances = s.Instances[1:] }, "i1 is gone"},
		"one is added": {func(s *quell.Snapshot) {
			s.Instances = append(s.Instances, quell.Instance{ID: "i4", State: quell.Ready})
		}, "changed"},
		"another share is set":    {func(s *quell.Snapshot) { w := 0.1; find(s, "i2").Override = &w }, "an operator set the share of i2"},
		"requests fail":           {func(s *quell.Snapshot) { e := 0.2; find(s, "i1").Observation.ErrorRate = &e }, "20.0% of the requests"},
		"the balancer lost it":    {func(s *quell.Snapshot) { find(s, "i1").Weight = nil }, "no longer at the balancer"},
		"nothing is measured":     {func(s *quell.Snapshot) { find(s, "i1").Observation = nil }, "too few requests"},
		"the share has no effect": {func(s *quell.Snapshot) { w := 0.01; find(s, "i1").Weight = &w }, "does not have the share"},
	} {
		t.Run(name, func(t *testing.T) {
			for at := range whole {
				s := newService()
				x, end := test(t, s, func(n int) {
					if n == at {
						s.change = c.change
					}
				})
				r := x.Result()
				if !r.Interrupted || !strings.Contains(r.Why, c.want) || end > at+patience+1 {
					t.Fatalf("in period %d: it ended in %d because %s", at, end, r.Why)
				}
			}
		})
	}
}

// A neighbour that arrives ends the test: by the severity where it is known, else because the load does not explain the response times.
func TestANeighbourEndsTheTest(t *testing.T) {
	s := newService()
	quiet, loud := 0.0, 0.8
	x, err := New(Options{Instance: "i1", SLO: slo, Risk: 0.01}, Period{s.period().Snapshot, &quiet})
	if err != nil {
		t.Fatal(err)
	}
	if m := x.Next(Period{s.period().Snapshot, &loud}); !m.Done || !strings.Contains(x.Result().Why, "a neighbour arrived") {
		t.Errorf("%+v: %s", m, x.Result().Why)
	}
	s = newService()
	x, end := test(t, s, func(n int) {
		if n == 12 {
			s.hidden = 0.25
		}
	})
	if r := x.Result(); end > 14 || !strings.Contains(r.Why, "a neighbour seems to have arrived") && !strings.Contains(r.Why, "was reached") {
		t.Errorf("it ended in period %d because %s", end, r.Why)
	}
}

func TestRefusals(t *testing.T) {
	half := 0.5
	for name, c := range map[string]struct {
		change func(*quell.Snapshot)
		slo    quell.SLO
		want   string
	}{
		"no objective":      {func(*quell.Snapshot) {}, quell.SLO{}, "no objective"},
		"unknown":           {func(s *quell.Snapshot) { s.Instances[0].ID = "x" }, slo, `no instance "i1"`},
		"starting":          {func(s *quell.Snapshot) { s.Instances[0].State = quell.Starting }, slo, "not ready"},
		"to replace":        {func(s *quell.Snapshot) { s.Instances[0].Replaces = "i2" }, slo, "not ready"},
		"held":              {func(s *quell.Snapshot) { s.Instances[0].Held = &quell.Held{By: "ann"} }, slo, "out of rotation by ann"},
		"set by hand":       {func(s *quell.Snapshot) { s.Instances[0].Override = &half }, slo, "quell override i1 clear"},
		"another is set":    {func(s *quell.Snapshot) { s.Instances[1].Override = &half }, slo, "the share of i2 is set by hand"},
		"no requests":       {func(s *quell.Snapshot) { zero := 0.0; s.Instances[0].Weight = &zero }, slo, "gets no requests"},
		"only one":          {func(s *quell.Snapshot) { s.Instances = s.Instances[:1] }, slo, "the only instance"},
		"misses it already": {func(s *quell.Snapshot) { ms := 80.0; s.Instances[0].Observation.LatencyMS.Mean = &ms }, slo, "misses the obj"},
	} {
		s := newService().period()
		c.change(s.Snapshot)
		if _, err := New(Options{Instance: "i1", SLO: c.slo, Risk: 0.01}, s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestMissedRequests(t *testing.T) {
	at := func(mean, p50, p90, p95, p99 float64) *quell.Latency {
		return &quell.Latency{Mean: &mean, P50: &p50, P90: &p90, P95: &p95, P99: &p99, N: 1000}
	}
	for name, c := range map[string]struct {
		l    *quell.Latency
		m    quell.Metric
		want float64
	}{
		"nothing":               {nil, quell.P99, 0},
		"mean within":           {at(40, 30, 80, 100, 150), quell.Mean, 0},
		"mean above by a fifth": {at(62.5, 30, 80, 100, 150), quell.Mean, 200},
		"p90 is the threshold":  {at(20, 10, 50, 60, 90), quell.P90, 100},
		"p99 is the threshold":  {at(20, 10, 30, 40, 50), quell.P99, 10},
		"all within":            {at(1, 1, 2, 3, 5), quell.P99, 0},
	} {
		l := slo
		l.Metric = c.m
		if got := missed(c.l, l); math.Abs(got-c.want) > 0.5 {
			t.Errorf("%s: %.1f, want %.1f", name, got, c.want)
		}
	}
}

// BenchmarkManyInstances is a period of a test in a service of 10,000 instances.
func BenchmarkManyInstances(b *testing.B) {
	const n = 10_000
	snapshot, rate, ms, share := &quell.Snapshot{}, 50.0, 20.0, 1./n
	for i := range n {
		snapshot.Instances = append(snapshot.Instances, quell.Instance{ID: fmt.Sprintf("i%d", i), State: quell.Ready, Weight: &share,
			Observation: &quell.Observation{WindowS: 10, RequestRate: &rate, LatencyMS: &quell.Latency{Mean: &ms, N: 500}}})
	}
	x, err := New(Options{Instance: "i1", SLO: slo, Risk: 0.01}, Period{Snapshot: snapshot})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		x.Next(Period{Snapshot: snapshot})
	}
}
