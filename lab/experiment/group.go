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
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/internal/lifeline"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/lab/scenario"
)

// group is what the groups of all rigs have in common: the processes of a run, and a connection to its controller.
type group struct {
	sc    *scenario.Scenario
	run   scenario.Run
	dir   string // folder of configuration, logs and journal
	url   string // address to which clients connect
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
	switch {
	case g.run.Models == scenario.Learn:
		f.Models = config.ModelsLearn
	case models == "":
		f.Models = config.ModelsOff
	}
	return &f
}

// written is the text of a configuration, which the processes of a run read.
func written(f *config.File) string {
	var b strings.Builder
	_ = daemon.Drivers().Write(&b, f) // a strings.Builder never fails
	return b.String()
}

// runDir is the folder of one run of a scenario.
func runDir(dir string, index int, run scenario.Run) string {
	return filepath.Join(dir, fmt.Sprintf("run%d-%s-%s", index+1, run.Policy, run.Scheduling))
}

// process is a child process and how it ended.
type process struct {
	what string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error
}

// tie makes a process of Quell end when the other end of the pipe is closed. It also fixes the number of threads of the process and of
// the processes that it starts, so that results do not depend on how many processors the machine has.
func tie(cmd *exec.Cmd, pipe *os.File) {
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	lifeline.Give(cmd, pipe)
}

// launch starts a process by the given function. The output goes to a log file named after what.
func (g *group) launch(what string, cmd *exec.Cmd, start func(*exec.Cmd) error) error {
	path := filepath.Join(g.dir, what+".log")
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ctrl-C then reaches only this process, which stops the others in order
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

// connect connects to the controller's bus.
func (g *group) connect(o bus.Options) (err error) {
	o.Name, o.Persistent = "experiment", true // the controller makes its credentials when it starts
	ring := auth.Keyring{Dir: filepath.Join(g.dir, "data", "credentials")}
	o.Identify = ring.Identify(auth.Grant{Role: auth.Controller, Service: g.sc.Service.Name, ID: o.Name})
	g.conn, err = bus.Connect(o)
	return err
}

// service is the scenario's service with the policy and settings of the run.
func (g *group) service() quell.Service {
	service := g.sc.Service
	service.Policy = g.sc.PolicyOf(g.run)
	service.Group.Initial = g.sc.Initial(g.run)
	if n := g.sc.Size(g.run); n > 0 {
		service.Group.Min, service.Group.Max = n, n
	}
	return service
}

// startWait is how long a part may take to start. On a busy machine most of it may be needed.
const startWait = 30 * time.Second

// await calls done repeatedly until it returns nil. It fails if a process has ended; after the limit it fails with the last error of
// done.
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

// awaitReady waits until the balancer sends requests to as many instances as the run begins with.
func (g *group) awaitReady(ctx context.Context) error {
	wanted := g.sc.Initial(g.run)
	return g.await(ctx, startWait+g.sc.Instances.Startup, 50*time.Millisecond, func(ctx context.Context) error {
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

// exited returns an error if a process has ended by itself, with the end of its log.
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

// unexpected is the error for a process that ended but should run.
func (p *process) unexpected() error {
	return fmt.Errorf("%s ended by itself (%v); it said: %s", p.what, p.cmd.ProcessState, tail(p.log))
}

// endedSoon returns unexpected's error if the process ends within the given time, otherwise nil.
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

// URL is the address to which clients connect.
func (g *group) URL() string { return g.url }

// Dir contains the run's configuration, logs and journal.
func (g *group) Dir() string { return g.dir }

// Status asks the controller for its status.
func (g *group) Status(ctx context.Context) (controller.Status, error) {
	return controller.Ask(ctx, g.conn, g.sc.Service.Name)
}

// Hold fixes fractions of the traffic, by instance, as `quell override` does.
func (g *group) Hold(ctx context.Context, weights map[string]float64) error {
	return g.command(ctx, weights, func(id string, w float64) bus.Command {
		return bus.Command{Name: bus.Override, Instance: id, Weight: &w}
	})
}

// Release ends what Hold fixed.
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

// Changes reads from the journal when plans that changed something were applied.
func (g *group) Changes(ctx context.Context, since time.Time) (changes []time.Time, err error) {
	err = g.journal(ctx, since, func(e bus.Entry) {
		if e.Applied && len(e.Changes) > 0 {
			changes = append(changes, e.At)
		}
	})
	return changes, err
}

// Plans calls each with every plan in the journal since the given time, in order.
func (g *group) Plans(ctx context.Context, since time.Time, each func(*quell.Plan)) error {
	return g.journal(ctx, since, func(e bus.Entry) {
		if e.Plan != nil {
			each(e.Plan)
		}
	})
}

func (g *group) journal(ctx context.Context, since time.Time, each func(bus.Entry)) error {
	journal, err := g.conn.Journal(g.sc.Service.Name, bus.JournalOptions{})
	if err != nil {
		return err
	}
	return journal.Read(ctx, since, func(e bus.Entry) error { each(e); return nil })
}

// Snapshots calls each with every snapshot that the controller decided on since the given time, in order. The group must have been
// stopped, because a running controller still has the newest snapshots in memory.
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

// stopWait is how long a process may take to end before it is killed.
const stopWait = 8 * time.Second

// Stop ends the controller, which ends the instances, and then the balancer. It ends them even if earlier calls failed.
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

// StoreDir is the folder of the run's journal after the controller has ended.
func (g *group) StoreDir() string { return filepath.Join(g.dir, "data", "bus") }
