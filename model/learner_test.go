package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

// world makes readings of machines that follow a law with noise, for tests.
type lawWorld struct {
	rng      *rand.Rand
	r0, p0   float64
	exponent float64
	period   int
}

func newLawWorld(seed uint64) *lawWorld {
	return &lawWorld{rng: rand.New(rand.NewPCG(seed, 1)), r0: 10, p0: 5, exponent: 1}
}

// machine is one instance's load and its neighbours' use in one period.
type machine struct {
	id, kind        string
	use, neighbours float64
	requests        int
	unprobed, mute  bool
	slower          float64 // factor of the machine's times; 0: 1
}

func (w *lawWorld) snapshot(machines ...machine) *quell.Snapshot {
	w.period++
	s := &quell.Snapshot{At: time.Unix(int64(10*w.period), 0).UTC()}
	for _, m := range machines {
		free, factor := 1-m.use-m.neighbours, max(m.slower, 1)
		if m.slower > 0 {
			factor = m.slower
		}
		probes, requests := 20, m.requests
		cv := math.Sqrt(m.use+m.neighbours) + 0.05
		rate := float64(requests) / 10
		mean := factor * w.r0 * math.Pow(free, -w.exponent) * math.Exp(w.rng.NormFloat64()/math.Sqrt(float64(max(requests, 1))))
		p90 := 2.3 * mean
		o := &quell.Observation{At: s.At, WindowS: 10, RequestRate: &rate, Utilization: map[quell.Resource]float64{quell.Network: m.use}}
		if !m.unprobed {
			o.Probe = map[quell.Resource]quell.ProbeStats{quell.Network: {
				MeanMS:   factor * w.p0 / free * math.Exp(w.rng.NormFloat64()*cv/math.Sqrt(float64(probes))),
				StddevMS: cv * factor * w.p0 / free, N: probes,
			}}
		}
		if !m.mute && requests > 0 {
			o.LatencyMS = &quell.Latency{Mean: &mean, P90: &p90, N: requests}
		}
		s.Instances = append(s.Instances, quell.Instance{ID: m.id, Type: m.kind, State: quell.Ready, Observation: o})
	}
	return s
}

var learnedSLO = quell.SLO{Metric: quell.Mean, Threshold: 40 * time.Millisecond}

// three are three machines whose load moves between 0.2 and 0.7.
func three(period int, neighbours ...float64) []machine {
	var list []machine
	for i := range 3 {
		m := machine{id: fmt.Sprintf("i%d", i+1), use: 0.2 + 0.05*float64((period+3*i)%11), requests: 300}
		if i < len(neighbours) {
			m.neighbours = min(neighbours[i], 0.95-m.use)
		}
		list = append(list, m)
	}
	return list
}

func learnFor(w *lawWorld, l *Learner, periods int, of func(period int) []machine) *Learner {
	for p := range periods {
		l = l.Learn(w.snapshot(of(p)...), learnedSLO)
	}
	return l
}

func lawOf(t *testing.T, l *Learner) *Law {
	t.Helper()
	law := l.Live().Best(quell.Network)
	if law == nil {
		t.Fatal("nothing was learned")
	}
	return law
}

func near(a, b, part float64) bool { return math.Abs(a-b) <= part*math.Abs(b) }

func TestLearnsTheLaw(t *testing.T) {
	for seed := range uint64(10) {
		law := lawOf(t, learnFor(newLawWorld(seed), nil, 30, func(p int) []machine { return three(p) }))
		if !near(law.R0MS, 10, 0.1) || !near(law.P0MS, 5, 0.1) || !near(law.Exponent, 1, 0.2) {
			t.Errorf("seed %d: R0 %.2f (10), P0 %.2f (5), exponent %.2f (1)", seed, law.R0MS, law.P0MS, law.Exponent)
		}
		if math.Abs(law.Capacity-0.75) > 0.06 || law.Known < 0.3 {
			t.Errorf("seed %d: %s; the truth is 0.75", seed, law.Text())
		}
	}
}

// Neighbours on two of three machines, from the first period on, do not hide how long a probe takes alone.
func TestInterferenceOnlyAdds(t *testing.T) {
	for seed := range uint64(10) {
		law := lawOf(t, learnFor(newLawWorld(seed), nil, 40, func(p int) []machine { return three(p, 0.3, 0.3*float64(p%2)) }))
		if !near(law.P0MS, 5, 0.12) || !near(law.R0MS, 10, 0.15) {
			t.Errorf("seed %d: R0 %.2f (10), P0 %.2f (5)", seed, law.R0MS, law.P0MS)
		}
		if got, want := law.response(0.4, law.severity(0.4, 0.3), 1), 10/0.3; !near(got, want, 0.2) {
			t.Errorf("seed %d: at a use of 0.4 beside 0.3 it predicts %.1f ms, the truth is %.1f", seed, got, want)
		}
	}
}

func TestUsefulAfterFewPeriods(t *testing.T) {
	w := newLawWorld(1)
	l := learnFor(w, nil, 1, func(p int) []machine { return three(p) })
	if len(l.Live()) > 0 {
		t.Error("one period states a law")
	}
	if l = learnFor(w, l, 5, func(p int) []machine { return three(p + 1) }); len(l.Live()) == 0 {
		t.Error("six periods of three machines do not")
	}
}

// A release that halves or doubles the response time is learned within 10 periods of data.
func TestReleaseIsLearned(t *testing.T) {
	for _, factor := range []float64{0.5, 1.5, 2} {
		for seed := range uint64(5) {
			w := newLawWorld(seed)
			l := learnFor(w, nil, 60, func(p int) []machine { return three(p) })
			before := lawOf(t, l).Known
			w.r0 *= factor
			l = learnFor(w, l, 5, func(p int) []machine { return three(p) })
			if law := lawOf(t, l); law.PeriodsSinceDrift == 0 {
				t.Errorf("x%v, seed %d: the change is not noticed in 5 periods (R0 %.1f)", factor, seed, law.R0MS)
			} else if law.Known > before {
				t.Errorf("x%v, seed %d: known %.2f before, %.2f just after", factor, seed, before, law.Known)
			}
			if law := lawOf(t, learnFor(w, l, 5, func(p int) []machine { return three(p) })); !near(law.R0MS, 10*factor, 0.15) {
				t.Errorf("x%v, seed %d: R0 %.2f after 10 periods, the truth is %.2f", factor, seed, law.R0MS, 10*factor)
			}
		}
	}
}

// One slow instance is no release.
func TestOneSlowInstanceIsNoRelease(t *testing.T) {
	w := newLawWorld(3)
	l := learnFor(w, nil, 40, func(p int) []machine { return three(p) })
	l = learnFor(w, l, 30, func(p int) []machine {
		list := three(p)
		list[0].slower = 2
		return list
	})
	if law := lawOf(t, l); law.PeriodsSinceDrift > 0 || !near(law.R0MS, 10, 0.2) {
		t.Errorf("R0 %.2f, %d periods since a drift", law.R0MS, law.PeriodsSinceDrift)
	}
}

// After a day with hardly any traffic, what a busy hour taught is still known.
func TestQuietDayForgetsNothing(t *testing.T) {
	w := newLawWorld(4)
	l := learnFor(w, nil, 60, func(p int) []machine { return three(p) })
	before := lawOf(t, l)
	l = learnFor(w, l, 2000, func(int) []machine {
		return []machine{{id: "i1", use: 0.01, requests: 3}, {id: "i2", use: 0, requests: 0}, {id: "i3", use: 0.01, requests: 2}}
	})
	after := lawOf(t, l)
	if !near(after.R0MS, before.R0MS, 0.1) || math.Abs(after.Capacity-before.Capacity) > 0.05 || after.Known < 0.8*before.Known {
		t.Errorf("before: %s; after a quiet day: %s", before.Text(), after.Text())
	}
}

// Machines that are not probed, and a balancer that reports no response times, teach nothing and unlearn nothing.
func TestMissingReadings(t *testing.T) {
	w := newLawWorld(5)
	l := learnFor(w, nil, 40, func(p int) []machine { return three(p) })
	before := lawOf(t, l)
	for name, of := range map[string]func(*machine){
		"probes blocked on one machine": func(m *machine) { m.unprobed = m.id == "i2" },
		"no response times":             func(m *machine) { m.mute = true },
		"nothing is probed":             func(m *machine) { m.unprobed = true },
	} {
		w := newLawWorld(6)
		w.period = 100
		law := lawOf(t, learnFor(w, l, 40, func(p int) []machine {
			list := three(p)
			for i := range list {
				of(&list[i])
			}
			return list
		}))
		if !near(law.R0MS, before.R0MS, 0.1) || !near(law.P0MS, before.P0MS, 0.1) {
			t.Errorf("%s: R0 %.2f after %.2f, P0 %.2f after %.2f", name, law.R0MS, before.R0MS, law.P0MS, before.P0MS)
		}
	}
}

// A type of instance that is new starts from its kin, and has a law of its own when there is enough data.
func TestNewTypeStartsFromItsKin(t *testing.T) {
	w := newLawWorld(7)
	l := learnFor(w, nil, 40, func(p int) []machine { return three(p) })
	with := func(p int) []machine {
		return append(three(p), machine{id: "big", kind: "big", use: 0.3 + 0.03*float64(p%10), requests: 300, slower: 0.5})
	}
	l = learnFor(w, l, 6, with)
	if got := l.Live().of(quell.Network, "big"); !reflect.DeepEqual(got, lawOf(t, l)) {
		t.Errorf("after 6 periods a big machine has the law %+v, want its kin's", got)
	}
	l = learnFor(w, l, 60, with)
	if got := l.Live().of(quell.Network, "big"); !near(got.R0MS, 5, 0.15) {
		t.Errorf("R0 of the big machine %.2f, the truth is 5", got.R0MS)
	}
}

func TestPercentileIsARatio(t *testing.T) {
	w, slo := newLawWorld(8), quell.SLO{Metric: quell.P90, Threshold: 80 * time.Millisecond}
	var l *Learner
	for p := range 30 {
		l = l.Learn(w.snapshot(three(p)...), slo)
	}
	law := lawOf(t, l)
	if !near(law.Ratio[quell.P90], 2.3, 0.05) || !near(law.R0MS, 10, 0.1) {
		t.Errorf("p90 over mean %.2f (2.3), R0 %.2f (10)", law.Ratio[quell.P90], law.R0MS)
	}
	p, err := Compile(l.Models(nil), Spec{Resource: quell.Network, Metric: quell.P90, InterferenceModel: quell.Joint, Confidence: 0.95})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.FreshCapacity(80); math.Abs(got-law.Capacity) > 0.08 || math.Abs(got-(1-23.0/80)) > 0.08 {
		t.Errorf("capacity %.3f by the tables, %.3f by the law, the truth is %.3f", got, law.Capacity, 1-23.0/80)
	}
}

// Where there is data that the law cannot describe, the tables follow the data.
func TestRefinement(t *testing.T) {
	w := newLawWorld(9)
	var l *Learner
	for p := range 200 {
		list := three(p)
		for i := range list {
			if list[i].use > 0.55 {
				list[i].slower = 1 // as below
			}
		}
		s := w.snapshot(list...)
		for i := range s.Instances {
			if o := s.Instances[i].Observation; o.Utilization[quell.Network] < 0.55 {
				flat := 10 * math.Exp(w.rng.NormFloat64()*0.05)
				o.LatencyMS.Mean = &flat // as with several servers: no queue until the load is high
			}
		}
		l = l.Learn(s, learnedSLO)
	}
	p, err := Compile(l.Models(nil), Spec{Resource: quell.Network, Metric: quell.Mean, InterferenceModel: quell.Joint, Confidence: 0.95})
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range []float64{0.25, 0.35, 0.45} {
		if got := p.ResponseTime(u, 0); !near(got, 10, 0.25) {
			t.Errorf("at %.2f the tables say %.1f ms, measured were 10", u, got)
		}
	}
}

// Of the windows that come, about nine of ten stay within the margin.
func TestMarginCovers(t *testing.T) {
	w := newLawWorld(10)
	l := learnFor(w, nil, 500, func(p int) []machine { return three(p, 0.2*float64(p/20%2)) })
	c := l.Coverage()
	if c.Windows < 1000 || c.Share < 0.87 || c.Share > 0.93 || c.WidthMS > learnedSLO.ThresholdMS()/2 {
		t.Errorf("%.3f of %.0f windows are within a margin of %.1f ms on average, want 0.87 to 0.93 and at most half the threshold",
			c.Share, c.Windows, c.WidthMS)
	}
}

func TestLearnerIsAValue(t *testing.T) {
	w := newLawWorld(11)
	l := learnFor(w, nil, 20, func(p int) []machine { return three(p) })
	before, _ := json.Marshal(l)
	s := w.snapshot(three(3)...)
	a, b := l.Learn(s, learnedSLO), l.Learn(s, learnedSLO)
	if after, _ := json.Marshal(l); !bytes.Equal(before, after) {
		t.Error("Learn changes the old value")
	}
	if !reflect.DeepEqual(a, b) {
		t.Error("equal snapshots give different learners")
	}
	var stored Learner
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &stored); err != nil {
		t.Fatal(err)
	}
	if next := w.snapshot(three(4)...); !reflect.DeepEqual(a.Learn(next, learnedSLO), stored.Learn(next, learnedSLO)) {
		t.Error("a stored learner goes on otherwise than one that was not")
	}
	if again := a.Learn(s, learnedSLO); !reflect.DeepEqual(again.Seen, a.Seen) {
		t.Error("an observation is used twice")
	}
	for i := range s.Instances { // the clock is set back
		s.Instances[i].Observation.At = s.Instances[i].Observation.At.Add(-time.Hour)
	}
	if next := a.Learn(s, learnedSLO); reflect.DeepEqual(next.Seen, a.Seen) {
		t.Error("after the clock was set back nothing is learned")
	}
}

func TestLearnerIsBounded(t *testing.T) {
	w := newLawWorld(12)
	var l *Learner
	for range 150 {
		var list []machine
		for i := range 200 {
			list = append(list, machine{id: fmt.Sprint(i), kind: fmt.Sprint("t", i%10), use: w.rng.Float64() * 0.6,
				neighbours: w.rng.Float64() * 0.3, requests: 50})
		}
		l = l.Learn(w.snapshot(list...), learnedSLO)
	}
	text, err := json.Marshal(l)
	if err != nil || len(text) > 400_000 {
		t.Errorf("%d bytes to store, %v", len(text), err)
	}
}

// Trained tables are data: the learner begins with them, and what is measured replaces them.
func TestLearnerBeginsWithTheTrained(t *testing.T) {
	truth := &Law{R0MS: 10, P0MS: 5, Exponent: 1, ProbeExponent: 1, SeverityExponent: 1, SpreadIdle: 0.01, SpreadBusy: 0.5, Probes: 100}
	prior := &Models{Trained: &Trained{PerRequest: map[quell.Resource]float64{quell.Network: 0.01}},
		Sections: []Section{truth.tables(quell.Network)}}
	l := NewLearner(prior, learnedSLO)
	if law := lawOf(t, l); !near(law.R0MS, 10, 0.1) || !near(law.P0MS, 5, 0.1) || !near(law.PerRequest, 0.01, 0.01) {
		t.Errorf("from trained tables: %+v", law)
	}
	w := newLawWorld(13)
	w.r0 = 15
	if law := lawOf(t, learnFor(w, l, 100, func(p int) []machine { return three(p) })); !near(law.R0MS, 15, 0.15) {
		t.Errorf("R0 %.2f, the truth is 15 and the training said 10", law.R0MS)
	}
}

func TestLiveSurvivesTheFile(t *testing.T) {
	m := learnFor(newLawWorld(14), nil, 60, func(p int) []machine { return three(p, 0.3*float64(p%2)) }).Models(nil)
	var text bytes.Buffer
	if err := m.Encode(&text); err != nil {
		t.Fatal(err)
	}
	again, err := Decode(text.Bytes(), "")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(m.Live(), again.Live()) {
		t.Error("the section is another one after it was written and read")
	}
	var shown bytes.Buffer
	if err := Describe(&shown, again, ShowOptions{}); err != nil || !bytes.Contains(shown.Bytes(), []byte("learned")) {
		t.Errorf("%v: %s", err, shown.String())
	}
	if pictures, err := Draw(again, ShowOptions{}); err != nil || len(pictures) == 0 {
		t.Errorf("%d pictures, %v", len(pictures), err)
	}
}

// Whatever is measured, the models are valid, or there are none.
func TestLearnsFromAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l *Learner
		number := func(name string) float64 {
			return rapid.OneOf(rapid.Float64Range(0, 1e12), rapid.Float64Range(0, 2), rapid.SampledFrom([]float64{0, 1, 1e-12, 0.5})).Draw(t, name)
		}
		slo := quell.SLO{Metric: rapid.SampledFrom(quell.Metrics).Draw(t, "metric"),
			Threshold: time.Millisecond * time.Duration(rapid.IntRange(1, 1e6).Draw(t, "slo"))}
		count := func(most int) int { return rapid.IntRange(0, most).Draw(t, "n") }
		for p := range rapid.IntRange(1, 30).Draw(t, "periods") {
			s := &quell.Snapshot{At: time.Unix(int64(p), 0)}
			for i := range rapid.IntRange(0, 4).Draw(t, "instances") {
				mean, metric, rate := number("mean"), number("metric"), number("rate")
				s.Instances = append(s.Instances, quell.Instance{ID: fmt.Sprint(i), State: quell.Ready, Observation: &quell.Observation{
					At: s.At, RequestRate: &rate, Utilization: map[quell.Resource]float64{quell.CPU: number("use")},
					Probe:     map[quell.Resource]quell.ProbeStats{quell.CPU: {MeanMS: number("probe"), StddevMS: number("stddev"), N: count(100)}},
					LatencyMS: &quell.Latency{Mean: &mean, P50: &metric, P90: &metric, P95: &metric, P99: &metric, N: count(1000)},
				}})
			}
			l = l.Learn(s, slo)
			m := l.Models(nil)
			if err := m.Validate(); err != nil {
				t.Fatal(err)
			}
			if len(m.Live()) == 0 {
				continue
			}
			if _, err := Compile(m, Spec{Resource: quell.CPU, Metric: slo.Metric, InterferenceModel: quell.Joint, Confidence: 0.95}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A neighbour that comes to the only instance is no change of the service, even if the probes of one window are too few to show it. Chance
// may deceive once in twenty times.
func TestNeighboursOfOneInstanceAreNoRelease(t *testing.T) {
	releases := 0
	for seed := range uint64(20) {
		w := newLawWorld(seed)
		one := func(neighbours float64) func(int) []machine {
			return func(p int) []machine {
				return []machine{{id: "i1", use: 0.2 + 0.05*float64(p%5), neighbours: neighbours, requests: 300}}
			}
		}
		l := learnFor(w, nil, 40, one(0))
		for _, neighbours := range []float64{0.15, 0.3} {
			l = learnFor(w, l, 15, one(neighbours))
		}
		if record := l.Seen[quell.Network][AnyType]; record.Drifted > 0 {
			releases++
			t.Logf("seed %d: neighbours count as a release (R0 %.1f)", seed, record.Law.R0MS)
		}
	}
	if releases > 1 {
		t.Errorf("neighbours count as a release in %d of 20 cases", releases)
	}
}

// A release on the only instance is noticed within ten periods.
func TestReleaseOnOneInstance(t *testing.T) {
	for _, factor := range []float64{0.5, 1.5} {
		for seed := range uint64(10) {
			w := newLawWorld(seed)
			one := func(p int) []machine { return []machine{{id: "i1", use: 0.2 + 0.05*float64(p%5), requests: 300}} }
			l := learnFor(w, nil, 60, one)
			w.r0 *= factor
			if l = learnFor(w, l, 10, one); l.Seen[quell.Network][AnyType].Drifted == 0 {
				t.Errorf("x%v, seed %d: the change is not noticed in 10 periods (R0 %.1f)", factor, seed, lawOf(t, l).R0MS)
			}
		}
	}
}
