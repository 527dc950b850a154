package kernel

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// BenchmarkLink loads a shaped link with Poisson arrivals of 0.5 MB downloads, with and without an interferer, and compares their response
// times with those of an ideal link that shares its bandwidth equally (processor sharing) and gets the same arrivals. docs/lab.md has the
// figures.
func BenchmarkLink(b *testing.B) {
	for _, c := range []struct{ load, interference float64 }{{0.2, 0}, {0.5, 0}, {0.8, 0}, {0.5, 0.4}} {
		b.Run(fmt.Sprintf("load %v, interference %v", c.load, c.interference), func(b *testing.B) {
			for b.Loop() {
				measureLink(b, c.load, c.interference)
			}
		})
	}
}

func measureLink(b *testing.B, load, interference float64) {
	const network, size, wire = 200e6, 500_000, 500_000 * 8 * 1514.0 / 1448
	l := newLab(b, Options{Hosts: []Host{{ID: "h1", Network: network}}})
	url := startNginx(b, l, "h1", map[string]int64{"file": size}) + "/file"
	interfere(b, l.Machine("h1"), quell.Network, interference)
	arrivals := poisson(load*network/wire, 20*time.Second)
	own, carried, _ := l.Machine("h1").Carried()
	_, cpu, _ := l.Machine("h1").CPUCarried()
	began := time.Now()
	got := download(b, client(place(b, l, "", Client), false), url, arrivals)
	span := time.Since(began).Seconds()
	ownAfter, carriedAfter, _ := l.Machine("h1").Carried()
	_, cpuAfter, _ := l.Machine("h1").CPUCarried()
	ideal := share(arrivals, wire/(network*(1-interference)))
	b.ReportMetric(mean(got)*1000, "mean-ms")
	b.ReportMetric(quantile(got, 0.95)*1000, "p95-ms")
	b.ReportMetric(mean(ideal)*1000, "ideal-mean-ms")
	b.ReportMetric(quantile(ideal, 0.95)*1000, "ideal-p95-ms")
	b.ReportMetric((ownAfter-own)/span, "own")
	b.ReportMetric((carriedAfter-carried)/span, "interfering")
	b.ReportMetric((cpuAfter-cpu)/span*l.Machine("h1").cores(), "interferer-cores")
	b.ReportMetric(0, "ns/op")
}

// poisson returns arrival times in seconds, the same at each call.
func poisson(perSecond float64, span time.Duration) []float64 {
	random := rand.New(rand.NewPCG(1, 2))
	var all []float64
	for at := random.ExpFloat64() / perSecond; at < span.Seconds(); at += random.ExpFloat64() / perSecond {
		all = append(all, at)
	}
	return all
}

// download requests the file at each of the given times, independent of earlier requests, and returns how long each
// took, in seconds.
func download(b *testing.B, c *http.Client, url string, arrivals []float64) []float64 {
	took := make([]float64, len(arrivals))
	began := time.Now()
	var open sync.WaitGroup
	for i, at := range arrivals {
		intended := began.Add(time.Duration(at * float64(time.Second)))
		time.Sleep(time.Until(intended))
		open.Go(func() {
			if _, err := get(c, url); err != nil {
				b.Error(err)
			}
			took[i] = time.Since(intended).Seconds()
		})
	}
	open.Wait()
	return took
}

// share returns the response times under processor sharing of jobs that each need that many seconds alone.
func share(arrivals []float64, need float64) []float64 {
	type job struct {
		index int
		left  float64
	}
	took := make([]float64, len(arrivals))
	var jobs []job // in the order of arrival, which is also the order of the remaining work
	now := 0.0
	for next := 0; next < len(arrivals) || len(jobs) > 0; {
		until := 0.0
		if len(jobs) > 0 {
			until = now + jobs[0].left*float64(len(jobs))
		}
		arrives := next < len(arrivals) && (len(jobs) == 0 || arrivals[next] < until)
		if arrives {
			until = arrivals[next]
		}
		for i := range jobs {
			jobs[i].left -= (until - now) / float64(len(jobs))
		}
		now = until
		if arrives {
			jobs = append(jobs, job{next, need})
			next++
		} else {
			took[jobs[0].index] = now - arrivals[jobs[0].index]
			jobs = jobs[1:]
		}
	}
	return took
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

func quantile(v []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(v))
	return sorted[int(q*float64(len(sorted)-1))]
}
