package experiment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/builtin"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/examples"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/testbed/emulated"
	"github.com/quellhq/quell/loadgen"
	"github.com/quellhq/quell/policy/prima"
	"github.com/quellhq/quell/policy/rivals"
	"github.com/quellhq/quell/policy/table"
	processscaler "github.com/quellhq/quell/scaler/process"
	"github.com/quellhq/quell/setting"
	"github.com/quellhq/quell/train"
)

func noisyNeighbour(t *testing.T) *scenario.Scenario {
	t.Helper()
	sc, err := scenario.Parse("noisy-neighbour.yaml", examples.NoisyNeighbour)
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

// TestConfigIsWhatTheDaemonsRead: the configuration file of a run has exactly the values of the scenario.
func TestConfigIsWhatTheDaemonsRead(t *testing.T) {
	sc := noisyNeighbour(t)
	settings := table.All.Whole(sc.Service.Policy).Settings.(prima.Settings)
	settings.Spare, settings.Headroom = 1, 0.873
	sc.Service.Policy.Settings = settings
	sc.Runs = append(sc.Runs, scenario.Run{Policy: quell.Policy{Name: "hpa",
		Settings: rivals.HPASettings{Resource: quell.CPU, Utilization: 0.65}}, Scheduling: quell.LeastConn})
	sc.Service.Guard = quell.Guard{Floor: 0.1, Step: 0.5, SlowStart: 3 * time.Second, StaleAfter: 4, Fade: 7, ErrorRate: 0.2}
	rig := &Emulated{Program: "/opt/quell \"x\"", Dir: "/data", Models: "/data/models.json", Scenario: sc, sockets: "/run/q"}
	for _, run := range sc.Runs {
		g := &EmulatedGroup{rig: rig, group: newGroup(sc, run, "/data/run")}
		text := g.config(0, "127.0.0.1:4000", "127.0.0.1:8000", setting.Ports{First: 9000, Last: 9099})
		file, err := daemon.Drivers().Parse("quell.yaml", []byte(text))
		if err != nil {
			t.Fatalf("%s: %v", Title(sc, run), err)
		}
		want := sc.Service
		want.Policy = sc.PolicyOf(run)
		want.Group.Initial = sc.Initial(run)
		if n := sc.Size(run); n > 0 {
			want.Group.Min, want.Group.Max = n, n
		}
		got := file.Service
		if got.Policy != table.All.Whole(want.Policy) || got.Guard != want.Guard || got.SLO != want.SLO || got.Sampling != want.Sampling ||
			got.Group.Min != want.Group.Min || got.Group.Max != want.Group.Max || got.Group.Initial != want.Group.Initial {
			t.Errorf("%s: got %+v, want %+v", Title(sc, run), got, want)
		}
		instances := file.Scaler.Settings.(*processscaler.Settings)
		if file.Balancer.Settings.(*builtin.Settings).Scheduling != run.Scheduling || instances.Command[0] != rig.Program ||
			instances.Slots != len(sc.Hosts) {
			t.Errorf("%s: balancer %+v, scaler %+v", Title(sc, run), file.Balancer, file.Scaler)
		}
	}
}

// TestTrainingOnEmulatedHosts makes real runs: with a neighbour the same load takes longer, and the probe's times show it.
func TestTrainingOnEmulatedHosts(t *testing.T) {
	rows, err := Training{
		Hosts: 2, Bandwidth: 40e6, Workload: scenario.Workload{Kind: scenario.File, Arrivals: scenario.Poisson, Size: 50_000}, Budget: 0.02,
		Seed: 3,
	}.Run(t.Context(), train.Options{
		Resource: emulated.Shared, Plan: train.Plan{
			Levels: []float64{0.3}, Interference: []float64{0, 0.5}, Run: 3 * time.Second, WarmUp: 200 * time.Millisecond,
			Repeat: 1, MaxRepeat: 1, Interval: 0.05, Confidence: 0.95,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2 {
		t.Fatalf("%d rows, want 2", len(rows))
	}
	alone, disturbed := rows[0], rows[1]
	if alone.Interfering != 0 {
		alone, disturbed = disturbed, alone
	}
	if *disturbed.LatencyMS.Mean <= *alone.LatencyMS.Mean || disturbed.ProbeMS.Mean <= alone.ProbeMS.Mean {
		t.Errorf("half of the link taken: response %.1f to %.1f ms, probe %.2f to %.2f ms", *alone.LatencyMS.Mean, *disturbed.LatencyMS.Mean,
			alone.ProbeMS.Mean, disturbed.ProbeMS.Mean)
	}
	if disturbed.Interfering < 0.3 || alone.Errors+disturbed.Errors > 0 {
		t.Errorf("the neighbour carried %.2f of the 0.5 asked for; %d requests failed", disturbed.Interfering, alone.Errors+disturbed.Errors)
	}
}

// puppet is a group without a controller: the test sets the controller's status.
type puppet struct {
	server *httptest.Server

	mu        sync.Mutex
	disturbed []string
	held      []map[string]float64 // nil: released
	asked     int
	fail      error
	changes   []time.Time
	paths     map[string]int // asked for
}

func newPuppet(t *testing.T) *puppet {
	p := &puppet{paths: map[string]int{}}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.paths[r.URL.Path]++
		p.mu.Unlock()
		w.Header().Set("X-Quell-Instance", "i1")
		size, err := strconv.Atoi(r.URL.Query().Get("bytes"))
		if err != nil {
			size = 4
		}
		_, _ = w.Write(make([]byte, size))
	}))
	t.Cleanup(p.server.Close)
	return p
}

func (p *puppet) URL() string { return p.server.URL }

func (p *puppet) Interfere(host string, use map[quell.Resource]float64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if use[quell.Network] > 0 {
		host += "+"
	}
	p.disturbed = append(p.disturbed, host)
	return nil
}

func (p *puppet) Hold(_ context.Context, weights map[string]float64) error {
	p.held = append(p.held, weights)
	return nil
}

func (p *puppet) Release(_ context.Context, weights map[string]float64) error {
	if last := p.held[len(p.held)-1]; !maps.Equal(last, weights) {
		return fmt.Errorf("%v are released, and %v held", weights, last)
	}
	p.held = append(p.held, nil)
	return nil
}

// With every request for the status, the cost rises by ten instance-seconds. So the test knows the difference between two requests.
func (p *puppet) Status(context.Context) (controller.Status, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	return controller.Status{
		InstanceSeconds: 100 + 10*float64(p.asked), Decisions: p.asked,
		Instances: []controller.InstanceStatus{{ID: "i1", State: quell.Ready}, {ID: "i2", State: quell.Failed},
			{ID: "i3", State: quell.Draining}},
	}, p.fail
}

func (p *puppet) Changes(_ context.Context, since time.Time) ([]time.Time, error) {
	p.changes = append(p.changes, since)
	return []time.Time{since.Add(1500 * time.Millisecond)}, nil
}

func shortScenario(t *testing.T) *scenario.Scenario {
	t.Helper()
	sc, err := scenario.Parse("short.yaml", []byte(`
scenario: short
duration: 2s
service: {slo: {metric: mean, threshold: 1s}}
hosts: [{id: h, count: 2, network: 4Mbps}]
workload: {kind: file, arrivals: deterministic, size: 10KB, load: 1}
timeline:
  - {at: 500ms, interfere: {host: h1, resource: network, use: 0.4}, mark: noise}
  - {at: 1s, load: 2}
  - {at: 1500ms, interfere: {host: h1, resource: network, use: 0}}
runs: [{policy: static, scheduling: leastconn, fixed: 1}, {policy: prima}]
judge: {window: 1s, requests: 10}
`))
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

func TestPlayOffersTheSameToAllAndAccountsIt(t *testing.T) {
	sc := shortScenario(t)
	sc.Instances.Weights = []float64{1}
	a, b := newPuppet(t), newPuppet(t)
	var frames int
	results, err := Play(t.Context(), Options{
		Scenario: sc, Players: []Player{{sc.Runs[0], a}, {sc.Runs[1], b}}, WarmUp: 300 * time.Millisecond,
		Watch: func(f Frame) { frames += len(f.Runs) },
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		// The load is 50 requests/s for a second and then 100. Requests of the warm-up of 0.3 s do not count.
		if r.Requests < 145 || r.Requests > 155 || r.Errors != 0 || r.SLO.ViolationS != 0 {
			t.Errorf("run %d: %d requests, %d errors, %v s violated; want 150, 0, 0", i, r.Requests, r.Errors, r.SLO.ViolationS)
		}
		if r.InstanceSeconds < 10 || r.Decisions < 1 || r.MaxInstances != 2 {
			t.Errorf("run %d: %v instance-seconds, %d decisions, at most %d instances (a failed one does not count)", i, r.InstanceSeconds,
				r.Decisions, r.MaxInstances)
		}
	}
	if results[0].Requests != results[1].Requests {
		t.Errorf("%d and %d requests: the groups got different work", results[0].Requests, results[1].Requests)
	}
	if results[0].Fixed != 1 || results[0].ReactionS != nil || results[1].Fixed != 0 || results[1].ReactionS == nil ||
		results[1].ReactionS.Median != 1 {
		t.Errorf("fixed %d with reaction %v, scaling with %v; want the change at 1.5 s after the mark at 0.5 s", results[0].Fixed,
			results[0].ReactionS, results[1].ReactionS)
	}
	if got := strings.Join(b.disturbed, " "); got != "h1+ h1" {
		t.Errorf("disturbed %q, want h1 on, then off", got)
	}
	if want := []map[string]float64{{"i1": 1}, nil}; !reflect.DeepEqual(a.held, want) || !reflect.DeepEqual(b.held, want) {
		t.Errorf("weights were held and released: %v and %v, want %v", a.held, b.held, want)
	}
	if frames == 0 {
		t.Error("nothing was shown")
	}
}

// For each kind of workload, the requests reach the group, and two groups get the same requests. Only for users the number of requests
// depends on how fast they are answered.
func TestPlayOffersEveryKind(t *testing.T) {
	for kind, tc := range map[string]struct {
		workload, path string
		least, most    int64 // requests in a second
	}{
		"file": {"{kind: file, load: 1, arrivals: deterministic, size: 10KB}", "/file", 48, 52},
		// 25 sessions of 10 chunks, and requests of the warm-up that a busy machine sends late
		"video": {"{kind: video, load: 0.5, arrivals: deterministic, video: {size: 10KB, chunk: 20ms, videos: 1, sessions: 1}}", "/chunk", 50,
			330},
		"classes": {"{kind: classes, load: 0.8, arrivals: deterministic, spread: fixed, classes: [{name: a, network: 4KB}]}", "/work", 98, 102},
		"users":   {"{kind: users, users: 20, think: 100ms, classes: [{name: a, network: 4KB}]}", "/work", 10, 260},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			sc, err := scenario.Parse("kinds.yaml", []byte(`
scenario: kinds
duration: 1s
service: {slo: {metric: mean, threshold: 1s}}
hosts: [{id: h, count: 2, network: 4Mbps}]
workload: `+tc.workload+`
runs: [{policy: static, scheduling: leastconn, fixed: 1}, {policy: static, scheduling: roundrobin, fixed: 2}]
judge: {window: 1s, requests: 10}
`))
			if err != nil {
				t.Fatal(err)
			}
			a, b := newPuppet(t), newPuppet(t)
			results, err := Play(t.Context(), Options{Scenario: sc, Players: []Player{{sc.Runs[0], a}, {sc.Runs[1], b}},
				WarmUp: 300 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range results {
				if r.Errors > 0 || r.Requests < tc.least || r.Requests > tc.most {
					t.Errorf("run %d: %d requests, %d errors, %q; want %d to %d", i, r.Requests, r.Errors, r.Warnings, tc.least, tc.most)
				}
			}
			for _, p := range []*puppet{a, b} {
				if len(p.paths) != 1 || p.paths[tc.path] == 0 {
					t.Errorf("asked for %v, want %s", p.paths, tc.path)
				}
			}
		})
	}
}

// A live run of a scenario has the same video sessions as the simulator, because both draw them from the same seed.
func TestLiveSessionsAreTheSimulators(t *testing.T) {
	w := scenario.Workload{Kind: scenario.Video, Video: scenario.DefaultVideo()}
	live, err := visits(w, 5)
	if err != nil {
		t.Fatal(err)
	}
	programme, err := loadgen.NewProgramme(loadgen.Video(w.Video), 5)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		visit, play := live(0), programme.Begin()
		chunks, ended := 0, time.Duration(0)
		for q, ok := visit.Next(ended); ok; q, ok = visit.Next(ended) {
			if want := programme.ChunkBytes(play.Playlist(), chunks); q.Bytes != want {
				t.Fatalf("chunk %d has %d bytes, want %d", chunks, q.Bytes, want)
			}
			chunks, ended = chunks+1, q.At
		}
		if want := programme.Playlists[play.Playlist()].Chunks; chunks != want {
			t.Errorf("%d chunks, want %d", chunks, want)
		}
	}
}

// If live hosts are trained with video sessions, the level of a training row is the use of the link.
func TestTrainingOnVideoSessions(t *testing.T) {
	video := scenario.DefaultVideo()
	video.Size, video.Chunk = 55_000, 100*time.Millisecond // sessions of a second
	rows, err := Training{
		Hosts: 2, Bandwidth: 20e6, Workload: scenario.Workload{Kind: scenario.Video, Arrivals: scenario.Deterministic, Video: video},
		Budget: 0.02, Seed: 3,
	}.Run(t.Context(), train.Options{
		Resource: emulated.Shared, Plan: train.Plan{
			Levels: []float64{0.4}, Interference: []float64{0, 0.4}, Run: 4 * time.Second, WarmUp: 200 * time.Millisecond,
			Repeat: 1, MaxRepeat: 1, Interval: 0.05, Confidence: 0.95,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	alone, disturbed := rows[0], rows[1]
	if alone.Interfering != 0 {
		alone, disturbed = disturbed, alone
	}
	for _, r := range rows {
		if r.Utilization < 0.3 || r.Utilization > 0.5 || r.Errors > 0 {
			t.Errorf("a level of 0.4 used %.2f of the link; %d requests failed", r.Utilization, r.Errors)
		}
	}
	if *disturbed.LatencyMS.Mean <= *alone.LatencyMS.Mean || disturbed.ProbeMS.Mean <= alone.ProbeMS.Mean {
		t.Errorf("beside a neighbour: response %.1f to %.1f ms, probe %.2f to %.2f ms", *alone.LatencyMS.Mean, *disturbed.LatencyMS.Mean,
			alone.ProbeMS.Mean, disturbed.ProbeMS.Mean)
	}
}

func TestPlayEndsWithItsContext(t *testing.T) {
	sc := shortScenario(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Play(ctx, Options{Scenario: sc, Players: []Player{{sc.Runs[0], newPuppet(t)}}}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestPlayNeedsTheAccount(t *testing.T) {
	sc := shortScenario(t)
	p := newPuppet(t)
	p.fail = errors.New("no controller answers")
	if _, err := Play(t.Context(), Options{Scenario: sc, Players: []Player{{sc.Runs[0], p}}}); !errors.Is(err, p.fail) {
		t.Errorf("a run whose cost is unknown has no result; got %v", err)
	}
}

func TestVerdictsSayWhenAComparisonIsUnfair(t *testing.T) {
	sc := noisyNeighbour(t)
	mean := 10.0
	results := make([]scenario.Result, len(sc.Runs))
	for i, run := range sc.Runs {
		results[i] = scenario.Result{Policy: run.Policy.Name, Scheduling: run.Scheduling, InstanceSeconds: 200,
			LatencyMS: quell.Latency{Mean: &mean}, SLO: scenario.SLOResult{ViolationS: 20}}
	}
	prima := &results[len(results)-1]
	prima.SLO.ViolationS, prima.InstanceSeconds = 5, 203
	if text := strings.Join(Verdicts(sc, results), "\n"); strings.Contains(text, "Unfair") ||
		!strings.Contains(text, "5 s instead of 20 s at +1% of the cost") {
		t.Errorf("within 2%% is fair; got:\n%s", text)
	}
	prima.InstanceSeconds = 220
	if text := strings.Join(Verdicts(sc, results), "\n"); strings.Count(text, "Unfair: PRIMA used more, 220 instance-seconds") != 3 {
		t.Errorf("10%% more is unfair; got:\n%s", text)
	}
	prima.Warnings = []string{"the generator fell behind"}
	var b strings.Builder
	if err := WriteTable(&b, sc, results); err != nil || !strings.Contains(b.String(), "static/leastconn x4") ||
		!strings.Contains(b.String(), "10 ms") || !strings.Contains(b.String(), "Doubtful, prima/leastconn: the generator fell behind") {
		t.Errorf("%v:\n%s", err, b.String())
	}
	if !strings.Contains(strings.Join(Verdicts(sc, results), "\n"), "static/leastconn x4 did not keep the threshold") {
		t.Error("the size that should keep the threshold did not, and nobody says so")
	}
	if Verdicts(sc, results[:1]) != nil {
		t.Error("without PRIMA there is nothing to compare")
	}
}

// A rival that missed the objective for one judge window longer than PRIMA held it as well; one of two windows did not.
func TestMachinesNeededToHoldAsWell(t *testing.T) {
	sc := noisyNeighbour(t)
	results := make([]scenario.Result, len(sc.Runs))
	for i, missed := range []float64{15, 10, 0, 5} {
		results[i] = scenario.Result{Policy: sc.Runs[i].Policy.Name, MeanInstances: 2 + float64(i)/2, SLO: scenario.SLOResult{ViolationS: missed}}
	}
	var b strings.Builder
	const want = `
PRIMA missed the objective for 5 s, with 3.5 machines on average. To miss it as little:
  static/roundrobin x3  2.0 machines were not enough: missed for 15 s
  static/leastconn x3   2.5 machines were enough, 29% less than PRIMA's: missed for 10 s
  static/leastconn x4   3.0 machines were enough, 14% less than PRIMA's: missed for 0 s
`
	if err := WriteNeeded(&b, sc, results); err != nil || b.String() != want {
		t.Errorf("%v:\n%s", err, b.String())
	}
	b.Reset()
	if err := WriteNeeded(&b, sc, results[:3]); err != nil || b.String() != "" {
		t.Errorf("without PRIMA there is nothing to compare: %v, %s", err, b.String())
	}
}

// The slowest instance counts of those with enough requests, over the last window.
func TestTheSlowestInstanceOfLate(t *testing.T) {
	r := &recent{of: scenario.Judging{Window: 5 * time.Second, Requests: 2}}
	add := func(instance string, at, took time.Duration) {
		r.add(loadgen.Sample{Instance: instance, Intended: at - took, Finished: at, Status: 200})
	}
	add("i1", time.Second, 900*time.Millisecond)
	add("i1", time.Second, 900*time.Millisecond)
	for range 2 {
		add("i1", 7*time.Second, 20*time.Millisecond)
		add("i2", 7*time.Second, 50*time.Millisecond)
	}
	add("i3", 7*time.Second, 500*time.Millisecond)
	if got := r.slowest(quell.Mean); got != 50 {
		t.Errorf("%v ms, want those of i2", got)
	}
}

func TestEveryRunOfTheDemoHasAPolicy(t *testing.T) {
	for _, run := range noisyNeighbour(t).Runs {
		if !slices.Contains(table.All.Names(), run.Policy.Name) {
			t.Errorf("%s is no policy", run.Policy.Name)
		}
	}
}

// The titles of two runs of one policy differ by the settings that only one of them has.
func TestTitlesTellSettings(t *testing.T) {
	sc := noisyNeighbour(t)
	own := scenario.Run{Policy: quell.Policy{Name: "hpa", Settings: rivals.HPASettings{Resource: quell.Network, Utilization: 0.65}},
		Scheduling: quell.LeastConn}
	for want, run := range map[string]scenario.Run{
		"hpa (utilization 65%)/leastconn": own,
		"hpa/leastconn":                   {Policy: quell.Policy{Name: "hpa"}, Scheduling: quell.LeastConn},
		"prima/leastconn":                 {Policy: sc.Service.Policy, Scheduling: quell.LeastConn},
	} {
		if got := Title(sc, run); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
