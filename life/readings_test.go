package life

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

const period = time.Second

// said returns a reading of the given age in seconds.
func said(source quell.Source, sender string, age float64) Received {
	r := Received{At: epoch.Add(-time.Duration(age * float64(time.Second)))}
	r.Instance, r.Source, r.Sender = "i1", source, sender
	switch source {
	case quell.FromAgent:
		r.Observation.Utilization = map[quell.Resource]float64{quell.Network: 0.4}
	case quell.FromProber:
		r.Observation.Probe = map[quell.Resource]quell.ProbeStats{quell.Network: {MeanMS: 10, StddevMS: 1, N: 8}}
	case quell.FromBalancer:
		rate := 20.0
		r.Observation.RequestRate = &rate
	}
	return r
}

func TestCurrent(t *testing.T) {
	for name, tc := range map[string]struct {
		readings []Received
		want     []string // senders
	}{
		"all of this period":               {[]Received{said(quell.FromAgent, "a", 0.1), said(quell.FromBalancer, "b", 1)}, []string{"a", "b"}},
		"an agent that fell silent":        {[]Received{said(quell.FromAgent, "a", 60)}, []string{"a"}},
		"a prober that was taken away":     {[]Received{said(quell.FromProber, "p", 0.1), said(quell.FromProber, "q", 3)}, []string{"p"}},
		"probers that fell silent at once": {[]Received{said(quell.FromProber, "p", 60), said(quell.FromProber, "q", 61)}, []string{"p", "q"}},
		"a balancer that fell silent":      {[]Received{said(quell.FromAgent, "a", 0.1), said(quell.FromBalancer, "b", 2.1)}, []string{"a"}},
	} {
		var got []string
		for _, r := range Current(epoch, period, tc.readings) {
			got = append(got, r.Sender)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestMergeIsAsOldAsTheMachinesPart(t *testing.T) {
	balancer := said(quell.FromBalancer, "b", 2)
	for name, tc := range map[string]struct {
		readings []Received
		age      time.Duration
	}{
		"an older prober":      {[]Received{said(quell.FromAgent, "a", 1), balancer, said(quell.FromProber, "p", 5)}, 5 * time.Second},
		"an older agent":       {[]Received{said(quell.FromAgent, "a", 7), balancer, said(quell.FromProber, "p", 5)}, 7 * time.Second},
		"no prober":            {[]Received{said(quell.FromAgent, "a", 3), balancer}, 3 * time.Second},
		"the newer prober":     {[]Received{said(quell.FromProber, "p", 9), said(quell.FromProber, "q", 8)}, 8 * time.Second},
		"the newer agent":      {[]Received{said(quell.FromAgent, "a", 4), said(quell.FromAgent, "b", 1)}, time.Second},
		"a balancer by itself": {[]Received{balancer}, 2 * time.Second},
		"the newer balancer":   {[]Received{balancer, said(quell.FromBalancer, "c", 1)}, time.Second},
	} {
		o, damaged := Merge(epoch, epoch.Add(-time.Hour), tc.readings, nil)
		if age := epoch.Sub(o.At); age != tc.age || damaged != nil {
			t.Errorf("%s: %v old, want %v; %v", name, age, tc.age, damaged)
		}
	}
	if o, _ := Merge(epoch, epoch, nil, nil); o != nil {
		t.Errorf("nothing was read, and %+v is known", o)
	}
}

func TestProbesAreToldOnce(t *testing.T) {
	readings := []Received{said(quell.FromAgent, "a", 1), said(quell.FromProber, "p", 1)}
	readings[0].Observation.Probe = map[quell.Resource]quell.ProbeStats{quell.CPU: {MeanMS: 1, N: 8}}
	if o, _ := Merge(epoch, epoch.Add(-2*time.Second), readings, nil); len(o.Probe) != 2 {
		t.Errorf("probes since the last snapshot: %v", o.Probe)
	}
	o, _ := Merge(epoch, epoch.Add(-time.Second), readings, nil)
	if o.Probe != nil || o.Utilization == nil {
		t.Errorf("probes from before the last snapshot: %v", o.Probe)
	}
	if len(readings[0].Observation.Probe) != 1 {
		t.Errorf("the reading was changed: %v", readings[0].Observation.Probe)
	}
}

// If the agent is silent, its machine may stand still, and probes only show that.
func TestProbesBesideASilentAgentAreNotUsed(t *testing.T) {
	prober := said(quell.FromProber, "p", 1)
	for name, tc := range map[string]struct {
		readings []Received
		used     bool
	}{
		"the agent reports":   {[]Received{said(quell.FromAgent, "a", 1.5), prober}, true},
		"the agent is silent": {[]Received{said(quell.FromAgent, "a", 3), prober}, false},
		"there is no agent":   {[]Received{prober}, true},
	} {
		if o, _ := Merge(epoch, epoch.Add(-2*time.Second), tc.readings, nil); (len(o.Probe) > 0) != tc.used {
			t.Errorf("%s: probes %v", name, o.Probe)
		}
	}
}

func TestDamagedHistogramsAreTold(t *testing.T) {
	bad := said(quell.FromBalancer, "b", 0)
	bad.LatencyHDR = []byte("hello")
	o, damaged := Merge(epoch, epoch, []Received{bad, said(quell.FromBalancer, "c", 0)}, nil)
	if len(damaged) != 1 || damaged[0].Reading.Sender != "b" || damaged[0].Unwrap() == nil {
		t.Fatalf("%v", damaged)
	}
	if *o.RequestRate != 40 || o.LatencyMS != nil {
		t.Errorf("%+v", o)
	}
}

// measured is an agent's reading with two requests that the service itself measured.
func measured(t *testing.T, age float64) Received {
	h := hdrhistogram.New(1, longest, 2)
	_ = h.RecordValues(250_000, 2) // it is in range
	encoded, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		t.Fatal(err)
	}
	r, rate, mean := said(quell.FromAgent, "a", age), 2., 250.
	r.Observation.WindowS, r.Observation.RequestRate, r.Observation.LatencyMS = 1, &rate, &quell.Latency{Mean: &mean, N: 2}
	r.Requests, r.LatencyHDR = 2, encoded
	return r
}

// What the service measures itself takes the place of the balancer's response times, and not of its rate.
func TestTheServicesOwnTimesCount(t *testing.T) {
	mean, before := 7., epoch.Add(-10*time.Second)
	b := said(quell.FromBalancer, "b", 0.1)
	b.Observation.LatencyMS = &quell.Latency{Mean: &mean, N: 20}
	b.LatencyHDR = measured(t, 0).LatencyHDR
	for name, tc := range map[string]struct {
		readings []Received
		mean     float64 // 0: none
		rate     float64 // 0: none
		served   int64
	}{
		"beside a balancer":        {[]Received{measured(t, 0), b}, 250, 20, 2},
		"alone":                    {[]Received{measured(t, 0)}, 250, 2, 2},
		"late":                     {[]Received{measured(t, 1.5)}, 250, 2, 2},
		"of an agent that is gone": {[]Received{measured(t, 3)}, 0, 0, 0},
		"old beside a balancer":    {[]Received{measured(t, 3), said(quell.FromBalancer, "b", 0.1)}, 0, 20, 0},
	} {
		var served Durations
		o, damaged := Merge(epoch, before, tc.readings, &served)
		got, _ := o.LatencyMS.Of(quell.Mean)
		var n int64
		served.Each(func(_, more int64) { n += more })
		if got != tc.mean || value(o.RequestRate) != tc.rate || n != tc.served || damaged != nil {
			t.Errorf("%s: mean %g, rate %g, %d served, %v", name, got, value(o.RequestRate), n, damaged)
		}
	}
	bad := measured(t, 0)
	bad.LatencyHDR = []byte("hello")
	if o, damaged := Merge(epoch, before, []Received{bad}, nil); len(damaged) != 1 || o.LatencyMS != nil {
		t.Errorf("damaged: %+v, %v", o.LatencyMS, damaged)
	}
	if got := Arrivals(epoch, period, map[string][]Received{"i1": {measured(t, 0)}, "i2": {measured(t, 0.1)}}); got == nil || *got != 4 {
		t.Errorf("without a balancer %v arrive", got)
	}
}

// However many balancers there are, their counts add up, in whatever order instances are listed.
func TestArrivalsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		readings, want := map[string][]Received{}, 0.0
		for _, id := range []string{"i1", "i2", "i3"} {
			readings[id] = []Received{said(quell.FromAgent, id, 0)}
			for _, from := range []string{"b", "c"}[:rapid.IntRange(0, 2).Draw(t, "balancers")] {
				r := said(quell.FromBalancer, from, rapid.Float64Range(0, 0.4).Draw(t, "age"))
				rate := float64(rapid.IntRange(0, 100).Draw(t, "rate"))
				r.Observation.RequestRate = &rate
				want += rate
				readings[id] = append(readings[id], r)
			}
		}
		got := Arrivals(epoch, period, readings)
		if got == nil && want > 0 || got != nil && *got != want {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

func TestAnInstanceThatDiedArrivesNoMore(t *testing.T) {
	readings := map[string][]Received{"i1": {said(quell.FromBalancer, "b", 0.1)}, "i2": {said(quell.FromBalancer, "b", 1.1)}}
	if got := Arrivals(epoch, period, readings); *got != 20 {
		t.Errorf("%g a second", *got)
	}
	late := map[string][]Received{"i1": {said(quell.FromBalancer, "b", 1.9)}}
	if got := Arrivals(epoch, period, late); got == nil || *got != 20 {
		t.Error("readings of this period that are late are missed")
	}
	if got := Arrivals(epoch, period, map[string][]Received{"i1": {said(quell.FromBalancer, "b", 2.1)}}); got != nil {
		t.Errorf("%g a second, by a balancer that fell silent", *got)
	}
}

func TestPutKeepsTheNewestOfEachSender(t *testing.T) {
	var readings []Received
	for _, r := range []Received{
		said(quell.FromProber, "p", 3), said(quell.FromAgent, "a", 3), said(quell.FromBalancer, "c", 3), said(quell.FromBalancer, "b", 3),
		said(quell.FromAgent, "a", 1), said(quell.FromBalancer, "c", 2),
	} {
		readings = Put(readings, r)
	}
	want := []Received{
		said(quell.FromAgent, "a", 1), said(quell.FromBalancer, "b", 3), said(quell.FromBalancer, "c", 2), said(quell.FromProber, "p", 3),
	}
	if !slices.EqualFunc(readings, want, func(a, b Received) bool { return BySender(a, b) == 0 && a.At.Equal(b.At) }) {
		t.Errorf("%+v", readings)
	}
}

// Response times of a class are merged as histograms, its rates are added. What a single balancer says of classes is used as it is.
func TestClassesMerge(t *testing.T) {
	of := func(sender string, rate float64, ms ...int64) Received {
		h := hdrhistogram.New(1, 1e9, 2)
		for _, v := range ms {
			_ = h.RecordValue(1000 * v)
		}
		text, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
		if err != nil {
			t.Fatal(err)
		}
		r := said(quell.FromBalancer, sender, 0)
		r.Observation.RequestRates = map[string]float64{"home": rate, "other": 0}
		p90 := float64(ms[len(ms)-1])
		r.Observation.LatencyByClassMS = map[string]quell.Latency{"home": {P90: &p90, N: len(ms)}}
		r.ClassHDR = map[string][]byte{"home": text}
		return r
	}
	east, west := of("east", 3, 10, 10, 10, 10, 10, 10, 10, 10, 10), of("west", 1, 90)
	o, damaged := Merge(epoch, epoch, []Received{east, west}, nil)
	if len(damaged) > 0 || o.RequestRates["home"] != 4 || o.RequestRates["other"] != 0 || len(o.RequestRates) != 2 {
		t.Errorf("rates %v, %v", o.RequestRates, damaged)
	}
	if l := o.LatencyByClassMS["home"]; l.N != 10 || math.Abs(*l.P90-10) > 0.2 || math.Abs(*l.P99-90) > 2 {
		t.Errorf("response times %+v", l)
	}
	if o, _ := Merge(epoch, epoch, []Received{west}, nil); o.RequestRates["home"] != 1 || *o.LatencyByClassMS["home"].P90 != 90 {
		t.Errorf("a single balancer: %+v", o)
	}
	west.ClassHDR["home"] = []byte("damaged")
	o, damaged = Merge(epoch, epoch, []Received{east, west}, nil)
	if len(damaged) != 1 || o.LatencyByClassMS["home"].N != 9 || o.RequestRates["home"] != 4 {
		t.Errorf("beside a damaged histogram: %+v, %v", o, damaged)
	}
}

// Percentiles of several balancers cannot be merged; the percentiles of a single balancer are used unchanged.
func TestTheOnlyBalancerIsTakenAtItsWord(t *testing.T) {
	mean, p95 := 12.0, 30.0
	b := said(quell.FromBalancer, "b", 0)
	b.Observation.LatencyMS = &quell.Latency{Mean: &mean, P95: &p95, N: 10}
	if o, _ := Merge(epoch, epoch, []Received{b}, nil); o.LatencyMS == nil || *o.LatencyMS.P95 != p95 {
		t.Errorf("one: %+v", o.LatencyMS)
	}
	c := b
	c.Sender = "c"
	if o, _ := Merge(epoch, epoch, []Received{b, c}, nil); *o.LatencyMS.Mean != mean || o.LatencyMS.P95 != nil || o.LatencyMS.N != 20 {
		t.Errorf("two: %+v", o.LatencyMS)
	}
	none := b
	none.Observation.LatencyMS = &quell.Latency{}
	if o, _ := Merge(epoch, epoch, []Received{none}, nil); o.LatencyMS != nil {
		t.Errorf("of no request: %+v", o.LatencyMS)
	}
	b.LatencyHDR = []byte("damaged")
	if o, _ := Merge(epoch, epoch, []Received{b}, nil); o.LatencyMS != nil {
		t.Errorf("beside a damaged histogram: %+v", o.LatencyMS)
	}
}

// Each balancer says with every reading of a window how many requests found no instance. It counts once, and not after the balancer fell
// silent.
func TestUnservedRequestsCountOnce(t *testing.T) {
	of := func(from string, age, rate float64) Received {
		r := said(quell.FromBalancer, from, age)
		r.Observation.Counters = map[string]float64{quell.CounterUnserved: rate}
		return r
	}
	readings := map[string][]Received{
		"i1": {said(quell.FromAgent, "i1", 0), of("b", 0.1, 4), of("c", 0.2, 3), of("d", 2.1, 50)},
		"i2": {of("b", 0.1, 4)},
		"i3": {of("b", 1.5, 100)}, // of the window before: the balancer no longer has it
		"i4": {said(quell.FromAgent, "i4", 0)},
	}
	if got := Unserved(epoch, period, readings); got != 7 {
		t.Errorf("%g a second", got)
	}
	if got := Unserved(epoch, period, nil); got != 0 {
		t.Errorf("%g a second of nobody", got)
	}
}

// The error rate of a service whose agent fell silent goes with its response times, also if there were none.
func TestOldErrorsAreLeftOut(t *testing.T) {
	r := measured(t, 3)
	failed := 1.0
	r.Observation.ErrorRate, r.Observation.LatencyMS = &failed, nil
	if o, _ := Merge(epoch, epoch, []Received{r}, nil); o.ErrorRate != nil || o.RequestRate != nil {
		t.Errorf("%+v", o)
	}
}
