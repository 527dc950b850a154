package controller

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/policy/table"
)

// crowd returns readings of n instances from all sources, as they arrive in a period.
func crowd(b *testing.B, n int) []quell.Reading {
	b.Helper()
	h := hdrhistogram.New(1, time.Hour.Microseconds()*24, 2)
	for i := range 200 {
		_ = h.RecordValue(int64(10_000 + 137*i))
	}
	encoded, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		b.Fatal(err)
	}
	now, rate, open := time.Now(), 20.0, 0.4
	var all []quell.Reading
	for i := range n {
		r := quell.Reading{Service: "shop", Instance: fmt.Sprintf("i%d", i+1)}
		r.Source, r.Sender = quell.FromAgent, r.Instance
		r.Observation = quell.Observation{At: now, WindowS: 10, Utilization: map[quell.Resource]float64{quell.Network: 0.4, quell.CPU: 0.2}}
		all = append(all, r)
		r.Source, r.Sender = quell.FromProber, "balancer"
		r.Observation = quell.Observation{At: now, WindowS: 10,
			Probe: map[quell.Resource]quell.ProbeStats{quell.Network: {MeanMS: 3, StddevMS: 1, N: 100}}}
		all = append(all, r)
		r.Source, r.Requests, r.LatencyHDR = quell.FromBalancer, 200, encoded
		r.Observation = quell.Observation{At: now, WindowS: 10, RequestRate: &rate, InFlight: &open}
		all = append(all, r)
	}
	return all
}

// benchToken is what senders of readings present.
const benchToken = "a token of at least thirty-two letters"

func embeddedBus(b *testing.B, listen string) (*bus.Conn, *bus.Server) {
	b.Helper()
	s, err := bus.StartServer(bus.ServerOptions{Listen: listen, Token: benchToken, StoreDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Shutdown() })
	return joinBus(b, bus.Options{Server: s}), s
}

func joinBus(b *testing.B, o bus.Options) *bus.Conn {
	b.Helper()
	c, err := bus.Connect(o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	return c
}

// benchController returns a controller with n ready instances. Everything except the journal is faked.
func benchController(b *testing.B, n int, journal Journal) *Controller {
	b.Helper()
	balancer := &fakeBalancer{}
	scaler := &fakeScaler{}
	for i := range n {
		id := fmt.Sprintf("i%d", i+1)
		scaler.members = append(scaler.members, quell.Member{ID: id, Address: "127.0.0.1:80", State: quell.Ready})
		balancer.backends = append(balancer.backends, quell.Backend{ID: id, Address: "127.0.0.1:80", Weight: 1 / float64(n)})
	}
	service := testService()
	service.Sampling, service.Group.Min, service.Group.Max = time.Minute, n, n
	c, err := New(Options{Service: service, Policies: table.All, Balancer: balancer, Scaler: scaler, Journal: journal,
		Memory: &fakeMemory{values: map[string][]byte{}}, Drain: time.Second})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// processorTime is the processor time of this process so far.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkIntake receives readings of 10,000 instances through the embedded bus, over TCP, and decodes and checks them. Its result is the
// number of processors used at 10,000 observations per second. It includes the senders' work, which is on other machines in production.
func BenchmarkIntake(b *testing.B) {
	conn, server := embeddedBus(b, "127.0.0.1:0")
	senders := joinBus(b, bus.Options{URL: server.URL(), Token: benchToken})
	c := benchController(b, 1, &fakeJournal{})
	var got atomic.Int64
	stop, err := conn.SubscribeReadings("shop", bus.Intake{
		Accept: func(r quell.Reading, at time.Time) { c.Observe(r, at); got.Add(1) }, Reject: func(err error) { b.Error(err) },
	})
	if err != nil {
		b.Fatal(err)
	}
	defer stop()
	readings := crowd(b, 10_000)
	const ahead = 1000
	b.ResetTimer()
	began := processorTime(b)
	for sent := range b.N {
		if err := senders.PublishReading(readings[sent%len(readings)]); err != nil {
			b.Fatal(err)
		}
		if sent%ahead == ahead-1 || sent == b.N-1 {
			for got.Load() <= int64(sent) && !b.Failed() {
				time.Sleep(100 * time.Microsecond)
			}
		}
	}
	b.ReportMetric((processorTime(b)-began).Seconds()/float64(b.N)*10_000, "cores@10k/s")
}

// BenchmarkStep makes one period's step with fresh readings of every instance. The policy does nothing, so its time is not measured; the
// journal is on disk.
func BenchmarkStep(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			conn, _ := embeddedBus(b, "")
			journal, err := conn.Journal("shop", bus.JournalOptions{})
			if err != nil {
				b.Fatal(err)
			}
			c := benchController(b, n, journal)
			for _, r := range crowd(b, n) {
				c.Observe(r, time.Now())
			}
			c.Step(context.Background())
			b.ResetTimer()
			began := processorTime(b)
			for range b.N {
				c.Step(context.Background())
			}
			b.ReportMetric(float64((processorTime(b)-began).Microseconds())/float64(b.N)/float64(n), "cpu-µs/instance")
		})
	}
}
