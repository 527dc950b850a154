package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/lab/experiment"
)

// The values of the measured set-up.
const (
	clusterAgents  = 10_000
	clusterPeriod  = 10 * time.Second
	throughLeaf    = 10 // one agent in this many
	clusterWindow  = time.Minute
	clusterPatient = 90 * time.Second // limit of the time until all agents are connected
	clusterEnd     = 5 * time.Minute  // when the measurement is ended in any case
	afterLoss      = 20 * time.Second // how long the cluster is watched after the loss of a server
	settle         = 5 * time.Second  // time in which readings on their way arrive
	spareFiles     = 1000             // open files other than agents' connections
)

// clusterPage measures agents on a bus of three servers and a leaf node, each a process of its own on this machine. It needs Linux.
func clusterPage(ctx context.Context, dir string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, clusterEnd)
	defer cancel()
	temp, err := os.MkdirTemp("", "quell-cluster-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	c := &clusterRun{ctx: ctx, dir: temp}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.prepare(); err != nil {
		return err
	}
	if err := c.play(); err != nil {
		return err
	}
	figures, err := c.figures(here())
	if err != nil {
		return err
	}
	return writePage(dir, "cluster", figures)
}

// clusterRun is one measurement.
type clusterRun struct {
	ctx     context.Context
	dir     string
	files   uint64 // limit of open files in a process
	agents  int
	hub     []string // addresses of the three servers
	routes  []string
	uplinks []string // address at which each server accepts leaf nodes
	leaf    string

	servers []*part // the three servers and the leaf node
	intake  *part
	fleet   *part

	connected time.Duration // from the start of the agents until all were connected
	from, to  time.Time     // the time that is measured while nothing happens
	used      map[string]float64
	load      string // the machine's load average over a minute
	memory    map[string]int
	losses    []*serverLoss
}

// serverLoss is what happened after a server was killed.
type serverLoss struct {
	what  string
	at    time.Time
	until time.Time // end of watching
}

// part is a process of the run. It ends when its standard input is closed.
type part struct {
	name string
	cmd  *exec.Cmd
	in   io.Closer
	up   atomic.Int64 // the last number that it printed
}

// prepare raises the limit of open files, computes how many agents are possible with it, and writes credentials and the servers'
// configuration.
func (c *clusterRun) prepare() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raise the limit of open files: %w", err)
	}
	c.files = limit.Max
	if c.agents = int(min(clusterAgents, max(limit.Max, spareFiles)-spareFiles)); c.agents == 0 {
		return fmt.Errorf("at most %d open files are allowed; raise the limit above %d", limit.Max, spareFiles)
	}
	addresses, err := new(experiment.Ports).Free(10)
	if err != nil {
		return err
	}
	c.hub, c.routes, c.uplinks, c.leaf = addresses[:3], addresses[3:6], addresses[6:9], addresses[9]
	return c.configure()
}

var accountLine = regexp.MustCompile(`account: (A[A-Z2-7]{55})`)

// configure writes the configuration that docs/scale.md describes for several regions.
func (c *clusterRun) configure() error {
	ring := clusterRing(c.dir)
	if err := ring.Make(); err != nil {
		return err
	}
	common, err := auth.NATSConfig(ring)
	if err != nil {
		return err
	}
	account := accountLine.FindStringSubmatch(common)
	if account == nil {
		return errors.New("the configuration for NATS tells no account for leaf nodes")
	}
	link := auth.Grant{Role: auth.Leaf, Service: clusterService, ID: "leaf"}
	if _, err := ring.Keep(link, 0); err != nil {
		return err
	}
	for i := range c.hub {
		name := serverName(i)
		text := fmt.Sprintf("server_name: %s\nlisten: %q\njetstream: {store_dir: %q}\n"+
			"cluster: {name: hub, listen: %q, routes: [%s]}\nleafnodes: {listen: %q}\n",
			name, c.hub[i], filepath.Join(c.dir, name), c.routes[i], natsURLs(c.routes), c.uplinks[i])
		if err := os.WriteFile(c.configOf(name), []byte(text+common), 0o600); err != nil {
			return err
		}
	}
	// The leaf node keeps the order of the servers, so that it connects to the first.
	text := fmt.Sprintf("server_name: leaf\nlisten: %q\n"+
		"leafnodes: {remotes: [{urls: [%s], no_randomize: true, account: %s, credentials: %q}]}\n",
		c.leaf, natsURLs(c.uplinks), account[1], ring.Path(link))
	return os.WriteFile(c.configOf("leaf"), []byte(text+common), 0o600)
}

func natsURLs(addresses []string) string { return "nats://" + strings.Join(addresses, ",nats://") }

// serverName is the name of one of the hub's three servers or, for i = 3, of the leaf node.
func serverName(i int) string { return []string{"n1", "n2", "n3", "leaf"}[i] }

func (c *clusterRun) configOf(server string) string { return filepath.Join(c.dir, server+".conf") }

// play starts everything, measures while nothing happens, and kills two servers in turn.
func (c *clusterRun) play() (err error) {
	for i, address := range append(slices.Clone(c.hub), c.leaf) {
		if err := c.startServer(i, address); err != nil {
			return err
		}
	}
	// The agents' first server is the third, so that it is known which one they are connected to. That server tells them of the
	// others.
	task := clusterTask{Dir: c.dir, Agents: c.agents, URL: natsURLs(c.hub[2:])}
	if c.intake, err = c.start("intake", task); err != nil {
		return err
	}
	if err := c.await(c.intake, 1); err != nil {
		return err
	}
	task.URL, task.Leaf = natsURLs(c.hub), natsURLs([]string{c.leaf})
	began := time.Now()
	if c.fleet, err = c.start("agents", task); err != nil {
		return err
	}
	if err := c.await(c.fleet, c.agents); err != nil {
		return err
	}
	c.connected = time.Since(began)
	for _, step := range []func() error{
		c.calm,
		func() error { return c.lose(0, "the server of the leaf node, and of a third of the other agents") },
		func() error { return c.restart(0) },
		func() error {
			return c.lose(2, "the server of the controller's intake, and of half of the other agents")
		},
		c.finish,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (c *clusterRun) startServer(i int, address string) error {
	name := serverName(i)
	p, err := c.start("nats", clusterTask{Config: c.configOf(name)})
	if err != nil {
		return err
	}
	p.name = name
	if i < len(c.servers) {
		c.servers[i] = p
	} else {
		c.servers = append(c.servers, p)
	}
	for c.ctx.Err() == nil {
		if nc, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			return nc.Close()
		}
		if err := c.pause(50 * time.Millisecond); err != nil {
			break
		}
	}
	return fmt.Errorf("%s did not listen on %s", name, address)
}

// start runs this program again in a part's role.
func (c *clusterRun) start(role string, task clusterTask) (*part, error) {
	text, err := json.Marshal(task)
	if err != nil {
		return nil, err
	}
	p := &part{name: role, cmd: exec.Command(os.Args[0], string(text))}
	p.cmd.Env = append(os.Environ(), clusterRole+"="+role)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var n int64
			if _, err := fmt.Sscan(lines.Text(), &n); err == nil {
				p.up.Store(n)
			}
		}
	}()
	return p, nil
}

// end waits until a process has ended, and kills it if that takes longer than a limit.
func (p *part) end() error {
	p.in.Close()
	kill := time.AfterFunc(20*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// finish ends the agents and the intake, which then write what they saw to files.
func (c *clusterRun) finish() (err error) {
	for _, p := range []**part{&c.fleet, &c.intake} {
		if *p != nil {
			err = errors.Join(err, (*p).end())
			*p = nil
		}
	}
	return err
}

func (c *clusterRun) close() error {
	err := c.finish()
	for _, p := range c.servers {
		if p.cmd.ProcessState == nil {
			err = errors.Join(err, p.end())
		}
	}
	return err
}

func (c *clusterRun) pause(d time.Duration) error {
	select {
	case <-c.ctx.Done():
		return c.ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// await waits until n connections of a part are up.
func (c *clusterRun) await(p *part, n int) error {
	for deadline := time.Now().Add(clusterPatient); p.up.Load() < int64(n); {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d connections of %s were up after %s", p.up.Load(), n, p.name, clusterPatient)
		}
		if err := c.pause(50 * time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// calm measures while nothing happens, from one period after the first reading on.
func (c *clusterRun) calm() error {
	if err := c.pause(clusterPeriod + 2*time.Second); err != nil {
		return err
	}
	parts := append(slices.Clone(c.servers), c.intake, c.fleet)
	read := func() (used map[string]int, err error) {
		used = map[string]int{}
		for _, p := range parts {
			if used[p.name], err = ticks(p.cmd.Process.Pid); err != nil {
				return nil, err
			}
		}
		return used, nil
	}
	c.from = time.Now()
	before, err := read()
	if err != nil {
		return err
	}
	if err := c.pause(clusterWindow); err != nil {
		return err
	}
	after, err := read()
	if err != nil {
		return err
	}
	c.to = time.Now()
	if c.load, err = loadAverage(); err != nil {
		return err
	}
	c.used, c.memory = map[string]float64{}, map[string]int{}
	for _, p := range parts {
		const perSecond = 100 // clock ticks, on every Linux that Go runs on
		c.used[p.name] = float64(after[p.name]-before[p.name]) / perSecond / c.to.Sub(c.from).Seconds()
		if c.memory[p.name], err = residentMemory(p.cmd.Process.Pid); err != nil {
			return err
		}
	}
	return c.pause(settle)
}

func loadAverage() (string, error) {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "", err
	}
	minute, _, _ := strings.Cut(string(data), " ")
	return minute, nil
}

// lose kills a server.
func (c *clusterRun) lose(i int, what string) error {
	l := &serverLoss{what: what, at: time.Now()}
	if err := c.servers[i].cmd.Process.Kill(); err != nil {
		return err
	}
	_ = c.servers[i].cmd.Wait() // it was killed
	c.servers[i].in.Close()
	if err := c.pause(afterLoss); err != nil {
		return err
	}
	if err := c.await(c.fleet, c.agents); err != nil {
		return fmt.Errorf("after the loss of %s: %w", what, err)
	}
	l.until = time.Now()
	c.losses = append(c.losses, l)
	return c.pause(settle)
}

func (c *clusterRun) restart(i int) error {
	if err := c.startServer(i, c.hub[i]); err != nil {
		return err
	}
	return c.pause(clusterPeriod)
}

// residentMemory is a process's resident memory in MB.
func residentMemory(pid int) (int, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var kb int
			_, err := fmt.Sscan(value, &kb)
			return kb / 1000, err
		}
	}
	return 0, errors.New("the kernel does not report resident memory")
}

// account counts what became of the readings that were published between two times.
type account struct {
	sent, refused, lost int
	lastLost            time.Time
	delays              []time.Duration // sorted
}

// account compares the readings that agents published with those that the intake accepted.
func (f *fleetReport) account(got map[sending]time.Duration, from, to time.Time) (a account) {
	for _, s := range f.Sent {
		at := time.Unix(0, s.At)
		if at.Before(from) || !at.Before(to) {
			continue
		}
		a.sent++
		switch delay, came := got[s.sending]; {
		case s.Refused:
			a.refused++
		case came:
			a.delays = append(a.delays, delay)
		default:
			a.lost++
			if at.After(a.lastLost) {
				a.lastLost = at
			}
		}
	}
	slices.Sort(a.delays)
	return a
}

// back returns, for each connection that was lost after the time from, how long after it the connection was up again, sorted.
func (f *fleetReport) back(from, to time.Time) (took []time.Duration) {
	for _, ns := range f.Back {
		if at := time.Unix(0, ns); at.After(from) && at.Before(to) {
			took = append(took, at.Sub(from))
		}
	}
	slices.Sort(took)
	return took
}

// quantile returns a quantile of sorted values; 0 if there are none.
func quantile[T cmp.Ordered](sorted []T, q float64) (v T) {
	if len(sorted) == 0 {
		return v
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
