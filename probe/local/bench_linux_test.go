package local

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/sensor"
	"golang.org/x/sys/unix"
)

// BenchmarkProbes measures what all probes cost on an idle machine at the shortest sampling period: the share of a core that this process
// uses with probes, minus the share without them.
func BenchmarkProbes(b *testing.B) {
	const stretch = 10 * time.Second
	var costs []float64
	for b.Loop() {
		idle := processorTime()
		time.Sleep(stretch)
		idle = processorTime() - idle
		stop := probing(b, time.Second)
		probed := processorTime()
		time.Sleep(stretch)
		probed = processorTime() - probed
		stop()
		costs = append(costs, 100*(probed-idle).Seconds()/stretch.Seconds())
	}
	b.ReportMetric(median(costs), "%core")
	b.ReportMetric(slices.Max(costs), "%core-max")
}

// BenchmarkLoadedService measures how much all probes reduce the throughput of a service that keeps every processor busy and also uses
// system calls and memory, at the shortest and at the default sampling period. The service is a process of its own, as it is beside an
// agent. Intervals with and without probes alternate.
func BenchmarkLoadedService(b *testing.B) {
	for _, period := range []time.Duration{time.Second, 10 * time.Second} {
		b.Run(fmt.Sprintf("T=%v", period), func(b *testing.B) { benchmarkLoadedService(b, period) })
	}
}

func benchmarkLoadedService(b *testing.B, period time.Duration) {
	stretch := max(5*time.Second, period) // whole periods
	s := startService(b)
	s.served(stretch) // it is warm afterwards
	var losses []float64
	for b.Loop() {
		without := s.served(stretch)
		stop := probing(b, period)
		with := s.served(stretch)
		stop()
		losses = append(losses, 100*(1-with/without))
	}
	b.ReportMetric(median(losses), "%lost")
	b.ReportMetric(slices.Max(losses), "%lost-max")
}

// probing runs all probes at this sampling period until stop is called.
func probing(b *testing.B, period time.Duration) (stop func()) {
	b.Helper()
	folder, err := os.MkdirTemp("", "quell")
	if err != nil {
		b.Fatal(err)
	}
	p, err := New(Options{
		Settings: Settings{Resources: Resources(), Folder: folder}, Period: period, Root: os.DirFS("/"), Operations: 1000, Cores: 1,
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = p.Run(ctx) }()
	time.Sleep(time.Second) // time for work that is done only once
	set := sensor.NewSet(p.Sensors()...)
	set.Sample(time.Now())
	return func() {
		if obs, failures := set.Sample(time.Now()); len(failures) > 0 || obs.Probe[quell.CPU].N == 0 {
			b.Errorf("%v, %v", obs.Probe, failures)
		}
		cancel()
		<-done
		os.RemoveAll(folder)
	}
}

// serviceVariable is set in the environment of a process that is the busy service.
const serviceVariable = "QUELL_BENCHMARK_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(serviceVariable) != "" {
		serve(os.Stdin, os.Stdout)
		return
	}
	os.Exit(m.Run())
}

// serve keeps every processor busy until in ends. Each request computes, walks through memory and makes a system call. For each line of in
// it writes how many requests it has finished.
func serve(in io.Reader, out io.Writer) {
	var finished atomic.Int64
	for range runtime.NumCPU() {
		go func() {
			lines, at, x := cycle(1<<16, rand.New(rand.NewPCG(1, 1))), uint32(0), uint64(seed)
			for {
				x = spin(x, 20_000)
				at = chase(lines, at)
				_, _ = unix.Getrandom(make([]byte, 16), 0)
				finished.Add(1)
			}
		}()
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		fmt.Fprintln(out, finished.Load())
	}
}

// service is a process that runs serve.
type service struct {
	b   *testing.B
	in  io.Writer
	out *bufio.Reader
}

// startService starts a process that runs serve until the benchmark ends.
func startService(b *testing.B) *service {
	b.Helper()
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	c := exec.CommandContext(ctx, program)
	c.Env = append(os.Environ(), serviceVariable+"=1")
	in, err := c.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cancel(); _ = c.Wait() })
	return &service{b: b, in: in, out: bufio.NewReader(out)}
}

// served returns how many requests per second the service finishes.
func (s *service) served(stretch time.Duration) float64 {
	first, began := s.finished(), time.Now()
	time.Sleep(stretch)
	last, took := s.finished(), time.Since(began)
	return float64(last-first) / took.Seconds()
}

// finished asks the service how many requests it has finished.
func (s *service) finished() (n int64) {
	s.b.Helper()
	if _, err := fmt.Fprintln(s.in); err != nil {
		s.b.Fatal(err)
	}
	if _, err := fmt.Fscanln(s.out, &n); err != nil {
		s.b.Fatal(err)
	}
	return n
}

func processorTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
