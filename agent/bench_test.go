package agent

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/sensor"
)

// BenchmarkReport measures the whole work of one period: reading this machine's files, encoding and publishing. At one observation per
// second an agent may use 0.5% of a processor, which is 5 ms. Almost all allocations are the files' contents. Only the last counters are
// kept from one period to the next. The sensors of network and processors are what an agent cannot do without; docs/signals.md has the
// figures.
func BenchmarkReport(b *testing.B) {
	if _, err := os.Stat("/proc/net/dev"); err != nil {
		b.Skip("this machine has no /proc")
	}
	o := sensor.Options{
		Root: os.DirFS("/"), Interface: "lo", Capacity: map[quell.Resource]float64{quell.Network: 1e12}, Exclude: func() uint64 { return 0 },
	}
	b.Run("network and processors", func(b *testing.B) {
		network, errNetwork := sensor.NewNetwork(o)
		cpu, errCPU := sensor.NewCPU(o)
		if err := errors.Join(errNetwork, errCPU); err != nil {
			b.Fatal(err)
		}
		report(b, sensor.NewSet(network, cpu))
	})
	b.Run("all sensors", func(b *testing.B) { reportAll(b, o) })
	o.Cgroup = sensor.OwnCgroup // with version 1 of control groups, one file is read for each task of the group
	b.Run("all sensors of a control group", func(b *testing.B) {
		reportAll(b, o)
		tasks, _ := filepath.Glob("/proc/[0-9]*/task/*")
		b.ReportMetric(float64(len(tasks)), "machine-tasks")
	})
}

func reportAll(b *testing.B, o sensor.Options) {
	sensors, err := sensor.New(o)
	if err != nil {
		b.Fatal(err)
	}
	if _, failures := sensors.Sample(time.Now()); len(failures) > 0 {
		b.Skipf("this machine has no such sensors: %v", failures)
	}
	report(b, sensors)
}

// report measures the periods of an agent with these sensors.
func report(b *testing.B, sensors Sampler) {
	a, err := New(Options{
		Service: "video", Instance: "i1", Period: time.Second, Sampler: sensors,
		Publish: func(_ context.Context, r quell.Reading) error {
			_, err := json.Marshal(r)
			return err
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	a.sample()
	b.ReportAllocs()
	before := processorTime(b)
	for b.Loop() {
		a.report(context.Background())
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
}

// processorTime is how long this process has run, which other work on the machine hardly changes.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
