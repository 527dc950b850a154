package bus

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// BenchmarkReadings measures readings through an embedded server over TCP, decoded and checked.
func BenchmarkReadings(b *testing.B) {
	s := startServer(b, ServerOptions{Listen: "127.0.0.1:0", Token: "t"})
	controller, agent := connect(b, Options{Server: s}), connect(b, Options{URL: s.URL(), Token: "t"})
	var got atomic.Int64
	all := make(chan struct{})
	stop, err := controller.SubscribeReadings("video", into(b, func(quell.Reading, time.Time) {
		if got.Add(1) == int64(b.N) {
			close(all)
		}
	}))
	if err != nil {
		b.Fatal(err)
	}
	defer stop()
	var crowd []quell.Reading // each has an allowance of its own
	for i := range 10_000 {
		crowd = append(crowd, reading(fmt.Sprint("i", i)))
	}
	b.ResetTimer()
	for sent := range b.N {
		if int64(sent)-got.Load() > pendingReadings/2 {
			if err := agent.nc.Flush(); err != nil {
				b.Fatal(err)
			}
			eventually(b, "the controller catches up", func() bool { return int64(sent)-got.Load() < pendingReadings/4 })
		}
		if err := agent.PublishReading(crowd[sent%len(crowd)]); err != nil {
			b.Fatal(err)
		}
	}
	receive(b, all)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "readings/s")
}

// BenchmarkAppend measures journal entries that are on disk when Append returns.
func BenchmarkAppend(b *testing.B) {
	j := journal(b, embedded(b), JournalOptions{})
	e := Entry{At: epoch, Kind: PlanEntry, Plan: bigPlan(10)}
	b.ResetTimer()
	for range b.N {
		if err := j.Append(b.Context(), e); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
}

// BenchmarkPutState measures writing the state of 10,000 instances.
func BenchmarkPutState(b *testing.B) {
	s := state(b, embedded(b))
	value := noise(1, 2<<20)
	b.SetBytes(int64(len(value)))
	for range b.N {
		if err := s.Put(b.Context(), "policy", value); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStartServer measures a start and a shutdown.
func BenchmarkStartServer(b *testing.B) {
	dir := b.TempDir()
	for range b.N {
		s, err := StartServer(ServerOptions{StoreDir: dir})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Shutdown(); err != nil {
			b.Fatal(err)
		}
	}
}
