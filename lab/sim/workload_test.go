package sim

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// pages is a mix of two classes on hosts of two cores.
func pages(hosts int, duration time.Duration) *scenario.Scenario {
	sc := plainScenario(hosts, 0, 40e6, duration)
	for i := range sc.Hosts {
		sc.Hosts[i].Cores = 2
	}
	sc.Service.Sampling = time.Second
	sc.Workload = scenario.Workload{
		Kind: scenario.Classes, Arrivals: scenario.Poisson, Load: 0.4 * float64(hosts), Spread: scenario.Exponential, System: 0.25,
		CacheStretch: 2,
		Classes: []scenario.Class{
			{Name: "home", Share: 3, CPU: 4 * time.Millisecond, Network: 1000},
			{Name: "search", Share: 1, CPU: 12 * time.Millisecond, Disk: 1, Memory: time.Millisecond},
		},
	}
	return sc
}

// observations returns the observations that the controller had at the end of a run.
func observations(t *testing.T, o Options) (seen []quell.Observation, r scenario.Result) {
	t.Helper()
	o.Run = o.Scenario.Runs[0]
	o.check = func(s *simulation) error {
		for _, in := range s.snapshot().Instances {
			if in.Observation != nil {
				seen = append(seen, *in.Observation)
			}
		}
		return nil
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return seen, r
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance*want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestClassesAreToldApart(t *testing.T) {
	sc := pages(1, 60*time.Second)
	sc.Service.Sampling = 20 * time.Second
	seen, r := observations(t, Options{Scenario: sc})
	o := seen[0]
	rate := 0.4 / 0.003 // two cores take 6 ms a request on average
	near(t, "requests", float64(r.Requests), rate*60, 0.1)
	near(t, "rate of home", o.RequestRates["home"], rate*3/4, 0.2)
	near(t, "rate of search", o.RequestRates["search"], rate/4, 0.3)
	near(t, "processors", o.Utilization[quell.CPU], 0.4, 0.25)
	near(t, "user time", o.CPU.User, 0.75*o.Utilization[quell.CPU], 1e-9)
	near(t, "system time", o.CPU.System, 0.25*o.Utilization[quell.CPU], 1e-9)
	near(t, "disk", o.Utilization[quell.Disk], rate/4/1000, 0.3)
	near(t, "memory", o.Utilization[quell.Memory], rate/4/1000, 0.3)
	home, search := o.LatencyByClassMS["home"], o.LatencyByClassMS["search"]
	if *search.Mean < 2*(*home.Mean) || home.N+search.N != o.LatencyMS.N {
		t.Errorf("home takes %v ms (%d), search %v ms (%d), all %d", *home.Mean, home.N, *search.Mean, search.N, o.LatencyMS.N)
	}
}

// As at a live balancer, an answer counts when it begins: after an overload, when no requests come any more, that of a download has begun
// long before it ends, and that of a computation has not.
func TestAnswersCountWhenTheyBegin(t *testing.T) {
	for name, c := range map[string]struct {
		class scenario.Class
		begun bool
	}{
		"downloads":    {scenario.Class{CPU: time.Millisecond, Network: 250_000}, true},
		"computations": {scenario.Class{CPU: 20 * time.Millisecond}, false},
	} {
		sc := pages(1, 10*time.Second)
		sc.Service.Sampling = 5 * time.Second
		c.class.Name, c.class.Share = "only", 1
		sc.Workload.Classes, sc.Workload.Load = []scenario.Class{c.class}, 3
		seen, _ := observations(t, Options{Scenario: sc})
		o := seen[0]
		if *o.RequestRate > 0 || o.LatencyMS == nil || o.AnsweredRate == nil {
			t.Fatalf("%s: %+v", name, o)
		}
		want := float64(o.LatencyMS.N) / (1 - *o.ErrorRate) / o.WindowS // those that time out end, too
		if c.begun {
			want = 0
		}
		near(t, name, *o.AnsweredRate, want, 1e-9)
	}
}

func TestAFileHasNoClassesAndNoProcessorTime(t *testing.T) {
	seen, _ := observations(t, Options{Scenario: plainScenario(1, 0.5, 40e6, 60*time.Second)})
	if o := seen[0]; o.RequestRates != nil || o.LatencyByClassMS != nil || o.CPU != nil || len(o.Utilization) != 1 {
		t.Errorf("got %+v", o)
	}
}

// Formula for M/M/1 and M/G/1 processor sharing on one core: the response time is 1 / (1 - rho) times the demand. Neighbours reduce the
// core's speed, or, if they use the caches, increase the demand.
func TestInterferenceOnEveryResource(t *testing.T) {
	for name, tc := range map[string]struct {
		class     scenario.Class
		resource  quell.Resource
		use, want float64 // ms
	}{
		"processor":        {scenario.Class{CPU: 5 * time.Millisecond}, quell.CPU, 0.4, 5 / (1 - 0.3 - 0.4)},
		"disk":             {scenario.Class{Disk: 5}, quell.Disk, 0.4, 5 / (1 - 0.3 - 0.4)},
		"memory":           {scenario.Class{Memory: 5 * time.Millisecond}, quell.Memory, 0.4, 5 / (1 - 0.3 - 0.4)},
		"network":          {scenario.Class{Network: 25_000}, quell.Network, 0.4, 5 / (1 - 0.3 - 0.4 - defaultBudget)},
		"caches":           {scenario.Class{CPU: 5 * time.Millisecond}, quell.Memory, 0.4, 9 / (1 - 0.3*1.8)}, // times 1 + 2 * 0.4
		"of no importance": {scenario.Class{CPU: 5 * time.Millisecond}, quell.Disk, 0.9, 5 / (1 - 0.3)},
	} {
		t.Run(name, func(t *testing.T) {
			sc := pages(1, 10*time.Minute)
			sc.Hosts[0].Cores = 1
			tc.class.Name, tc.class.Share = "only", 1
			sc.Workload.Classes, sc.Workload.Load = []scenario.Class{tc.class}, 0.3
			sc.Timeline = []scenario.Event{{Interfere: &scenario.Interference{Host: "h1", Resource: tc.resource, Use: tc.use}}}
			for _, fluid := range []bool{false, true} {
				_, r := observations(t, Options{Scenario: sc, Fluid: fluid})
				near(t, name, *r.LatencyMS.Mean, tc.want, 0.1)
			}
		})
	}
}

// Interactive response time law: for every system, users / (think time + response time) = throughput.
func TestUsersObeyTheResponseTimeLaw(t *testing.T) {
	sc := pages(2, 3*time.Minute)
	sc.Workload.Kind, sc.Workload.Users, sc.Workload.Think = scenario.Users, 1800, 2*time.Second // more load than two hosts can carry
	_, busy := observations(t, Options{Scenario: sc})
	near(t, "throughput when overloaded", float64(busy.Requests)/180, 1800/(2+*busy.LatencyMS.Mean/1000), 0.02)
	if *busy.LatencyMS.Mean < 20 || busy.Errors*1000 > busy.Requests {
		t.Errorf("1800 users wait %v ms, %d fail: closed loops hold themselves back", *busy.LatencyMS.Mean, busy.Errors)
	}
	few := 100
	sc.Workload.Users, sc.Timeline = 400, []scenario.Event{{At: 90 * time.Second, Users: &few}}
	_, r := observations(t, Options{Scenario: sc})
	near(t, "requests of 400 and then 100 users", float64(r.Requests), 90*(400+100)/2.01, 0.05)
	sc.Workload.Users, sc.Timeline = 0, nil
	if _, none := observations(t, Options{Scenario: sc}); none.Requests != 0 {
		t.Errorf("no users made %d requests", none.Requests)
	}
}

func television(load float64) *scenario.Scenario {
	sc := plainScenario(2, 0, 40e6, 3*time.Minute)
	sc.Workload = scenario.Workload{Kind: scenario.Video, Arrivals: scenario.Poisson, Load: load, Video: scenario.DefaultVideo()}
	sc.Workload.Video.Size, sc.Workload.Video.Chunk = 550_000, 500*time.Millisecond
	sc.WarmUp = 30 * time.Second
	return sc
}

// PRIMA, Table I: the chunks of a session follow each other at once while its buffer fills, and then at the pace of play.
func TestVideoSessionsPaceTheirChunks(t *testing.T) {
	sc := television(1)
	var asked []float64
	w := newWorld(sc.Hosts[:1], Sharing, 1, classesOf(&sc.Workload)...)
	var c *clients
	c, err := newClients(w, &sc.Workload, 1, 1000, func(o order) {
		asked = append(asked, w.now)
		w.agenda.add(w.now+0.004, func() { c.answered(o.session) })
	})
	if err != nil {
		t.Fatal(err)
	}
	c.arrive()
	chunks := c.programme.Playlists[c.sessions[0].Playlist()].Chunks
	for w.nextEvent() < 1000 {
		w.step()
	}
	want := []float64{0, 0.004, 0.008}
	for len(want) < chunks {
		want = append(want, 0.012+0.5*float64(len(want)-2))
	}
	want = want[:min(len(want), chunks)]
	if !slices.EqualFunc(asked, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
		t.Errorf("%d chunks were asked for at %v, want %v", chunks, asked, want)
	}
}

func TestVideoLoadFillsWhatItSays(t *testing.T) {
	for _, arrivals := range []scenario.Arrivals{scenario.Poisson, scenario.Deterministic, scenario.Ramp} {
		sc := television(0.8)
		sc.Workload.Arrivals = arrivals
		if arrivals == scenario.Ramp {
			sc.Workload.Load, sc.Workload.Step = 0.1, &scenario.Step{At: 20 * time.Second, Load: 0.8}
		}
		seen, r := observations(t, Options{Scenario: sc})
		sum := 0.0
		for _, o := range seen {
			sum += o.Utilization[quell.Network]
		}
		near(t, string(arrivals), sum, 0.8, 0.35) // the last 10 s of 3 minutes
		if r.Errors > 0 || r.Requests < 20_000 {
			t.Errorf("%s: %d of %d failed", arrivals, r.Errors, r.Requests)
		}
	}
}

// The users and viewers of a failed instance continue at other instances. None of them is lost or counted twice.
func TestSessionsOutliveInstances(t *testing.T) {
	users := pages(3, time.Minute)
	users.Workload.Kind, users.Workload.Users, users.Workload.Think = scenario.Users, 800, time.Second
	for _, sc := range []*scenario.Scenario{users, television(1.6)} {
		sc.Service.Sampling = time.Second
		sc.Timeline = []scenario.Event{{At: 20 * time.Second, Fail: &scenario.Failure{Host: "h1"}}}
		before := *sc
		before.Timeline = nil
		r, without := played(t, Options{Scenario: sc, Run: sc.Runs[0]}), played(t, Options{Scenario: &before, Run: sc.Runs[0]})
		if r.Errors == 0 || r.Errors > 30 || without.Errors > 0 {
			t.Errorf("%s: %d requests failed, and %d without the failure", sc.Workload.Kind, r.Errors, without.Errors)
		}
		near(t, string(sc.Workload.Kind), float64(r.Requests), float64(without.Requests), 0.05)
	}
}

func TestReadingsOfTheScenarioCount(t *testing.T) {
	sc := noisyNeighbour()
	models := prepared(t, sc)
	run := scenario.Run{Policy: quell.Policy{Name: "prima"}, Scheduling: quell.LeastConn}
	option := played(t, Options{Scenario: sc, Run: run, Models: models, Faults: Faults{Lost: 1}, WarmUp: 9 * time.Second})
	inFile := *sc
	inFile.Readings.Lost, inFile.WarmUp = 1, 9*time.Second
	if got := played(t, Options{Scenario: &inFile, Run: run, Models: models}); got.SLO != option.SLO || got.Requests != option.Requests {
		t.Errorf("by the scenario %+v, by the options %+v", got.SLO, option.SLO)
	}
}

// The work of open arrivals does not depend on which instance serves it.
func TestEveryPolicyGetsTheSameWork(t *testing.T) {
	sc := pages(4, time.Minute)
	work := func(s quell.Scheduling) (requests int64, seconds float64) {
		_, err := Run(t.Context(), Options{Scenario: sc, Run: scenario.Run{Policy: quell.Policy{Name: "static"}, Scheduling: s},
			check: func(s *simulation) error {
				for i := range s.w.hosts {
					seconds += s.w.carried(i, quell.CPU, ownService)
				}
				requests = s.traffic.arrived
				return nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		return requests, seconds
	}
	n, a := work(quell.RoundRobin)
	m, b := work(quell.LeastConn)
	if n != m || math.Abs(a-b) > 1e-6*a {
		t.Errorf("%d requests of %v s and %d requests of %v s", n, a, m, b)
	}
}

// PRIMA, Table III: round robin gives both instances equally many requests, and the one with a neighbour takes three times as long. Table
// IV: under least connections it has fewer requests to answer and still takes longer.
func TestTablesIIIAndIVComeOut(t *testing.T) {
	sc := plainScenario(2, 0.4, 40e6, 10*time.Minute)
	sc.Service.Sampling = 5 * time.Minute
	sc.Service.Group.Startup, sc.WarmUp = time.Second, time.Minute
	sc.Timeline = []scenario.Event{{Interfere: &scenario.Interference{Host: "h2", Resource: quell.Network, Use: 0.4}}}
	both := func(s quell.Scheduling) (calm, disturbed quell.Observation) {
		sc.Runs = []scenario.Run{{Policy: quell.Policy{Name: "static"}, Scheduling: s}}
		seen, _ := observations(t, Options{Scenario: sc})
		return seen[0], seen[1]
	}
	calm, disturbed := both(quell.RoundRobin)
	near(t, "requests of both", *disturbed.RequestRate, *calm.RequestRate, 0.01)
	if ratio := *disturbed.LatencyMS.Mean / *calm.LatencyMS.Mean; ratio < 2.5 || ratio > 4 {
		t.Errorf("round robin: the second takes %.2f times as long, theory says about 3", ratio)
	}
	calm, disturbed = both(quell.LeastConn)
	if ratio := *disturbed.LatencyMS.Mean / *calm.LatencyMS.Mean; ratio < 1.3 || *disturbed.RequestRate > *calm.RequestRate {
		t.Errorf("least connections: the second takes %.2f times as long for %v of %v requests", ratio, *disturbed.RequestRate, *calm.RequestRate)
	}
}
