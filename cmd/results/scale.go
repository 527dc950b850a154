package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/quellhq/quell"
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
	costs.writeGroups(&page)
	return os.WriteFile(filepath.Join(filepath.Dir(dir), "scale.md"), page.Bytes(), 0o644)
}

// costs are measured by benchmarks, in seconds.
type costs struct {
	intake float64 // of a reading: bus, decoding, checks, Observe; its sender's work included
	period float64 // of an instance in a period: gather, plan without policy, journal
	decide float64 // of an instance in a decision of PRIMA's
	apply  map[int]float64
	probe  float64            // of one probe over loopback, both ends
	groups map[string]float64 // requests a second that the simulator plays, by scheduling and number of instances
	large  float64            // the same, of one long run of the largest group under least connections
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

// groupSizes are those of BenchmarkGroup.
var groupSizes = []int{10, 100, 1000, 10_000}

func (c costs) writeGroups(w io.Writer) {
	fmt.Fprint(w, "\nWhat a request costs in one group, in millions of requests a second and core (`go test -bench Group ./lab/sim`); the goal is 2 at 10 instances, and at most logarithmic growth of the cost:\n\n| scheduling | 10 instances | 100 | 1000 | 10000 |\n|---|---|---|---|---|\n")
	for _, scheduling := range quell.Schedulings {
		fmt.Fprintf(w, "| %s |", scheduling)
		for _, n := range groupSizes {
			fmt.Fprintf(w, " %.1f |", c.groups[fmt.Sprintf("%s-%d", scheduling, n)]/1e6)
		}
		fmt.Fprintln(w)
	}
	const requests = 60e6 // of BenchmarkInternetScale
	fmt.Fprintf(w, "\nOne group of 10,000 instances under least connections with %.0f million requests (`go test -bench InternetScale ./lab/sim`) takes %.0f s on one core.\n", requests/1e6, requests/c.large)
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
	fmt.Fprintf(w, "| one probe of 50 kB over loopback, both ends | %s |\n\n", us(c.probe))
	fmt.Fprintf(w, "10,000 observations a second take %.2f of a core; the goal is half a core; with the snapshots of as many instances gathered and written to the journal it is %.2f. The journal is bounded in bytes on disk (`bus.journal_bytes`, 64 MiB unless set; a test in bus writes at this rate and looks at the disk): more instances shorten how far back it reaches, they do not make it grow.\n\n", c.intake*10_000, (c.intake+c.period/readingsEach)*10_000)
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
  (` + "`bus.url`" + `), or have one each, embedded. Nothing is shared between services but the bus. ` + "`quell credentials nats`" + ` prints what an external one needs to
  tell roles apart (SECURITY.md).
- **By the lease.** Two controllers of one service take turns: the one that holds the lease in the bus acts, the other looks on and takes over when
  the lease ends: the tests TestOneLeads, TestASilentLeaderIsFollowed and TestALeaderThatCannotRenewStopsInTime in daemon show it,
  over a bus. The lease lasts for 10 s or three sampling periods, whichever is longer. With k machines, start each service on two of them; a machine that dies moves its services to the others within one lease.
- **Within a service, not at all.** Choosing whom to keep needs all capacities in one place. Beyond the sizes above, lengthen the sampling period or make
  two services of it, each behind a name of its own.

## Several regions, thousands of agents

One service needs one controller at a time, and a bus that outlives any one machine:

- **A hub of three NATS servers with JetStream**, in three zones of one region, with routes between all of them. Lease, memory and journal are kept three times
  (` + "`" + `bus.replicas: auto` + "`" + `). Their stores stay in the hub.
- **Two controllers beside the hub**, with one configuration. Both name all servers: ` + "`" + `bus.url: nats://hub-1:4222,nats://hub-2:4222,nats://hub-3:4222` + "`" + `.
  One leads, the other stands by; each has a ` + "`" + `data` + "`" + ` folder of its own.
- **A leaf node in each further region**: a NATS server without JetStream that keeps one connection to the hub. The hub's servers have
  ` + "`" + `leafnodes: {port: 7422}` + "`" + `. The leaf has ` + "`" + `leafnodes: {remotes: [{urls: [...], account: A..., credentials: FILE}]}` + "`" + ` with the URLs of all three.
  ` + "`" + `quell credentials nats` + "`" + ` prints the account. ` + "`" + `quell credentials controller leaf-NAME --out FILE` + "`" + ` makes the file: what every role says passes the leaf.
  Agents and balancers there name the leaf in ` + "`" + `bus.url` + "`" + `. Readings cross between regions once, over that connection, and a region that is
  cut off keeps its traffic at the last weights.
- **Credentials** are those of the controller's machine: put what ` + "`" + `quell credentials nats` + "`" + ` prints into the configuration of every server, leaves included, copy
  the folder ` + "`" + `credentials` + "`" + ` in the first controller's ` + "`" + `data` + "`" + ` to the second's, and give each agent and balancer its own file (` + "`" + `bus.credentials` + "`" + `). See
  [SECURITY.md](../SECURITY.md#an-external-nats).
- **What a fault costs** there: [faults.md](faults.md). A server that is lost costs no decision; the leading controller that is killed, its lease of
  20 s; one that is stopped gives the lease up, and the other leads in the next period.
- **What 10,000 agents cost** on such a bus, in calm and when a server is lost: [results/cluster.md](results/cluster.md).

`

// The link and the budget that the costs of probing are worked out for.
const (
	probedLink   = 200e6
	probedBudget = 0.02
)

func (c costs) writeProbing(w io.Writer) {
	each := probedBudget * probedLink
	fmt.Fprintf(w, "## Probing\n\nProbes may take %.0f%% of an instance's link: of %.0f Mbit/s, %.0f Mbit/s each. From one place:\n\n", probedBudget*100, probedLink/1e6, each/1e6)
	fmt.Fprintf(w, "| instances | bandwidth of the prober | its processor at 10 probes of 50 kB a second and instance |\n|---|---|---|\n")
	for _, n := range []float64{50, 1000, 10_000} {
		fmt.Fprintf(w, "| %.0f | %.2g Gbit/s | %.2f cores |\n", n, n*each/1e9, n*10*c.probe)
	}
	fmt.Fprintf(w, "\nOne balancer can probe its own service of some fifty instances; one place cannot probe thousands. So probing is from neighbours: each balancer probes the instances behind it. What that costs, of n instances each probed 10 times a second:\n\n")
	fmt.Fprintf(w, "| | probed link | prober's link | messages on the bus | processor of a prober |\n|---|---|---|---|---|\n")
	fmt.Fprintf(w, "| a balancer for every 50 instances | %.0f kB/s, %.0f%% | %.0f MB/s | 50 readings a period | %.2f cores |\n", each/8e3, probedBudget*100, 50*each/8e6, 50*10*c.probe)
	fmt.Fprintf(w, "| each instance its neighbour (not built) | %.0f kB/s, %.0f%% | %.0f kB/s more | 1 reading a period | %.4f cores |\n\n", each/8e3, probedBudget*100, each/8e3, 10*c.probe)
	fmt.Fprintf(w, "None of these grows with the number of instances; the sum over all links does, by %.0f Mbit/s each. A service of thousands needs as many balancers as share its traffic, with `probe.budget` shared out among them. Simulated probes are such flows on the probed host's link, and so are paid for in every figure below.\n\n", each/1e6)
}

// manyServices is the scenario that is played as evidence.
const manyServices = "examples/scale/many-services.yaml"

// evidence is what came of it.
type evidence struct {
	results   []quell.Result
	took      time.Duration
	processor time.Duration
	memory    int64 // most that was resident, bytes
}

// playServices plays it as a user would.
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
	fmt.Fprintf(w, "## Simulated\n\n`quell sim %s`: %d services with %.0f instances in the mean, every twelfth machine with a neighbour from 30 s on, PRIMA in each: %.1f million requests simulated one by one in %.0f s on %d cores, %.0f s of processor time and %.0f MB of memory, training included; the goal is 120 s and 4 GB. %d requests failed; %d plans changed something; the objective was missed for %.1f%% of the time in the mean over services. What PRIMA is worth is for [the arena](results/arena.md) to say: among fifty instances least connections alone has room enough.\n", manyServices, len(e.results), instances, float64(requests)/1e6, e.took.Seconds(), cores(), e.processor.Seconds(), float64(e.memory)/1e6, errs, decisions, violation*100)
}
