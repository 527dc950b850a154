package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/testbed/kernel"
	"github.com/quellhq/quell/loadgen"
)

// ThreadRun is a run in which a neighbour comes and goes, with fixed numbers of workers or with ICE, which changes them. A controller and
// agents run in both, because agents use some of the small hosts' processors; without ICE they only advise.
type ThreadRun struct {
	Workers int  `json:"workers"` // of each server, at the beginning
	ICE     bool `json:"ice"`
}

// ThreadPlan is when the neighbour is there.
type ThreadPlan struct{ Calm, Beside, After time.Duration }

// ThreadResult is what was measured of the first host.
type ThreadResult struct {
	ThreadRun
	Before quell.Latency  `json:"before_ms"` // frame delays in the calm time
	Early  quell.Latency  `json:"early_ms"`  // in the first third of the neighbour's time
	Late   quell.Latency  `json:"late_ms"`   // in its last third
	After  quell.Latency  `json:"after_ms"`  // in the last half of the time after it
	Unsent float64        `json:"unsent"`    // frames that were due in the last third and not sent then, as a share of those due
	Counts []ThreadChange `json:"counts"`    // numbers of workers, from the beginning
}

// ThreadChange is a number of workers that came into force.
type ThreadChange struct {
	AtS     float64 `json:"at_s"`
	Workers int     `json:"workers"`
}

// Threads measures one run.
func (s *Streaming) Threads(ctx context.Context, run ThreadRun, plan ThreadPlan) (result ThreadResult, err error) {
	result.ThreadRun = run
	name := fmt.Sprintf("threads%d", run.Workers)
	if run.ICE {
		name += "-ice"
	}
	g := &group{sc: s.Scenario, dir: filepath.Join(s.Dir, name)}
	if err := errors.Join(os.RemoveAll(g.dir), os.MkdirAll(g.dir, 0o755)); err != nil {
		return result, err
	}
	var servers []*kernel.Worker
	defer func() { err = errors.Join(err, g.Stop(), s.end(servers)) }()
	for _, h := range s.Scenario.Hosts {
		server, err := s.resizable(ctx, g.dir, h.ID, run.Workers)
		if err != nil {
			return result, err
		}
		servers = append(servers, server)
	}
	if err := s.balance(ctx, g, fullWeight); err != nil {
		return result, err
	}
	mode := quell.Advise
	if run.ICE {
		mode = quell.Act
	}
	if err := s.control(ctx, g, mode, servers); err != nil {
		return result, err
	}
	return result, errors.Join(s.watchThreads(ctx, g, plan, servers[0].Number, &result), ctx.Err(), g.exited())
}

// resizable starts a streaming server that reads its number of workers from a file.
func (s *Streaming) resizable(ctx context.Context, dir, host string, workers int) (*kernel.Worker, error) {
	place, err := kernel.PlaceOf(s.Prefix, host, kernel.Instance)
	if err != nil {
		return nil, err
	}
	server := &kernel.Worker{Place: place, Dir: filepath.Join(dir, host), Port: labInstance, Program: s.Program, Wait: s.Wait,
		Number: filepath.Join(dir, host, "workers")}
	if err := os.MkdirAll(server.Dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(server.Number, fmt.Appendf(nil, "%d\n", workers), 0o644); err != nil {
		return nil, err
	}
	if err := server.Start(ctx); err != nil {
		return nil, fmt.Errorf("the streaming server on %s: %w", host, err)
	}
	return server, nil
}

// threadsTemplate configures controller and agents: ICE leaves the weights and raises the number of workers. The objective is about frame
// delays, which only the servers themselves know.
const threadsTemplate = `service: streaming
slo: {metric: mean, threshold: 60ms}
sampling: 1s
mode: %s
policy:
  name: ice
  floor: 100%%
  after: 3s
  calm: 30s
  parameters: [{name: streamer.workers, change: raise, min: 1, max: %d}]
listen: off
data: %s
bus: {listen: "%s:%d"}
balancer: {kind: reports, health: {path: /healthz}}
scaler: {kind: fixed, instances: [%s]}
probe: {listen: "0.0.0.0:%d", token: lab}
agent:
  cgroup: self
  capacity: {network: %.0fbps, cpu: %v}
  reports: "0.0.0.0:%d"
  requests: {url: "http://%s:%d/metrics", histogram: %s}
  middleware:
    - kind: template
      name: streamer
      file: %s
      template: %s
      reload: [kill, -HUP, "%d"]
      parameters: [{name: workers, initial: %s, min: 1, max: %d}]
`

// mostThreads is the largest number of workers that ICE may set.
const mostThreads = 30

// control starts a controller, and an agent on each host.
func (s *Streaming) control(ctx context.Context, g *group, mode quell.Mode, servers []*kernel.Worker) error {
	place, err := kernel.PlaceOf(s.Prefix, "", kernel.Balancer)
	if err != nil {
		return err
	}
	var members strings.Builder
	for i, h := range s.Scenario.Hosts {
		fmt.Fprintf(&members, "{id: %s, address: %q, probe: %q}, ", h.ID, fmt.Sprintf("10.77.%d.2:%d", i+1, labInstance),
			fmt.Sprintf("10.77.%d.2:%d", i+1, labProbe))
	}
	for i, h := range s.Scenario.Hosts {
		config, err := s.threadsConfig(g, place, mode, members.String(), servers[i], h)
		if err != nil {
			return err
		}
		if i == 0 {
			cmd := exec.Command(s.Program, "controller", "--config", config)
			if err := g.launch("controller", cmd, place.Start); err != nil {
				return err
			}
		}
		cmd := exec.Command(s.Program, "agent", "--config", config, "--instance", h.ID)
		if err := g.launch("agent-"+h.ID, cmd, servers[i].Place.Start); err != nil {
			return err
		}
	}
	return s.awaitReports(ctx, g, place)
}

// threadsConfig writes the configuration of one host's agent; the controller reads the first.
func (s *Streaming) threadsConfig(
	g *group, place kernel.Place, mode quell.Mode, members string, server *kernel.Worker, host scenario.Host,
) (path string, err error) {
	template := server.Number + ".template"
	number, err := os.ReadFile(server.Number)
	if err != nil {
		return "", err
	}
	path = filepath.Join(server.Dir, "quell.yaml")
	text := fmt.Sprintf(threadsTemplate, mode, mostThreads, filepath.Join(g.dir, "data"), place.Address(), labBus, members, labProbe,
		host.Network, host.Cores, labReports, server.Place.Address(), labInstance, kernel.FrameDelay, server.Number, template, server.PID(),
		strings.TrimSpace(string(number)), mostThreads)
	return path, errors.Join(os.WriteFile(template, []byte("{{.workers}}\n"), 0o644), os.WriteFile(path, []byte(text), 0o600))
}

// awaitReports waits until the controller has heard of frame delays at all hosts, or at least of their agents: nobody watches yet.
func (s *Streaming) awaitReports(ctx context.Context, g *group, place kernel.Place) error {
	if err := g.connect(bus.Options{URL: fmt.Sprintf("nats://%s:%d", place.Address(), labBus)}); err != nil {
		return err
	}
	return g.await(ctx, startWait, 50*time.Millisecond, func(ctx context.Context) error {
		status, err := g.Status(ctx)
		if err != nil {
			return err
		}
		for _, h := range s.Scenario.Hosts {
			if !slices.ContainsFunc(status.Instances, func(in controller.InstanceStatus) bool { return in.ID == h.ID && in.Utilization != nil }) {
				return fmt.Errorf("the agent on %s does not report", h.ID)
			}
		}
		return nil
	})
}

// watchThreads lets clients watch while the neighbour comes and goes, and counts frame delays and numbers of workers.
func (s *Streaming) watchThreads(ctx context.Context, g *group, plan ThreadPlan, number string, result *ThreadResult) error {
	start, length := time.Now(), plan.Calm+plan.Beside+plan.After
	phases := plan.phases(result)
	clients := &viewers{first: s.Scenario.Hosts[0].ID, into: func(now time.Time) *loadgen.Recorder {
		for _, p := range phases {
			if at := now.Sub(start); at >= p.from && at < p.to {
				return p.delays
			}
		}
		return nil
	}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var beside sync.WaitGroup
	errs := make([]error, 2)
	beside.Go(func() { errs[0] = s.comeAndGo(ctx, plan) })
	beside.Go(func() { result.Counts, errs[1] = watchNumber(ctx, number, start) })
	err := clients.watch(ctx, g.url+s.request(), s.Streams*len(s.Scenario.Hosts), s.frame().Network, s.Every, length)
	cancel()
	beside.Wait()
	for _, p := range phases {
		stats, ok := p.delays.Instance(clients.first)
		if !ok {
			return errors.Join(append(errs, err, fmt.Errorf("%s sent no frame from %v to %v", clients.first, p.from, p.to))...)
		}
		*p.latency = stats.LatencyMS
	}
	late := plan.Beside / 3
	if due := float64(clients.streams) * late.Seconds() / s.Every.Seconds(); due > 0 {
		result.Unsent = max(0, 1-float64(result.Late.N)/due)
	}
	return errors.Join(append(errs, err)...)
}

// threadsPhase is a part of a run whose delays are counted together.
type threadsPhase struct {
	from, to time.Duration
	latency  *quell.Latency
	delays   *loadgen.Recorder
}

func (p ThreadPlan) phases(r *ThreadResult) []threadsPhase {
	gone := p.Calm + p.Beside
	return []threadsPhase{
		{0, p.Calm, &r.Before, loadgen.NewRecorder()},
		{p.Calm, p.Calm + p.Beside/3, &r.Early, loadgen.NewRecorder()},
		{gone - p.Beside/3, gone, &r.Late, loadgen.NewRecorder()},
		{gone + p.After/2, gone + p.After, &r.After, loadgen.NewRecorder()},
	}
}

// comeAndGo starts the neighbour after the calm time, and ends it after its own.
func (s *Streaming) comeAndGo(ctx context.Context, plan ThreadPlan) error {
	if !tick.Sleep(ctx, plan.Calm) {
		return nil
	}
	if err := s.interfere(); err != nil {
		return err
	}
	tick.Sleep(ctx, plan.Beside)
	return s.Machines.Interfere(s.Scenario.Hosts[0].ID, nil)
}

// watchNumber reads a file with a number of workers until ctx ends, and returns when it changed.
func watchNumber(ctx context.Context, path string, start time.Time) (changes []ThreadChange, err error) {
	const often = 100 * time.Millisecond
	for {
		text, err := os.ReadFile(path)
		if err != nil {
			return changes, err
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return changes, fmt.Errorf("%s: %w", path, err)
		}
		if len(changes) == 0 || changes[len(changes)-1].Workers != n {
			changes = append(changes, ThreadChange{time.Since(start).Seconds(), n})
		}
		if !tick.Sleep(ctx, often) {
			return changes, nil
		}
	}
}
