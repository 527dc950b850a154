package experiment

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/testbed/kernel"
	"github.com/quellhq/quell/loadgen"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/probe/local"
	processscaler "github.com/quellhq/quell/scaler/process"
	"github.com/quellhq/quell/sensor"
	"github.com/quellhq/quell/train"
)

// Kernel is a rig on the machines of lab/testbed/kernel, for one run at a time. The process that plays the scenario is in the clients'
// namespace. For each run a balancer and a controller are started in the balancer's namespace. The controller's scaler starts the instances
// on their hosts. Instances are probed over their hosts' links.
type Kernel struct {
	Program  string // path of the quell binary
	Dir      string // gets one folder for each run
	Models   string // path of models.json; empty for policies that need no models
	Prefix   string // prefix of the lab's names
	Machines Machines
	Scenario *scenario.Scenario
}

// KernelResources lists the resources that neighbours on a lab's machines can use.
func KernelResources() []quell.Resource {
	return []quell.Resource{quell.Network, quell.CPU, quell.Memory, quell.Disk}
}

// Ports in the lab. Every namespace has its own ports, so fixed ones are always free.
const (
	labTraffic  = 8080 // clients connect to the balancer here
	labBus      = 4222
	labInstance = 80
	labLog      = 5514 // HAProxy sends its log here, over UDP
	labProbe    = 9466
	labReports  = 9469
	labMeter    = 9467 // the meter of a machine in training
)

// When an instance is removed, the balancer sends it no new requests and waits labDrain for the open ones; then the server has
// kernel.Grace to end. Clients give up sooner, so no removal drops a request that a client still waits for. Processes that still run
// after labEnd are killed; its last second is for the agent.
const (
	labDrain = patience - kernel.Grace
	labEnd   = kernel.Grace + time.Second
)

// LabProbeSpacing is the mean time between two probes of one instance, in training and in runs. A probe must be several times larger than
// the burst that a traffic shaper lets pass at once. A smaller probe would pass an idle link at full speed whatever the neighbours use,
// so an instance without load would look undisturbed.
const LabProbeSpacing = 100 * time.Millisecond

// Start starts the group of one run and waits until its first instances answer requests.
func (k *Kernel) Start(ctx context.Context, index int, run scenario.Run) (*KernelGroup, error) {
	g := &KernelGroup{rig: k, group: newGroup(k.Scenario, run, runDir(k.Dir, index, run))}
	if err := g.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", Title(k.Scenario, run), err), g.Stop())
	}
	return g, nil
}

// KernelGroup is the processes of one run: controller, balancer, and the instances that the controller starts.
type KernelGroup struct {
	group
	rig      *Kernel
	place    kernel.Place // where balancer and controller run
	lifeline [2]*os.File
	sockets  string // a short folder for Unix sockets, because their paths have a maximal length
}

func (g *KernelGroup) start(ctx context.Context) (err error) {
	if g.place, err = kernel.PlaceOf(g.rig.Prefix, "", kernel.Balancer); err != nil {
		return err
	}
	if g.lifeline[0], g.lifeline[1], err = os.Pipe(); err != nil {
		return err
	}
	if g.sockets, err = kernel.MakeRunDir(g.rig.Prefix, "run"); err != nil {
		return err
	}
	if err := os.MkdirAll(g.dir, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(g.dir, "data")); err != nil { // data of an interrupted run
		return err
	}
	g.url = "http://" + g.at(labTraffic)
	token := rand.Text()
	if err := os.WriteFile(g.tokenFile(), []byte(token+"\n"), 0o600); err != nil {
		return err
	}
	if err := prepareApplication(ctx, g.sc.Workload, g.dir); err != nil {
		return err
	}
	if err := g.writeCredits(); err != nil {
		return err
	}
	config := filepath.Join(g.dir, "quell.yaml")
	if err := os.WriteFile(config, []byte(g.config()), 0o644); err != nil {
		return err
	}
	if err := g.balance(ctx, config); err != nil {
		return err
	}
	if err := g.quell("controller", g.place.Aside(), config); err != nil {
		return err
	}
	if err := g.connect(bus.Options{URL: "nats://" + g.at(labBus)}); err != nil {
		return err
	}
	if err := g.awaitReady(ctx); err != nil {
		return err
	}
	return g.awaitServing(ctx)
}

// at is an address in the balancer's namespace, with this port.
func (g *KernelGroup) at(port int) string { return fmt.Sprintf("%s:%d", g.place.Address(), port) }

func (g *KernelGroup) tokenFile() string { return filepath.Join(g.dir, "token") }

// quell starts one of Quell's own commands at a place in the balancer's namespace. The command ends when this process ends.
func (g *KernelGroup) quell(what string, at kernel.Place, config string) error {
	cmd := exec.Command(g.rig.Program, what, "--config", config)
	tie(cmd, g.lifeline[0])
	return g.launch(what, cmd, at.Start)
}

// awaitServing waits until the balancer forwards requests and instances answer them.
func (g *KernelGroup) awaitServing(ctx context.Context) error {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return g.await(ctx, startWait, 50*time.Millisecond, func(context.Context) error {
		resp, err := client.Get(g.url + "/healthz")
		if err != nil {
			return fmt.Errorf("the balancer does not serve: %w", err)
		}
		resp.Body.Close()
		if instance := resp.Header.Get(loadgen.InstanceHeader); resp.StatusCode != http.StatusOK || instance == "" {
			return fmt.Errorf("the balancer does not serve: it answers %s, instance %q", resp.Status, instance)
		}
		return nil
	})
}

// Interfere sets how much of a host's resources the neighbour uses.
func (g *KernelGroup) Interfere(host string, use map[quell.Resource]float64) error {
	return g.rig.Machines.Interfere(host, use)
}

// Work implements Working.
func (g *KernelGroup) Work(host string, use map[quell.Resource]float64) error {
	return g.rig.Machines.Work(host, use)
}

// RunPrograms implements Programmed.
func (g *KernelGroup) RunPrograms(host string, strengths map[scenario.Program]float64) error {
	programs := map[kernel.Program]float64{}
	for p, strength := range strengths {
		programs[kernel.Program(p)] = strength
	}
	return g.rig.Machines.Run(host, programs)
}

// SetErring makes the instance on a host answer every request by an error from now on, or ends that.
func (g *KernelGroup) SetErring(host string, erring bool) error {
	return kernel.SetErring(filepath.Join(g.hosts(), host), erring)
}

// hosts is the folder that contains a folder for the instance of each host.
func (g *KernelGroup) hosts() string { return filepath.Join(g.dir, "hosts") }

// Changes returns the times at which plans that changed something were applied. It adds the times at which Envoy ejected an instance or
// let one back: the journal does not have these.
func (g *KernelGroup) Changes(ctx context.Context, since time.Time) ([]time.Time, error) {
	if g.run.Ejection != "" {
		return readEjections(g.ejections(), since)
	}
	return g.group.Changes(ctx, since)
}

// Stop ends the controller, which ends the instances, and the balancer. It also ends the neighbours' use of the hosts.
func (g *KernelGroup) Stop() error {
	errs := []error{g.group.Stop()}
	for _, h := range g.sc.Hosts {
		if err := errors.Join(g.Interfere(h.ID, nil), g.Work(h.ID, nil)); err != nil {
			errs = append(errs, fmt.Errorf("stopping the interference on %s: %w", h.ID, err))
		}
		if len(g.sc.Programs()) == 0 {
			continue
		}
		if err := g.RunPrograms(h.ID, nil); err != nil {
			errs = append(errs, fmt.Errorf("stopping the programs on %s: %w", h.ID, err))
		}
	}
	for _, f := range g.lifeline {
		if f != nil {
			f.Close()
		}
	}
	if g.sockets != "" {
		errs = append(errs, os.RemoveAll(g.sockets))
	}
	return errors.Join(append(errs, os.RemoveAll(calendarData(g.dir)))...)
}

// config is the run's configuration file, which controller, agents and the built-in balancer read.
func (g *KernelGroup) config() string {
	sc := g.rig.Scenario
	host := sc.Hosts[0]
	file := g.file(g.rig.Models, g.at(labBus))
	file.Balancer.Drain, file.Balancer.Classes = labDrain, applicationClasses(sc.Workload)
	file.Balancer.Kind, file.Balancer.Settings = g.balancerSettings()

	instances := processscaler.Kind.Defaults().(*processscaler.Settings)
	instances.Slots, instances.Lifeline, instances.Drain, instances.Command = len(sc.Hosts), true, labEnd, g.instance()
	instances.Address, instances.ProbeAddress = fmt.Sprintf("10.77.{slot}.2:%d", labInstance), fmt.Sprintf("10.77.{slot}.2:%d", labProbe)
	file.Scaler = config.Scaler{Kind: processscaler.Kind.Name, Settings: instances}

	p := &file.Probe
	p.From, p.Listen, p.TokenFile, p.Capacity = config.FromController, fmt.Sprintf("0.0.0.0:%d", labProbe), g.tokenFile(), host.Network
	p.Count = max(8, int(file.Service.Sampling/LabProbeSpacing))
	made := KernelHost(sc, host)
	tell(&file.Agent, scenario.Host{Network: made.Network, Cores: made.Cores, DiskIOPS: made.DiskIOPS}, Felt(sc))
	return written(file)
}

// tell sets in an agent's configuration how large its machine is and which of its resources to probe. If a host's processors are not
// limited, the agent would find no quota that states their number.
func tell(a *config.Agent, h scenario.Host, probed []quell.Resource) {
	a.Capacity[quell.Network] = h.Network
	if h.Cores > 0 {
		a.Cgroup, a.Capacity[quell.CPU] = sensor.OwnCgroup, h.Cores
	}
	if h.DiskIOPS > 0 {
		a.Cgroup, a.Capacity[quell.Disk] = sensor.OwnCgroup, h.DiskIOPS
	}
	a.Probing.Run = labProbeRun
	outside := func(r quell.Resource) bool { return !slices.Contains(local.Resources(), r) }
	a.Probing.Resources = slices.DeleteFunc(slices.Clone(probed), outside)
}

// labProbeRun is the processor time of one processor probe. The probe is short, so that a host with a fifth of a core can answer several
// probes a second.
const labProbeRun = 100 * time.Microsecond

// Felt lists the resources for which a scenario's instances are probed: those that its policy names; if the policy uses all resources
// that the models know (auto), those that requests use.
func Felt(sc *scenario.Scenario) []quell.Resource {
	if !table.All.GoesByAll(sc.Service.Policy) {
		return table.All.ResourcesFor(sc.Service.Policy)
	}
	used := sc.Workload.Demands(sc.Hosts[0])
	return slices.DeleteFunc(slices.Clone(quell.Resources), func(r quell.Resource) bool { return used[r] == 0 })
}

// Contended says whether a scenario uses a resource: its policy names it, its requests need it, or a neighbour takes some of it. A lab
// limits its hosts only in such resources.
func Contended(sc *scenario.Scenario, r quell.Resource) bool {
	return slices.Contains(table.All.ResourcesFor(sc.Service.Policy), r) || sc.Workload.Demands(sc.Hosts[0])[r] > 0 ||
		slices.ContainsFunc(sc.Timeline, func(e scenario.Event) bool { return e.Interfere != nil && e.Interfere.Resource == r })
}

// Fullest is the resource that reaches full utilisation first when the load grows.
func Fullest(sc *scenario.Scenario) quell.Resource {
	used := uses(sc.Workload, sc.Hosts[0])
	return slices.MaxFunc(quell.Resources, func(a, b quell.Resource) int { return cmp.Compare(used[a], used[b]) })
}

// Neighbours lists the different neighbours on a scenario's timeline in the order of their first appearance.
func Neighbours(sc *scenario.Scenario) (list []train.Neighbour) {
	for _, e := range sc.Timeline {
		if e.Interfere == nil || e.Interfere.Use == 0 || e.Interfere.Program != "" {
			continue
		}
		if n := (train.Neighbour{Resource: e.Interfere.Resource, Use: e.Interfere.Use}); !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list
}

// calendarData is the folder of the calendar's data.
func calendarData(dir string) string { return filepath.Join(dir, "calendar") }

// prepareApplication makes the data that the instances of an application share.
func prepareApplication(ctx context.Context, w scenario.Workload, dir string) error {
	if w.Application != scenario.Calendar {
		return nil
	}
	return kernel.MakeCalendar(ctx, calendarData(dir))
}

// applicationClasses are the classes of an application's requests, by their paths.
func applicationClasses(w scenario.Workload) (classes balancer.Classes) {
	if w.Application != scenario.Calendar {
		return nil
	}
	for _, c := range w.Classes {
		classes = append(classes, balancer.Class{Name: c.Name, Path: kernel.CalendarPath(c.Name)})
	}
	return classes
}

// instance is the command that starts an instance.
func (g *KernelGroup) instance() []string {
	command := []string{
		g.rig.Program, "lab", "instance", "--config", filepath.Join(g.dir, "quell.yaml"), "--prefix", g.rig.Prefix,
		"--host", "{host}", "--id", "{id}", "--dir", g.hosts(), "--boot", g.sc.Instances.Startup.String(),
	}
	if g.sc.Instances.Credits != nil {
		command = append(command, "--credits", g.creditsFile())
	}
	if aside(g.rig.Scenario) {
		command = append(command, "--aside")
	}
	return append(command, contentArgs(g.sc.Workload, g.dir)...)
}

// aside returns whether agents run outside the control groups of their hosts: if these limit nothing, and agents probe nothing themselves.
func aside(sc *scenario.Scenario) bool {
	made := KernelHost(sc, sc.Hosts[0])
	return made.Cores == 0 && made.DiskIOPS == 0 && !slices.ContainsFunc(Felt(sc), func(r quell.Resource) bool {
		return slices.Contains(local.Resources(), r)
	})
}

// contentArgs are the arguments that say what an instance answers with: the workload's file, a file as long as a whole chunk of a video,
// dynamic work, or an application whose data is below dir.
func contentArgs(w scenario.Workload, dir string) []string {
	switch w.Kind {
	case scenario.Video:
		return []string{"--chunk-size", fmt.Sprintf("%.0f", math.Ceil(w.Video.ChunkBytes()))}
	case scenario.Classes, scenario.Users:
		args := []string{"--work"}
		if w.Application == scenario.Calendar {
			args = []string{"--calendar", calendarData(dir)}
		}
		if slices.ContainsFunc(w.Classes, func(c scenario.Class) bool { return c.Disk > 0 }) {
			args = append(args, "--disk")
		}
		if w.Application == "" && slices.ContainsFunc(w.Classes, func(c scenario.Class) bool { return c.Memory > 0 }) {
			args = append(args, "--memory")
		}
		return args
	}
	return []string{"--file-size", fmt.Sprint(w.Size)}
}
