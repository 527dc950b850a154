package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/page"
	"github.com/quellhq/quell/policy"
)

// markup is an instance's name that would run a script if it were taken for markup.
const markup = `<img src=x onerror="document.title='broken'">`

// fake is a controller with a status that tests set.
type fake struct {
	mu       sync.Mutex
	status   controller.Status
	commands []bus.Command
	left     error // whether the last command's context had ended
}

func (f *fake) Status() controller.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

func (f *fake) set(change func(*controller.Status)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.status)
}

func (f *fake) Command(ctx context.Context, cmd bus.Command) bus.Reply {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = ctx.Err()
	f.commands = append(f.commands, cmd)
	switch {
	case cmd.Name == bus.Pause:
		f.status.Paused, f.status.PausedBy = true, cmd.By
	case cmd.Name == bus.Resume:
		f.status.Paused = false
	case cmd.Instance == "i2":
		return bus.Reply{Error: "i2 is the last one"}
	}
	return bus.Reply{Body: json.RawMessage(`{"done":"done"}`)}
}

// always stands for a credential that stays valid.
func always(time.Time) bool { return true }

// silentJournal keeps nothing; it stands for the controller's journal.
type silentJournal struct{}

func (silentJournal) Append(context.Context, bus.Entry) error              { return nil }
func (silentJournal) AppendSnapshot(context.Context, quell.Snapshot) error { return nil }

// recorded is what an earlier process left.
type recorded struct {
	entries   []bus.Entry
	snapshots []quell.Snapshot
}

func (r *recorded) Read(_ context.Context, since time.Time, fn func(bus.Entry) error) error {
	for _, e := range r.entries {
		if !e.At.Before(since) {
			if err := fn(e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *recorded) ReadSnapshots(_ context.Context, since time.Time, fn func(quell.Snapshot) error) error {
	for _, s := range r.snapshots {
		if !s.At.Before(since) {
			if err := fn(s); err != nil {
				return err
			}
		}
	}
	return nil
}

func at(v float64) *float64 { return &v }

// statusAt is a made-up status: instance i3 has neighbours for some time, and the group grows.
func statusAt(start, now time.Time, n int) controller.Status {
	t := now.Sub(start).Minutes()
	noise := 0.7 * math.Exp(-math.Pow((t-48)/8, 2))
	since := start.Add(40 * time.Minute)
	if n < 100 && t > 42 {
		n++
	}
	s := controller.Status{Service: "shop", At: now, Policy: "prima", Mode: quell.Act, Leading: true, Models: "learned in place",
		SLO:         "p95 <= 75ms",
		ThresholdMS: 75, ArrivalRate: at(90 + 20*math.Sin(t/15)), Capacity: at(float64(n) * (0.8 - noise/6)), Authority: "full",
		Fast: "ice", FastReasons: []quell.Reason{{Code: "cut", Instance: "i3", Text: "its share is cut to 40%"}},
		Learned: []string{"network: learned 62%"}, Reasons: []quell.Reason{{Code: "capacity_short", Text: "load 2.41 is above 90% of 2.62"},
			{Code: "interference", Instance: "i3", Text: "the probe takes 2.1 times as long as alone",
				Since: &since}}}
	for i := range n {
		id := fmt.Sprintf("i%d", i+1)
		if i == 3 {
			id = markup
		}
		row := controller.InstanceStatus{ID: id, Address: "10.0.0.1:80", State: quell.Ready, Weight: at(1 / float64(n)), Now: at(1 / float64(n)),
			Share: at(1 / float64(n)), Would: at(1 / float64(n)), RequestRate: at(90 / float64(n)), CanTakeRate: at(40), Utilization: at(0.5),
			LatencyMS: at(35 + 3*math.Sin(t/3+float64(i))), PredictedMS: at(38)}
		s.Load += 0.5 + 0.1*math.Sin(t/15)
		switch i {
		case 0:
			row.Tenancy = &quell.Tenancy{Policy: "acs", Cores: at(2), Used: at(1.93), Steal: at(0.021),
				Why: "slowdowns of 2 groups differ by a factor of 1.54: caps change", Problems: []string{"group cache: it is gone"},
				Tenants: []quell.TenantState{
					{Name: markup, Processors: at(1.2), Wanted: at(1.5), Waits: at(0.2), Slowdown: at(1.3), Importance: at(1), Weight: at(0.6),
						Favour: quell.HeldBack, Why: "slowdown 1.30 (from scheduling): weight 0.60, expected slowdown 1.61"},
					{Name: "db", Processors: at(0.73), Wanted: at(1.4), Waits: at(0.48), Slowdown: at(2), Importance: at(1), Weight: at(2), Cap: at(1.5),
						Favour: quell.Favoured, Why: "slowdown 2.00 (from scheduling): weight 2.00, expected slowdown 1.64"},
					{Name: "cron", Processors: at(0), Idle: true, Importance: at(1)}}, More: 2}
		case 1:
			row.Credits = quell.Balances{quell.CPU: {Left: 12.5, Low: 12, High: 13, DepletedS: at(600)}}
		case 2:
			row.Cut = at(0.4)
		case 3:
			row.Credits = quell.Balances{quell.CPU: {Left: 30, Low: 30, High: 30}}
		}
		if i == 2 {
			*row.LatencyMS += 100 * noise
			row.Interference = map[quell.Resource]policy.Interference{quell.Network: {Hidden: at(noise), Severity: at(noise), Use: at(.4)},
				quell.CPU: {Hidden: at(noise / 3)}}
		}
		s.Instances = append(s.Instances, row)
	}
	return s
}

// viewers is how many browsers may wait for events of a fixture.
const viewers = 10

// fixture is a served page.
type fixture struct {
	end func() // ends Run
	*fake
	server  *page.Server
	journal controller.Journal
	http    *httptest.Server
	start   time.Time
	size    int
}

// newFixture serves a page over an hour of history, most of which was recorded by an earlier process.
func newFixture(t *testing.T, n int) *fixture {
	t.Helper()
	x := &fixture{fake: &fake{}, start: time.Now().Add(-time.Hour).Truncate(time.Second), size: n}
	kept := &recorded{}
	for now := x.start; now.Before(x.start.Add(30 * time.Minute)); now = now.Add(10 * time.Second) {
		snapshot := quell.Snapshot{At: now, Service: "shop", ArrivalRate: at(90)}
		for i := range min(n, 5) {
			latency := 35 + 3*math.Sin(now.Sub(x.start).Minutes()/3+float64(i))
			snapshot.Instances = append(snapshot.Instances, quell.Instance{ID: fmt.Sprintf("i%d", i+1), State: quell.Ready,
				Observation: &quell.Observation{LatencyMS: &quell.Latency{P95: &latency}}})
		}
		kept.snapshots = append(kept.snapshots, snapshot)
	}
	kept.entries = []bus.Entry{{At: x.start.Add(5 * time.Minute), Seq: 1, Kind: bus.EventEntry,
		Text: "reloaded the configuration: an old event"}}
	mux := http.NewServeMux()
	x.http = httptest.NewServer(mux)
	t.Cleanup(x.http.Close)
	x.server = page.New(page.Options{Recorded: kept, SLO: quell.SLO{Metric: quell.P95, Threshold: 75 * time.Millisecond},
		Listen: strings.TrimPrefix(x.http.URL, "http://"), Viewers: viewers, Poll: 2 * time.Millisecond})
	x.server.Show(x)
	x.journal = x.server.Follow(silentJournal{})
	mux.Handle("/", x.server.Handler())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	x.end = func() { cancel(); <-ended }
	t.Cleanup(x.end)
	go func() { defer close(ended); x.server.Run(ctx) }()
	return x
}

// play shows a status for each 15 seconds of the second half of the hour.
func (x *fixture) play(t *testing.T) {
	t.Helper()
	for now := x.start.Add(30 * time.Minute); !now.After(x.start.Add(time.Hour)); now = now.Add(15 * time.Second) {
		x.set(func(s *controller.Status) { *s = statusAt(x.start, now, x.size) })
		x.awaitPoint(t, now)
		if minute := now.Sub(x.start).Minutes(); minute == 38 || minute == 42 || minute == 50 {
			x.decide(t, now)
		}
	}
}

func (x *fixture) decide(t *testing.T, now time.Time) {
	t.Helper()
	plan := &quell.Plan{At: now, Service: "shop", Policy: "prima", Reasons: []quell.Reason{{Code: "interference", Instance: "i3",
		Text: "neighbours use 42% of the network"}}}
	if err := x.journal.Append(t.Context(), bus.Entry{At: now, Kind: bus.PlanEntry, Plan: plan, Applied: true,
		Changes: []string{"weight of i3: 0.250 -> 0.150", "start 1 instance"}}); err != nil {
		t.Fatal(err)
	}
}

// now asks for everything.
func (x *fixture) now(t *testing.T) (n page.Now) {
	t.Helper()
	x.get(t, "/page/now?limit=50", &n)
	return n
}

func (x *fixture) get(t *testing.T, path string, v any) {
	t.Helper()
	answer, err := http.Get(x.http.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, answer.Status)
	}
	if err := json.NewDecoder(answer.Body).Decode(v); err != nil {
		t.Fatal(err)
	}
}

// awaitPoint waits until the page has drawn a moment.
func (x *fixture) awaitPoint(t *testing.T, moment time.Time) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if points := x.now(t).Points; len(points) > 0 && points[len(points)-1].At >= moment.UnixMilli() {
			return
		}
	}
	t.Fatalf("no point of %s", moment)
}
