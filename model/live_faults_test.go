package model

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// However long a balancer reports no response times, what was learned from earlier ones stays.
func TestLongSilenceErasesNothing(t *testing.T) {
	w := newLawWorld(60)
	l := learnFor(w, nil, 100, func(p int) []machine { return three(p) })
	_, before := l.Count(quell.Network)
	l = learnFor(w, l, 300, func(p int) []machine {
		list := three(p)
		for i := range list {
			list[i].mute = true
		}
		return list
	})
	if _, after := l.Count(quell.Network); after != before {
		t.Errorf("%d windows with a response time before the silence, %d after it", before, after)
	}
	if law := lawOf(t, l); !near(law.R0MS, 10, 0.1) || !near(law.P0MS, 5, 0.1) {
		t.Errorf("R0 %.2f (10), P0 %.2f (5)", law.R0MS, law.P0MS)
	}
}

// withProbes sets how the probes of a snapshot were made, by the place of the instance.
func withProbes(s *quell.Snapshot, of func(i int) quell.Probing) *quell.Snapshot {
	for i := range s.Instances {
		for r, p := range s.Instances[i].Observation.Probe {
			by := of(i)
			p.By = &by
			s.Instances[i].Observation.Probe[r] = p
		}
	}
	return s
}

// One machine of three that is probed in another way does not keep the others from being learned, and teaches nothing.
func TestOneMachineIsProbedOtherwise(t *testing.T) {
	for odd := range 3 {
		w := newLawWorld(61)
		var l *Learner
		for p := range 40 {
			s := w.snapshot(three(p)...)
			o := s.Instances[odd].Observation
			probe := o.Probe[quell.Network]
			probe.MeanMS /= 3
			o.Probe[quell.Network] = probe
			l = l.Learn(withProbes(s, func(i int) quell.Probing {
				if i == odd {
					return quell.Probing{Bytes: 1000}
				}
				return quell.Probing{Bytes: 3000}
			}), learnedSLO)
		}
		law := lawOf(t, l)
		if p0 := map[int64]float64{1000: 5.0 / 3, 3000: 5}[law.By.Bytes]; !near(law.R0MS, 10, 0.15) || !near(law.P0MS, p0, 0.15) {
			t.Errorf("machine %d is probed otherwise: R0 %.2f (10), P0 %.2f (%.2f) with probes of %d bytes",
				odd, law.R0MS, law.P0MS, p0, law.By.Bytes)
		}
	}
}

// If all machines are probed in another way from some moment on, their probes are learned anew. A single period of such readings drops
// nothing.
func TestProbingChanges(t *testing.T) {
	w := newLawWorld(62)
	var l *Learner
	learn := func(periods int, bytes int64) {
		for p := range periods {
			s := w.snapshot(three(p)...)
			l = l.Learn(withProbes(s, func(int) quell.Probing { return quell.Probing{Bytes: bytes} }), learnedSLO)
		}
	}
	learn(40, 3000)
	before, _ := l.Count(quell.Network)
	learn(1, 1000)
	learn(1, 3000)
	if after, _ := l.Count(quell.Network); after < before {
		t.Errorf("%d windows before a period with other probes, %d after it", before, after)
	}
	w.p0 = 2
	learn(40, 1000)
	if law := lawOf(t, l); !near(law.P0MS, 2, 0.1) || law.By.Bytes != 1000 {
		t.Errorf("P0 %.2f with probes of %d bytes, want 2 with 1000", law.P0MS, law.By.Bytes)
	}
}

// A type of instance that came after four others is learned when one of these has been gone for long, and not before.
func TestNewTypeTakesThePlaceOfAGoneOne(t *testing.T) {
	w := newLawWorld(63)
	of := func(kinds ...string) func(int) []machine {
		return func(p int) (list []machine) {
			for i, m := range three(p) {
				for _, kind := range kinds {
					m.id, m.kind = fmt.Sprint(kind, i), kind
					list = append(list, m)
				}
			}
			return list
		}
	}
	l := learnFor(w, nil, 10, of("a", "b", "c", "d"))
	l = learnFor(w, l, 20, of("b", "c", "d", "e"))
	if l.Seen[quell.Network]["e"] != nil || l.Seen[quell.Network]["a"] == nil {
		t.Error("a type that was there a moment ago is forgotten")
	}
	l = learnFor(w, l, goneAfter, of("e"))
	if l.Seen[quell.Network]["e"] == nil || l.Seen[quell.Network]["a"] != nil {
		t.Error("a type that has been gone for long still holds its place")
	}
}

// A controller's clock that steps by an hour, in either direction, costs at most one period of data.
func TestClockSteps(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		w := newLawWorld(64)
		l := learnFor(w, nil, 20, func(p int) []machine { return three(p) })
		before, _ := l.Count(quell.Network)
		shift := func(s *quell.Snapshot) *quell.Snapshot {
			s.At = s.At.Add(step)
			for i := range s.Instances {
				s.Instances[i].Observation.At = s.At
			}
			return s
		}
		const periods = 4
		for p := range periods {
			l = l.Learn(shift(w.snapshot(three(p)...)), learnedSLO)
		}
		if after, _ := l.Count(quell.Network); after-before < 3*(periods-1) {
			t.Errorf("a step of %v: %d of %d windows count", step, after-before, 3*periods)
		}
	}
}

// A machine whose probes take a thousandth of the time that others' take, because its clock is coarse, does not make all others seem
// disturbed.
func TestAbsurdProbesOfOneMachine(t *testing.T) {
	w := newLawWorld(65)
	var l *Learner
	for p := range 60 {
		s := w.snapshot(three(p)...)
		o := s.Instances[2].Observation
		probe := o.Probe[quell.Network]
		probe.MeanMS, probe.StddevMS = probe.MeanMS/1000, probe.StddevMS/1000
		o.Probe[quell.Network] = probe
		l = l.Learn(s, learnedSLO)
	}
	if law := lawOf(t, l); !near(law.P0MS, 5, 0.15) {
		t.Errorf("P0 %.4f, the truth is 5 on two of three machines", law.P0MS)
	}
}

// A store that is damaged costs what is damaged, and nothing else.
func TestDamagedStore(t *testing.T) {
	w := newLawWorld(66)
	whole := learnFor(w, nil, 30, func(p int) []machine { return three(p) })
	text, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	windows, _ := whole.Count(quell.Network)
	for name, c := range map[string]struct {
		damage func(record map[string]any)
		lost   int // windows
	}{
		"nothing":                  {func(map[string]any) {}, 0},
		"a probe of no time":       {func(r map[string]any) { r["windows"].([]any)[3].(map[string]any)["p"] = 0 }, 1},
		"a negative use":           {func(r map[string]any) { r["windows"].([]any)[3].(map[string]any)["u"] = -1 }, 1},
		"a window of the future":   {func(r map[string]any) { r["windows"].([]any)[3].(map[string]any)["t"] = 1 << 30 }, 1},
		"an absurd response time":  {func(r map[string]any) { r["windows"].([]any)[3].(map[string]any)["m"] = 1e300 }, 1},
		"a law without a time":     {func(r map[string]any) { r["law"].(map[string]any)["p0_ms"] = 0 }, 0},
		"a law with a wild power":  {func(r map[string]any) { r["law"].(map[string]any)["exponent"] = 1e9 }, 0},
		"a change in the future":   {func(r map[string]any) { r["drifted"] = 1 << 30 }, 0},
		"probes of negative size":  {func(r map[string]any) { r["by"] = map[string]any{"bytes": -1} }, 0},
		"a prediction of no time":  {func(r map[string]any) { r["errors"] = []any{map[string]any{"p": 0, "r": 1}} }, 0},
		"a rank below the first":   {func(r map[string]any) { r["quantile"] = -7 }, 0},
		"a negative count":         {func(r map[string]any) { r["judged"], r["covered"], r["width_ms"] = -5, 1e300, -1 }, 0},
		"a miss beyond all times":  {func(r map[string]any) { r["errors"].([]any)[0].(map[string]any)["r"] = 1e300 }, 0},
		"no windows":               {func(r map[string]any) { r["windows"] = nil }, windows},
		"a record that is nothing": {nil, windows},
	} {
		var stored map[string]any
		if err := json.Unmarshal(text, &stored); err != nil {
			t.Fatal(err)
		}
		types := stored["seen"].(map[string]any)["network"].(map[string]any)
		if c.damage == nil {
			types[AnyType] = nil
		} else {
			c.damage(types[AnyType].(map[string]any))
		}
		damaged, _ := json.Marshal(stored)
		l := &Learner{}
		if err := json.Unmarshal(damaged, l); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if left, _ := l.Count(quell.Network); left != windows-c.lost {
			t.Errorf("%s: %d of %d windows are left, want %d", name, left, windows, windows-c.lost)
		}
		if name == "nothing" && !reflect.DeepEqual(l, whole) {
			t.Error("what is not damaged is another learner after it was stored")
		}
		w := newLawWorld(67)
		w.period = 100
		l = learnFor(w, l, 30, func(p int) []machine { return three(p) })
		if law := lawOf(t, l); !near(law.R0MS, 10, 0.15) || l.Models(nil).Validate() != nil {
			t.Errorf("%s: 30 periods later R0 is %.2f, the truth is 10; %v", name, law.R0MS, l.Models(nil).Validate())
		}
	}
}

// A machine of twice the size among others whose type is not told makes these seem disturbed. What they take at their present load is
// predicted right all the same, and what they can carry is not overstated.
func TestABiggerMachineAmongOthers(t *testing.T) {
	w := newLawWorld(68)
	l := learnFor(w, nil, 80, func(p int) []machine {
		list := three(p)
		list[2].slower = 0.5
		return list
	})
	p, err := Compile(l.Models(nil), Spec{Resource: quell.Network, Metric: quell.Mean, InterferenceModel: quell.Joint, Confidence: 0.95})
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range []float64{0.3, 0.5, 0.65} {
		alone, _, _ := p.Isolation(u)
		severity := max(0, 5/(1-u)/alone-1)
		if got := p.ResponseTime(u, severity); !near(got, 10/(1-u), 0.25) {
			t.Errorf("at %.2f a small machine is predicted to take %.1f ms, the truth is %.1f", u, got, 10/(1-u))
		}
		if got := p.Capacity(p.Interfering(u, severity), 40); got > 0.8 || got < 0.4 {
			t.Errorf("a small machine that carries %.2f is predicted to carry %.2f at most, the truth is 0.75", u, got)
		}
	}
}

// Response times in another unit, or of a page that only says that something is broken, teach nothing for half an hour of periods. After
// that they count as a change of the service.
func TestWrongUnit(t *testing.T) {
	for _, factor := range []float64{0.001, 1000} {
		w := newLawWorld(1)
		l := learnFor(w, nil, 200, func(p int) []machine { return three(p) })
		before, _ := json.Marshal(lawOf(t, l).Capacity)
		_, answered := l.Count(quell.Network)
		w.r0 *= factor
		l = learnFor(w, l, 12, func(p int) []machine { return three(p) })
		times := l.Seen[quell.Network][AnyType].Wild
		if _, now := l.Count(quell.Network); now < answered-3*2 || !near(times, factor, 0.3) {
			t.Errorf("x%v: %d of %d windows are left; response times are %.3g times the usual ones", factor, now, answered, times)
		}
		if law := lawOf(t, l); math.Abs(law.Capacity-0.75) > 0.08 {
			t.Errorf("x%v: capacity %.2f, before %s", factor, law.Capacity, before)
		}
		w.r0 /= factor
		if l = learnFor(w, l, 1, func(p int) []machine { return three(p) }); l.Seen[quell.Network][AnyType].Wild != 0 {
			t.Errorf("x%v: right again, and still doubtful", factor)
		}
		w.r0 *= factor
		l = learnFor(w, l, wildAfter+8, func(p int) []machine { return three(p) })
		if law := lawOf(t, l); !near(law.R0MS, 10*factor, 0.2) {
			t.Errorf("x%v for long: R0 %.3g", factor, law.R0MS)
		}
	}
}

// A resource that was probed once, long ago, is no reason to expect less of the severity of another one.
func TestOnlyResourceProbedLately(t *testing.T) {
	l := learnFor(newLawWorld(1), nil, 10, func(p int) []machine { return three(p) })
	if !l.only(quell.Network) {
		t.Error("no other resource is probed")
	}
	once := *l
	once.Seen = map[quell.Resource]map[string]*Record{quell.Network: l.Seen[quell.Network],
		quell.CPU: {AnyType: {Windows: []Window{{At: 10}}}}}
	if once.only(quell.Network) {
		t.Error("the processor was probed in this period")
	}
	if once.Periods += lately + 1; !once.only(quell.Network) {
		t.Error("the processor was probed long ago")
	}
}
