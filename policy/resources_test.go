package policy_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// With the golden models either resource alone carries 0.5 within 75 ms, and 0.5 - SF/2 at severity SF.
func TestTheLeastResourceBinds(t *testing.T) {
	e := engine(t, both(0), twins(goldenModels(t)))
	for _, tc := range []struct {
		why      string
		rows     []string
		capacity map[string]float64 // of the network
		cause    map[string]quell.Resource
	}{
		{"alike", []string{"a weight=0.5 use=0.3 sf=0 cpu=0.3 cpusf=0", "b weight=0.5 use=0.3 sf=0 cpu=0.3 cpusf=0"},
			map[string]float64{"a": .5, "b": .5}, nil},
		{"the processor's neighbours bind one, the network's another",
			[]string{"a weight=0.5 use=0.2 sf=0.2 cpu=0.2 cpusf=0.5", "b weight=0.5 use=0.2 sf=0.5 cpu=0.2 cpusf=0.2"},
			map[string]float64{"a": .25, "b": .25}, map[string]quell.Resource{"a": quell.CPU, "b": quell.Network}},
		{"requests take twice as much of the processor: it is full at half the load",
			[]string{"a weight=0.5 use=0.1 sf=0 cpu=0.2 cpusf=0", "b weight=0.5 use=0.1 sf=0.2 cpu=0.2 cpusf=0"},
			map[string]float64{"a": .25, "b": .25}, nil},
		{"half as much: the network binds",
			[]string{"a weight=0.5 use=0.2 sf=0.2 cpu=0.1 cpusf=0", "b weight=0.5 use=0.2 sf=0 cpu=0.1 cpusf=0.8"},
			map[string]float64{"a": .4, "b": .2}, map[string]quell.Resource{"a": quell.Network, "b": quell.CPU}},
		{"next to none of the processor: it binds nobody",
			[]string{"a weight=0.5 use=0.2 sf=0.2 cpu=0 cpusf=0", "b weight=0.5 use=0.2 sf=0 cpu=0 cpusf=0.5"},
			map[string]float64{"a": .4, "b": .5}, map[string]quell.Resource{"a": quell.Network}},
		{"no load at all",
			[]string{"a weight=1 use=0 sf=0.2 cpu=0 cpusf=0.5"}, map[string]float64{"a": .25}, map[string]quell.Resource{"a": quell.CPU}},
	} {
		t.Run(tc.why, func(t *testing.T) {
			plan, _ := e.Decide(snap(t, 0, tc.rows...), policy.State{})
			for id, want := range tc.capacity {
				if got := plan.Capacity[id]; math.Abs(got-want) > 1e-9 {
					t.Errorf("capacity of %s: %v, want %v", id, got, want)
				}
				if got := plan.PredictedAtCapacityMS[id]; got > 75+1e-6 || got < 75-1e-6 {
					t.Errorf("predicted at the capacity of %s: %v ms, want 75", id, got)
				}
			}
			if !reflect.DeepEqual(plan.Cause, tc.cause) {
				t.Errorf("cause %v, want %v", plan.Cause, tc.cause)
			}
		})
	}
}

func TestReasonsNameTheResource(t *testing.T) {
	e := engine(t, both(0), twins(goldenModels(t)))
	plan, _ := e.Decide(snap(t, 0, "a weight=0.5 use=0.2 sf=0 cpu=0.4 cpusf=0.5", "b weight=0.5 use=0.2 sf=0 cpu=0.4 cpusf=0"), policy.State{})
	for _, want := range []string{
		"load 0.400 of the network exceeds 0.375",
		"severity 0.50 at own use 0.400: neighbours take about 0.250 of the cpu, so it can carry 0.250 of it, 0.125 of the network, within 75 ms",
	} {
		if !slices.ContainsFunc(plan.Reasons, func(r quell.Reason) bool { return strings.Contains(r.Text, want) }) {
			t.Errorf("no reason says %q: %v", want, plan.Reasons)
		}
	}
}

// The plan names the resource that limits each capacity.
func TestLimiters(t *testing.T) {
	for _, tc := range []struct {
		why  string
		s    quell.Service
		rows []string
		want map[string]string
	}{
		{"one resource: nothing to say", golden("prima", 75, 0), []string{"a weight=0.5 use=0.2 sf=0.2", "b weight=0.5 use=0.2 sf=0"}, nil},
		{"one, and caps", golden("prima", 75, 0), []string{"a weight=0.3 use=0.1 sf=0 err=1", "b weight=0.3 use=0.1 sf=0 hand=0.3",
			"c weight=0.4 use=0.1 sf=0"},
			map[string]string{"a": "errors", "b": "override"}},
		{"errors where it can carry less anyway", golden("prima", 75, 0),
			[]string{"a weight=0.5 use=0.3 cap=0.1 err=1", "b weight=0.5 use=0.3 sf=0"}, nil},
		{"two", both(0), []string{"a weight=0.3 use=0.2 sf=0.2 cpu=0.2 cpusf=0", "b weight=0.3 use=0.2 sf=0 cpu=0.2 cpusf=0.1",
			"c weight=0.4 use=0.2 sf=0 cpu=0.2 cpusf=0 hand=0.4"},
			map[string]string{"a": "network", "b": "cpu", "c": "override"}},
	} {
		tc.s.Guard.ErrorRate = .05
		if plan, _ := engine(t, tc.s, twins(goldenModels(t))).Decide(snap(t, 0, tc.rows...), policy.State{}); !reflect.DeepEqual(plan.Limiter,
			tc.want) {
			t.Errorf("%s: %v, want %v", tc.why, plan.Limiter, tc.want)
		}
	}
}

// Loads and capacities are in units of the resource that the trained requests fill first.
func TestTheFirstResourceIsTheFullestOfTheTrained(t *testing.T) {
	for _, tc := range []struct {
		network, cpu float64
		want         quell.Resource
	}{{.01, .01, quell.Network}, {.01, .02, quell.CPU}, {.02, .01, quell.Network}} {
		m := twins(goldenModels(t))
		m.Trained.PerRequest = map[quell.Resource]float64{quell.Network: tc.network, quell.CPU: tc.cpu}
		if got := engine(t, both(0), m).Resource(); got != tc.want {
			t.Errorf("%v and %v: %s, want %s", tc.network, tc.cpu, got, tc.want)
		}
	}
}

func TestWhatTheModelsKnow(t *testing.T) {
	known := func(m *model.Models, r policy.Resources) string {
		s := golden("prima", 75, 0)
		tell(&s, "Resources", r)
		e, err := all.NewEngine(s, m)
		if err != nil {
			if !errors.Is(err, quell.ErrNoData) {
				t.Errorf("%v is no lack of data", err)
			}
			return err.Error()
		}
		var list []string
		for _, c := range e.Contended() {
			list = append(list, string(c.Resource))
		}
		return strings.Join(list, " ")
	}
	for _, tc := range []struct {
		why  string
		m    *model.Models
		r    policy.Resources
		want string
	}{
		{"auto: both", twins(goldenModels(t)), policy.AllKnown(), "network cpu"},
		{"auto: one", goldenModels(t), policy.AllKnown(), "network"},
		{"auto: none", nil, policy.AllKnown(), "policy prima needs models: the models lack isolation.network"},
		{"listed, and known", twins(goldenModels(t)), policy.ResourcesOf(quell.CPU), "cpu"},
		{"listed, and not known", goldenModels(t), policy.ResourcesOf(quell.Network, quell.CPU),
			"policy prima needs models: the models lack isolation.cpu"},
		{"nothing said", goldenModels(t), policy.Resources{}, "network"},
	} {
		if got := known(tc.m, tc.r); !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: %s, want %s", tc.why, got, tc.want)
		}
	}
	if a, b := policy.ResourcesOf(quell.CPU, quell.Disk, quell.Network), policy.ResourcesOf(quell.Network, quell.CPU, quell.Disk); a != b {
		t.Errorf("%v and %v: the order counts", a, b)
	}
}

// If an instance does not report a resource, the policy waits, and then judges the instance without it. The plan says so.
func TestAResourceThatIsNotTold(t *testing.T) {
	s := both(0)
	s.Guard.StaleAfter, s.Guard.Fade = 3, 10
	e := engine(t, s, twins(goldenModels(t)))
	told := func(p quell.Plan) bool {
		return slices.ContainsFunc(p.Reasons, func(r quell.Reason) bool {
			return r.Code == "untold" && strings.Contains(r.Text, "of the cpu for more than 3 period(s): b judged without it")
		})
	}
	var st policy.State
	for k := range 8 {
		var plan quell.Plan
		plan, st = e.Decide(snap(t, k, "a weight=0.5 use=0.2 sf=0 cpu=0.2 cpusf=0", "b weight=0.5 use=0.2 sf=0.2 cpu=0.2"), st)
		capacity, rated := plan.Capacity["b"]
		if out := k >= 3; rated != out || told(plan) != out || out && math.Abs(capacity-.4) > 1e-9 || st.Instances["b"].Unprobed {
			t.Errorf("never told, snapshot %d: capacity %v (%v), unprobed %v, %v", k, capacity, rated, st.Instances["b"].Unprobed, plan.Reasons)
		}
	}
	plan, st := e.Decide(snap(t, 8, "a weight=0.5 use=0.2 sf=0 cpu=0.2 cpusf=0", "b weight=0.5 use=0.2 sf=0.2 cpu=0.2 cpusf=0.5"), st)
	if got := plan.Capacity["b"]; math.Abs(got-.25) > 1e-9 || told(plan) || st.Instances["b"].UnratedFor != 0 {
		t.Errorf("told at last: capacity %v, %v", got, plan.Reasons)
	}
	for k := 9; k < 15; k++ {
		plan, st = e.Decide(snap(t, k, "a weight=0.5 use=0.2 sf=0 cpu=0.2 cpusf=0", "b weight=0.5 use=0.2 sf=0.2 cpu=0.2"), st)
		want, out := .25, k > 11
		if out {
			want = .4
		}
		if got := plan.Capacity["b"]; math.Abs(got-want) > 1e-9 || told(plan) != out || st.Instances["b"].StaleFor > 0 {
			t.Errorf("told no more, snapshot %d: capacity %v, want %v, %v", k, got, want, plan.Reasons)
		}
	}
}

// A disk that neighbours use is felt beside own operations only. So after the instance has lost its load, readings without interference say
// little, and they say nothing less about other resources.
func TestReadingsWithoutOwnUse(t *testing.T) {
	const confirm = 1
	for _, c := range []struct {
		why      string
		resource quell.Resource
		use      float64 // in the readings without interference; it was found at 0.4
		want     int     // number of such readings for which it is held
	}{
		{"a disk under the same load", quell.Disk, .4, 1},
		{"more load", quell.Disk, .9, 1},
		{"half the load", quell.Disk, .2, 3},
		{"no load", quell.Disk, 0, 19},
		{"a link without load", quell.Network, 0, 1},
		{"a processor without load", quell.CPU, 0, 1},
	} {
		f := policy.Felt{Utilization: new(.4)}
		for range confirm + 1 {
			f.Holds(true, confirm, f.Evidence(c.resource))
		}
		f.Utilization = new(.1)
		f.Holds(true, confirm, f.Evidence(c.resource)) // found again at a lower use
		held := 0
		for f.Utilization = new(c.use); held < 100 && f.Holds(false, confirm, f.Evidence(c.resource)); held++ {
		}
		if held != c.want || f.Passed > 0 || f.Held > 0 || f.FoundAt > 0 {
			t.Errorf("%s: held for %d readings, want %d; %+v", c.why, held, c.want, f)
		}
	}
}

// pair copies the network's readings to the processor.
func pair(s *quell.Snapshot) *quell.Snapshot {
	for i := range s.Instances {
		o := s.Instances[i].Observation
		if o == nil {
			continue
		}
		if u, ok := o.Utilization[quell.Network]; ok {
			o.Utilization[quell.CPU] = u
		}
		if sf, ok := o.Severity[quell.Network]; ok {
			o.Severity[quell.CPU] = sf
		}
		if p, ok := o.Probe[quell.Network]; ok {
			o.Probe[quell.CPU] = p
		}
	}
	return s
}

func engineOf(t *rapid.T, s quell.Service, m *model.Models, r ...quell.Resource) *policy.Engine {
	tell(&s, "Resources", policy.ResourcesOf(r...))
	e, err := all.NewEngine(s, m)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func drawPRIMA(t *rapid.T) quell.Service {
	s := drawService(t)
	if s.Policy.Name != "prima" {
		s.Policy = quell.Policy{Name: "prima"}
	}
	return s
}

// Two equal resources give the same result as one of them.
func TestTwoEqualResourcesAreOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, m := drawPRIMA(t), twins(drawModels(t))
		one, two := engineOf(t, s, m, quell.Network), engineOf(t, s, m, quell.CPU, quell.Network)
		var stOne, stTwo policy.State
		for k := range rapid.IntRange(1, 6).Draw(t, "snapshots") {
			in := pair(drawSnapshot(t, k))
			var a, b quell.Plan
			a, stOne = one.Decide(in, stOne)
			b, stTwo = two.Decide(in, reread(t, stTwo))
			for _, p := range stOne.Probed {
				if p.Doubted {
					return // only probes of the link come from elsewhere, and can be doubted
				}
			}
			for id, name := range b.Limiter {
				if name == string(quell.Network) {
					delete(b.Limiter, id)
				}
			}
			if len(b.Limiter) == 0 {
				b.Limiter = nil
			}
			for i := range b.Reasons {
				a.Reasons[i].Text, b.Reasons[i].Text = "", ""
			}
			if !reflect.DeepEqual(a, b) {
				t.Fatalf("snapshot %d:\n%s\n%s", k, text(t, a), text(t, b))
			}
		}
	})
}

// Another resource never raises an instance's capacity.
func TestAResourceNeverAddsCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, m, other := drawPRIMA(t), drawModels(t), drawModels(t)
		tell(&s, "Calibrate", 0)
		p, q := m.Prima(), other.Prima()
		p.Isolation[quell.CPU], p.ResponseTime[quell.CPU] = q.Isolation[quell.Network], q.ResponseTime[quell.Network]
		p.Interference[quell.CPU] = q.Interference[quell.Network]
		m.Trained.PerRequest[quell.CPU] = other.Trained.PerRequest[quell.Network]
		in, beside := drawSnapshot(t, 0), pair(drawSnapshot(t, 0))
		for i := range min(len(in.Instances), len(beside.Instances)) {
			if a, b := in.Instances[i].Observation, beside.Instances[i].Observation; a != nil && b != nil {
				take(a.Utilization, b.Utilization)
				take(a.Severity, b.Severity)
			}
		}
		less, _ := engineOf(t, s, m, quell.Network).Decide(in, policy.State{})
		e := engineOf(t, s, m, quell.Network, quell.CPU)
		more, _ := e.Decide(in, policy.State{})
		network := slices.IndexFunc(e.Contended(), func(c policy.Contended) bool { return c.Resource == quell.Network })
		rate := policy.Perceive(e.Input(in, &policy.State{}), nil, nil).Rates[network]
		for id, capacity := range more.Capacity {
			if before, ok := less.Capacity[id]; !ok || !quell.AtMost(capacity, before*rate) {
				t.Fatalf("%s can carry %v, and %v by the network alone (%v)", id, capacity, before*rate, ok)
			}
		}
	})
}

// take copies the processor's reading from one map to another.
func take(to, from map[quell.Resource]float64) {
	if v, ok := from[quell.CPU]; ok {
		to[quell.CPU] = v
	}
}

// In a group whose requests use two contended resources nothing changes after PRIMA has settled, and every instance is within
// the threshold by both.
func TestPRIMASettlesByTwoResources(t *testing.T) {
	models := twins(sharingModels(t))
	rapid.Check(t, func(t *rapid.T) {
		s := quell.DefaultService()
		s.Name, s.SLO = "video", quell.SLO{Metric: quell.Mean, Threshold: 75 * time.Millisecond}
		s.Group.Max = 50
		e := engineOf(t, s, models, quell.Network, quell.CPU)
		n := rapid.IntRange(1, 8).Draw(t, "instances")
		load := rapid.Float64Range(.05, .5).Draw(t, "load") * float64(n)
		ratio := rapid.Float64Range(.5, 1.5).Draw(t, "cpu for a unit of the network")
		neighbours, beside := make([]float64, n), map[string]float64{}
		in := &quell.Snapshot{Service: "video"}
		for i := range n {
			id := fmt.Sprintf("i%d", i)
			neighbours[i] = rapid.SampledFrom([]float64{0, 0, .2, .4}).Draw(t, "neighbours")
			beside[id] = rapid.SampledFrom([]float64{0, 0, .2, .4}).Draw(t, "neighbours at the processor")
			in.Instances = append(in.Instances, quell.Instance{ID: id, State: quell.Ready, Weight: new(1 / float64(n))})
		}
		var st policy.State
		var plan quell.Plan
		for k := range 16 {
			in.At = start.Add(time.Duration(k+1) * period * time.Second)
			feel(in, neighbours, load)
			for i := range in.Instances {
				use := min(load*ratio**in.Instances[i].Weight, .95)
				taken := min(beside[in.Instances[i].ID], .96-use)
				o := in.Instances[i].Observation
				o.Utilization[quell.CPU], o.Severity[quell.CPU] = use, max(0, taken/(1-use-taken))
			}
			before := plan
			if plan, st = e.Decide(in, st); k > 12 && (plan.Group != nil || !reflect.DeepEqual(before.Weights, plan.Weights)) {
				t.Fatalf("still changing in snapshot %d: %+v, %v to %v", k, plan.Group, before.Weights, plan.Weights)
			}
			neighbours = settle(in, neighbours, plan)
		}
		for id, ms := range plan.PredictedMS {
			if ms > 75*1.001 {
				t.Fatalf("%s ends at %v ms, above the threshold", id, ms)
			}
		}
	})
}

// If a neighbour uses two resources at once, the resource with less free capacity is the limit, and the reason names both.
func TestANeighbourOnTwoResources(t *testing.T) {
	e := engine(t, both(0), twins(goldenModels(t)))
	plan, _ := e.Decide(snap(t, 0, "a weight=0.5 use=0.2 sf=0.2 cpu=0.2 cpusf=0.5", "b weight=0.5 use=0.2 sf=0 cpu=0.2 cpusf=0"),
		policy.State{})
	if plan.Capacity["a"] != .25 || plan.Cause["a"] != quell.CPU || plan.Limiter["a"] != "cpu" {
		t.Errorf("capacity %v, cause %v, limiter %v", plan.Capacity, plan.Cause, plan.Limiter)
	}
	want := "neighbours take about 0.250 of the cpu, so it can carry 0.250 of it, 0.250 of the network, within 75 ms; " +
		"they take about 0.100 of the network, too"
	if !slices.ContainsFunc(plan.Reasons, func(r quell.Reason) bool { return strings.HasSuffix(r.Text, want) }) {
		t.Errorf("no reason ends with %q: %v", want, plan.Reasons)
	}
}

// The policy averages the use of each resource per request over many requests, because single periods differ by chance. It follows a
// lasting change.
func TestAPeriodsMixDoesNotSwingCapacity(t *testing.T) {
	e := engine(t, both(0), twins(goldenModels(t)))
	var st policy.State
	capacity := func(k int, cpu float64, arrivals string) float64 {
		rows := []string{fmt.Sprintf("a weight=1 use=0.2 sf=0 cpu=%v cpusf=0", cpu)}
		if arrivals != "" {
			rows = append(rows, arrivals)
		}
		var plan quell.Plan
		plan, st = e.Decide(snap(t, k, rows...), st)
		return plan.Capacity["a"]
	}
	k := 0
	for ; k < 40; k++ {
		if got := capacity(k, .2+.04*math.Pow(-1, float64(k)), ""); k > 20 && got < .48 {
			t.Errorf("snapshot %d: capacity %v, want about 0.5", k, got)
		}
	}
	for ; k < 80; k++ {
		capacity(k, .4, "")
	}
	if got := capacity(k, .4, ""); got > .26 {
		t.Errorf("40 periods after requests began to take twice as much of the processor: capacity %v, want about 0.25", got)
	}
	if got := capacity(k+1, .2, "arrivals=800"); got < .45 {
		t.Errorf("a period of 8000 requests: capacity %v, want about 0.5", got)
	}
}
