package sim

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/loadgen"
	"github.com/quellhq/quell/stats"
)

// drawn returns random amounts of work with mean 1.
type drawn func() float64

func (d drawn) next() float64 { return d() }

func exponential(seed uint64) amounts { return drawn(rand.New(rand.NewPCG(seed, 9)).ExpFloat64) }

// hyperexponential is a mixture of short and long work, with a squared coefficient of variation of 5.
func hyperexponential(seed uint64) amounts {
	rng := rand.New(rand.NewPCG(seed, 9))
	p := (1 + math.Sqrt(4.0/6)) / 2
	return drawn(func() float64 {
		share := 2 * p
		if rng.Float64() >= p {
			share = 2 * (1 - p)
		}
		return rng.ExpFloat64() / share
	})
}

// queue is one resource under Poisson arrivals of work with mean 1.
type queue struct {
	discipline Discipline
	servers    float64
	size       amounts
	load       float64 // utilisation of each server
	requests   int
}

// respond returns the mean response times of 30 parts of a run; before the first part, a tenth of the run is left out as warm-up.
func (q queue) respond(t *testing.T, seed uint64) []float64 {
	t.Helper()
	arrivals, err := loadgen.NewArrivals(loadgen.ArrivalOptions{
		Process: loadgen.Poisson, Rate: []loadgen.Step{{PerSecond: q.load * q.servers}}, Seed: seed,
	})
	if err != nil {
		t.Fatal(err)
	}
	c := class{{kindOf(quell.CPU), q.size}}
	w := newWorld([]scenario.Host{{ID: "h", Network: 1, Cores: q.servers, DiskIOPS: 1, Memory: 1}}, q.discipline, seed, c)
	const parts = 30
	sums, counts := make([]float64, parts), make([]float64, parts)
	finished := 0
	w.done = func(ref int32) {
		if after := finished - q.requests/10; after >= 0 {
			part := min(parts-1, after*parts/(q.requests-q.requests/10))
			sums[part] += w.now - w.requests[ref].entered
			counts[part]++
		}
		finished++
		w.leave(ref)
	}
	for range q.requests {
		at, _ := arrivals.Next()
		for w.nextEvent() <= at.Seconds() {
			w.step()
		}
		w.now = at.Seconds()
		w.submit(c, ownService, 0, 0)
	}
	for finished < q.requests {
		w.step()
	}
	for i := range sums {
		sums[i] /= counts[i]
	}
	return sums
}

// waitErlang is the mean response time of M/M/c, with service of mean 1 (Erlang's C formula).
func waitErlang(c int, load float64) float64 {
	a := load * float64(c)
	term, sum := 1.0, 0.0
	for k := range c {
		sum += term
		term *= a / float64(k+1)
	}
	queued := term / (1 - load) / (sum + term/(1-load))
	return 1 + queued/(float64(c)*(1-load))
}

func TestQueuesAgreeWithTheory(t *testing.T) {
	const n = 300_000
	for name, tc := range map[string]struct {
		queue
		want float64
	}{
		"M/M/1 sharing":                          {queue{Sharing, 1, exponential(1), 0.7, n}, 1 / 0.3},
		"M/D/1 sharing, insensitive":             {queue{Sharing, 1, always(1), 0.7, n}, 1 / 0.3},
		"M/H/1 sharing, insensitive":             {queue{Sharing, 1, hyperexponential(2), 0.7, n}, 1 / 0.3},
		"M/M/1 sharing at light load":            {queue{Sharing, 1, exponential(3), 0.2, n}, 1 / 0.8},
		"M/M/4 sharing":                          {queue{Sharing, 4, exponential(4), 0.8, n}, waitErlang(4, 0.8)},
		"M/M/1 first come":                       {queue{FirstCome, 1, exponential(5), 0.7, n}, 1 / 0.3},
		"M/D/1 first come (Pollaczek-Khinchine)": {queue{FirstCome, 1, always(1), 0.7, n}, 1 + 0.7/(2*0.3)},
		"M/H/1 first come (Pollaczek-Khinchine)": {queue{FirstCome, 1, hyperexponential(6), 0.5, 3 * n}, 1 + 0.5*6/(2*0.5)},
		"M/M/4 first come (Erlang)":              {queue{FirstCome, 4, exponential(7), 0.8, n}, waitErlang(4, 0.8)},
	} {
		t.Run(name, func(t *testing.T) {
			interval, ok := stats.MeanInterval(tc.respond(t, 11), 0.999)
			if !ok {
				t.Fatal("no interval")
			}
			relative, _ := interval.Relative()
			if math.Abs(interval.Mean-tc.want) > relative*interval.Mean {
				t.Errorf("mean response %.4f ± %.1f%%, theory says %.4f", interval.Mean, relative*100, tc.want)
			}
			if relative > 0.06 {
				t.Errorf("± %.1f%% is too wide to show anything", relative*100)
			}
		})
	}
}

// Neighbours that take a constant share give the same mean response times as neighbours with single flows.
func TestFluidNeighboursLeaveTheMeans(t *testing.T) {
	for _, fluid := range []bool{false, true} {
		var requests, probes []float64
		sc := plainScenario(1, 0.5, 40e6, time.Minute)
		trainer := Trainer{Scenario: sc, Fluid: fluid}
		plan, err := trainer.Probing.plan(sc.Service.Sampling, 40e6)
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(20) {
			row, err := trainer.Measure(t.Context(), asked(0.4, 0.3, seed))
			if err != nil {
				t.Fatal(err)
			}
			requests, probes = append(requests, *row.LatencyMS.Mean), append(probes, row.ProbeMS.Mean)
			if math.Abs(row.Interfering-0.3) > 0.03 || math.Abs(row.Utilization-0.4) > 0.05 {
				t.Errorf("fluid %v: carried %v beside %v", fluid, row.Utilization, row.Interfering)
			}
		}
		load := 0.4*(50_000+headerBytes)/50_000 + defaultBudget + 0.3
		for name, tc := range map[string]struct {
			means []float64
			alone float64 // ms
		}{
			"requests": {requests, (50_000 + headerBytes) * 8 / 40e3},
			"probes":   {probes, plan.class[0].amount.next() * 8 / 40e3},
		} {
			interval, _ := stats.MeanInterval(tc.means, 0.999)
			relative, _ := interval.Relative()
			// Two probes are never open at once, so a probe takes a little less than the formula says.
			if want := tc.alone / (1 - load); math.Abs(interval.Mean-want) > (relative+0.04)*want {
				t.Errorf("fluid %v, %s: %.2f ms ± %.1f%%, theory says %.2f", fluid, name, interval.Mean, relative*100, want)
			}
		}
	}
}
