package model

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

// dialExample is DIAL's section as docs/files.md shows it.
const dialExample = `{"format":"quell-models/1",
 "dial":{"peak_rate":1000,"detect_ms":5.0,"detect_by_class_ms":{"HomePage":4.0},
  "expected":{"cpu_user":{"intercept":0.01,"per_request":{"HomePage":0.0002}},"cpu_system":{"intercept":0.0,"per_request":{"HomePage":0.0001}}},
  "classifier":{"feature":"connect_ms_p90","threshold":3.0,
    "above":{"class":"network","count":50,"errors":1},
    "below":{"feature":"cpu_user_ratio","threshold":1.2,"above":{"class":"memory"},"below":{"class":"none"}}},
  "queueing":{"network":[1,2,0.5],"cpu":[-1,0,3]}}}`

func TestDialAsInTheContract(t *testing.T) {
	m := decoded(t, dialExample)
	d := m.Dial()
	if d == nil || d.PeakRate != 1000 || d.DetectMS != 5 || d.DetectByClassMS["HomePage"] != 4 ||
		d.Expected["cpu_user"].PerRequest["HomePage"] != 0.0002 || d.Classifier.Leaves() != 3 || d.Queueing[quell.CPU][2] != 3 {
		t.Fatalf("got %+v", d)
	}
	var text bytes.Buffer
	if err := m.Encode(&text); err != nil {
		t.Fatal(err)
	}
	if again := decoded(t, text.String()); !reflect.DeepEqual(again, m) {
		t.Errorf("written as\n%s", &text)
	}
	if got := d.Incomplete() + (&Dial{}).Incomplete(); got != "detect_ms" {
		t.Errorf("what is missing is %q", got)
	}
	if decoded(t, `{"format":"quell-models/1"}`).Dial() != nil {
		t.Error("models without the section have one")
	}
}

func TestDialMistakes(t *testing.T) {
	for name, c := range map[string]struct{ section, want string }{
		"not an object":       {`7`, `line 2: dial: must be an object`},
		"an unknown field":    {`{"peakrate":1}`, `dial: unknown field "peakrate"`},
		"a class of its own":  {`{"classifier":{"class":"gpu"}}`, `dial.classifier.class: unknown class "gpu" (known: cpu, disk, memory, network, none)`},
		"another feature":     {`{"classifier":{"feature":"x","threshold":1,"above":{"class":"cpu"},"below":{"class":"none"}}}`, `dial.classifier.feature: unknown feature "x"`},
		"a test of nothing":   {"{\"classifier\":{\"feature\":\"iowait\",\"threshold\":1,\"above\":{\"class\":\"cpu\"},\n\"below\":{}}}", `line 3: dial.classifier.below.class: is missing`},
		"no number":           {`{"classifier":{"feature":"iowait","threshold":"NaN","above":{"class":"cpu"},"below":{"class":"none"}}}`, `dial.classifier.threshold: "NaN" is no number`},
		"two coefficients":    {`{"queueing":{"cpu":[1,2]}}`, `dial.queueing.cpu: has 2 coefficients; give c0, c1 and c2 of Eq. 1`},
		"four coefficients":   {`{"queueing":{"cpu":[1,2,3,4]}}`, `dial.queueing.cpu: has 4 coefficients`},
		"decreasing":          {`{"queueing":{"cpu":[1,-2,3]}}`, `dial.queueing.cpu: c1 is -2: response times would fall as the resource fills; give 0 or more`},
		"constant":            {`{"queueing":{"cpu":[1,0,0]}}`, `dial.queueing.cpu: c1 and c2 are 0: response times would say nothing of the resource; leave it out`},
		"an unknown resource": {`{"queueing":{"gpu":[1,2,3]}}`, `unknown resource "gpu"`},
		"a calm curve":        {`{"calm":[1]}`, `dial.calm: has 1 coefficients`},
		"no time at all":      {`{"calm":[-3,1,1]}`, `dial.calm: the p90 of an instance without load is -1 ms; give one above 0`},
		"another expectation": {`{"expected":{"steal":{"intercept":0,"per_request":{}}}}`, `dial.expected.steal: unknown feature "steal" (known: cpu_system, cpu_user)`},
		"half an expectation": {`{"expected":{"cpu_user":{"intercept":0}}}`, `dial.expected.cpu_user.per_request: is missing`},
		"a class that saves":  {`{"expected":{"cpu_user":{"intercept":0,"per_request":{"a":-1}}}}`, `dial.expected.cpu_user.per_request.a: -1 is outside 0 to 1e+09`},
		"an unknown curve":    {`{"curves":{"steal":[1,2,3]}}`, `dial.curves.steal: unknown feature "steal" (known: connect_ms_p90, cpu_wait, iowait)`},
		"a falling curve":     {`{"curves":{"iowait":[0,-1,0]}}`, `dial.curves.iowait: c1 is -1`},
		"a curve of a class":  {`{"calm_by_class":{"a":[0,1]}}`, `dial.calm_by_class.a: has 2 coefficients`},
		"a class of no time":  {`{"calm_by_class":{"a":[-3,1,1]}}`, `dial.calm_by_class.a: the p90 of an instance without load is -1 ms`},
		"an absurd stretch":   {`{"calm":[1,1,1],"peak_rate":1,"stretch":100}`, `dial.stretch: 100 is outside 0 to 99`},
		"stretch of nothing":  {`{"stretch":1}`, `dial.stretch: says what neighbours add to calm response times: it needs dial.calm`},
		"an absurd tail":      {`{"tail":1000}`, `dial.tail: 1000 is outside 0 to 100`},
		"a rate below 0":      {`{"peak_rate":-1}`, `dial.peak_rate: -1 is outside`},
		"a rate of nothing":   {`{"peak_rate":1e-310}`, `dial.peak_rate: 1e-310 is outside 1e-06 to 1e+09 requests per second; leave it out if it is unknown`},
		"an infinite error":   {`{"errors":{"cpu":{"mean_relative":1e308}}}`, `dial.errors.cpu.mean_relative: 1e+308 is outside 0 to 1e+09`},
		"an error below 0":    {`{"errors":{"cpu":{"linear":-7}}}`, `dial.errors.cpu.linear: -7 is outside`},
		"a largest error":     {`{"errors":{"cpu":{"max_relative":-7}}}`, `dial.errors.cpu.max_relative: -7 is outside`},
		"less than no rows":   {`{"errors":{"cpu":{"rows":-4}}}`, `dial.errors.cpu.rows: -4 is outside`},
		"a large coefficient": {`{"queueing":{"cpu":[1,1e12,3]}}`, `dial.queueing.cpu: c1 is 1e+12, which is too large; give 0 to 1e+09`},
		"a null coefficient":  {"{\"queueing\":{\"network\":[null,\n3,0]}}", `line 2: dial.queueing.network[0]: is null; give a value`},
		"a null in a curve":   {`{"calm":[1,null,1]}`, `dial.calm[1]: is null; give a value`},
		"a null in a class":   {`{"calm_by_class":{"a":[1,null,1]}}`, `dial.calm_by_class.a[1]: is null; give a value`},
		"a null tail":         {`{"tail_by_class":{"a":null}}`, `dial.tail_by_class.a: is null; give a value`},
		"a null expectation":  {`{"expected":{"cpu_user":{"intercept":0,"per_request":{"a":null}}}}`, `dial.expected.cpu_user.per_request.a: is null; give a value`},
		"unusual":             {`{"usual":{"bogus":1}}`, `dial.usual.bogus: unknown feature "bogus" (known: connect_ms_p90, connect_ratio, `},
		"validated":           {`{"validated":{"gpu":{"cpu":1}}}`, `dial.validated.gpu: unknown class "gpu" (known: cpu, disk, memory, network, none)`},
		"a prediction":        {`{"validated":{"cpu":{"gpu":1}}}`, `dial.validated.cpu.gpu: unknown class "gpu"`},
		"less than no sample": {`{"validated":{"cpu":{"cpu":-1}}}`, `dial.validated.cpu.cpu: -1 is outside`},
	} {
		_, err := Decode([]byte("{\"format\":\"quell-models/1\",\n\"dial\":"+c.section+"}"), "line ")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

// Hidden is the inverse of MS: from a response time it computes the neighbours' use.
func TestQueueingIsInverted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := Queueing{rapid.Float64Range(-5, 20).Draw(t, "c0"), rapid.Float64Range(0, 10).Draw(t, "c1"), rapid.Float64Range(0, 10).Draw(t, "c2")}
		if q[1]+q[2] < 1e-3 {
			q[1] = 1
		}
		own := rapid.Float64Range(0, 0.9).Draw(t, "own")
		hidden := rapid.Float64Range(0, 0.998-own).Draw(t, "hidden")
		if got := q.Hidden(q.MS(own+hidden), own); math.Abs(got-hidden) > 1e-6 {
			t.Fatalf("%v, own %v: %v, want %v", q, own, got, hidden)
		}
		if a, b := q.MS(own), q.MS(own+0.05); a >= b {
			t.Fatalf("%v falls from %v to %v", q, a, b)
		}
		ms := rapid.Float64Range(0, 1e9).Draw(t, "ms")
		if got := q.Hidden(ms, own); !(got >= 0 && got < 1-own) {
			t.Fatalf("%v, own %v, %v ms: %v", q, own, ms, got)
		}
	})
}

func TestHidden(t *testing.T) {
	for _, c := range []struct {
		why           string
		q             Queueing
		ms, own, want float64
	}{
		{"below what an empty machine takes", Queueing{5, 1, 0}, 4, 0.2, 0},
		{"just that", Queueing{5, 1, 0}, 5, 0.2, 0},
		{"what the own use explains", Queueing{5, 1, 0}, 7, 0.6, 0},
		{"without a square term", Queueing{5, 1, 0}, 7, 0.2, 0.3},
		{"with nothing else", Queueing{5, 0, 1}, 9, 0.2, 0.3},
		{"beyond all", Queueing{5, 1, 0}, 1e12, 0.2, 0.799},
	} {
		if got := c.q.Hidden(c.ms, c.own); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", c.why, got, c.want)
		}
	}
}

func TestDialFeatures(t *testing.T) {
	d := decoded(t, dialExample).Dial()
	rate := 100.0
	o := &quell.Observation{RequestRate: &rate, RequestRates: map[string]float64{"HomePage": 100},
		CPU: &quell.CPUTime{User: 0.06, System: 0.01, IOWait: new(0.2)}, TCP: map[string]float64{"connect_ms_p90": 0.4, "rtt_ms": 3}}
	want := map[string]float64{"cpu_user_ratio": 2, "cpu_system_ratio": 1, "iowait": 0.2, "connect_ms_p90": 0.4}
	if got := d.Features(o); !sameFeatures(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	o.RequestRates = nil // the classes of these requests are unknown, so hardly any use is expected: 0.01 for user time, 0 for system time
	delete(want, "cpu_system_ratio")
	if want["cpu_user_ratio"] = 6; !sameFeatures(d.Features(o), want) {
		t.Errorf("of no class: %v", d.Features(o))
	}
	if got := d.Features(&quell.Observation{}); len(got) != 0 {
		t.Errorf("of nothing measured: %v", got)
	}
}

// Features that grow with the own load are also compared with those of an undisturbed instance at that load.
func TestDialFeaturesAtALoad(t *testing.T) {
	d := decoded(t, dialExample).Dial()
	d.Curves = map[string]Queueing{"connect_ms_p90": {0, 0.2, 0}, "iowait": {-0.1, 0.1, 0}, "cpu_wait": {-1, 1, 0}}
	wait, throttled := 2.0, 0.5
	o := &quell.Observation{TCP: map[string]float64{"connect_ms_p90": 1}, CPU: &quell.CPUTime{IOWait: new(0.05)},
		Sched:       &quell.Sched{RunS: 1, WaitS: &wait, ThrottledS: &throttled},
		Utilization: map[quell.Resource]float64{quell.Network: 0.5, quell.CPU: 0.5, quell.Disk: 0}}
	want := map[string]float64{"connect_ms_p90": 1, "connect_ratio": 2.5, "iowait": 0.05, "cpu_wait": 1.5, "cpu_wait_ratio": 1.5}
	if got := d.Features(o); !sameFeatures(got, want) {
		t.Errorf("got %v, want %v", got, want) // without use of the disk, no iowait is expected, and nothing can be compared with it
	}
	o.Sched.RunS = 0
	if got := d.Features(o); len(got) != 3 {
		t.Errorf("without processor time: %v", got)
	}
}

// At low use almost no waiting is expected. A trifle of it is not many times too much, and the neighbours' waits still show.
func TestWaitRatiosAtLittleUse(t *testing.T) {
	d := decoded(t, dialExample).Dial()
	d.Curves = map[string]Queueing{"iowait": {-0.02, 0.02, 0}, "cpu_wait": {-0.2, 0.2, 0}}
	for _, c := range []struct {
		use, wait         float64
		ioRatio, cpuRatio float64
	}{
		{0.0005, 0.001, 0.1, 0.1}, // 0.00001 and 0.0001 are expected
		{0.0005, 0.08, 8, 8},
		{0.5, 0.04, 2, 0.2}, // 0.02 and 0.2 are
	} {
		o := &quell.Observation{CPU: &quell.CPUTime{IOWait: &c.wait}, Sched: &quell.Sched{RunS: 1, WaitS: &c.wait},
			Utilization: map[quell.Resource]float64{quell.CPU: c.use, quell.Disk: c.use}}
		got := d.Features(o)
		if math.Abs(got["iowait_ratio"]-c.ioRatio) > 1e-9 || math.Abs(got["cpu_wait_ratio"]-c.cpuRatio) > 1e-9 {
			t.Errorf("%v at a use of %v: %v, want ratios of %v and %v", c.wait, c.use, got, c.ioRatio, c.cpuRatio)
		}
	}
}

// Features can be averaged and stored whatever an agent reports.
func TestDialFeaturesAreFinite(t *testing.T) {
	d := decoded(t, dialExample).Dial()
	d.Curves = map[string]Queueing{"connect_ms_p90": {0, 0.2, 0}, "cpu_wait": {-1, 1, 0}}
	rate, wait := 0.0, 1e9
	o := &quell.Observation{RequestRate: &rate, TCP: map[string]float64{"connect_ms_p90": 1.7e308, "retransmit_rate": 1.7e308},
		CPU: &quell.CPUTime{User: 1, System: 1}, Sched: &quell.Sched{RunS: 0.001, WaitS: &wait},
		Utilization: map[quell.Resource]float64{quell.Network: 0, quell.CPU: 1e-300}}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	if got := d.Features(o); !sameFeatures(got, map[string]float64{"cpu_user_ratio": 100}) {
		t.Errorf("got %v", got) // what cannot be right counts as not measured
	}
}

// At low use the curve expects almost no time to connect. The measured time is compared with the usual time instead, and what chance adds
// to the p90 of few connections is taken off.
func TestConnectRatioAtLittleUse(t *testing.T) {
	d := &Dial{Curves: map[string]Queueing{"connect_ms_p90": {-1, 1, 0}}, Usual: map[string]float64{"connect_ms_p90": 0.25}}
	chance := chanceOfP90(50)
	for _, c := range []struct {
		use, ms float64
		n       int
		want    float64
	}{
		{0.5, 2, 0, 2},                     // 1 ms is expected
		{0.01, 0.25, 0, 1},                 // 0.0101 ms is
		{0.01, 1, 0, 4},                    // a neighbour still shows
		{0.01, 0.3, 50, 1},                 // chance explains a fifth more
		{0.01, 1, 50, 4 - chance},          // and more, not all of it
		{0.5, 0.1, 50, 1 - (0.9 - chance)}, // less than expected
	} {
		o := &quell.Observation{TCP: map[string]float64{"connect_ms_p90": c.ms},
			Utilization: map[quell.Resource]float64{quell.Network: c.use}}
		if c.n > 0 {
			o.LatencyMS = &quell.Latency{N: c.n}
		}
		if got := d.Features(o)["connect_ratio"]; math.Abs(got-c.want) > 1e-4 {
			t.Errorf("%v ms at %v of the link, %d requests: %v, want %v", c.ms, c.use, c.n, got, c.want)
		}
	}
}

// The p90 of n exponentially distributed delays is above what chance explains in few windows, however small n is.
func TestChanceOfP90(t *testing.T) {
	const windows = 20_000
	rng := rand.New(rand.NewPCG(7, 7))
	for _, n := range []int{5, 20, 100} {
		above := 0
		for range windows {
			if p90OfExponentials(rng, n, 1) > 1+chanceOfP90(n) {
				above++
			}
		}
		if above > windows*4/1000 || above < windows*3/10_000 {
			t.Errorf("of %d delays: %d of %d windows are above", n, above, windows)
		}
	}
}

// exponential is a section for exponentially distributed response times with a p90 of 10 ms, of which everything is known.
func exponential() *Dial {
	return &Dial{DetectMS: 10, DetectRate: 100, PeakRate: 1000, Calm: Queueing{0, 9, 0}, Tail: 1 / math.Log(10),
		DetectByClassMS: map[string]float64{"a": 10, "b": 10},
		Queueing:        map[quell.Resource]Queueing{quell.CPU: {0, 5, 0}}}
}

// p90OfExponentials is the p90 of n response times whose true p90 is given.
func p90OfExponentials(rng *rand.Rand, n int, p90 float64) float64 {
	times := make([]float64, n)
	for i := range times {
		times[i] = p90 / math.Log(10) * rng.ExpFloat64()
	}
	slices.Sort(times)
	return times[int(math.Ceil(0.9*float64(n)))-1]
}

// The p90 of a window exceeds its bound by chance in 5% of windows, whatever the number of its requests.
func TestBoundsOfFewRequests(t *testing.T) {
	const windows = 3000
	d, rng := exponential(), rand.New(rand.NewPCG(1, 4))
	for _, n := range []int{1, 5, 11, 20, 66, 1001} {
		above, clear, sum := 0, 0, 0.0
		for range windows {
			ms := p90OfExponentials(rng, n, 10)
			excess := d.Exceeded(&quell.Observation{LatencyMS: &quell.Latency{P90: &ms, N: n}}, 100)
			if above += len(excess); len(excess) > 0 && excess[0].Clear {
				clear++
			}
			sum += d.P90(ms, n)
		}
		if share := float64(above) / windows; share < 0.03 || share > 0.07 {
			t.Errorf("of %d requests %.1f%% are above the bound", n, 100*share)
		}
		if share := float64(clear) / windows; share > 0.006 {
			t.Errorf("of %d requests %.1f%% are clearly above it", n, 100*share)
		}
		if mean := sum / windows; math.Abs(mean-10) > 0.6 {
			t.Errorf("of %d requests the p90 is taken for %.2f ms on average, and is 10", n, mean)
		}
	}
}

func TestExceeded(t *testing.T) {
	d := exponential()
	ms := func(v float64, n int) quell.Latency { return quell.Latency{P90: &v, N: n} }
	all := ms(100, 500)
	got := d.Exceeded(&quell.Observation{LatencyMS: &all, LatencyByClassMS: map[string]quell.Latency{"b": ms(30, 100), "a": ms(9, 100),
		"new": ms(1000, 100)}}, 100)
	if len(got) != 2 || got[0].Class != "" || !got[0].Clear || got[1].Class != "b" || got[1].Clear || got[1].MS != 30 || got[1].Bound < 10 {
		t.Errorf("%+v", got)
	}
	if got := d.Exceeded(&quell.Observation{}, 100); len(got) > 0 {
		t.Errorf("of nothing measured: %+v", got)
	}
	unknown := ms(10.1, 0)
	if got := d.Exceeded(&quell.Observation{LatencyMS: &unknown}, 100); len(got) != 1 {
		t.Errorf("of an unknown number of requests: %+v", got)
	}
	huge := ms(1e9, math.MaxInt)
	if got := d.Exceeded(&quell.Observation{LatencyMS: &huge}, 1e9); len(got) != 1 || !(got[0].Bound < 1e9) {
		t.Errorf("of very many requests: %+v", got)
	}
}

// The interval of the hidden load contains the true one in about 95% of windows.
func TestHiddenLoad(t *testing.T) {
	const windows = 2000
	d, rng, inside := exponential(), rand.New(rand.NewPCG(1, 5)), 0
	for range windows {
		ms := d.P90(p90OfExponentials(rng, 200, d.Predict(quell.CPU, 300, 0.3, 0.4)), 200)
		x, ok := d.HiddenLoad(quell.CPU, ms, 200, 300, 0.3)
		if !ok || x.Low > x.Value || x.Value > x.High {
			t.Fatalf("%+v, %v", x, ok)
		}
		if x.Low <= 0.4 && 0.4 <= x.High {
			inside++
		}
	}
	if share := float64(inside) / windows; share < 0.92 || share > 0.98 {
		t.Errorf("%.1f%% of the intervals contain the truth", 100*share)
	}
	if _, ok := d.HiddenLoad(quell.Disk, 10, 100, 0, 0); ok {
		t.Error("a resource without coefficients has a hidden load")
	}
}

func sameFeatures(a, b map[string]float64) bool {
	if len(a) != len(b) {
		return false
	}
	for name, v := range a {
		if w, ok := b[name]; !ok || math.Abs(v-w) > 1e-9 {
			return false
		}
	}
	return true
}

// Requests of a class that appears only after training are expected to cost what other requests cost.
func TestExpectedOfAnotherClass(t *testing.T) {
	e := Expected{Intercept: 1, PerRequest: map[string]float64{"a": 2, OtherClasses: 3}}
	for _, c := range []struct {
		rate    float64
		classes map[string]float64
		want    float64
	}{
		{0, nil, 1}, {10, map[string]float64{"a": 10}, 21}, {10, map[string]float64{"a": 4, "new": 6}, 1 + 8 + 18},
		{10, nil, 31}, {10, map[string]float64{"a": 12}, 25}, {5, map[string]float64{OtherClasses: 5}, 16},
	} {
		if got := e.At(c.rate, c.classes); got != c.want {
			t.Errorf("%v of %v: %v, want %v", c.rate, c.classes, got, c.want)
		}
	}
}

// law is a machine for which the use of each class of requests is known, and whose p90 is given by Eq. 1.
type law struct {
	*rand.Rand
	noise float64
}

var lawful = map[quell.Resource]Queueing{
	quell.CPU: {4, 2, 0.3}, quell.Network: {2, 4, 0.6}, quell.Disk: {3, 3, 0.5}, quell.Memory: {4, 2, 0.4},
}

func (l law) about(v float64) float64 { return v * math.Exp(l.noise*l.NormFloat64()) }

// row is a run at a level of the resource under interference. 1000 requests per second fill the first resource.
func (l law) row(resource quell.Resource, level, interfering float64) TrainingRow {
	rate := 1000 * level
	home := rate * (0.3 + 0.4*l.Float64())
	calm := Queueing{3, 3, 0.5}.MS(level)
	p90 := calm
	if interfering > 0 {
		p90 += lawful[resource].MS(level+interfering) - lawful[resource].MS(level)
	}
	p90 = l.about(p90)
	slow := l.about(2 * p90)
	cpu := &quell.CPUTime{User: l.about(0.02 + 0.0002*home + 0.0006*(rate-home)), System: l.about(0.01 + 0.0002*rate)}
	cpu.IOWait = new(l.about(0.02))
	tcp := map[string]float64{"connect_ms_p90": l.about(0.5), "retransmit_rate": l.about(0.2)}
	if interfering > 0 {
		switch resource {
		case quell.CPU:
			cpu.User, cpu.System = cpu.User*0.8, cpu.System*1.5
		case quell.Memory:
			cpu.User, cpu.System = cpu.User*1.6, cpu.System*1.4
		case quell.Disk:
			*cpu.IOWait *= 8
		case quell.Network:
			tcp["connect_ms_p90"] *= 10
		}
	}
	p95 := 1.3 * p90
	ms := quell.Latency{P90: &p90, P95: &p95, N: 1_000_000} // so many that all scatter is the noise
	return TrainingRow{Resource: resource, Level: level, Interfering: interfering, Utilization: level, RequestRate: rate, LatencyMS: ms,
		ProbeMS: ProbeRun{Mean: 1, Stddev: 0.1, N: 10},
		Observation: &quell.Observation{RequestRate: &rate, RequestRates: map[string]float64{"home": home, "search": rate - home},
			LatencyMS: &ms, LatencyByClassMS: map[string]quell.Latency{"search": {P90: &slow, N: 500_000}},
			Utilization: map[quell.Resource]float64{resource: level, quell.CPU: 0.5 * level}, CPU: cpu, TCP: tcp}}
}

func (l law) rows() []TrainingRow {
	var rows []TrainingRow
	for _, resource := range quell.Resources {
		for level := 1; level <= 7; level++ {
			for interfering := 0; interfering <= 6 && level+interfering < 10; interfering++ {
				if resource == quell.CPU && interfering > 4 {
					continue
				}
				rows = append(rows, l.row(resource, float64(level)/10, float64(interfering)/10))
			}
		}
	}
	return rows
}

func fittedDial(t *testing.T, rows []TrainingRow) (*Dial, *DialReport) {
	t.Helper()
	m, report, err := Fit(rows, FitOptions{Service: "shop", Metric: quell.P90})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range report.Sections {
		if dial, ok := part.(*DialReport); ok {
			return m.Dial(), dial
		}
	}
	t.Fatalf("no report of DIAL in %v", report)
	return nil, nil
}

func TestFitDial(t *testing.T) {
	l := law{rand.New(rand.NewPCG(1, 2)), 0.04}
	d, report := fittedDial(t, l.rows())
	if len(report.Missing) > 0 || d.Incomplete() != "" {
		t.Errorf("not fitted: %v", report.Missing)
	}
	if math.Abs(d.PeakRate-1000) > 1 {
		t.Errorf("peak rate %v", d.PeakRate)
	}
	if math.Abs(d.Tail-0.3/math.Ln2) > 1e-9 || math.Abs(d.Usual["iowait"]-0.02) > 0.002 {
		t.Errorf("tail %v, usually %v", d.Tail, d.Usual)
	}
	home, search := d.Expected["cpu_user"].PerRequest["home"], d.Expected["cpu_user"].PerRequest["search"]
	if math.Abs(home-0.0002) > 5e-5 || math.Abs(search-0.0006) > 5e-5 {
		t.Errorf("user time %v", d.Expected["cpu_user"])
	}
	if other := d.Expected["cpu_user"].PerRequest[OtherClasses]; math.Abs(other-0.0004) > 5e-5 {
		t.Errorf("a class that appears later costs %v", other)
	}
	for _, r := range quell.Resources {
		if e := d.Errors[r]; e.MeanRelative > 0.061 || e.Rows < 20 {
			t.Errorf("%s: %+v", r, e)
		}
	}
	if e := d.Errors[quell.Network]; e.Linear < 1.2*e.MeanRelative {
		t.Errorf("the square term does not matter: %+v", e)
	}
	if n, right := d.Validated.Total(); n < 80 || float64(right) < 0.9*float64(n) {
		t.Errorf("%d of %d are right\n%s%s", right, n, d.Validated, d.Classifier)
	}
	var b strings.Builder
	report.write(&b, quell.P90)
	if !strings.Contains(b.String(), "without the square term") || !strings.Contains(b.String(), "each by a tree fitted to others") {
		t.Errorf("the report says\n%s", &b)
	}
	again, _ := fittedDial(t, law{rand.New(rand.NewPCG(1, 2)), 0.04}.rows())
	if !reflect.DeepEqual(again, d) {
		t.Error("the same rows give another section")
	}
}

// A calm window exceeds the bound with a chance of 5%, at the load of the training and at a third of it.
func TestBoundsOfCalmWindows(t *testing.T) {
	const fits, windows = 20, 200
	above, byClass := map[float64]int{}, 0
	for seed := range uint64(fits) {
		l := law{rand.New(rand.NewPCG(seed, 3)), 0.08}
		var rows []TrainingRow
		for range 4 {
			for level := 1; level <= 7; level++ {
				rows = append(rows, l.row(quell.Network, float64(level)/10, 0))
			}
		}
		d, _ := fittedDial(t, rows)
		for _, level := range []float64{0.2, 0.6} {
			for range windows {
				r := l.row(quell.Network, level, 0)
				b := d.Bounds(r.RequestRate)
				if *r.LatencyMS.P90 > b.All {
					above[level]++
				}
				if *r.Observation.LatencyByClassMS["search"].P90 > b.ByClass["search"] {
					byClass++
				}
			}
		}
	}
	for level, n := range above {
		if share := float64(n) / (fits * windows); share < 0.02 || share > 0.08 {
			t.Errorf("at level %v %.1f%% of calm windows are above the bound", level, 100*share)
		}
	}
	if share := float64(byClass) / (2 * fits * windows); share < 0.02 || share > 0.08 {
		t.Errorf("%.1f%% of calm windows of a class are above its bound", 100*share)
	}
}

// If no row has the measurements that DIAL uses, there is no section. If rows have some of them, the report names what is missing.
func TestFitDialOfLittle(t *testing.T) {
	rows := law{rand.New(rand.NewPCG(1, 2)), 0.04}.rows()
	bare := slices.Clone(rows)
	for i := range bare {
		bare[i].Observation = nil
	}
	if m, _, err := Fit(bare, FitOptions{Metric: quell.P90}); err != nil || m.Dial() != nil {
		t.Errorf("rows without observations: %v, %v", m.Dial(), err)
	}
	for name, c := range map[string]struct {
		rows []TrainingRow
		want []string
	}{
		"calm rows only":   {slices.DeleteFunc(slices.Clone(rows), disturbed), []string{"classifier: "}},
		"two rows":         {rows[:2], []string{"classifier: ", "queueing.", "expected.cpu_user: "}},
		"no class's times": {withoutClasses(rows), nil},
	} {
		d, report := fittedDial(t, c.rows)
		for _, want := range c.want {
			if !strings.Contains(strings.Join(report.Missing, "\n"), want) {
				t.Errorf("%s: %v does not tell of %s", name, report.Missing, want)
			}
		}
		if _, err := json.Marshal(d); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Rows with absurd values cost the part that they are about, and not the whole fit. The report says so.
func TestFitDialOfAbsurdRows(t *testing.T) {
	for name, c := range map[string]struct {
		change func(i int, r *TrainingRow)
		want   string // in the report; "": nothing is left out
		holds  func(d *Dial) bool
	}{
		"a class of two kinds of requests": {func(_ int, r *TrainingRow) {
			r.Observation.LatencyByClassMS = map[string]quell.Latency{"a": {P90: new(0.5), P95: new(60.0), N: 100}}
		}, "tail_by_class.a: the p95 is so much longer than the p90 that it would be 171.7; 100 is used",
			func(d *Dial) bool { return d.TailByClass["a"] == 100 && d.Tail < 1 }},
		"a p90 of next to nothing": {func(i int, r *TrainingRow) {
			r.Observation.LatencyByClassMS = map[string]quell.Latency{"a": {P90: new(1e-308), P95: new(60.0), N: 100}}
		}, "tail_by_class.a: ", func(d *Dial) bool { return d.TailByClass["a"] == 100 }},
		"some rows without requests but with classes": {func(i int, r *TrainingRow) {
			if i%5 == 0 {
				r.RequestRate = 0
			}
		}, "expected: 8 calm rows have requests of classes but a request_rate of 0; they are not used", func(d *Dial) bool {
			return math.Abs(d.Expected["cpu_user"].PerRequest["search"]-0.0006) < 5e-5
		}},
		"only such rows": {func(_ int, r *TrainingRow) { r.RequestRate = 0 }, "expected.cpu_user: too few calm rows",
			func(d *Dial) bool { return len(d.Expected) == 0 }},
		"hardly any requests": {func(_ int, r *TrainingRow) {
			r.RequestRate, r.Utilization = r.RequestRate*1e-13, r.Utilization*1e-6
			r.Observation.RequestRates = map[string]float64{"home": r.RequestRate}
		}, "expected.cpu_user.per_request", func(d *Dial) bool { return len(d.Expected) == 0 }},
		"hardly any use": {func(_ int, r *TrainingRow) {
			r.Utilization *= 1e-9
			r.Observation.Utilization = map[quell.Resource]float64{r.Resource: r.Utilization}
		}, "peak_rate: 1e+12 requests per second would fill an instance", func(d *Dial) bool { return d.PeakRate == 0 }},
		"a time to connect of 10^300 years": {func(i int, r *TrainingRow) {
			if i%20 == 3 {
				r.Observation.TCP["connect_ms_p90"] = 1.7e308
			}
		}, "", func(d *Dial) bool { return math.Abs(d.Usual["connect_ms_p90"]-0.5) < 0.05 && d.Classifier != nil }},
	} {
		rows := law{rand.New(rand.NewPCG(1, 2)), 0.04}.rows()
		for i := range rows {
			c.change(i, &rows[i])
		}
		d, report := fittedDial(t, rows)
		missing := strings.Join(report.Missing, "\n")
		if !strings.Contains(missing, c.want) || c.want == "" && missing != "" || !c.holds(d) {
			t.Errorf("%s: %q, %+v", name, missing, d)
		}
	}
}

func disturbed(r TrainingRow) bool { return r.Interfering > 0 }

func withoutClasses(rows []TrainingRow) []TrainingRow {
	out := slices.Clone(rows)
	for i := range out {
		o := *out[i].Observation
		o.RequestRates, o.LatencyByClassMS = nil, nil
		out[i].Observation = &o
	}
	return out
}

func TestDescribeDial(t *testing.T) {
	d, _ := fittedDial(t, law{rand.New(rand.NewPCG(1, 2)), 0.04}.rows())
	m := &Models{Sections: []Section{d}}
	var b strings.Builder
	if err := Describe(&b, m, ShowOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"DIAL\n", "an instance alone serves at most 1000 requests per second", "suffers above a p90 of",
		"cpu_user: ", "which resource is contended for\n", "p90 in ms over the use of a resource", "classifier: "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, &b)
		}
	}
	pictures, err := Draw(m, ShowOptions{})
	if err != nil || len(pictures) != 2 {
		t.Fatalf("%d pictures, %v", len(pictures), err)
	}
	if tree, lines := pictures[0].Layers, pictures[1].Layers; len(tree) != 9 || len(tree[8].Texts) != 17 || len(lines) != 4 {
		t.Errorf("drawn with %d and %d layers", len(tree), len(lines))
	}
}

// stretching is a section whose neighbours on the memory lengthen processor time.
func stretching() *Dial {
	return &Dial{Calm: Queueing{2, 8, 1}, PeakRate: 1000, Tail: 0.43, Stretch: 1.5,
		Queueing: map[quell.Resource]Queueing{quell.Memory: {3, 8, 1}}}
}

// HiddenLoad is the inverse of Predict for neighbours on the memory, and more neighbours always take more of the capacity.
func TestStretchIsInverted(t *testing.T) {
	d := stretching()
	rapid.Check(t, func(t *rapid.T) {
		rate, own := rapid.Float64Range(0, 900).Draw(t, "rate"), rapid.Float64Range(0.01, 0.9).Draw(t, "own")
		hidden := rapid.Float64Range(0, 1).Draw(t, "hidden")
		x, ok := d.HiddenLoad(quell.Memory, d.Predict(quell.Memory, rate, own, hidden), 1000, rate, own)
		if !ok || math.Abs(x.Value-hidden) > 1e-6 || x.Low > x.Value || x.Value > x.High {
			t.Fatalf("%+v, want %v", x, hidden)
		}
		if lost := d.Lost(quell.Memory, hidden); lost > d.Lost(quell.Memory, hidden+0.1) || lost < 0 || lost >= 1 {
			t.Fatalf("neighbours that use %v take %v", hidden, lost)
		}
	})
	if x, _ := d.HiddenLoad(quell.Memory, 1, 100, 500, 0.5); x.Value != 0 {
		t.Errorf("faster than calm: %+v", x)
	}
	if x, _ := d.HiddenLoad(quell.Memory, 1e9, 100, 500, 0.5); x.Value != 1 {
		t.Errorf("slower than beside any neighbour: %+v", x)
	}
	if lost := d.Lost(quell.Memory, 1); math.Abs(lost-0.6) > 1e-9 || d.Lost(quell.Disk, 0.3) != 0.3 {
		t.Errorf("neighbours on the memory take %v, on the disk %v", lost, d.Lost(quell.Disk, 0.3))
	}
	if d.Over(quell.Memory) != quell.CPU || d.Over(quell.Disk) != quell.Disk || (&Dial{}).Over(quell.Memory) != quell.Memory {
		t.Error("Eq. 1 is over the use of another resource")
	}
}

// Rows in which neighbours on the memory lengthen processor time give a section that says by how much, and fits.
func TestFitStretch(t *testing.T) {
	truth, l := stretching(), law{rand.New(rand.NewPCG(4, 2)), 0.03}
	rows := slices.DeleteFunc(l.rows(), func(r TrainingRow) bool { return r.Resource == quell.Memory })
	for level := 1; level <= 7; level++ {
		for interfering := range 7 {
			r := l.row(quell.Memory, 0.1, 0)
			r.Level, r.Interfering, r.RequestRate = float64(level)/10, float64(interfering)/10, 100*float64(level)
			r.Utilization = 0.05 * float64(level)
			use := 0.0005 * r.RequestRate * (1 + truth.Stretch*r.Interfering)
			ms := l.about(Queueing{3, 3, 0.5}.MS(r.Level) + truth.Queueing[quell.Memory].stretched(use, 1+truth.Stretch*r.Interfering))
			r.LatencyMS = quell.Latency{P90: &ms, N: 1000}
			r.Observation.RequestRate, r.Observation.LatencyMS = &r.RequestRate, &r.LatencyMS
			r.Observation.Utilization = map[quell.Resource]float64{quell.Memory: r.Utilization, quell.CPU: use}
			rows = append(rows, r)
		}
	}
	d, _ := fittedDial(t, rows)
	if math.Abs(d.Stretch-truth.Stretch) > 0.1 || d.Over(quell.Memory) != quell.CPU {
		t.Errorf("stretch %v, want %v", d.Stretch, truth.Stretch)
	}
	if e := d.Errors[quell.Memory]; e.MeanRelative > 0.061 {
		t.Errorf("%+v with %v", e, d.Queueing[quell.Memory])
	}
	var b strings.Builder
	err := Describe(&b, &Models{Sections: []Section{d}}, ShowOptions{})
	if err != nil || !strings.Contains(b.String(), "lengthen processor time") {
		t.Errorf("%v\n%s", err, &b)
	}
}

// The bound of a class follows the growth of the class, not that of all requests.
func TestBoundsOfAClassThatGrowsFaster(t *testing.T) {
	l := law{rand.New(rand.NewPCG(7, 2)), 0.03}
	var rows []TrainingRow
	at := func(level float64) TrainingRow {
		r := l.row(quell.Network, level, 0)
		ms := l.about(Queueing{1, 1, 2}.MS(level))
		r.Observation.LatencyByClassMS = map[string]quell.Latency{"event": {P90: &ms, N: 100}}
		return r
	}
	for level := 1; level <= 7; level++ {
		rows = append(rows, at(float64(level)/10), at(float64(level)/10))
	}
	d, _ := fittedDial(t, rows)
	for _, level := range []float64{0.2, 0.5, 0.7} {
		want := Queueing{1, 1, 2}.MS(level)
		if got := d.Bounds(1000 * level).ByClass["event"]; got < want || got > 1.15*want {
			t.Errorf("at level %v the bound is %v, and calm p90s are about %v", level, got, want)
		}
	}
	slow := 3 * Queueing{1, 1, 2}.MS(0.5)
	o := &quell.Observation{LatencyByClassMS: map[string]quell.Latency{"event": {P90: &slow, N: 100}}}
	if got := d.Exceeded(o, 500); len(got) != 1 || !got[0].Clear {
		t.Errorf("three times as slow as usual: %+v", got)
	}
}
