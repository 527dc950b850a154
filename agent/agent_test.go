package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/quellhq/quell"
	"github.com/quellhq/quell/probe"
	"github.com/quellhq/quell/sensor"
)

// machine is a Sampler that counts its samples. Its sensors fail in the samples with the given numbers.
type machine struct {
	samples    int
	fails      map[int][]string
	subsamples int
	slow       time.Duration // of a subsample
}

func (m *machine) Sample(now time.Time) (quell.Observation, []sensor.Failure) {
	m.samples++
	obs := quell.Observation{At: now, Counters: map[string]float64{"sample": float64(m.samples)}}
	var failures []sensor.Failure
	for _, name := range m.fails[m.samples] {
		failures = append(failures, sensor.Failure{Sensor: name, Err: errors.New(name + " is broken")})
	}
	return obs, failures
}

// Subsample takes as long as reading many tasks.
func (m *machine) Subsample() {
	m.subsamples++
	time.Sleep(m.slow)
}

// journal is a bus that records readings. For some of them it is slow or fails.
type journal struct {
	readings []quell.Reading
	at       []time.Duration // times of the readings since the start
	begin    time.Time
	took     time.Duration
	fail     func(reading int) bool
}

func (j *journal) publish(ctx context.Context, r quell.Reading) error {
	j.readings, j.at = append(j.readings, r), append(j.at, time.Since(j.begin))
	if j.took > 0 {
		select {
		case <-time.After(j.took):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if j.fail != nil && j.fail(len(j.readings)) {
		return errors.New("bus is down")
	}
	return nil
}

// run runs an agent for the given time with synthetic time.
func run(t *testing.T, o Options, duration time.Duration) {
	t.Helper()
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	time.Sleep(duration)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestRunPublishesOnAlignedTicks(t *testing.T) {
	for _, c := range []struct {
		name  string
		begin time.Duration // after this many whole periods
		took  time.Duration // time that the bus took for a reading
		want  []time.Duration
	}{
		{"soon after a tick", 100 * time.Millisecond, 0,
			[]time.Duration{900 * time.Millisecond, 1900 * time.Millisecond, 2900 * time.Millisecond, 3900 * time.Millisecond}},
		{"too short before a tick", 800 * time.Millisecond, 0,
			[]time.Duration{1200 * time.Millisecond, 2200 * time.Millisecond, 3200 * time.Millisecond}},
		{"a slow bus does not make it drift", 100 * time.Millisecond, 400 * time.Millisecond,
			[]time.Duration{900 * time.Millisecond, 1900 * time.Millisecond, 2900 * time.Millisecond, 3900 * time.Millisecond}},
		{"a stuck bus costs every other tick", 100 * time.Millisecond, time.Hour,
			[]time.Duration{900 * time.Millisecond, 2900 * time.Millisecond}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(c.begin)
				j := &journal{begin: time.Now(), took: c.took}
				run(t, Options{Service: "video", Instance: "i1", Period: time.Second, Sampler: &machine{}, Publish: j.publish}, 4*time.Second)
				if len(j.at) != len(c.want) {
					t.Fatalf("published at %v, want %v", j.at, c.want)
				}
				for i, r := range j.readings {
					if j.at[i] != c.want[i] {
						t.Errorf("reading %d at %v, want %v", i, j.at[i], c.want[i])
					}
					if r.Service != "video" || r.Instance != "i1" || r.Source != quell.FromAgent || r.Sender != "i1" || r.Validate() != nil {
						t.Errorf("reading %+v, %v", r, r.Validate())
					}
					if got := r.Observation.Counters["sample"]; got != float64(i+2) {
						t.Errorf("reading %d holds sample %v: the first one only primes", i, got)
					}
				}
			})
		})
	}
}

// Beside a fast policy an agent also reports once per fast period, from a sampler of its own. A bus that fails in these periods is logged
// and counted once per sampling period only.
func TestRunPublishesFastReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(100 * time.Millisecond)
		j := &journal{begin: time.Now()}
		shared := make(chan struct{}, 1)
		publish := func(ctx context.Context, r quell.Reading) error {
			shared <- struct{}{}
			defer func() { <-shared }()
			return j.publish(ctx, r)
		}
		run(t, Options{Service: "video", Instance: "i1", Period: 2 * time.Second, Sampler: &machine{}, Fast: 500 * time.Millisecond,
			FastSampler: &machine{}, Publish: publish}, 4*time.Second)
		var fast, slow int
		for _, r := range j.readings {
			if err := r.Validate(); err != nil || r.Source != quell.FromAgent {
				t.Errorf("%+v: %v", r, err)
			}
			switch sample := int(r.Observation.Counters["sample"]); {
			case r.Fast && sample == fast+2:
				fast++
			case !r.Fast && sample == slow+2:
				slow++
			default:
				t.Errorf("fast %v: sample %d after %d fast and %d other readings", r.Fast, sample, fast, slow)
			}
		}
		if fast != 8 || slow != 2 {
			t.Errorf("%d fast and %d other readings in 4 s", fast, slow)
		}
	})
	if _, err := New(Options{Service: "s", Instance: "i", Period: time.Second, Sampler: &machine{}, Fast: time.Second,
		Publish: func(context.Context, quell.Reading) error { return nil }}); err == nil {
		t.Error("a fast period without a sampler is accepted")
	}
}

// linked is a machine whose network interface changes with time.
type linked struct {
	machine
	links []link // by sample; the last one stays
}

func (l *linked) Interface() (name string, capacity float64) {
	now := l.links[min(l.samples, len(l.links))-1]
	return now.name, now.capacity
}

func (l *linked) Doubt() string { return l.links[min(l.samples, len(l.links))-1].doubt }

func TestTheInterfaceIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		registry := prometheus.NewRegistry()
		run(t, Options{
			Service: "video", Instance: "i1", Period: time.Second, Publish: (&journal{}).publish, Metrics: registry,
			Sampler: &linked{links: []link{{}, {name: "eth0", capacity: 1e9}, {name: "eth0", capacity: 1e9}, {}, {name: "eth0", capacity: 1e9},
				{name: "eth1", capacity: 5e8, doubt: "eth1 has 500 Mbit/s as the kernel says"}}},
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		}, 8*time.Second)
		var told []string
		for line := range strings.Lines(log.String()) {
			if _, text, found := strings.Cut(line, "interface="); found {
				told = append(told, strings.TrimSpace(text))
			}
		}
		if want := []string{`eth0 capacity="1000 Mbit/s"`, `eth1 capacity="500 Mbit/s"`}; !slices.Equal(told, want) {
			t.Errorf("logged %q, want %q", told, want)
		}
		const warning = `"the network's capacity may be wrong" service=video instance=i1 because="eth1 has 500 Mbit/s as the kernel says"`
		if !strings.Contains(log.String(), "level=WARN msg="+warning) {
			t.Errorf("no word on a doubtful capacity: %s", &log)
		}
		const want = `# HELP quell_agent_network_capacity_bytes_per_second Capacity of the network interface that is measured.
# TYPE quell_agent_network_capacity_bytes_per_second gauge
quell_agent_network_capacity_bytes_per_second{interface="eth1"} 6.25e+07
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "quell_agent_network_capacity_bytes_per_second"); err != nil {
			t.Error(err)
		}
	})
}

func TestRunSurvivesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		registry := prometheus.NewRegistry()
		j := &journal{begin: time.Now(), fail: func(reading int) bool { return reading >= 2 && reading <= 4 }}
		m := &machine{fails: map[int][]string{1: {"network"}, 2: {"network"}, 3: {"network", "cpu"}, 5: {"cpu"}}}
		run(t, Options{
			Service: "video", Instance: "i1", Period: time.Second, Sampler: m, Publish: j.publish,
			Logger: slog.New(slog.NewTextHandler(&log, nil)), Metrics: registry,
		}, 6500*time.Millisecond)
		want := `
# HELP quell_agent_observations_total Observations taken, published or not.
# TYPE quell_agent_observations_total counter
quell_agent_observations_total 6
# HELP quell_agent_publish_errors_total Observations that could not be published.
# TYPE quell_agent_publish_errors_total counter
quell_agent_publish_errors_total 3
# HELP quell_agent_sensor_errors_total Samples in which a sensor failed.
# TYPE quell_agent_sensor_errors_total counter
quell_agent_sensor_errors_total{sensor="cpu"} 2
quell_agent_sensor_errors_total{sensor="network"} 3
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
		for line, times := range map[string]int{
			`msg="sensor network failed" service=video instance=i1 error="network is broken"`: 1,
			`msg="sensor network works again" service=video instance=i1 failures=3`:           1,
			`msg="sensor cpu failed" service=video instance=i1 error="cpu is broken"`:         2,
			`msg="sensor cpu works again" service=video instance=i1 failures=1`:               2,
			`msg="publishing failed" service=video instance=i1 error="bus is down"`:           1,
			`msg="publishing works again" service=video instance=i1 failures=3`:               1,
			"level=": 8,
		} {
			if got := strings.Count(log.String(), line); got != times {
				t.Errorf("%q is logged %d times, want %d", line, got, times)
			}
		}
		if t.Failed() {
			t.Log(log.String())
		}
	})
}

// lacking is a Sampler whose sensor is not available, later for another reason.
type lacking struct{ samples int }

func (l *lacking) Sample(now time.Time) (quell.Observation, []sensor.Failure) {
	l.samples++
	why := &sensor.Unavailable{Why: "it is not there", Do: "buy one"}
	if l.samples > 3 {
		why.Why = "it is forbidden"
	}
	return quell.Observation{At: now}, []sensor.Failure{{Sensor: "counters", Err: why}}
}

func (*lacking) Subsample() {}

// A sensor that the machine does not offer is logged once, with what to do, and is no error.
func TestASensorThatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		registry := prometheus.NewRegistry()
		run(t, Options{Service: "video", Instance: "i1", Period: time.Second, Sampler: &lacking{}, Publish: (&journal{}).publish,
			Logger: slog.New(slog.NewTextHandler(&log, nil)), Metrics: registry}, 6*time.Second)
		for line, times := range map[string]int{
			`level=INFO msg="sensor counters is not available" service=video instance=i1 because="it is not there" possible="buy one"`: 1,
			`because="it is forbidden"`: 1,
			"level=":                    2,
		} {
			if got := strings.Count(log.String(), line); got != times {
				t.Errorf("%q is logged %d times, want %d", line, got, times)
			}
		}
		if n, err := testutil.GatherAndCount(registry, "quell_agent_sensor_errors_total"); err != nil || n != 0 {
			t.Errorf("%d sensors count as failed, %v", n, err)
		}
	})
}

// quiet is a sensor that measures nothing.
type quiet string

func (q quiet) Name() string                             { return string(q) }
func (quiet) Sample(time.Time, *quell.Observation) error { return nil }

// The counters of failures are there from the start, with 0.
func TestSensorErrorsFromTheStart(t *testing.T) {
	registry := prometheus.NewRegistry()
	_, err := New(Options{Service: "s", Instance: "i", Period: time.Second, Sampler: sensor.NewSet(quiet("cpu"), quiet("disk")),
		Publish: (&journal{}).publish, Metrics: registry})
	if err != nil {
		t.Fatal(err)
	}
	want := `
# HELP quell_agent_sensor_errors_total Samples in which a sensor failed.
# TYPE quell_agent_sensor_errors_total counter
quell_agent_sensor_errors_total{sensor="cpu"} 0
quell_agent_sensor_errors_total{sensor="disk"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "quell_agent_sensor_errors_total"); err != nil {
		t.Error(err)
	}
}

func TestNewChecksItsOptions(t *testing.T) {
	good := Options{Service: "s", Instance: "i", Period: time.Second, Sampler: &machine{}, Publish: (&journal{}).publish}
	for name, damage := range map[string]func(*Options){
		"no service":       func(o *Options) { o.Service = "" },
		"no instance":      func(o *Options) { o.Instance = "" },
		"no period":        func(o *Options) { o.Period = 0 },
		"no sampler":       func(o *Options) { o.Sampler = nil },
		"no bus":           func(o *Options) { o.Publish = nil },
		"server, not open": func(o *Options) { o.ProbeServer = probe.NewServer(probe.ServerOptions{}) },
		"metrics twice": func(o *Options) {
			o.Metrics = prometheus.NewRegistry()
			if _, err := New(*o); err != nil {
				t.Fatal(err)
			}
		},
	} {
		o := good
		damage(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
}

func TestRunServesProbesWhileItRuns(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	server := probe.NewServer(probe.ServerOptions{})
	published := make(chan quell.Reading, 100)
	a, err := New(Options{
		Service: "video", Instance: "i1", Period: 20 * time.Millisecond, Sampler: &machine{}, ProbeServer: server, ProbeListener: l,
		Publish: func(_ context.Context, r quell.Reading) error { published <- r; return nil }, Metrics: registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	<-published
	response, err := http.Get("http://" + l.Addr().String() + "/probe?size=5000")
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(response.Body); err != nil || len(body) != 5000 {
		t.Errorf("%d bytes, %v", len(body), err)
	}
	response.Body.Close()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the probe server outlived the agent")
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "quell_agent_probe_bytes_total" {
			if got := f.GetMetric()[0].GetCounter().GetValue(); got != float64(server.BytesSent()) || got < 5000 {
				t.Errorf("%v bytes are told, %d were sent", got, server.BytesSent())
			}
			return
		}
	}
	t.Error("quell_agent_probe_bytes_total is missing")
}

func TestRunRefusesAnOpenProbeServer(t *testing.T) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := New(Options{
		Service: "s", Instance: "i", Period: time.Second, Sampler: &machine{}, Publish: (&journal{}).publish,
		ProbeServer: probe.NewServer(probe.ServerOptions{}), ProbeListener: l,
	})
	if err != nil {
		t.Fatal(err)
	}
	var user *quell.UserError
	if err := a.Run(context.Background()); !errors.As(err, &user) {
		t.Errorf("got %v, want a user's mistake", err)
	}
}

// Between two samples the sampler takes subsamples of the machine, less often if that takes long, and periods still end in time.
func TestSubsamples(t *testing.T) {
	for slow, want := range map[time.Duration]int{0: 290, 4 * time.Millisecond: 50, time.Hour: 1} {
		synctest.Test(t, func(t *testing.T) {
			m, j := &machine{slow: slow}, &journal{}
			run(t, Options{Service: "video", Instance: "i1", Period: 10 * time.Second, Sampler: m, Publish: j.publish}, 51*time.Second)
			if math.Abs(float64(m.subsamples-want)) > 0.05*float64(want) || slow < time.Second && len(j.readings) != 5 {
				t.Errorf("a subsample takes %v: %d subsamples, want about %d; %d readings", slow, m.subsamples, want, len(j.readings))
			}
		})
	}
}
