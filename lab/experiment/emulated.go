package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/builtin"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/testbed/emulated"
	processscaler "github.com/quellhq/quell/scaler/process"
	"github.com/quellhq/quell/setting"
)

// Emulated is a rig of real processes that needs no privileges. Each run has a controller, a balancer, and emulated hosts that the
// controller's scaler starts. All of them have the read end of one pipe and exit when this process ends, because that closes the pipe.
type Emulated struct {
	Program  string // path of the quell binary
	Dir      string // gets one folder for each run
	Models   string // path of models.json; empty for policies that need no models
	Scenario *scenario.Scenario

	once     sync.Once
	lifeline [2]*os.File
	ports    Ports
	sockets  string // a short folder for Unix sockets, because their paths have a maximal length
	err      error
}

// Start starts the group of one run and waits until its first instances answer requests.
func (e *Emulated) Start(ctx context.Context, index int, run scenario.Run) (*EmulatedGroup, error) {
	if err := e.prepare(); err != nil {
		return nil, err
	}
	g := &EmulatedGroup{rig: e, group: newGroup(e.Scenario, run, runDir(e.Dir, index, run))}
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

// Close ends all remaining processes of the rig and removes the files that it made outside Dir.
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

// EmulatedGroup is the processes of one run: a controller, the emulated hosts that it starts, and the built-in balancer.
type EmulatedGroup struct {
	group
	rig  *Emulated
	page string // address of the controller's page and metrics
}

// Page returns the address of the controller's web page.
func (g *EmulatedGroup) Page() string { return "http://" + g.page + "/" }

func (g *EmulatedGroup) start(ctx context.Context, index int) error {
	if err := os.MkdirAll(filepath.Join(g.dir, "hosts"), 0o755); err != nil {
		return err
	}
	addrs, err := g.rig.ports.Free(3)
	if err != nil {
		return err
	}
	ports, err := g.rig.ports.Range(portsEach * (len(g.sc.Hosts) + 1))
	if err != nil {
		return err
	}
	g.page = addrs[2]
	g.url = "http://" + addrs[1]
	config := filepath.Join(g.dir, "quell.yaml")
	if err := os.WriteFile(config, []byte(g.config(index, addrs[0], addrs[1], ports)), 0o644); err != nil {
		return err
	}
	for _, what := range []string{"controller", "balancer"} {
		cmd := exec.Command(g.rig.Program, what, "--config", config)
		tie(cmd, g.rig.lifeline[0])
		if err := g.launch(what, cmd, (*exec.Cmd).Start); err != nil {
			return err
		}
	}
	if err := g.connect(bus.Options{URL: "nats://" + addrs[0]}); err != nil {
		return err
	}
	return g.awaitReady(ctx)
}

// Processes returns the process ids of controller and balancer.
func (g *EmulatedGroup) Processes() (controller, balancer int) {
	return g.procs[0].cmd.Process.Pid, g.procs[1].cmd.Process.Pid
}

// Interfere sets how much of a host's resources a neighbour uses, also on a host without an instance.
func (g *EmulatedGroup) Interfere(host string, use map[quell.Resource]float64) error {
	return emulated.WriteInterference(filepath.Join(g.dir, "hosts", host+".json"), use)
}

// config is the run's configuration file, which `quell controller` and `quell balancer` read.
func (g *EmulatedGroup) config(index int, busListen, listen string, ports setting.Ports) string {
	sc := g.rig.Scenario
	host := sc.Hosts[0]
	file := g.file(g.rig.Models, busListen)
	file.Listen = g.page

	spread := builtin.Kind.Defaults().(*builtin.Settings)
	spread.Listen, spread.Admin, spread.Metrics = listen, filepath.Join(g.rig.sockets, fmt.Sprintf("%d.sock", index)), ""
	spread.Scheduling, spread.Health.Interval, spread.NameInstance = g.run.Scheduling, healthSpacing, true
	file.Balancer.Drain, file.Balancer.Settings = emulatedDrain, spread

	instances := processscaler.Kind.Defaults().(*processscaler.Settings)
	instances.Slots, instances.Lifeline, instances.Drain = len(sc.Hosts), true, 3*time.Second
	instances.Ports = ports
	instances.Command = []string{
		g.rig.Program, "host", "--config", filepath.Join(g.dir, "quell.yaml"), "--id", "{host}", "--instance", "{id}",
		"--listen", "127.0.0.1:{port}", "--probe-listen", "127.0.0.1:{probe_port}",
		"--bandwidth", fmt.Sprintf("%.0f", host.Network), "--file-size", fmt.Sprint(sc.Workload.Size),
		"--boot", sc.Instances.Startup.String(), "--interference", filepath.Join(g.dir, "hosts", "{host}.json"),
		"--seed", fmt.Sprint(sc.Seed),
	}
	file.Scaler = config.Scaler{Kind: processscaler.Kind.Name, Settings: instances}

	file.Probe.Count, file.Probe.Capacity = probesPerPeriod(file.Service.Sampling), host.Network
	return written(file)
}

// portsEach are the ports that an instance needs, and as many again, because others may be in use.
const portsEach = 4

// emulatedDrain is how long the open requests of an instance that is removed may take.
const emulatedDrain = 5 * time.Second

// probesPerPeriod gives the emulated hosts the same spacing of probes as their training has.
func probesPerPeriod(sampling time.Duration) int {
	return max(8, int(sampling/probeSpacing))
}

// probeSpacing is the mean time between two probes of one emulated host.
const probeSpacing = 100 * time.Millisecond
