package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// scalePage computes what one controller can handle from measured costs, and plays 200 services as evidence. Unlike
// the other pages it is in docs.
func scalePage(ctx context.Context, dir string) error {
	costs, err := measureCosts(ctx)
	if err != nil {
		return err
	}
	evidence, err := playServices(ctx)
	if err != nil {
		return err
	}
	return writePage(filepath.Dir(dir), "scale", newScaleFigures(here(), costs, evidence))
}

// costs are the costs that benchmarks measured, in seconds.
type costs struct {
	intake float64 // cost of a reading: bus, decoding, checks, Observe, and the sender's work
	period float64 // cost of an instance in a period: gather, plan without policy, journal
	decide float64 // cost of an instance in a decision of PRIMA
	apply  map[int]float64
	probe  float64            // cost of one probe over loopback, at both ends
	groups map[string]float64 // requests a second that the simulator plays, by scheduling and number of instances
	large  float64            // the same for one long run of the largest group under least connections
}

// suite is one package's benchmarks.
type suite struct{ pkg, pattern, time string }

var suites = []suite{
	{"./controller", "^(BenchmarkIntake|BenchmarkStep)$", "2s"},
	{"./policy", "^BenchmarkPRIMA$/^10000$", "1s"},
	{"./balancer/builtin", "^BenchmarkApply$", "1s"},
	{"./probe", "^BenchmarkProbe$", "1s"},
	{"./lab/sim", "^BenchmarkGroup$", "2x"},
	{"./lab/sim", "^BenchmarkInternetScale$", "1x"},
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
		groups: map[string]float64{},
		large:  value("InternetScale", "requests/s"),
	}
	for _, scheduling := range quell.Schedulings {
		for _, n := range groupSizes {
			name := fmt.Sprintf("%s-%d", scheduling, n)
			c.groups[name] = value("Group/"+name, "requests/s")
		}
	}
	for _, load := range []string{"steady", "shift", "out", "in"} {
		c.decide = max(c.decide, value("PRIMA/10000/"+load, "ns/op")/1e9/10_000)
	}
	return c, err
}

var benchmarkLine = regexp.MustCompile(`(?m)^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)

// readBenchmarks adds the values that benchmarks printed to a map, by name and unit.
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

// groupSizes are the sizes that BenchmarkGroup plays.
var groupSizes = []int{10, 100, 1000, 10_000}

// readingsEach is the number of readings about an instance in a period: one from its agent, one from a prober and one from a
// balancer.
const readingsEach = 3

// share is the number of cores that n instances use.
func (c costs) share(n int, period time.Duration) float64 {
	return float64(n) * (readingsEach*c.intake + c.period + c.decide) / period.Seconds()
}

// The link and the budget for which the costs of probing are computed.
const (
	probedLink   = 200e6
	probedBudget = 0.02
)

// manyServices is the scenario that is played as evidence.
const manyServices = "examples/scale/many-services.yaml"

// evidence is the result of playing manyServices.
type evidence struct {
	results   []scenario.Result
	took      time.Duration
	processor time.Duration
	memory    int64 // largest resident memory in bytes
}

// playServices plays manyServices with the same command as a user.
func playServices(ctx context.Context) (e evidence, err error) {
	dir, err := os.MkdirTemp("", "quell-scale-")
	if err != nil {
		return e, err
	}
	defer os.RemoveAll(dir)
	program, file := filepath.Join(dir, "quell"), filepath.Join(dir, "results.json")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/quell").CombinedOutput(); err != nil {
		return e, fmt.Errorf("building quell: %w\n%s", err, out)
	}
	began := time.Now()
	cmd := exec.CommandContext(ctx, program, "sim", manyServices, "--json", file)
	if out, err := cmd.CombinedOutput(); err != nil {
		return e, fmt.Errorf("playing %s: %w\n%s", manyServices, err, out)
	}
	e.took, e.processor = time.Since(began), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		e.memory = usage.Maxrss << 10
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return e, err
	}
	return e, json.Unmarshal(data, &e.results)
}
