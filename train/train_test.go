package train

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/loadgen"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/probe"
)

// machine is a target whose service answers at once, and whose simulated utilisations are those commanded.
type machine struct {
	service, probe *httptest.Server
	began          time.Time
	served         atomic.Int64

	mu          sync.Mutex
	interfering float64
	carried     float64
	since       time.Time
	asked       []float64
	gone        error // error returned when active interference is ended
}

func newMachine(t *testing.T, handler http.HandlerFunc) *machine {
	m := &machine{began: time.Now(), since: time.Now()}
	m.service = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.served.Add(1)
		handler(w, r)
	}))
	m.probe = httptest.NewServer(probe.NewServer(probe.ServerOptions{}))
	t.Cleanup(m.service.Close)
	t.Cleanup(m.probe.Close)
	return m
}

func (m *machine) Service() string { return m.service.URL }
func (m *machine) Probe() string   { return strings.TrimPrefix(m.probe.URL, "http://") }

func (m *machine) Interfere(_ quell.Resource, use float64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle()
	was := m.interfering
	m.interfering = use
	m.asked = append(m.asked, use)
	if was > 0 {
		return m.gone
	}
	return nil
}

func (m *machine) settle() {
	now := time.Now()
	m.carried += m.interfering * now.Sub(m.since).Seconds()
	m.since = now
}

func (m *machine) Feels(quell.Resource) bool { return false }

// Carried reports that every request used the whole resource for 2 ms.
func (m *machine) Carried(quell.Resource) (Carried, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle()
	sensed := quell.Observation{CPU: &quell.CPUTime{User: 0.25}, Utilization: map[quell.Resource]float64{quell.CPU: 0.25}}
	return Carried{Own: 0.002 * float64(m.served.Load()), Interfering: m.carried, Sensed: sensed}, nil
}

func options(t *testing.T, targets ...Target) Options {
	t.Helper()
	machines, err := Live(liveOptions(targets...))
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		Resource: quell.Network,
		Plan: Plan{Levels: []float64{0.1, 0.2}, Interference: []float64{0, 0.3}, Run: time.Second, WarmUp: 100 * time.Millisecond, Repeat: 1,
			MaxRepeat: 1, Interval: 0.05, Confidence: 0.95},
		Machines: machines, Seed: 1, Save: func(model.TrainingRow) error { return nil },
	}
}

func liveOptions(targets ...Target) LiveOptions {
	capacity := 40e6
	return LiveOptions{
		Targets: targets, PerSecond: func(quell.Resource) float64 { return 500 }, Process: loadgen.Deterministic, Seed: 1,
		Probe: &probe.Options{Service: "training", Sender: "t", Period: 500 * time.Millisecond, Count: 10, Capacity: &capacity, Budget: 0.05,
			Timeout: 500 * time.Millisecond},
	}
}

func TestRunMakesEveryCellOnceAndAccountsIt(t *testing.T) {
	ok := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("file")) }
	targets := []*machine{newMachine(t, ok), newMachine(t, ok)}
	o := options(t, targets[0], targets[1])
	var rows []model.TrainingRow
	var last Progress
	o.Save = func(r model.TrainingRow) error { rows = append(rows, r); return nil }
	o.Progress = func(p Progress) { last = p }
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if last.CellsDone != 4 || last.Cells != 4 || last.Runs != 4 || last.Left != 0 {
		t.Errorf("at the end the progress is %+v", last)
	}
	slices.SortFunc(rows, func(a, b model.TrainingRow) int {
		return int(1000*(a.Level+10**a.InterferingLevel)) - int(1000*(b.Level+10**b.InterferingLevel))
	})
	for i, want := range []Cell{{0.1, 0}, {0.2, 0}, {0.1, 0.3}, {0.2, 0.3}} {
		r := rows[i]
		if r.Level != want.Level || *r.InterferingLevel != want.Interference {
			t.Fatalf("row %d is of %v under %v, want %+v", i, r.Level, *r.InterferingLevel, want)
		}
		if err := r.Validate(); err != nil {
			t.Errorf("row %d: %v", i, err)
		}
		if requests := want.Level * 500; float64(r.Requests) < 0.9*requests || float64(r.Requests) > 1.1*requests {
			t.Errorf("row %d counts %d requests, want about %v: the warm-up does not count", i, r.Requests, requests)
		}
		if (want.Interference == 0) != (r.Interfering == 0) || r.Interfering > 0.31 {
			t.Errorf("row %d: interference of %v carried %v", i, want.Interference, r.Interfering)
		}
		checkObservation(t, r)
		if r.Utilization <= 0 || r.ProbeMS.N == 0 || r.Errors != 0 {
			t.Errorf("row %d: utilization %v, %d probes, %d errors", i, r.Utilization, r.ProbeMS.N, r.Errors)
		}
	}
	for i, m := range targets {
		if last := m.asked[len(m.asked)-1]; last != 0 {
			t.Errorf("target %d is left with interference %v", i, last)
		}
	}
}

// checkObservation checks that a row's observation has all its values, in addition to the sensors' values.
func checkObservation(t *testing.T, r model.TrainingRow) {
	t.Helper()
	o := r.Observation
	if o == nil || o.At.IsZero() || o.WindowS != r.DurationS || *o.RequestRate != r.RequestRate || *o.ErrorRate != 0 ||
		*o.LatencyMS.Mean != *r.LatencyMS.Mean {
		t.Fatalf("observation %+v of row %+v", o, r)
	}
	if p := o.Probe[r.Resource]; p.MeanMS != r.ProbeMS.Mean || p.N != r.ProbeMS.N || p.By == nil || *p.By != *r.By || r.By.Count != 10 {
		t.Errorf("probe %+v of row %+v", p, r)
	}
	if o.Utilization[r.Resource] != r.Utilization || o.Utilization[quell.CPU] != 0.25 || o.CPU == nil {
		t.Errorf("utilization %v, cpu %v", o.Utilization, o.CPU)
	}
}

func TestRunFailsWhenNoRequestSucceeds(t *testing.T) {
	m := newMachine(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) })
	if _, err := Run(t.Context(), options(t, m)); err == nil || !strings.Contains(err.Error(), "no request succeeded") {
		t.Errorf("got %v", err)
	}
}

// A training is refused if the machine's probes or requests do not use the resource.
func TestOnlyWhatIsMeasuredIsTrained(t *testing.T) {
	m := newMachine(t, func(http.ResponseWriter, *http.Request) { t.Error("a request") })
	o := options(t, m)
	o.Resource = quell.Disk
	var user *quell.UserError
	if _, err := Run(t.Context(), o); !errors.As(err, &user) || !strings.Contains(err.Error(), "nothing probes the disk of these machines") {
		t.Errorf("got %v", err)
	}
	lo := liveOptions(m)
	lo.PerSecond = func(quell.Resource) float64 { return 0 }
	machines, err := Live(lo)
	if err != nil {
		t.Fatal(err)
	}
	o.Resource, o.Machines = quell.Network, machines
	if _, err := Run(t.Context(), o); !errors.As(err, &user) || !strings.Contains(err.Error(), "requests use no network") {
		t.Errorf("got %v", err)
	}
}

func TestWithoutLoadTheProbeAloneIsMeasured(t *testing.T) {
	m := newMachine(t, func(http.ResponseWriter, *http.Request) { t.Error("a request") })
	o := options(t, m)
	o.Plan.Only = []Cell{{0, 0}}
	var rows []model.TrainingRow
	o.Save = func(r model.TrainingRow) error { rows = append(rows, r); return nil }
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 1 || rows[0].Requests != 0 || rows[0].LatencyMS.N != 0 || rows[0].ProbeMS.N == 0 || rows[0].Validate() != nil {
		t.Errorf("rows %+v", rows)
	}
}

// twice is a visitor who sends two requests.
type twice struct{ left int }

func (v *twice) Next(ended time.Duration) (loadgen.Request, bool) {
	v.left--
	return loadgen.Request{At: ended, Path: "/chunk?bytes=4", Class: "chunk", Bytes: 4}, v.left >= 0
}

// A run whose interferer has ended by itself gives no row.
func TestRunFailsWithItsInterferer(t *testing.T) {
	m := newMachine(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("file")) })
	m.gone = errors.New("iperf3 ended by itself")
	o := options(t, m)
	o.Save = func(row model.TrainingRow) error {
		if *row.InterferingLevel > 0 {
			t.Error("a row was saved")
		}
		return nil
	}
	if _, err := Run(t.Context(), o); !errors.Is(err, m.gone) || !strings.Contains(err.Error(), "interference 0.30: iperf3 ended") {
		t.Errorf("got %v", err)
	}
}

func TestArrivalsMayBeVisits(t *testing.T) {
	var mu sync.Mutex
	paths := map[string]bool{}
	m := newMachine(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		paths[r.URL.Path] = true
		mu.Unlock()
		_, _ = w.Write([]byte("file"))
	})
	lo := liveOptions(m)
	lo.Visits = func(uint64) (loadgen.Visits, error) {
		return func(time.Duration) loadgen.Visit { return &twice{2} }, nil
	}
	o := options(t, m)
	o.Plan.Levels, o.Plan.Interference = []float64{0.2}, []float64{0}
	var rows []model.TrainingRow
	o.Save = func(r model.TrainingRow) error { rows = append(rows, r); return nil }
	machines, err := Live(lo)
	if err != nil {
		t.Fatal(err)
	}
	o.Machines = machines
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if n := rows[0].Requests; n < 190 || n > 202 || len(paths) != 1 || !paths["/chunk"] {
		t.Errorf("%d requests in a second for 100 visits of two, for %v", n, paths)
	}
	o1 := rows[0].Observation
	if o1.RequestRates["chunk"] != rows[0].RequestRate || *o1.LatencyByClassMS["chunk"].Mean != *rows[0].LatencyMS.Mean {
		t.Errorf("by class %v, %v of %+v", o1.RequestRates, o1.LatencyByClassMS, rows[0])
	}
	none := errors.New("nothing to ask for")
	lo.Visits = func(uint64) (loadgen.Visits, error) { return nil, none }
	if o.Machines, err = Live(lo); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), o); !errors.Is(err, none) {
		t.Errorf("got %v", err)
	}
}

func TestRunEndsWhenARowCannotBeSaved(t *testing.T) {
	m := newMachine(t, func(http.ResponseWriter, *http.Request) {})
	o := options(t, m)
	full := errors.New("disk full")
	o.Save = func(model.TrainingRow) error { return full }
	if _, err := Run(t.Context(), o); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	m := newMachine(t, func(http.ResponseWriter, *http.Request) {})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, options(t, m)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if last := m.asked; len(last) > 0 && last[len(last)-1] != 0 {
		t.Error("the interference stays")
	}
}

func TestRunRefusesBadOptions(t *testing.T) {
	m := newMachine(t, func(http.ResponseWriter, *http.Request) {})
	for name, change := range map[string]func(*Options){
		"no machine":  func(o *Options) { o.Machines = nil },
		"no resource": func(o *Options) { o.Resource = "" },
		"bad plan":    func(o *Options) { o.Plan.Levels = nil },
	} {
		o := options(t, m)
		change(&o)
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for name, change := range map[string]func(*LiveOptions){
		"no target":   func(o *LiveOptions) { o.Targets = nil },
		"bad probing": func(o *LiveOptions) { o.Probe.Count = -1 },
	} {
		o := liveOptions(m)
		change(&o)
		if _, err := Live(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestSettle checks that a cell is repeated until the width of the interval is at most the wanted share of the mean, and
// never less often than the plan says.
func TestSettle(t *testing.T) {
	tr := &training{Options: Options{Plan: Plan{Repeat: 3, MaxRepeat: 10, Interval: 0.05, Confidence: 0.95}}}
	for name, tc := range map[string]struct {
		means           []float64
		stop, converged bool
	}{
		"one run says nothing of its spread": {[]float64{10}, false, false},
		"two equal runs are too few":         {[]float64{10, 10}, false, true},
		"three equal runs":                   {[]float64{10, 10, 10}, true, true},
		"three scattered runs":               {[]float64{9, 10, 11}, false, false},
		"a width of 0.07, half of it 0.035":  {[]float64{9.9, 10, 10.18}, false, false},
		"a width of 0.0497":                  {[]float64{9.9, 10, 10.1}, true, true},
		"many close runs":                    {[]float64{9.9, 10, 10.1, 10, 9.95, 10.05}, true, true},
	} {
		var row model.TrainingRow
		if stop := tr.settle(&row, tc.means); stop != tc.stop {
			t.Errorf("%s: stop is %v", name, stop)
		}
		if converged := row.Converged != nil && *row.Converged; converged != tc.converged {
			t.Errorf("%s: converged is %v", name, converged)
		}
	}
}

// disky is a machine that probes its disk itself. It counts how often it is read.
type disky struct {
	*machine
	reads *int
}

func (disky) Feels(r quell.Resource) bool { return r == quell.Disk }

func (m disky) Carried(r quell.Resource) (Carried, error) {
	*m.reads++
	c, err := m.machine.Carried(r)
	by := quell.Probing{Bytes: 4096}
	c.Sensed.Probe = map[quell.Resource]quell.ProbeStats{quell.Disk: {MeanMS: 3, StddevMS: 1, N: 7, By: &by}}
	return c, err
}

// A resource that the machine probes itself is trained without downloads. If there are downloads as well, the row has both results.
func TestProbesOfTheMachinesOwn(t *testing.T) {
	for _, downloads := range []bool{false, true} {
		lo := liveOptions(disky{newMachine(t, func(http.ResponseWriter, *http.Request) {}), new(int)})
		if !downloads {
			lo.Probe = nil
		}
		machines, err := Live(lo)
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Resource: quell.Disk, Plan: options(t, newMachine(t, nil)).Plan, Machines: machines, Seed: 1}
		o.Plan.Only = []Cell{{0.1, 0.3}}
		rows, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		_, network := rows[0].Observation.Probe[quell.Network]
		r, want := rows[0], model.ProbeRun{Mean: 3, Stddev: 1, N: 7}
		if r.Resource != quell.Disk || r.ProbeMS != want || r.By.Bytes != 4096 || network != downloads {
			t.Errorf("row %+v, downloads %v", r, network)
		}
	}
}

// Watch measures each period beside a neighbour on another resource than the service's, and ends the neighbour afterwards. Each reading
// ends one period and begins the next.
func TestWatch(t *testing.T) {
	m := newMachine(t, func(http.ResponseWriter, *http.Request) {})
	reads := 0
	machines, err := Live(liveOptions(disky{m, &reads}))
	if err != nil {
		t.Fatal(err)
	}
	seen, err := machines[0].(WatchedMachine).Watch(t.Context(), RunRequest{
		Resource: quell.Disk, Disturb: quell.CPU, Cell: Cell{0.1, 0.3}, WarmUp: 100 * time.Millisecond, Run: time.Second,
	}, 500*time.Millisecond)
	if err != nil || len(seen) != 2 {
		t.Fatalf("%d periods, %v", len(seen), err)
	}
	if reads != 3 {
		t.Errorf("2 periods took %d readings", reads)
	}
	for _, o := range seen {
		if o.Probe[quell.Network].N == 0 || o.Probe[quell.Disk].N != 7 || o.WindowS < 0.4 {
			t.Errorf("observation %+v", o)
		}
	}
	if !slices.Equal(m.asked, []float64{0.3, 0}) {
		t.Errorf("interference %v", m.asked)
	}
}

// With a plan for detectors the interferer comes and goes during a run, and the row has an observation of each window.
func TestAlternate(t *testing.T) {
	m := newMachine(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("file")) })
	machines, err := Live(liveOptions(m))
	if err != nil {
		t.Fatal(err)
	}
	plan := Alternating()
	plan.Levels, plan.Interference, plan.Run, plan.WarmUp = []float64{0.2}, []float64{0.3}, 1200*time.Millisecond, 100*time.Millisecond
	plan.Alternate = &Alternation{Away: 200 * time.Millisecond, There: 400 * time.Millisecond, Window: 200 * time.Millisecond}
	rows, err := Run(t.Context(), Options{Plan: plan, Resource: quell.Network, Machines: machines, Seed: 1})
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	if !slices.Equal(m.asked, []float64{0, 0.3, 0, 0.3, 0}) {
		t.Errorf("interference %v", m.asked)
	}
	var uses []float64
	requests := 0
	for _, w := range rows[0].Windows {
		uses = append(uses, w.Interfering)
		if o := w.Observation; o.RequestRate == nil || o.Probe[quell.Network].N == 0 || o.WindowS < 0.15 {
			t.Errorf("window %+v", w)
		} else if o.LatencyMS != nil {
			requests += o.LatencyMS.N
		}
	}
	if !slices.Equal(uses, []float64{0, 0.3, 0.3, 0, 0.3, 0.3}) || requests == 0 {
		t.Errorf("windows under %v with %d requests", uses, requests)
	}
	if err := rows[0].Validate(); err != nil {
		t.Error(err)
	}
	plan.Alternate.Away = 300 * time.Millisecond
	if plan.Validate() == nil {
		t.Error("times that are no multiples of a window are accepted")
	}
}
