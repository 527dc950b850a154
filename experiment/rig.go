package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/scenario"
	"github.com/quellhq/quell/testbed/emulated"
)

// Emulated is a rig of real processes without privileges: for each run a controller, a balancer, and emulated hosts
// that the controller's scaler starts. All hold the read end of one pipe and exit when this process is gone.
type Emulated struct {
	Program  string // the quell binary
	Dir      string // one folder for each run is made here
	Models   string // models.json; none for policies that need none
	Scenario *scenario.Scenario

	once     sync.Once
	lifeline [2]*os.File
	ports    Ports
	sockets  string // short folder for Unix sockets, whose paths are bounded
	err      error
}

// Start brings up one run's group and waits until its first instances serve.
func (e *Emulated) Start(ctx context.Context, index int, run scenario.Run) (*EmulatedGroup, error) {
	if err := e.prepare(); err != nil {
		return nil, err
	}
	g := &EmulatedGroup{rig: e, run: run, dir: filepath.Join(e.Dir, fmt.Sprintf("run%d-%s-%s", index+1, run.Policy, run.Scheduling))}
	if err := g.start(ctx, index); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", Title(e.Scenario, run), err), g.Stop())
	}
	return g, nil
}

func (e *Emulated) prepare() error {
	e.once.Do(func() {
		if e.lifeline[0], e.lifeline[1], e.err = os.Pipe(); e.err != nil {
			return
		}
		e.sockets, e.err = os.MkdirTemp("", "quell")
	})
	return e.err
}

// Close ends whatever is left of the rig's processes and removes what it made outside Dir.
func (e *Emulated) Close() {
	for _, f := range e.lifeline {
		if f != nil {
			f.Close()
		}
	}
	if e.sockets != "" {
		os.RemoveAll(e.sockets)
	}
}

// EmulatedGroup is one run's processes.
type EmulatedGroup struct {
	rig    *Emulated
	run    scenario.Run
	dir    string
	busURL string
	listen string
	conn   *bus.Conn
	procs  []*process // in order of start
}

// process is a child and how it ended.
type process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error
}

func (g *EmulatedGroup) start(ctx context.Context, index int) error {
	if err := os.MkdirAll(filepath.Join(g.dir, "hosts"), 0o755); err != nil {
		return err
	}
	addrs, err := g.rig.ports.Free(2)
	if err != nil {
		return err
	}
	g.busURL, g.listen = "nats://"+addrs[0], addrs[1]
	config := filepath.Join(g.dir, "quell.yaml")
	text := g.config(index, addrs[0], addrs[1])
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return err
	}
	for _, what := range []string{"controller", "balancer"} {
		if err := g.launch(what, config); err != nil {
			return err
		}
	}
	if g.conn, err = bus.Connect(bus.Options{URL: g.busURL, Name: "experiment"}); err != nil {
		return err
	}
	return g.awaitReady(ctx)
}

func (g *EmulatedGroup) launch(what, config string) error {
	path := filepath.Join(g.dir, what+".log")
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(g.rig.Program, what, "--config", config)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{g.rig.lifeline[0]}
	cmd.Env = append(os.Environ(), "QUELL_LIFELINE_FD=3")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ctrl-C reaches this process only, which then stops them in order
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting quell %s: %w", what, err)
	}
	p := &process{cmd: cmd, log: path, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	g.procs = append(g.procs, p)
	return nil
}

// awaitReady waits until the balancer serves from as many instances as the run begins with.
func (g *EmulatedGroup) awaitReady(ctx context.Context) error {
	sc := g.rig.Scenario
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second+sc.Instances.Startup)
	defer cancel()
	wanted := sc.Initial(g.run)
	for {
		status, err := g.Status(ctx)
		ready := 0
		for _, in := range status.Instances {
			if in.State == quell.Ready && in.Weight != nil && *in.Weight > 0 {
				ready++
			}
		}
		if err == nil && ready >= wanted {
			return nil
		}
		if err := g.exited(); err != nil {
			return err
		}
		if !sleepUntil(ctx, time.Now().Add(50*time.Millisecond)) {
			return fmt.Errorf("%d of %d instances were ready in time; see the logs in %s", ready, wanted, g.dir)
		}
	}
}

// exited reports a process that ended by itself, with the end of its log.
func (g *EmulatedGroup) exited() error {
	for _, p := range g.procs {
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %w; it said: %s", filepath.Base(p.cmd.Args[1]), errors.Join(p.err, errors.New("unexpected exit")), tail(p.log))
		default:
		}
	}
	return nil
}

func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}

// URL is where clients connect.
func (g *EmulatedGroup) URL() string { return "http://" + g.listen }

// Dir holds the run's configuration, logs and journal.
func (g *EmulatedGroup) Dir() string { return g.dir }

// Processes are the ids of the controller and the balancer.
func (g *EmulatedGroup) Processes() (controller, balancer int) {
	return g.procs[0].cmd.Process.Pid, g.procs[1].cmd.Process.Pid
}

// Interfere sets what a neighbour takes of a host's resource, whether a machine runs there or not.
func (g *EmulatedGroup) Interfere(host string, use map[quell.Resource]float64) error {
	return emulated.WriteInterference(filepath.Join(g.dir, "hosts", host+".json"), use)
}

// Status asks the controller.
func (g *EmulatedGroup) Status(ctx context.Context) (controller.Status, error) {
	return controller.Ask(ctx, g.conn, g.rig.Scenario.Service.Name)
}

// Changes reads the journal for plans that changed something.
func (g *EmulatedGroup) Changes(ctx context.Context, since time.Time) ([]time.Time, error) {
	journal, err := g.conn.Journal(g.rig.Scenario.Service.Name, bus.JournalOptions{})
	if err != nil {
		return nil, err
	}
	var changes []time.Time
	err = journal.Read(ctx, since, func(e bus.Entry) error {
		if e.Applied && len(e.Changes) > 0 {
			changes = append(changes, e.At)
		}
		return nil
	})
	return changes, err
}

// stopWait bounds how long a process may take to end before it is killed.
const stopWait = 8 * time.Second

// Stop ends the controller, which ends the instances, and the balancer; by id, and whatever happened before.
func (g *EmulatedGroup) Stop() error {
	if g.conn != nil {
		g.conn.Close()
	}
	for _, p := range g.procs {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	var errs []error
	deadline := time.After(stopWait)
	for _, p := range g.procs {
		select {
		case <-p.done:
		case <-deadline:
			_ = p.cmd.Process.Kill()
			<-p.done
			errs = append(errs, fmt.Errorf("%s had to be killed", p.cmd.Args[1]))
		}
	}
	return errors.Join(errs...)
}

// config is the run's configuration file: the one that `quell controller` and `quell balancer` read.
func (g *EmulatedGroup) config(index int, busListen, listen string) string {
	sc := g.rig.Scenario
	host := sc.Hosts[0]
	service := sc.Service
	service.Policy.Name = g.run.Policy
	service.Group.Initial = sc.Initial(g.run)
	if n := Size(sc, g.run); n > 0 {
		service.Group.Min, service.Group.Max = n, n
	}
	var b strings.Builder
	writeService(&b, service)
	if g.rig.Models != "" {
		fmt.Fprintf(&b, "models: %q\n", g.rig.Models)
	}
	fmt.Fprintf(&b, "data: %q\nlisten: off\nbus: {listen: %q}\n", filepath.Join(g.dir, "data"), busListen)
	fmt.Fprintf(&b, "balancer:\n  listen: %q\n  admin: %q\n  metrics: off\n  scheduling: %s\n  drain: 5s\n", listen, filepath.Join(g.rig.sockets, fmt.Sprintf("%d.sock", index)), g.run.Scheduling)
	fmt.Fprintf(&b, "  health: {interval: 250ms, timeout: 1s}\n")
	command := []string{
		g.rig.Program, "host", "--config", filepath.Join(g.dir, "quell.yaml"), "--id", "{host}", "--instance", "{id}",
		"--listen", "127.0.0.1:{port}", "--probe-listen", "127.0.0.1:{probe_port}",
		"--bandwidth", fmt.Sprintf("%.0f", host.Network), "--file-size", fmt.Sprint(sc.Workload.Size),
		"--boot", sc.Instances.Startup.String(), "--interference", filepath.Join(g.dir, "hosts", "{host}.json"),
		"--seed", fmt.Sprint(sc.Seed),
	}
	fmt.Fprintf(&b, "scaler:\n  kind: process\n  slots: %d\n  lifeline: true\n  drain: 3s\n  command:\n", len(sc.Hosts))
	for _, arg := range command {
		fmt.Fprintf(&b, "    - %q\n", arg)
	}
	fmt.Fprintf(&b, "probe: {count: %d, capacity: %.0fbps}\n", probesPerPeriod(service.Sampling), host.Network)
	return b.String()
}

// writeService writes the part of a configuration that every policy shares.
func writeService(w io.Writer, s quell.Service) {
	p, g := s.Policy, s.Guard
	fmt.Fprintf(w, "service: %q\nslo: {metric: %s, threshold: %s}\nsampling: %s\nmode: %s\n", s.Name, s.SLO.Metric, s.SLO.Threshold, s.Sampling, s.Mode)
	fmt.Fprintf(w, "policy:\n  name: %s\n  resource: %s\n  interference_model: %s\n  confidence: %g\n  confirm: %d\n  headroom: %g\n  scale_in_margin: %g\n  scale_out: %s\n  tolerance: %g\n  spare: %d\n  calibrate: %g\n  calibration_decay: %g\n  utilization: %g\n",
		p.Name, p.Resource, p.InterferenceModel, p.Confidence, p.Confirm, p.Headroom, p.ScaleInMargin, p.ScaleOut, p.Tolerance, p.Spare, p.Calibrate, p.CalibrationDecay, p.Utilization)
	fmt.Fprintf(w, "group: {min: %d, max: %d, initial: %d, startup: %s}\n", s.Group.Min, s.Group.Max, s.Group.Initial, s.Group.Startup)
	fmt.Fprintf(w, "guard: {floor: %g, step: %g, slow_start: %s, stale_after: %d, fade: %d, error_rate: %g}\n", g.Floor, g.Step, g.SlowStart, g.StaleAfter, g.Fade, g.ErrorRate)
}

// probesPerPeriod spaces the emulated hosts' probes as their training does.
func probesPerPeriod(sampling time.Duration) int {
	return max(8, int(sampling/probeSpacing))
}

// probeSpacing is the mean time between two probes of one emulated host.
const probeSpacing = 100 * time.Millisecond

// StoreDir is where the run's journal lies once its controller has ended.
func (g *EmulatedGroup) StoreDir() string { return filepath.Join(g.dir, "data", "bus") }
