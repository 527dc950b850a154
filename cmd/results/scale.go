package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/sim"
)

// scalePage works out what one controller carries from measured costs, and plays 200 services as evidence. Unlike the
// other pages it stands in docs.
func scalePage(ctx context.Context, dir string) error {
	costs, err := measureCosts(ctx)
	if err != nil {
		return err
	}
	evidence, err := playServices(ctx)
	if err != nil {
		return err
	}
	var page bytes.Buffer
	fmt.Fprintf(&page, "# Scale: what one controller carries, and where to split\n\nWritten by `go run ./cmd/results scale` on %s.\n\n", machine())
	costs.write(&page)
	page.WriteString(splitting)
	costs.writeProbing(&page)
	evidence.write(&page)
	fmt.Fprintf(&page, "\nOne group of 10,000 instances under least connections: %.1f million requests a second and core (`go test -bench Group ./sim`).\n", costs.group/1e6)
	return os.WriteFile(filepath.Join(filepath.Dir(dir), "scale.md"), page.Bytes(), 0o644)
}

// costs are measured by benchmarks, in seconds.
type costs struct {
	intake float64 // of a reading: bus, decoding, checks, Observe; its sender's work included
	period float64 // of an instance in a period: gather, plan without policy, journal
	decide float64 // of an instance in a decision of PRIMA's
	apply  map[int]float64
	probe  float64 // of one probe over loopback, both ends
	group  float64 // requests a second that the simulator plays on 10,000 instances
}

// suite is one package's benchmarks.
type suite struct{ pkg, pattern, time string }

var suites = []suite{
	{"./controller", "^(BenchmarkIntake|BenchmarkStep)$", "2s"},
	{"./policy", "^BenchmarkPRIMA$/^10000$", "1s"},
	{"./balancer/builtin", "^BenchmarkApply$", "1s"},
	{"./probe", "^BenchmarkProbe$", "1s"},
	{"./sim", "^BenchmarkGroup$/^leastconn-10000$", "1x"},
}

func measureCosts(ctx context.Context) (c costs, err error) {
	found := map[string]map[string]float64{}
	for _, s := range suites {
		cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", s.pattern, "-benchtime", s.time, s.pkg)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return c, fmt.Errorf("benchmarks of %s: %w\n%s", s.pkg, err, out)
		}
		readBenchmarks(string(out), found)
	}
	value := func(name, unit string) float64 {
		v, ok := found[name][unit]
		if !ok {
			err = fmt.Errorf("no benchmark %s told %s", name, unit)
		}
		return v
	}
	c = costs{
		intake: value("Intake", "cores@10k/s") / 10_000,
		period: value("Step/10000", "cpu-µs/instance") / 1e6,
		apply:  map[int]float64{100: value("Apply/100", "ns/op") / 1e9, 1000: value("Apply/1000", "ns/op") / 1e9},
		probe:  value("Probe", "ns/op") / 1e9,
		group:  value("Group/leastconn-10000", "requests/s"),
	}
	for _, load := range []string{"steady", "shift", "out", "in"} {
		c.decide = max(c.decide, value("PRIMA/10000/"+load, "ns/op")/1e9/10_000)
	}
	return c, err
}

var benchmarkLine = regexp.MustCompile(`(?m)^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)

// readBenchmarks adds what benchmarks printed, by name and unit.
func readBenchmarks(out string, into map[string]map[string]float64) {
	for _, m := range benchmarkLine.FindAllStringSubmatch(out, -1) {
		fields := strings.Fields(m[2])
		into[m[1]] = map[string]float64{}
		for i := 0; i+1 < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
				into[m[1]][fields[i+1]] = v
			}
		}
	}
}

// readingsEach is what an instance causes in a period: a reading of its agent, a prober and a balancer.
const readingsEach = 3

// share is the part of a core that n instances take.
func (c costs) share(n int, period time.Duration) float64 {
	return float64(n) * (readingsEach*c.intake + c.period + c.decide) / period.Seconds()
}

func (c costs) write(w io.Writer) {
	us := func(s float64) string { return fmt.Sprintf("%.1f µs", s*1e6) }
	fmt.Fprintf(w, "## Measured\n\n| what | cost |\n|---|---|\n")
	fmt.Fprintf(w, "| one observation taken in: through the embedded bus over TCP, decoded, checked; the sender's work included | %s of processor time |\n", us(c.intake))
	fmt.Fprintf(w, "| one instance in a period, of 10,000: merged into the snapshot, compared with what is in force, written to the journal on disk | %s |\n", us(c.period))
	fmt.Fprintf(w, "| one instance in a decision of PRIMA's, of 10,000, guard included, the slowest of four cases | %s |\n", us(c.decide))
	fmt.Fprintf(w, "| new weights for 100 backends of the built-in balancer, for 1,000 | %.1f ms, %.1f ms |\n", c.apply[100]*1e3, c.apply[1000]*1e3)
	fmt.Fprintf(w, "| one probe of 12.5 kB over loopback, both ends | %s |\n\n", us(c.probe))
	fmt.Fprintf(w, "10,000 observations a second take %.2f of a core; the goal is half a core. The journal is bounded in bytes (`bus.journal_bytes`, 64 MiB unless set): more instances shorten how far back it reaches, they do not make it grow.\n\n", c.intake*10_000)
	fmt.Fprintf(w, "## What one controller carries\n\nAn instance causes %d readings a period, its part of the snapshot and of the decision. Cores taken by n instances, all in one service:\n\n", readingsEach)
	fmt.Fprintf(w, "| instances | sampling 1 s | 5 s | 10 s |\n|---|---|---|---|\n")
	for _, n := range []int{100, 1000, 10_000} {
		fmt.Fprintf(w, "| %d | %.2g | %.2g | %.2g |\n", n, c.share(n, time.Second), c.share(n, 5*time.Second), c.share(n, 10*time.Second))
	}
	for _, period := range []time.Duration{time.Second, 10 * time.Second} {
		fmt.Fprintf(w, "\nHalf a core carries %.0f instances at a sampling period of %v.", 0.5/c.share(1, period), period)
	}
	fmt.Fprintf(w, " These are straight lines through the costs at 10,000 instances; what a period takes must also fit into it, as the loop is one thread: a decision over 10,000 instances is reached %.2f s after it began.\n\n", 10_000*(c.period+c.decide))
}

const splitting = `## Where it must be split, and how

- **By service, always.** A controller process runs one service, so 200 services are 200 processes, on one machine or on many. They may share one bus
  (` + "`bus.url`" + `), or have one each, embedded. Nothing is shared between services but the bus.
- **By the lease.** Two controllers of one service take turns: the one that holds the lease in the bus acts, the other looks on and takes over when
  the lease ends. With k machines, start each service on two of them; a machine that dies moves its services to the others within one lease.
- **Within a service, not at all.** Choosing whom to keep needs all capacities in one place. Beyond the sizes above, lengthen the sampling period or make
  two services of it, each behind a name of its own.

`

// The link and the budget that the costs of probing are worked out for.
const (
	probedLink   = 200e6
	probedBudget = 0.02
)

func (c costs) writeProbing(w io.Writer) {
	each := probedBudget * probedLink
	fmt.Fprintf(w, "## Probing\n\nProbes may take %.0f%% of an instance's link: of %.0f Mbit/s, %.0f Mbit/s each. From one place:\n\n", probedBudget*100, probedLink/1e6, each/1e6)
	fmt.Fprintf(w, "| instances | bandwidth of the prober | its processor at 10 probes a second and instance |\n|---|---|---|\n")
	for _, n := range []float64{50, 1000, 10_000} {
		fmt.Fprintf(w, "| %.0f | %.2g Gbit/s | %.2f cores |\n", n, n*each/1e9, n*10*c.probe)
	}
	fmt.Fprintf(w, "\nOne balancer can probe its own service of some fifty instances; one place cannot probe thousands. Each balancer probes the instances behind it, so the cost is spread as the services are. Were instances to probe each other, each would send %.0f Mbit/s and receive as much, whatever their number: %.0f%% of a link for being probed and as much again for probing. Quell does not do that today: a service of thousands needs as many balancers as share its traffic, with `probe.budget` shared out among them.\n\n", each/1e6, probedBudget*100)
}

// oneOfMany is one of the services that are played: 50 instances, of which five get neighbours.
const oneOfMany = `
scenario: one-of-many
seed: 1
duration: 2m
service:
  slo: {metric: mean, threshold: 25ms}
  sampling: 10s
  policy: {name: prima}
  group: {min: 40, max: 60, startup: 20s}
hosts: [{id: h, count: 60, network: 40Mbps}]
instances: {start: 50, fixed: 50, startup: 1s}
workload: {kind: file, arrivals: poisson, size: 50KB, load: 25}
timeline:
  - {at: 30s, interfere: {host: h1, resource: network, use: 0.5}}
  - {at: 30s, interfere: {host: h2, resource: network, use: 0.5}}
  - {at: 30s, interfere: {host: h3, resource: network, use: 0.5}}
  - {at: 30s, interfere: {host: h4, resource: network, use: 0.5}}
  - {at: 30s, interfere: {host: h5, resource: network, use: 0.5}}
runs: [{policy: prima, scheduling: leastconn}]
judge: {window: 10s, requests: 30}
`

// manyServices is how many of them there are.
const manyServices = 200

// evidence is what came of them.
type evidence struct {
	results  []quell.Result
	took     time.Duration
	duration time.Duration
}

// playServices plays each service with a seed of its own, as many at once as there are processors.
func playServices(ctx context.Context) (e evidence, err error) {
	sc, err := config.ParseScenario("one of many services", []byte(oneOfMany))
	if err != nil {
		return e, err
	}
	rows, err := sim.Train(ctx, sc, sim.Plan(), sc.Seed)
	if err != nil {
		return e, err
	}
	models, _, err := model.Fit(rows, model.FitOptions{Service: sc.Service.Name, Metric: sc.Service.SLO.Metric})
	if err != nil {
		return e, err
	}
	began := time.Now()
	e.results, e.duration = make([]quell.Result, manyServices), sc.Duration
	failures := make([]error, manyServices)
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for i := range manyServices {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			e.results[i], failures[i] = sim.Run(ctx, sim.Options{Scenario: sc, Run: sc.Runs[0], Models: models, Seed: uint64(i + 1)})
		})
	}
	all.Wait()
	e.took = time.Since(began)
	for _, failure := range failures {
		if failure != nil {
			return e, failure
		}
	}
	return e, nil
}

func (e evidence) write(w io.Writer) {
	var requests, errs int64
	var instances, violation float64
	decisions := 0
	for _, r := range e.results {
		requests += r.Requests
		errs += r.Errors
		instances += r.MeanInstances
		violation += r.SLO.ViolationShare / float64(len(e.results))
		decisions += r.Decisions
	}
	fmt.Fprintf(w, "## Simulated\n\n%d services with %.0f instances in the mean, a tenth of them with neighbours from 30 s on, PRIMA in each, for %v: %.1f million requests simulated one by one in %.0f s on %d cores. %d requests failed; %d plans changed something; the objective was missed for %.1f%% of the time in the mean over services. What PRIMA is worth is for [the arena](results/arena.md) to say: among fifty instances least connections alone has room enough.\n", len(e.results), instances, e.duration, float64(requests)/1e6, e.took.Seconds(), cores(), errs, decisions, violation*100)
}
