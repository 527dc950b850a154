package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// day makes records of four instances whose response times follow the law of processor sharing.
type day struct {
	rng        *rand.Rand
	collector  *Collector
	at         time.Time
	base       float64
	acts       bool
	neighbour  float64 // use by neighbours of instance a
	cost       float64 // utilisation of a request per second
	rate       float64 // requests per second and instance
	failing    bool
	planned    [4]float64
	weight     [4]float64 // in force, whatever part of the requests comes
	predicted  float64    // multiplies predictions
	noDecision bool
	queue      float64 // multiplies response times of instance a; 0: it does not answer in time
}

func newDay(mode quell.Mode) *day {
	service := quell.DefaultService()
	service.Name, service.SLO, service.Mode = "video", quell.SLO{Metric: quell.Mean, Threshold: 40 * time.Millisecond}, mode
	o := Options{Service: service, Resource: quell.Network, Since: began, Until: began.Add(time.Hour), Config: "q.yaml"}
	return &day{rng: rand.New(rand.NewPCG(1, 2)), collector: New(o), at: began, base: 10, cost: 0.01, rate: 50, predicted: 1, queue: 1,
		planned: [4]float64{0.25, 0.25, 0.25, 0.25}, weight: [4]float64{0.25, 0.25, 0.25, 0.25}}
}

func ptr[T any](v T) *T { return &v }

// play records periods.
func (d *day) play(periods int) {
	for range periods {
		d.at = d.at.Add(10 * time.Second)
		s := &quell.Snapshot{At: d.at, Service: "video"}
		p := &quell.Plan{At: d.at, Service: "video", Weights: map[string]float64{}, Severity: map[string]float64{},
			Capacity: map[string]float64{}, PredictedMS: map[string]float64{}, Cause: map[string]quell.Resource{}}
		for i, id := range []string{"a", "b", "c", "e"} {
			use, v := d.rate*d.cost, 0.0
			if i == 0 {
				v = d.neighbour
			}
			severity := severityAt(use, v)
			ms := d.base / (1 - use) * (1 + severity) * math.Exp(0.05*d.rng.NormFloat64())
			if i == 0 {
				ms *= d.queue
			}
			o := &quell.Observation{At: d.at, WindowS: 10, RequestRate: &d.rate, Utilization: map[quell.Resource]float64{quell.Network: use},
				LatencyMS: &quell.Latency{Mean: &ms, N: int(10 * d.rate)}}
			if i == 0 && d.queue == 0 {
				o.LatencyMS, o.ErrorRate = nil, ptr(1.0)
			}
			if d.failing && i == 1 {
				o.ErrorRate = ptr(0.5)
			}
			s.Instances = append(s.Instances, quell.Instance{ID: id, State: quell.Ready, Weight: ptr(d.weight[i]), Observation: o})
			p.Weights[id], p.Severity[id], p.Capacity[id] = d.planned[i], severity, max(0, 0.75-v)
			p.PredictedMS[id] = d.predicted * d.base / (1 - use) * (1 + severity)
			if v > 0 {
				p.Cause[id] = quell.Network
			}
		}
		decision := &Decision{Plan: p, Mode: d.collector.o.Service.Mode, Applied: d.acts}
		if d.noDecision {
			decision = nil
		}
		d.collector.Add(s, decision)
	}
}

// An instance that fails all its requests has no response times. The report says so, also as JSON, and a slow one beside it is the worst.
func TestAllRequestsFail(t *testing.T) {
	d := newDay(quell.Advise)
	d.queue = 0
	d.play(3)
	d.base = 60
	d.play(1)
	d.base = 10
	r := d.collector.Report()
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
	if len(r.Spans) != 1 || r.Spans[0].Instance == "a" || r.Spans[0].WorstMS < 100 {
		t.Errorf("%+v", r.Spans)
	}
	d = newDay(quell.Advise)
	d.queue = 0
	d.play(3)
	var text bytes.Buffer
	if err := d.collector.Report().WriteText(&text); err != nil || !strings.Contains(text.String(), "a, failures, no response times\n") {
		t.Errorf("%v:\n%s", err, &text)
	}
}

// check compares the report's verdict and parts of its text.
func (d *day) check(t *testing.T, verdict Verdict, texts ...string) *Report {
	t.Helper()
	r := d.collector.Report()
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if r.Verdict != verdict {
		t.Errorf("verdict %s, want %s:\n%s", r.Verdict, verdict, &text)
	}
	for _, want := range texts {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, &text)
		}
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
	var page bytes.Buffer
	if err := r.WriteHTML(&page); err != nil || !strings.Contains(page.String(), "<svg") {
		t.Errorf("page: %v", err)
	}
	return r
}

// A balancer that does not follow the weights sends as many requests as it would with equal ones. So acting saved nothing.
func TestWeightsWithoutEffectSaveNothing(t *testing.T) {
	d := newDay(quell.Act)
	d.acts = true
	d.play(150)
	d.neighbour, d.planned = 0.1, [4]float64{0.01, 0.33, 0.33, 0.33}
	d.weight = d.planned
	d.play(60)
	r := d.check(t, NothingLost)
	if saved := r.Acted.SavedS; saved.High > 10 {
		t.Errorf("it claims %+v", saved)
	}
}

func TestNeighbour(t *testing.T) {
	d := newDay(quell.Advise)
	d.play(150)
	d.neighbour, d.planned = 0.35, [4]float64{0.1, 0.3, 0.3, 0.3}
	d.play(30)
	d.neighbour, d.planned = 0, [4]float64{0.25, 0.25, 0.25, 0.25}
	d.play(180)
	r := d.check(t, WouldSave, "acting would have saved", "interference at a, network", "a: share 0.250, planned 0.100", "mode: act")
	saved := r.Advised.SavedS
	if saved.Value < 250 || saved.Value > 300 || saved.Low > 290 || saved.High < 280 || saved.High-saved.Low > saved.Value/2 {
		t.Errorf("saved %+v of %v s", saved, r.MissedS)
	}
	if r.MissedS != 300 || len(r.Causes) != 1 || math.Abs(r.Causes[0].Neighbour-0.35) > 0.05 {
		t.Errorf("missed %v, causes %+v", r.MissedS, r.Causes)
	}
}

// Under round robin an instance beside neighbours may get more than it can serve. Its times are then those of a growing queue, until
// requests time out. They say neither what it carries with fewer requests nor that it is broken.
func TestQueueThatGrows(t *testing.T) {
	d := newDay(quell.Advise)
	d.play(100)
	for range 4 {
		d.neighbour, d.planned = 0.55, [4]float64{0.04, 0.32, 0.32, 0.32}
		for d.queue = 1; d.queue < 100; d.queue *= 3 {
			d.play(1)
		}
		d.queue = 0
		d.play(10)
		d.queue, d.neighbour, d.planned = 1, 0, [4]float64{0.25, 0.25, 0.25, 0.25}
		d.play(40)
	}
	r := d.check(t, WouldSave, "interference at a, network")
	if saved := r.Advised.SavedS; r.MissedS != 600 || saved.Value < 530 || saved.Low < 500 {
		t.Errorf("saved %+v of %v s", saved, r.MissedS)
	}
}

// A plan that is not carried out begins from the shares in force. If one in between changes nothing, as the instance just meets its
// objective, it would not have given back what earlier ones took.
func TestSharesStayWhileNeighboursDo(t *testing.T) {
	for _, neighbour := range []float64{0.35, 0} {
		d := newDay(quell.Advise)
		d.play(150)
		d.neighbour = 0.35
		for range 15 {
			d.planned = [4]float64{0.1, 0.3, 0.3, 0.3}
			d.play(1)
			d.planned, d.neighbour = [4]float64{0.25, 0.25, 0.25, 0.25}, neighbour
			d.play(1)
			d.neighbour = 0.35
		}
		d.neighbour = 0
		d.play(100)
		r := d.check(t, map[bool]Verdict{true: WouldSave, false: NothingLost}[neighbour > 0])
		if saved := r.Advised.SavedS.Value; neighbour > 0 && (saved < 270 || r.MissedS != 300) || neighbour == 0 && saved > 10 {
			t.Errorf("neighbours' use %v in between: saved %v of %v s", neighbour, saved, r.MissedS)
		}
	}
}

// A plan that was limited by guard.step goes on from the shares of the one before, also if an instance can carry nothing.
func TestNothingIsLeftToCarry(t *testing.T) {
	a := &analysis{Collector: &Collector{o: Options{Service: quell.DefaultService()}, periods: make([]period, 3)}}
	a.o.Service.Guard.Step = 0.5
	for i := range 2 {
		a.rows = append(a.rows, row{instance: int32(i), weight: 0.5, flags: stays | inOrder})
		a.by = append(a.by, entry{stays: true, planned: [2]float32{0.25, 0.75}[i], capacity: [2]float32{0, 0.7}[i]})
		a.virtual = append(a.virtual, math.NaN())
	}
	before, p := &period{planned: true, limited: true}, &period{to: 2, seconds: 10}
	for k, want := range []float64{0.25, 0, 0} {
		for i := range a.by {
			a.by[i].period = k
		}
		if shares, _ := a.otherShares(p, before, k); math.Abs(shares[0]-want) > 1e-9 {
			t.Errorf("period %d: shares %v, want %v", k, shares, want)
		}
	}
}

// Where in a period a neighbour comes is chance, and one period more or less is within the interval.
func TestIntervalHoldsTheOnset(t *testing.T) {
	d := newDay(quell.Advise)
	d.play(50)
	const visits = 8
	for range visits {
		d.planned = [4]float64{0.25, 0.25, 0.25, 0.25}
		d.play(10)
		d.neighbour = 0.35
		d.play(1) // not noticed yet
		d.planned = [4]float64{0.1, 0.3, 0.3, 0.3}
		d.play(9)
		d.neighbour = 0
	}
	saved := d.check(t, WouldSave).Advised.SavedS
	most := confidence * 10 * math.Sqrt(onset*visits)
	if width := saved.High - saved.Value; width < 0.9*most || width > 1.2*most {
		t.Errorf("saved %+v: %v above the likely value, want about %v", saved, width, most)
	}
}

// Periods in which a neighbour comes or goes do not say how others vary.
func TestScatter(t *testing.T) {
	var sizes []float64
	rng := rand.New(rand.NewPCG(1, 2))
	for range 900 {
		sizes = append(sizes, math.Abs(0.1*rng.NormFloat64()))
	}
	for range 100 {
		sizes = append(sizes, 3)
	}
	if got := scatter(sizes, noisePrior); math.Abs(got-0.12) > 0.02 {
		t.Errorf("%v, want about 0.1", got)
	}
	if got := scatter(nil, noisePrior); got != noisePrior {
		t.Errorf("of nothing: %v, want %v", got, noisePrior)
	}
}

func TestNothingIsToBeGained(t *testing.T) {
	for _, play := range []struct {
		about string
		day   func(d *day)
		texts []string
	}{
		{"calm", func(d *day) { d.play(360) }, []string{"the objective was met. Nothing is to be gained"}},
		{"overloaded evenly", func(d *day) { d.play(100); d.rate = 85; d.play(100) }, []string{"Nothing is to be gained", "own load"}},
		{"a release", func(d *day) { d.play(100); d.cost = 0.016; d.play(100) }, []string{"Nothing is to be gained", "release", "became dearer"}},
		{"failures", func(d *day) { d.play(100); d.failing = true; d.play(9) }, []string{"failures at b"}},
		{"clock set back", func(d *day) { d.play(100); d.at = d.at.Add(-200 * time.Second); d.play(100) }, []string{"was set back 1 time"}},
		{"gaps", func(d *day) { d.play(100); d.at = d.at.Add(500 * time.Second); d.play(100) }, []string{"1 gap(s)", "snapshots cover"}},
	} {
		t.Run(play.about, func(t *testing.T) {
			d := newDay(quell.Advise)
			play.day(d)
			d.check(t, NothingLost, play.texts...)
		})
	}
}

func TestWhatCannotBeTold(t *testing.T) {
	d := newDay(quell.Advise)
	d.check(t, NoData, "Nothing was recorded")
	d = newDay(quell.Advise)
	d.rate = 0
	d.play(10)
	d.check(t, NoData, "No requests were measured")
	d = newDay(quell.Advise)
	d.predicted = 0.5
	d.play(100)
	d.check(t, CannotTell, "measured response times were 2 times the predicted ones")
	d = newDay(quell.Advise)
	d.noDecision = true
	d.play(100)
	d.check(t, CannotTell, "There are no recorded plans", "100 snapshots have no recorded decision")
	d = newDay(quell.Advise)
	d.rate = 0.2
	d.play(100)
	d.check(t, NotMeasured)
}

func TestActing(t *testing.T) {
	d := newDay(quell.Act)
	d.acts = true
	d.play(300)
	r := d.check(t, NothingLost, "Acting changed nothing")
	if r.Acted == nil || r.Advised != nil || r.Acted.SavedS != (Estimate{}) {
		t.Errorf("%+v", r.Acted)
	}
}

// BenchmarkDay is a day of 50 instances with periods of 10 s, without decoding.
func BenchmarkDay(b *testing.B) {
	for range b.N {
		d := newDay(quell.Advise)
		snapshots, plans := manyInstances(50)
		d.collector.o.Until = began.Add(24 * time.Hour)
		for k := range 8640 {
			s, p := *snapshots, *plans
			s.At = began.Add(time.Duration(k) * 10 * time.Second)
			p.At = s.At
			d.collector.Add(&s, &Decision{Plan: &p, Mode: quell.Advise})
		}
		if r := d.collector.Report(); r.RecordedS != 86400 {
			b.Fatal(r.RecordedS)
		}
	}
}

func manyInstances(n int) (*quell.Snapshot, *quell.Plan) {
	s := &quell.Snapshot{Service: "video"}
	p := &quell.Plan{Service: "video", Weights: map[string]float64{}, Severity: map[string]float64{}, Capacity: map[string]float64{}}
	for i := range n {
		id, ms := fmt.Sprintf("i%d", i), 20+float64(i%7)
		o := &quell.Observation{WindowS: 10, RequestRate: ptr(50.0), Utilization: map[quell.Resource]float64{quell.Network: 0.5},
			LatencyMS: &quell.Latency{Mean: &ms, N: 500}}
		s.Instances = append(s.Instances, quell.Instance{ID: id, State: quell.Ready, Weight: ptr(1 / float64(n)), Observation: o})
		p.Weights[id], p.Severity[id], p.Capacity[id] = 1/float64(n), 0, 0.7
	}
	return s, p
}

// A group of 10,000 instances is analysed in parts.
func TestManyInstances(t *testing.T) {
	d := newDay(quell.Advise)
	s, p := manyInstances(10_000)
	for k := range 120 {
		s.At = began.Add(time.Duration(k) * 10 * time.Second)
		d.collector.Add(s, &Decision{Plan: p, Mode: quell.Advise})
	}
	d.check(t, NothingLost)
	if !slices.IsSortedFunc(d.collector.timeline(), func(a, b Bin) int { return a.At.Compare(b.At) }) {
		t.Error("the timeline is not in order")
	}
}

func TestSignedTimes(t *testing.T) {
	for s, want := range map[float64]string{12: "12 s", 0: "0 s", -0.3: "0 s", -12: "-12 s", -600: "-10 min"} {
		if got := signed(s); got != want {
			t.Errorf("%g: %q, want %q", s, got, want)
		}
	}
}
