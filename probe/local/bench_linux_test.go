package local

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/sensor"
	"golang.org/x/sys/unix"
)

// BenchmarkAgent measures what all probes cost on an idle machine: the share of a core that this process uses with probes, minus the share
// without them.
func BenchmarkAgent(b *testing.B) {
	const stretch = 10 * time.Second
	var costs []float64
	for b.Loop() {
		idle := processorTime()
		time.Sleep(stretch)
		idle = processorTime() - idle
		stop := probing(b)
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
// system calls and memory. Intervals with and without probes alternate.
func BenchmarkLoadedService(b *testing.B) {
	const stretch = 5 * time.Second
	var losses []float64
	for b.Loop() {
		without := served(stretch)
		stop := probing(b)
		with := served(stretch)
		stop()
		losses = append(losses, 100*(1-with/without))
	}
	b.ReportMetric(median(losses), "%lost")
}

// probing runs all probes at the shortest period until stop is called.
func probing(b *testing.B) (stop func()) {
	b.Helper()
	folder, err := os.MkdirTemp("", "quell")
	if err != nil {
		b.Fatal(err)
	}
	p, err := New(Options{Resources: Resources(), Period: time.Second, Folder: folder, Root: os.DirFS("/"), Operations: 1000, Cores: 1})
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

// served returns how many requests per second two workers finish. Each request computes, walks through memory and makes a system call.
func served(stretch time.Duration) float64 {
	finished := make(chan int)
	end := time.Now().Add(stretch)
	const workers = 2
	for range workers {
		go func() {
			lines, at, x, n := cycle(1<<16, rand.New(rand.NewPCG(1, 1))), uint32(0), uint64(seed), 0
			for time.Now().Before(end) {
				x = spin(x, 20_000)
				at = chase(lines, at)
				n++
			}
			finished <- n
		}()
	}
	sum := 0
	for range workers {
		sum += <-finished
	}
	return float64(sum) / stretch.Seconds()
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
