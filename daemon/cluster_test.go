package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// natsNode is a server of the bus's cluster, in its own process. It is connected to the others only through wires: it
// announces an address where nobody listens.
type natsNode struct {
	Name   string
	Listen string
	Route  string
	Routes []string
	Dir    string
	Config string // a file with all of this; "": none

	proc *proc
}

const (
	nodeRole = "nats-node"
	nowhere  = "127.0.0.1:1"
)

// serveNode runs a node's process, until its parent ends or asks it to end.
func serveNode(text string) int {
	var n natsNode
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	host, port := splitPort(n.Listen)
	_, route := splitPort(n.Route)
	var options *server.Options
	var err error
	if n.Config != "" {
		options, err = server.ProcessConfigFile(n.Config)
	} else {
		options = &server.Options{
			ServerName: n.Name, Host: host, Port: port, JetStream: true, StoreDir: n.Dir,
			JetStreamMaxStore: 1 << 30, JetStreamMaxMemory: 64 << 20,
			Cluster: server.ClusterOpts{Name: "test", Host: host, Port: route, Advertise: nowhere, PoolSize: -1},
			Routes:  server.RoutesFromStr("nats://" + strings.Join(n.Routes, ",nats://")),
		}
	}
	var s *server.Server
	if err == nil {
		options.NoLog = true
		s, err = server.NewServer(options)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s.Start()
	go func() {
		fd, _ := strconv.Atoi(os.Getenv("QUELL_LIFELINE_FD"))
		_, _ = os.NewFile(uintptr(fd), "lifeline").Read(make([]byte, 1))
		os.Exit(1)
	}()
	s.WaitForShutdown()
	return 0
}

func splitPort(address string) (host string, port int) {
	host, text, _ := net.SplitHostPort(address)
	port, _ = strconv.Atoi(text)
	return host, port
}

// clustered is a service with two controllers, one balancer and two machines with agents, on a bus of three servers.
type clustered struct {
	*rig
	nodes    []*natsNode
	routes   map[[2]int]*wire // wires, by the pair of nodes that they connect
	controls []*control
	balancer *proc
	load     *traffic

	mu      sync.Mutex
	last    time.Time     // time of the latest decision seen
	seen    []time.Time   // decisions that must be in the journal
	longest time.Duration // longest time between two decisions
	stop    chan struct{}
	watched sync.WaitGroup
}

// control is one of the controllers.
type control struct {
	config, metrics string
	proc            *proc
}

func newClustered(t *testing.T) *clustered {
	t.Helper()
	c := &clustered{rig: newRig(t, ""), routes: map[[2]int]*wire{}, stop: make(chan struct{})}
	var urls []string
	for i := range 3 {
		c.nodes = append(c.nodes, &natsNode{Name: fmt.Sprintf("n%d", i+1), Listen: need.FreeAddress(t), Route: need.FreeAddress(t),
			Dir: filepath.Join(c.dir, "n"+fmt.Sprint(i+1))})
		urls = append(urls, "nats://"+c.nodes[i].Listen)
	}
	for i, n := range c.nodes {
		for j, other := range c.nodes {
			if other != n {
				w := newWire(t, other.Route)
				c.routes[[2]int{i, j}] = w
				n.Routes = append(n.Routes, w.address)
			}
		}
		c.startNode(n)
	}
	c.service(strings.Join(urls, ","))
	t.Cleanup(func() { // before the bus stops, because the controllers release their lease there
		for _, x := range c.controls {
			_ = x.proc.cmd.Process.Signal(syscall.SIGTERM) // it may already have ended
			x.proc.ends(t)
		}
	})
	c.load = flow(c.rig)
	c.watched.Go(c.watch)
	t.Cleanup(c.unwatch)
	return c
}

func (r *rig) startNode(n *natsNode) {
	r.t.Helper()
	text, err := json.Marshal(n)
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], string(text))
	cmd.Env = append(os.Environ(), roleVariable+"="+nodeRole)
	n.proc = r.launch(n.Name, cmd)
}

// service starts controllers, balancer, machines and agents.
func (c *clustered) service(urls string) {
	c.t.Helper()
	var instances []string
	for i := range 2 {
		address, probe := need.FreeAddress(c.t), need.FreeAddress(c.t)
		id := fmt.Sprintf("i%d", i+1)
		c.launch("host", exec.Command(quellProgram, "host", "--listen", address, "--file-size", "20000"))
		instances = append(instances, fmt.Sprintf("{id: %s, address: %q, probe: %q}", id, address, probe))
		c.write("")
		c.configure(id+".yaml", urls, fmt.Sprintf("agent: {instance: %s, interface: lo, capacity: {network: 1Gbps}}\nprobe: {listen: %q}\n", id,
			probe), instances[i], "off")
		c.launch("agent", exec.Command(quellProgram, "agent", "--config", filepath.Join(c.dir, id+".yaml")))
	}
	all := strings.Join(instances, ", ")
	for i := range 2 {
		x := &control{metrics: need.FreeAddress(c.t)}
		x.config = c.configure(fmt.Sprintf("c%d.yaml", i+1), urls, "probe: {timeout: 300ms}\n", all, x.metrics)
		x.proc = c.launch("controller", exec.Command(quellProgram, "controller", "--config", x.config))
		c.controls = append(c.controls, x)
	}
	c.config = c.configure("quell.yaml", urls, "probe: {timeout: 300ms}\n", all, c.metrics)
	c.balancer = c.start("balancer")
	c.leader(nil)
	c.await("the balancer to serve", func() (bool, any) {
		got, err := c.weights()
		return err == nil && sameWeights(got, map[string]float64{"i1": .5, "i2": .5}), fmt.Sprint(got, err)
	})
}

// configure writes a configuration file of one process.
func (c *clustered) configure(name, urls, parts, instances, metrics string) string {
	c.t.Helper()
	c.write("policy: {name: static}\ngroup: {min: 2, max: 2}\n" + parts + "scaler: {instances: [" + instances + "]}\n")
	text, err := os.ReadFile(filepath.Join(c.dir, "quell.yaml"))
	if err != nil {
		c.t.Fatal(err)
	}
	own := fmt.Sprintf("listen: %q\nbus: {listen: %q}", c.metrics, c.bus)
	if !strings.Contains(string(text), own) {
		c.t.Fatalf("no %q in the configuration", own)
	}
	changed := strings.NewReplacer(own, fmt.Sprintf("listen: %q\nbus: {url: %q}", metrics, urls), "data: data",
		"data: data-"+name).Replace(string(text))
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
		c.t.Fatal(err)
	}
	return path
}

func (x *control) status() (s controller.Status, err error) {
	body, err := get("http://" + x.metrics + "/status")
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	return s, err
}

// leader waits until a controller other than the given one leads and decides.
func (c *clustered) leader(other *control) (found *control) {
	c.t.Helper()
	deadline := time.Now().Add(3 * patience) // enough for a lease to expire and the bus to elect a leader on a busy machine
	for time.Now().Before(deadline) {
		for _, x := range c.controls {
			if s, err := x.status(); x != other && err == nil && s.Leading && !s.At.IsZero() && len(s.Instances) == 2 {
				return x
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.t.Fatal("waited in vain for a controller to lead")
	return nil
}

// decides waits until a controller has made decisions for the given number of periods.
func (c *clustered) decides(x *control, periods time.Duration) {
	c.t.Helper()
	var first time.Time
	c.await("decisions", func() (bool, any) {
		s, err := x.status()
		if err == nil && first.IsZero() {
			first = s.At
		}
		return err == nil && s.At.Sub(first) >= periods*sampling, s.At
	})
}

// watch records the time between decisions, and checks that never two controllers lead.
func (c *clustered) watch() {
	for {
		select {
		case <-c.stop:
			return
		case <-time.After(30 * time.Millisecond):
		}
		a, _ := c.controls[0].status()
		b, _ := c.controls[1].status()
		again, _ := c.controls[0].status()
		if a.Leading && b.Leading && again.Leading {
			c.t.Error("two controllers lead")
		}
		c.mu.Lock()
		for _, s := range []controller.Status{a, b} {
			if s.Leading && s.At.After(c.last) {
				if !c.last.IsZero() {
					c.longest = max(c.longest, s.At.Sub(c.last))
				}
				c.last = s.At
				c.seen = append(c.seen, s.At)
			}
		}
		c.mu.Unlock()
	}
}

func (c *clustered) unwatch() {
	select {
	case <-c.stop:
	default:
		close(c.stop)
	}
	c.watched.Wait()
}

// forget drops the decisions seen so far.
func (c *clustered) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = nil
}

// gap returns the longest time between two decisions since the last call of gap.
func (c *clustered) gap() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	longest := max(c.longest, time.Since(c.last))
	c.longest = 0
	return longest
}

// wantDecisions checks that no decision waited much longer than the servers' election took. The length of the election itself is
// not checked.
func (c *clustered) wantDecisions(when string, election time.Duration) {
	c.t.Helper()
	gap := c.gap()
	c.t.Logf("no decision for %s %s, which took %s", gap.Round(time.Millisecond), when, election.Round(time.Millisecond))
	if gap > election+mostGap {
		c.t.Errorf("no decision for %s %s, which took %s", gap, when, election)
	}
}

// storeLeader waits until a server other than the given one leads the store of the leases.
func (c *clustered) storeLeader(other *natsNode) (found *natsNode) {
	c.t.Helper()
	deadline := time.Now().Add(3 * patience)
	said := map[string]string{} // by node
	for time.Now().Before(deadline) {
		for _, n := range c.nodes {
			if n == other {
				continue
			}
			name, copies, err := leaseLeader(n.Listen)
			said[n.Name] = fmt.Sprintf("leader %q, %d copies, %v", name, copies, err)
			if other == nil && copies < len(c.nodes)-1 { // one that has only begun could not elect a leader after a loss
				continue
			}
			for _, l := range c.nodes {
				if l.Name == name && l != other {
					return l
				}
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.t.Fatalf("waited in vain for the stores to have a leader; nodes say %v", said)
	return nil
}

// leaseLeader asks a node which node leads the store of the leases, and how many others have a copy of it that is up to date.
func leaseLeader(address string) (name string, copies int, err error) {
	nc, err := nats.Connect("nats://"+address, nats.Timeout(5*time.Second))
	if err != nil {
		return "", 0, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return "", 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	stream, err := js.Stream(ctx, "KV_quell_lease")
	if err != nil || stream.CachedInfo().Cluster == nil {
		return "", 0, err
	}
	cluster := stream.CachedInfo().Cluster
	for _, r := range cluster.Replicas {
		if r.Current && !r.Offline {
			copies++
		}
	}
	return cluster.Leader, copies, nil
}

// wantRecord checks that the journal is in order, has no decision twice and has every decision that was seen.
func (c *clustered) wantRecord() {
	c.t.Helper()
	var urls []string
	for _, n := range c.nodes {
		urls = append(urls, "nats://"+n.Listen)
	}
	conn, err := bus.Connect(bus.Options{URL: strings.Join(urls, ","), Name: "test"})
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	c.mu.Lock()
	seen := c.seen
	c.seen = nil
	c.mu.Unlock()
	c.await(fmt.Sprintf("the journal to have all of %d decisions", len(seen)), func() (bool, any) {
		written, err := c.decisions(conn)
		missing := slices.DeleteFunc(slices.Clone(seen), func(at time.Time) bool { return written[at.UnixNano()] })
		return len(missing) == 0, fmt.Sprint(len(missing), " are missing: ", missing, err)
	})
}

// decisions returns the times of the decisions in the journal.
func (c *clustered) decisions(conn *bus.Conn) (map[int64]bool, error) {
	c.t.Helper()
	j, err := conn.Journal("shop", bus.JournalOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var last time.Time
	written := map[int64]bool{}
	return written, j.Read(ctx, time.Time{}, func(e bus.Entry) error {
		if e.Kind != bus.PlanEntry {
			return nil
		}
		if !e.At.After(last) {
			c.t.Errorf("the journal has a decision of %s after one of %s", e.At, last)
		}
		last = e.At
		written[e.At.UnixNano()] = true
		return nil
	})
}

// mostGap is the longest allowed delay after the loss of a node, in addition to the election.
const mostGap = 5 * time.Second

// TestAServerOfTheBusIsLost kills, and then stops, the server that leads the store of the leases.
func TestAServerOfTheBusIsLost(t *testing.T) {
	t.Parallel()
	c := newClustered(t)
	lost := c.storeLeader(nil)
	c.gap()
	killed := time.Now()
	lost.proc.kill(t)
	c.storeLeader(lost)
	c.wantDecisions("while the bus elected a leader", time.Since(killed))
	c.startNode(lost)

	hung := c.storeLeader(nil)
	c.gap()
	stopped := time.Now()
	if err := hung.proc.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hung.proc.cmd.Process.Signal(syscall.SIGCONT) })
	c.storeLeader(hung)
	c.wantDecisions("while a server hung", time.Since(stopped))
	if err := hung.proc.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.load.wantNoFailures()
	c.unwatch()
	c.wantRecord()
}

// TestARollingRestart kills the leading controller, and restarts servers, controllers and balancer in turn under load.
func TestARollingRestart(t *testing.T) {
	t.Parallel()
	c := newClustered(t)
	for _, n := range c.nodes {
		terminate(t, n.proc)
		n.proc.ends(t)
		c.startNode(n)
		c.storeLeader(nil)
	}
	was := c.leader(nil)
	terminate(t, was.proc)
	was.proc.ends(t)
	now := c.leader(was)
	was.proc = c.launch("controller", exec.Command(quellProgram, "controller", "--config", was.config))
	old := c.balancer
	c.start("balancer", "--take-over")
	if status := old.ends(t); status != 0 {
		t.Errorf("the old balancer ended with status %d", status)
	}
	c.wantRecord() // what a killed controller has not written is lost
	now.proc.kill(t)
	c.forget()
	c.decides(c.leader(now), 10)
	c.load.wantNoFailures()
	c.unwatch()
	c.wantRecord()
}
