package experiment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/internal/lifeline"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/lab/scenario"
)

// group is what the groups of all rigs share: a run's processes, and the connection to its controller.
type group struct {
	sc    *scenario.Scenario
	run   scenario.Run
	dir   string // of configuration, logs and journal
	url   string // where clients connect
	conn  *bus.Conn
	procs []*process // in order of start
}

func newGroup(sc *scenario.Scenario, run scenario.Run, dir string) group {
	return group{sc: sc, run: run, dir: dir}
}

// healthSpacing is the time between the balancer's checks of an instance.
const healthSpacing = 250 * time.Millisecond

// file is what the configurations of all rigs have in common.
func (g *group) file(models, busListen string) *config.File {
	f := daemon.Drivers().Defaults()
	f.Service, f.Models, f.Data, f.Listen, f.Bus.Listen = g.service(), models, filepath.Join(g.dir, "data"), "", busListen
	return &f
}

// written is a configuration as the processes of a run read it.
func written(f *config.File) string {
	var b strings.Builder
	_ = daemon.Drivers().Write(&b, f) // a builder takes everything
	return b.String()
}

// runDir is the folder of a scenario's run.
func runDir(dir string, index int, run scenario.Run) string {
	return filepath.Join(dir, fmt.Sprintf("run%d-%s-%s", index+1, run.Policy, run.Scheduling))
}

// process is a child and how it ended.
type process struct {
	what string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error
}

// tie makes a process of Quell end when the other end of the lifeline is closed, and run as many threads on every machine: an
// experiment is not another one where there are more processors. What it starts does the same.
func tie(cmd *exec.Cmd, pipe *os.File) {
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	lifeline.Give(cmd, pipe)
}

// launch starts a process by the given function, with its output in a log named after what it is.
func (g *group) launch(what string, cmd *exec.Cmd, start func(*exec.Cmd) error) error {
	path := filepath.Join(g.dir, what+".log")
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ctrl-C reaches this process only, which then stops them in order
	if err := start(cmd); err != nil {
		return fmt.Errorf("starting %s: %w", what, err)
	}
	p := &process{what: what, cmd: cmd, log: path, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	g.procs = append(g.procs, p)
	return nil
}

// connect joins the controller's bus.
func (g *group) connect(o bus.Options) (err error) {
	o.Name, o.Persistent = "experiment", true // the controller makes its credentials when it starts
	ring := bus.Keyring{Dir: filepath.Join(g.dir, "data", "credentials")}
	o.Identify = ring.Identify(bus.Grant{Role: bus.Controller, Service: g.sc.Service.Name, ID: o.Name})
	g.conn, err = bus.Connect(o)
	return err
}

// service is the scenario's, as the run wants it.
func (g *group) service() quell.Service {
	service := g.sc.Service
	service.Policy = g.sc.PolicyOf(g.run)
	service.Group.Initial = g.sc.Initial(g.run)
	if n := g.sc.Size(g.run); n > 0 {
		service.Group.Min, service.Group.Max = n, n
	}
	return service
}

// startWait bounds how long a part may take to come up. A busy machine may need most of it.
const startWait = 30 * time.Second

// await asks until there is nothing to wait for any more: until done returns nil. It fails with the end of a process, or with what
// done said last when the limit is over.
func (g *group) await(ctx context.Context, limit, every time.Duration, done func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		why := done(ctx)
		if why == nil {
			return nil
		}
		if err := g.exited(); err != nil {
			return err
		}
		if !tick.Sleep(ctx, every) {
			return fmt.Errorf("%w; see the logs in %s", why, g.dir)
		}
	}
}

// awaitReady waits until the balancer serves from as many instances as the run begins with.
func (g *group) awaitReady(ctx context.Context) error {
	wanted := g.sc.Initial(g.run)
	return g.await(ctx, 20*time.Second+g.sc.Instances.Startup, 50*time.Millisecond, func(ctx context.Context) error {
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
		return fmt.Errorf("%d of %d instances were ready in time", ready, wanted)
	})
}

// exited reports a process that ended by itself, with the end of its log.
func (g *group) exited() error {
	for _, p := range g.procs {
		select {
		case <-p.done:
			return p.unexpected()
		default:
		}
	}
	return nil
}

// unexpected tells of the end of a process that should run.
func (p *process) unexpected() error {
	return fmt.Errorf("%s ended by itself (%v); it said: %s", p.what, p.cmd.ProcessState, tail(p.log))
}

// endedSoon is unexpected if the process ends within the wait, or nil.
func (p *process) endedSoon(wait time.Duration) error {
	select {
	case <-p.done:
		return p.unexpected()
	case <-time.After(wait):
		return nil
	}
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
func (g *group) URL() string { return g.url }

// Dir holds the run's configuration, logs and journal.
func (g *group) Dir() string { return g.dir }

// Status asks the controller.
func (g *group) Status(ctx context.Context) (controller.Status, error) {
	return controller.Ask(ctx, g.conn, g.sc.Service.Name)
}

// Hold fixes instances' fractions of the traffic by hand.
func (g *group) Hold(ctx context.Context, weights map[string]float64) error {
	return g.command(ctx, weights, func(id string, w float64) bus.Command {
		return bus.Command{Name: bus.Override, Instance: id, Weight: &w}
	})
}

// Release lets them go.
func (g *group) Release(ctx context.Context, weights map[string]float64) error {
	return g.command(ctx, weights, func(id string, _ float64) bus.Command {
		return bus.Command{Name: bus.Clear, Instance: id}
	})
}

func (g *group) command(ctx context.Context, weights map[string]float64, of func(id string, w float64) bus.Command) error {
	for _, id := range slices.Sorted(maps.Keys(weights)) {
		cmd := of(id, weights[id])
		reply, err := g.conn.Ask(ctx, g.sc.Service.Name, cmd)
		if err == nil && reply.Error != "" {
			err = errors.New(reply.Error)
		}
		if err != nil {
			return fmt.Errorf("%s of %s: %w", cmd.Name, id, err)
		}
	}
	return nil
}

// Changes reads the journal for plans that changed something.
func (g *group) Changes(ctx context.Context, since time.Time) ([]time.Time, error) {
	journal, err := g.conn.Journal(g.sc.Service.Name, bus.JournalOptions{})
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

// Snapshots reads what the controller was told since then, in order. It is for a group that has been stopped: a running
// controller has the last ones in memory.
func (g *group) Snapshots(ctx context.Context, since time.Time, each func(quell.Snapshot)) (err error) {
	server, err := bus.OpenStore(g.StoreDir())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Shutdown()) }()
	conn, err := bus.Connect(bus.Options{Server: server, Name: "experiment"})
	if err != nil {
		return err
	}
	defer conn.Close()
	journal, err := conn.Journal(g.sc.Service.Name, bus.JournalOptions{})
	if err != nil {
		return err
	}
	return journal.ReadSnapshots(ctx, since, func(s quell.Snapshot) error { each(s); return nil })
}

// stopWait bounds how long a process may take to end before it is killed.
const stopWait = 8 * time.Second

// Stop ends the controller, which ends the instances, and the balancer; by id, and whatever happened before.
func (g *group) Stop() error {
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
			errs = append(errs, fmt.Errorf("%s had to be killed", p.what))
		}
	}
	return errors.Join(errs...)
}

// StoreDir is where the run's journal lies once its controller has ended.
func (g *group) StoreDir() string { return filepath.Join(g.dir, "data", "bus") }
