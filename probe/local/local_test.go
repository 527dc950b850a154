package local

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/probe"
	"github.com/quellhq/quell/sensor"
)

// fake is a thread whose clocks are set by the test.
type fake struct{ wall, cpu, wait time.Duration }

func (f *fake) now() time.Duration             { return f.wall }
func (f *fake) used() time.Duration            { return f.cpu }
func (f *fake) waited() (time.Duration, error) { return f.wait, nil }
func (f *fake) nap(d time.Duration)            { f.wall += d }
func (f *fake) close() error                   { return nil }

// runs advances the clocks as if the thread had run, and had waited for a processor, for the given times.
func (f *fake) runs(cpu, wait time.Duration) {
	f.cpu, f.wait, f.wall = f.cpu+cpu, f.wait+wait, f.wall+cpu+wait
}

// throttled is a fake quota that has stopped its group for so long.
type throttled time.Duration

func (q *throttled) Stopped() (time.Duration, error) { return time.Duration(*q), nil }

func TestCPUProbe(t *testing.T) {
	const run, ms = 500 * time.Microsecond, time.Millisecond
	for _, c := range []struct {
		why       string
		cpu, wait time.Duration // times of the computation: processor time, waiting time
		woken     time.Duration // how long the thread waited after its nap
		stopped   time.Duration // for how long the own quota stopped the group meanwhile
		want      float64       // in ms
		fails     error
	}{
		{"alone", run, 0, 0, 0, 0.5, nil},
		{"it waits to be run", run, 0, 3 * ms, 0, 3.5, nil},
		{"it is interrupted", run, ms, 0, 0, 1.5, nil},
		{"both", run, ms, 3 * ms, 0, 4.5, nil},
		{"beside a busy hyper-thread it computes longer, and waits no longer", 2 * run, 0, 0, 0, 0.5, nil},
		{"the own quota stopped it", run, 50 * ms, 0, 50 * ms, 0, errOwnQuota},
		{"a neighbour and, shorter, the own quota stopped it", run, 50 * ms, 0, 20 * ms, 30.5, nil},
		{"the own quota stopped the group on two processors", run, 50 * ms, 0, 90 * ms, 0, errOwnQuota},
		{"the own quota stopped the group while the thread napped", run, 0, 0, 9 * ms, 0.5, nil},
	} {
		for _, watched := range []bool{false, true} {
			thread, quota := &waking{woken: c.woken}, throttled(7*ms)
			p := &cpuProbe{
				thread: thread, quota: &quota, run: run, stopped: 7 * ms, watched: watched,
				work: func() { thread.runs(c.cpu, c.wait); quota += throttled(c.stopped) },
			}
			s, err := p.probe(0)
			if math.Abs(s.ms-c.want) > 1e-9 || !errors.Is(err, c.fails) || s.cost != c.cpu.Seconds() {
				t.Errorf("%s, watched %v: %+v, %v; want %v ms", c.why, watched, s, err, c.want)
			}
		}
	}
	still := &cpuProbe{thread: &fake{}, quota: new(throttled), run: run, work: func() {}}
	if s, err := still.probe(0); err == nil || s.ms != 0 {
		t.Errorf("a clock that stands still: %+v, %v", s, err)
	}
}

// The quota is watched from the first stop that a waiting probe finds until there are no more stops. While it is watched, stops before a
// probe are not taken for that probe's waiting.
func TestTheOwnQuotaIsWatched(t *testing.T) {
	const run, ms = 500 * time.Microsecond, time.Millisecond
	thread, quota := &waking{woken: 3 * ms}, throttled(0)
	p := &cpuProbe{thread: thread, quota: &quota, run: run, work: func() { thread.runs(run, 0) }}
	for k, c := range []struct {
		stopped, woken time.Duration // since the probe before
		want           float64       // in ms; 0: an error
		watched        bool
	}{
		{0, 3 * ms, 3.5, false},
		{50 * ms, 0, 0.5, false}, // nothing waited: nobody asks
		{0, 3 * ms, 0, true},     // it may have been the quota
		{50 * ms, 3 * ms, 3.5, true},
		{0, 3 * ms, 3.5, false},
	} {
		quota += throttled(c.stopped)
		thread.woken = c.woken
		s, err := p.probe(0)
		if (err != nil) != (c.want == 0) || math.Abs(s.ms-c.want) > 1e-9 || p.watched != c.watched {
			t.Errorf("probe %d: %+v, %v, watched %v; want %+v", k, s, err, p.watched, c)
		}
	}
}

// A thread that is woken only after its probe was due has waited since then. What the quota stopped since the probe before is subtracted.
func TestCPUProbeThatIsWokenTooLate(t *testing.T) {
	const run, ms = 500 * time.Microsecond, time.Millisecond
	for _, c := range []struct {
		stopped time.Duration
		want    float64 // in ms
	}{{0, 2.5}, {ms / 2, 2}} {
		thread, quota := &fake{wall: time.Second}, throttled(5*ms+c.stopped)
		p := &cpuProbe{thread: thread, quota: &quota, run: run, work: func() { thread.runs(run, 0) }, stopped: 5 * ms}
		if s, err := p.probe(ahead + 2*ms); err != nil || math.Abs(s.ms-c.want) > 1e-9 {
			t.Errorf("stopped for %v: %+v, %v; want %v ms", c.stopped, s, err, c.want)
		}
	}
}

// A pause of this process or its machine is no neighbour's doing. A thread that waits for a processor on a crowded machine is not paused.
func TestCPUProbeAfterAPause(t *testing.T) {
	const run = 500 * time.Microsecond
	for _, c := range []struct {
		why         string
		late, ready time.Duration // ready: for how much of it the thread was ready to run
		want        float64       // in ms; 0: it was paused
	}{
		{"stopped and continued", 10 * time.Second, 0, 0},
		{"continued on a busy machine", 10 * time.Second, 20 * time.Millisecond, 0},
		{"a crowded machine", 2 * time.Second, time.Second, 2000.5},
		{"a host that keeps the processor for a while", 900 * time.Millisecond, 0, 900.5},
	} {
		thread := &fake{wall: time.Hour, wait: time.Minute + c.ready}
		p := &cpuProbe{thread: thread, quota: new(throttled), run: run, work: func() { thread.runs(run, 0) }, ready: time.Minute}
		if s, err := p.probe(ahead + c.late); math.Abs(s.ms-c.want) > 1e-9 || errors.Is(err, errPaused) != (c.want == 0) {
			t.Errorf("%s: %+v, %v; want %v ms", c.why, s, err, c.want)
		}
		thread.wall += time.Minute // the next probe is not affected
		if s, err := p.probe(0); err != nil || math.Abs(s.ms-0.5) > 1e-9 {
			t.Errorf("%s: the next probe: %+v, %v", c.why, s, err)
		}
	}
}

// A clock whose every second step is long, because something interrupts the thread, is not too coarse.
func TestResolves(t *testing.T) {
	for _, c := range []struct {
		steps []time.Duration
		want  bool
	}{
		{[]time.Duration{40 * time.Microsecond, 1}, true},
		{[]time.Duration{40 * time.Microsecond}, false},
		{[]time.Duration{0}, false},
	} {
		at, n := time.Duration(0), 0
		read := func() time.Duration { at += c.steps[n%len(c.steps)]; n++; return at }
		if err := resolves(read, 500*time.Microsecond, "test's"); (err == nil) != c.want {
			t.Errorf("%v: %v", c.steps, err)
		}
	}
}

// waking is a thread that waits for a processor after its nap.
type waking struct {
	fake
	woken time.Duration
}

func (w *waking) nap(d time.Duration) { w.fake.nap(d); w.runs(0, w.woken) }

func TestMemoryProbe(t *testing.T) {
	thread := &fake{}
	p := &memoryProbe{thread: thread, walk: func() { thread.runs(200*time.Microsecond, 5*time.Millisecond) }}
	thread.runs(50*time.Microsecond, 0) // between two probes
	if s, err := p.probe(0); err != nil || s.ms != 0.2 || math.Abs(s.cost-250e-6) > 1e-12 {
		t.Errorf("%+v, %v: a wait for a processor is none for the memory", s, err)
	}
	p.walk = func() {}
	if s, err := p.probe(0); err == nil {
		t.Errorf("a clock that stands still: %+v", s)
	}
}

func TestCycleGoesThroughAllLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(t, "lines")
		lines := cycle(n, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)))
		at, seen := uint32(0), 0
		for {
			seen++
			if at = lines[at].next; at == 0 || seen > n {
				break
			}
		}
		if seen != n {
			t.Fatalf("it comes back after %d of %d lines", seen, n)
		}
	})
}

func TestCoarseClocks(t *testing.T) {
	ticking := func(step, every int) func() time.Duration {
		readings := 0
		return func() time.Duration { readings++; return time.Duration(readings/every*step) * time.Nanosecond }
	}
	const length = 500 * time.Microsecond
	if err := resolves(ticking(300, 1), length, "processor"); err != nil {
		t.Error(err)
	}
	for why, clock := range map[string]func() time.Duration{
		"steps of 4 ms":       ticking(4_000_000, 100),
		"one that never runs": func() time.Duration { return 0 },
	} {
		if err := resolves(clock, length, "processor"); err == nil || !strings.Contains(err.Error(), "too coarse to measure 500µs") {
			t.Errorf("%s: %v", why, err)
		}
	}
}

// Whatever single probes cost, all probes together cost at most the allowance's income plus one probe that was saved up.
func TestAllowance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cost := rapid.Float64Range(1e-5, 1e-1)
		p := allowance{perSecond: rapid.Float64Range(1e-4, 1).Draw(t, "per second"), most: 8, cost: cost.Draw(t, "guess")}
		window := time.Duration(rapid.Int64Range(int64(10*time.Millisecond), int64(time.Minute)).Draw(t, "window"))
		steady := cost.Draw(t, "cost")
		p.cost = max(p.cost, steady) // if the estimated cost is too low, only one probe costs too much
		var spent, probes float64
		const windows = 50
		for range windows {
			for range p.draw(window) {
				p.pay(steady)
				spent, probes = spent+steady, probes+1
			}
		}
		seconds := windows * window.Seconds()
		if most := p.perSecond*seconds + max(p.cost, steady) + 1e-9; spent > most {
			t.Fatalf("%v spent of %v", spent, most)
		}
		if probes > 8*seconds+1 {
			t.Fatalf("%v probes in %v s", probes, seconds)
		}
	})
}

func TestAllowanceAdapts(t *testing.T) {
	for _, c := range []struct {
		why             string
		perSecond, cost float64
		least, most     int // number of probes in 100 s
	}{
		{"two cores: eight a second", 0.01, 550e-6, 799, 801},
		{"one core: the budget allows just that", 0.005, 550e-6, 790, 801},
		{"a fifth of a core", 0.001, 550e-6, 170, 185},
		{"probes that cost ten times what was thought", 0.005, 5e-3, 90, 103},
		{"nothing comes in", 0, 550e-6, 0, 0},
	} {
		p, n := allowance{perSecond: c.perSecond, most: 8, cost: 500e-6}, 0
		for range 100 {
			for range p.draw(time.Second) {
				n++
				p.pay(c.cost)
			}
		}
		if n < c.least || n > c.most {
			t.Errorf("%s: %d probes", c.why, n)
		}
	}
	disk := diskKind.allowance(&Options{Settings: Settings{Budget: 0.005}, Operations: 200, Period: time.Second})
	if n := disk.draw(time.Second); n != 1 {
		t.Errorf("%d operations a second on a disk of 200", n)
	}
}

func TestRate(t *testing.T) {
	for period, want := range map[time.Duration]float64{200 * time.Millisecond: 8, time.Second: 8, 10 * time.Second: 4} {
		if got := (&Options{Period: period}).rate(); got != want {
			t.Errorf("%v probes a second in periods of %v, want %v", got, period, want)
		}
	}
}

func TestCores(t *testing.T) {
	quarter := fstest.MapFS{
		"proc/self/mountinfo":              {Data: []byte("29 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")},
		"proc/self/cgroup":                 {Data: []byte("0::/web\n")},
		"sys/fs/cgroup/cgroup.controllers": {Data: []byte("cpu")}, "sys/fs/cgroup/web/cpu.max": {Data: []byte("25000 100000\n")},
	}
	if n := cores(&Options{Root: quarter}); n != 0.25 {
		t.Errorf("%v cores under a quota of a quarter", n)
	}
	if n := cores(&Options{Root: quarter, Cores: 1}); n != 1 {
		t.Errorf("%v cores of one that is configured", n)
	}
	quarter["sys/fs/cgroup/web/cpu.max"] = &fstest.MapFile{Data: []byte("99999900000 100000\n")}
	if n := cores(&Options{Root: quarter}); n != float64(processors()) {
		t.Errorf("%v cores under a quota above the machine", n)
	}
	if n := cores(&Options{Root: fstest.MapFS{}}); n < 1 {
		t.Errorf("%v cores", n)
	}
}

// A changed quota changes the budget of a running prober. What it saved and what probes cost stays.
func TestTheBudgetFollowsTheQuota(t *testing.T) {
	machine := fstest.MapFS{
		"proc/self/mountinfo":              {Data: []byte("29 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")},
		"proc/self/cgroup":                 {Data: []byte("0::/web\n")},
		"sys/fs/cgroup/cgroup.controllers": {Data: []byte("cpu")}, "sys/fs/cgroup/web/cpu.max": {Data: []byte("25000 100000\n")},
	}
	f := &follower{kind: cpuKind, opts: &Options{Settings: Settings{Budget: MostBudget, Run: UsualRun}, Root: machine, Period: time.Second}}
	now := time.Unix(100, 0)
	f.budget(now)
	if f.allowance.perSecond != MostBudget*0.25 || f.allowance.cost != UsualRun.Seconds() {
		t.Fatalf("%+v with a quarter of a core", f.allowance)
	}
	f.allowance.pay(1)
	was := f.allowance
	machine["sys/fs/cgroup/web/cpu.max"] = &fstest.MapFile{Data: []byte("50000 100000\n")}
	f.budget(now.Add(reckon - 1))
	if f.allowance != was {
		t.Errorf("%+v, too early", f.allowance)
	}
	f.budget(now.Add(reckon))
	was.perSecond = MostBudget / 2
	if f.allowance != was {
		t.Errorf("%+v with half a core, want %+v", f.allowance, was)
	}
}

// If a resource cannot be probed, its sensor reports why in each period and gives no values. The other resources are still probed.
func TestFollowerTellsWhy(t *testing.T) {
	o := &Options{Settings: Settings{Run: UsualRun}, Period: time.Second}
	why := errors.New("there is none")
	f := &follower{opts: o, kind: kind{
		resource: quell.CPU, by: cpuKind.by, open: func(*Options) (prober, error) { return nil, why },
	}}
	now := time.Unix(100, 0)
	set := sensor.NewSet(f)
	if f.ready(now) {
		t.Fatal("it is ready")
	}
	for range 2 {
		obs, failures := set.Sample(now)
		if len(failures) != 1 || !errors.Is(failures[0].Err, why) || len(obs.Probe) > 0 || obs.ProbeFailed[quell.CPU] == "" {
			t.Fatalf("%+v, %v", obs, failures)
		}
	}
	opened := 0
	f.open = func(*Options) (prober, error) { opened++; return &scripted{}, nil }
	if f.ready(now.Add(again-1)) || !f.ready(now.Add(again)) || !f.ready(now.Add(again)) || opened != 1 {
		t.Fatalf("opened %d times", opened)
	}
	f.note(&[]float64{3}[0], nil)
	f.note(nil, errOwnQuota) // some of a period's probes fail, and the others count
	obs, failures := set.Sample(now)
	if p := obs.Probe[quell.CPU]; len(failures) > 0 || p.N != 1 || p.MeanMS != 3 || p.By.RunMS != 0.25 || len(obs.ProbeFailed) > 0 {
		t.Fatalf("%+v, %v", obs, failures)
	}
}

// A prober that broke is closed, and opened again after a while.
func TestABrokenProberIsMadeAnew(t *testing.T) {
	broken := &scripted{err: &brokenError{os.ErrClosed}}
	f := &follower{opts: &Options{Period: time.Second}, kind: diskKind, prober: broken, allowance: allowance{cost: 1}}
	f.window(t.Context(), time.Now(), []probe.Slot{{Until: time.Hour}, {Until: time.Hour}})
	if f.prober != nil || !broken.closed || broken.probes != 1 || !errors.Is(f.failed, os.ErrClosed) || f.ready(time.Now()) {
		t.Errorf("%+v, %+v", f, broken)
	}
}

// scripted is a prober that always returns the same result.
type scripted struct {
	err    error
	probes int
	closed bool
}

func (s *scripted) probe(time.Duration) (sample, error) {
	s.probes++
	return sample{ms: 1, cost: 1}, s.err
}
func (s *scripted) close() error { s.closed = true; return nil }

func TestOptionsThatCannotWork(t *testing.T) {
	good := Options{Period: time.Second, Root: fstest.MapFS{}}
	for want, change := range map[string]func(*Options){
		"no probe on the instance measures network": func(o *Options) { o.Resources = []quell.Resource{quell.Network} },
		"a budget of 0.02":                          func(o *Options) { o.Budget = 0.02 },
		"a buffer of 5 bytes":                       func(o *Options) { o.Buffer = 5 },
		"need a Root and a Period":                  func(o *Options) { o.Period = 0 },
	} {
		o := good
		change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
