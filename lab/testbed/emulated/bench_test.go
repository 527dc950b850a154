package emulated

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quellhq/quell/loadgen"
	"golang.org/x/sys/unix"
)

// BenchmarkPacer measures the processor time of sending over emulated links: 20 hosts of 40 Mbit/s with an open-loop load of 60% and
// neighbours that use 20%, in one process with their load generators. One iteration is one request of 50 KB.
func BenchmarkPacer(b *testing.B) {
	const hosts, bandwidth, load = 20, 40_000_000, 0.6
	var running sync.WaitGroup
	summaries := make([]loadgen.Summary, hosts)
	rate := load * bandwidth / 8 / 50_000
	before, begin := cpuTime(), time.Now()
	for i := range hosts {
		o := options(fmt.Sprint("h", i))
		o.Bandwidth, o.Seed = bandwidth, uint64(i)
		h, _ := start(b, o)
		if err := h.SetInterference(0.2); err != nil {
			b.Fatal(err)
		}
		arrivals, err := loadgen.NewArrivals(loadgen.ArrivalOptions{
			Process: loadgen.Poisson, Rate: []loadgen.Step{{PerSecond: rate}}, Seed: uint64(i),
			Duration: time.Duration(float64(b.N) / hosts / rate * float64(time.Second)),
		})
		if err != nil {
			b.Fatal(err)
		}
		r, err := loadgen.New(loadgen.Options{URL: "http://" + h.Addr(), Arrivals: arrivals})
		if err != nil {
			b.Fatal(err)
		}
		running.Go(func() { summaries[i] = r.Run(b.Context()) })
	}
	running.Wait()
	used, megabytes := cpuTime()-before, 0.0
	for _, s := range summaries {
		megabytes += float64(s.Bytes) / 1e6
	}
	b.ReportMetric(used.Seconds()/time.Since(begin).Seconds(), "cores")
	if megabytes > 0 {
		b.ReportMetric(float64(used.Milliseconds())/megabytes, "cpu-ms/MB")
	}
}

// cpuTime is the processor time, user and system, that this process has used so far.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
