package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent/host"
	"github.com/quellhq/quell/credit"
	"github.com/quellhq/quell/internal/cgroup"
	"github.com/quellhq/quell/internal/lifeline"
	"github.com/quellhq/quell/lab/testbed/kernel"
	"github.com/quellhq/quell/limit"
	"github.com/quellhq/quell/sensor"
)

// burstRig is a lab with two burstable machines, of which one serves at a time.
type burstRig struct {
	dir     string
	program string // of quell
	prefix  string
	burstExperiment
	seed int
	lab  *kernel.Lab

	// Agents hold the one end of a pipe, and this process the other one. So they end when this process is killed.
	pipe, end *os.File
}

// burstHosts are the machines. They take turns.
var burstHosts = []string{"h1", "h2"}

func newBurstRig(program string, e burstExperiment, seed int) (r *burstRig, err error) {
	e.set = e.set.seeded(seed)
	program, err = filepath.Abs(program)
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		return nil, fmt.Errorf("the live part needs the program (make build): %w", err)
	}
	r = &burstRig{program: program, prefix: fmt.Sprintf("qb%d", os.Getpid()), burstExperiment: e, seed: seed}
	if r.pipe, r.end, err = os.Pipe(); err != nil {
		return nil, err
	}
	if r.dir, err = os.MkdirTemp("", "qb-"); err == nil {
		err = os.Chmod(r.dir, 0o755) // the file server's users must enter it
	}
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	var hosts []kernel.Host
	for _, id := range burstHosts {
		hosts = append(hosts, kernel.Host{ID: id, Network: e.set.Link, Cores: 1})
	}
	if r.lab, err = kernel.New(kernel.Options{Prefix: r.prefix, Dir: filepath.Join(r.dir, "lab"), Hosts: hosts}); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *burstRig) close() error {
	var errs []error
	if r.lab != nil {
		errs = append(errs, r.lab.Close())
	}
	if r.dir != "" {
		errs = append(errs, os.RemoveAll(r.dir))
	}
	return errors.Join(append(errs, r.end.Close(), r.pipe.Close())...)
}

// group is the control group of a host's instance.
func (r *burstRig) group(host string) string { return "/" + r.prefix + "-lab/" + host + "/vm" }

// burstInstance is an instance that serves: a server with fresh credits and, in some modes, an agent.
type burstInstance struct {
	burstServer
	rig    *burstRig
	host   string
	place  kernel.Place
	server kernel.FileServer
	agent  *burstAgent   // nil: there is none
	fixed  *limit.Limits // nil: there is no fixed limit
	stop   func() error  // stops counting credits

	mu    sync.Mutex
	first *kernel.Counted // of the network; nil: not counted yet
	last  kernel.Counted
	slow  bool // for lack of credits of the network or the processor
}

// slowed returns whether the instance has been slowed down for lack of credits.
func (i *burstInstance) slowed() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.slow
}

// sent is how many bits the instance has sent.
func (i *burstInstance) sent() float64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.first == nil {
		return 0
	}
	return i.last.Used - i.first.Used
}

// start makes an instance on a host.
func (r *burstRig) start(ctx context.Context, host string, p burstPiece) (i *burstInstance, err error) {
	i = &burstInstance{rig: r, host: host, stop: func() error { return nil }}
	defer func() {
		if err != nil {
			err = errors.Join(err, i.close())
		}
	}()
	if i.place, err = r.lab.Place(host, kernel.Instance); err != nil {
		return i, err
	}
	if r.set.Service == burstStore { // it writes in small pieces, and the lab's kernel has no fair queue
		if err := i.place.SinglePackets(); err != nil {
			return i, err
		}
	}
	files := map[string]int64{}
	for user := range maxUsers(r.set) {
		files[burstFile(user)] = r.set.File
	}
	i.service, i.server = r.set.Service, r.server(filepath.Join(r.dir, host), i.place, files)
	starting, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := i.server.Start(starting); err != nil {
		return i, err
	}
	i.address, i.content = fmt.Sprintf("%v:%d", i.place.Address(), r.set.Service.port()), i.server.Content()
	if p.mode != burstProfile {
		i.stop = i.spend()
	}
	switch p.mode {
	case burstCPU, burstAll:
		i.agent, err = r.agent(i, p.mode)
	case burstFixed:
		i.fixed = limit.New(limit.Options{Records: filepath.Join(r.dir, "fixed")})
		err = i.place.Do(func() error {
			return i.fixed.Apply(map[limit.Target]float64{{Group: "eth0", Resource: quell.Network}: p.limit})[limit.Target{Group: "eth0",
				Resource: quell.Network}]
		})
	}
	return i, err
}

// server is the server of an instance, which is not started yet.
func (r *burstRig) server(dir string, place kernel.Place, files map[string]int64) kernel.FileServer {
	if r.set.Service == burstStore {
		return &kernel.ObjectStore{Place: place, Dir: dir, Port: r.set.Service.port(), Objects: files}
	}
	return &kernel.Vsftpd{Place: place, Dir: dir, Port: r.set.Service.port(), Files: files}
}

func maxUsers(s burstSettings) (most int) {
	for _, n := range s.Users {
		most = max(most, n)
	}
	return most
}

// spend makes the instance burstable, with the balances of a new one.
func (i *burstInstance) spend() (stop func() error) {
	s := i.rig.set
	network := credit.Bucket{Baseline: s.Baseline, Burst: s.Link, PerUse: 1e-6, Cap: s.Credits}
	cpu := credit.Bucket{Baseline: s.CPU, Burst: 1, PerUse: 1.0 / 60, Cap: s.CPUOf}
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 2)
	run := func(r quell.Resource, b credit.Bucket, counted func(kernel.Counted)) {
		one := kernel.Burstable{Prefix: i.rig.prefix, Host: i.host, Resource: r, TokenBucket: kernel.NewTokenBucket(b, b.Cap), Counted: counted}
		go func() { failed <- one.KeepCredits(ctx) }()
	}
	run(quell.Network, network, func(c kernel.Counted) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.slow = i.slow || c.Slow
		if i.last = c; i.first == nil {
			i.first = &c
		}
	})
	run(quell.CPU, cpu, func(c kernel.Counted) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.slow = i.slow || c.Slow
	})
	return func() error {
		cancel()
		return errors.Join(<-failed, <-failed)
	}
}

// close ends the instance.
func (i *burstInstance) close() error {
	var errs []error
	if i.fixed != nil {
		errs = append(errs, i.place.Do(i.fixed.Close))
	}
	if i.agent != nil {
		errs = append(errs, i.agent.stop())
	}
	if i.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		errs = append(errs, i.server.Stop(ctx))
	}
	return errors.Join(append(errs, i.stop())...)
}

// burstAgent is an agent with the policy mrburst.
type burstAgent struct {
	dir string
	cmd *exec.Cmd
	log *bytes.Buffer
}

// types writes the table with the instance's type. Without its network's credits it is what CEDULE knows.
func (r *burstRig) types(dir string, mode burstMode) (path string, err error) {
	text := fmt.Sprintf("types:\n  - {type: lab, vcpus: 1, cpu: {baseline: %g%%, earned: %g, cap: %g, launch: %g}",
		100*r.set.CPU, 60*r.set.CPU, r.set.CPUOf, r.set.CPUOf)
	if mode != burstCPU {
		text += fmt.Sprintf(", network: {baseline: %gMbps, burst: %gMbps, cap: %g}", r.set.Baseline/1e6, r.set.Link/1e6, r.set.Credits)
	}
	path = filepath.Join(dir, "types.yaml")
	return path, os.WriteFile(path, []byte(text+"}\n"), 0o600)
}

// agent starts an agent that has no memory of earlier runs. In mode burstCPU it neither knows nor limits the network. Without a limit in
// the profile there is nothing for it to do: nil.
func (r *burstRig) agent(i *burstInstance, mode burstMode) (*burstAgent, error) {
	dir, err := os.MkdirTemp(r.dir, "a-")
	if err != nil {
		return nil, err
	}
	types, err := r.types(dir, mode)
	if err != nil {
		return nil, err
	}
	profile, network := filepath.Join(dir, "profile.jsonl"), "interface: eth0, "
	if mode == burstCPU {
		network = ""
	}
	limits := 0
	err = r.writeProfile(profile, func(row credit.ProfileRow) bool {
		wanted := mode != burstCPU || row.Limited != quell.Network
		if wanted && row.Limited != "" {
			limits++
		}
		return wanted
	})
	if err != nil || limits == 0 {
		return nil, err
	}
	config := filepath.Join(dir, "agent.yaml")
	text := fmt.Sprintf("data: %s\nagent:\n  interface: eth0\n  cgroup: self\n"+
		"  policy: {name: mrburst, profile: %s, objective: %v, margin: %g%%,\n"+
		"    type: lab, types: %s, fresh: true, %sport: %d, sampling: 1s, records: %s, groups: [{cgroup: %s}]}\n",
		filepath.Join(dir, "data"), profile, r.set.Objective, 100*r.set.Margin, types, network, r.set.Service.port(),
		filepath.Join(dir, "records"), r.group(i.host))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	a := &burstAgent{dir: dir, log: &bytes.Buffer{}}
	a.cmd = exec.Command(r.program, "agent", "--config", config)
	a.cmd.Dir, a.cmd.Stdout, a.cmd.Stderr = dir, a.log, a.log
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal is for this process only
	lifeline.Give(a.cmd, r.pipe)
	return a, i.place.Start(a.cmd)
}

// status asks the agent; ok is false if it does not answer yet.
func (a *burstAgent) status(ctx context.Context) (s host.Status, ok bool) {
	data, err := host.Ask(ctx, filepath.Join(a.dir, "data", "agent"))
	if err != nil || json.Unmarshal(data, &s) != nil {
		return s, false
	}
	return s, s.Plan != nil
}

// stop ends the agent, which lifts its limits.
func (a *burstAgent) stop() error {
	err := a.cmd.Process.Signal(syscall.SIGTERM)
	if err = errors.Join(err, a.cmd.Wait()); err != nil {
		err = fmt.Errorf("the agent: %w\n%s", err, a.log)
	}
	return err
}

// writeProfile writes some of the profile's rows.
func (r *burstRig) writeProfile(path string, wanted func(credit.ProfileRow) bool) error {
	rows, err := r.profiled(r.seed).rows()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for _, row := range rows {
		if !wanted(row) {
			continue
		}
		if err := json.NewEncoder(&b).Encode(row); err != nil {
			return err
		}
	}
	return os.WriteFile(path, b.Bytes(), 0o600)
}

// burstMeters measure what a run takes of this machine.
type burstMeters struct {
	lab, machine *sensor.Spending
	began        time.Time
	self         time.Duration
}

func newBurstMeters(r *burstRig) (*burstMeters, error) {
	disk, err := cgroup.DiskOf(r.dir)
	if err != nil {
		return nil, err
	}
	of := func(group string) *sensor.Spending {
		o := sensor.SpendingOptions{Disk: disk}
		o.Root, o.Cgroup = os.DirFS("/"), group
		return sensor.NewSpending(o)
	}
	m := &burstMeters{lab: of("/" + r.prefix + "-lab"), machine: of(""), began: time.Now(), self: ownTime()}
	return m, errors.Join(m.lab.Sample(m.began, &quell.Observation{}), m.machine.Sample(m.began, &quell.Observation{}))
}

// ownTime is the processor time of this process.
func ownTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// end enters what was used into the run: by other work, and of the disk.
func (m *burstMeters) end(run *burstRun) error {
	now := time.Now()
	var lab, machine quell.Observation
	if err := errors.Join(m.lab.Sample(now, &lab), m.machine.Sample(now, &machine)); err != nil {
		return err
	}
	self := (ownTime() - m.self).Seconds() / now.Sub(m.began).Seconds()
	run.Others = max(0, machine.Counters[quell.CounterProcessors]-lab.Counters[quell.CounterProcessors]-self)
	run.Operations = machine.Counters[quell.CounterOperations] // groups of version 1 count only what is limited
	return nil
}
