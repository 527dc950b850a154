package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/quellhq/quell/internal/need"
)

// node is a server of a NATS cluster, in a process of its own so that it can be killed.
type node struct {
	Name   string
	Client int
	Route  int
	Routes []int
	Dir    string

	cmd *exec.Cmd
}

func (n *node) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", n.Client) }

// serveNode runs a node in a child process. It ends with its parent, which holds the other end of its standard input.
func serveNode(text string) int {
	var n node
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var routes []string
	for _, port := range n.Routes {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", port))
	}
	s, err := server.NewServer(&server.Options{
		ServerName: n.Name, Host: "127.0.0.1", Port: n.Client, JetStream: true, StoreDir: n.Dir, NoSigs: true, NoLog: true,
		JetStreamMaxStore: 1 << 30, JetStreamMaxMemory: 64 << 20,
		Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: n.Route, PoolSize: 1},
		Routes:  server.RoutesFromStr(strings.Join(routes, ",")),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s.Start()
	_, _ = os.Stdin.Read(make([]byte, 1))
	s.Shutdown()
	return 0
}

// cluster starts three servers that know each other.
func cluster(t *testing.T) []*node {
	t.Helper()
	dir := t.TempDir()
	ports := freePorts(t, 6)
	nodes := make([]*node, 3)
	for i := range nodes {
		nodes[i] = &node{Name: fmt.Sprintf("n%d", i+1), Client: ports[i], Route: ports[3+i], Routes: ports[3:],
			Dir: filepath.Join(dir, fmt.Sprint(i))}
		nodes[i].start(t)
	}
	for _, n := range nodes {
		n.awaitReady(t)
	}
	return nodes
}

func (n *node) start(t *testing.T) {
	t.Helper()
	text, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	n.cmd = exec.Command(os.Args[0])
	n.cmd.Env = append(os.Environ(), childRole+"=node", childDir+"="+string(text))
	n.cmd.Stderr = os.Stderr
	in, err := n.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd := n.cmd
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

func (n *node) kill(t *testing.T) {
	t.Helper()
	if err := n.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = n.cmd.Wait()
}

// awaitReady waits until the cluster answers through this node.
func (n *node) awaitReady(t *testing.T) {
	t.Helper()
	within(t, 30*time.Second, "the cluster to answer", func() error {
		nc, err := nats.Connect(n.url())
		if err != nil {
			return err
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err = js.AccountInfo(ctx)
		return err
	})
}

// within repeats try until it returns no error.
func within(t *testing.T, most time.Duration, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(most)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s: %v", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range n {
		address, err := net.ResolveTCPAddr("tcp", need.FreeAddress(t))
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, address.Port)
	}
	return ports
}

// TestANodeIsLost kills the server that leads the lease's store. Lease, state and journal keep working, and nothing that was
// written is lost.
func TestANodeIsLost(t *testing.T) {
	t.Parallel()
	nodes := cluster(t)
	var urls []string
	for _, n := range nodes {
		urls = append(urls, n.url())
	}
	raise(t, urls[0])
	conn, err := Connect(Options{URL: strings.Join(urls, ",")})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	kept := keeper(t, conn)
	lost := nodes[slices.IndexFunc(nodes, func(n *node) bool { return n.Name == leaseLeader(t, conn) })]
	lost.kill(t)
	within(t, 40*time.Second, "the stores to answer without "+lost.Name, func() error { return kept(0) })
}

func leaseLeader(t *testing.T, conn *Conn) string {
	t.Helper()
	stream, err := conn.js.Stream(context.Background(), "KV_"+leaseBucket)
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo().Cluster.Leader
}

// keeper does what a controller does in each period: renew the lease, write its state and its journal, and read both back.
func keeper(t *testing.T, conn *Conn) func(round int) error {
	t.Helper()
	ctx := context.Background()
	lease, err := conn.Lease(ctx, "shop", "c1", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	state, err := conn.State("shop")
	if err != nil {
		t.Fatal(err)
	}
	journal, err := conn.Journal("shop", JournalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	keep := func(round int) error {
		text := fmt.Sprint(round)
		put := errors.Join(lease.Renew(ctx), state.Put(ctx, "memory", []byte(text)),
			journal.Append(ctx, Entry{At: time.Now(), Kind: EventEntry, Text: text}))
		if put != nil {
			return put
		}
		if got, err := state.Get(ctx, "memory"); err != nil || string(got) != text {
			return fmt.Errorf("state %q, %w", got, err)
		}
		var texts []string
		if err := journal.Read(ctx, time.Time{}, func(e Entry) error { texts = append(texts, e.Text); return nil }); err != nil {
			return err
		}
		if len(texts) == 0 || texts[len(texts)-1] != text || texts[0] != "-1" {
			return fmt.Errorf("the journal holds %v", texts)
		}
		return nil
	}
	within(t, 40*time.Second, "the stores to answer", func() error { return keep(-1) })
	return keep
}

// raise opens the stores until every store has three copies. On a busy machine a server of the cluster may seem to be away at the moment
// of an opening; then the next opening makes its copies.
func raise(t *testing.T, url string) {
	t.Helper()
	within(t, time.Minute, "three copies of every store, all up to date", func() error {
		if err := replicas(t, url, mostReplicas); err == nil {
			return nil
		}
		openStores(t, url, 0)
		return replicas(t, url, mostReplicas)
	})
}

// openStores opens every store with a connection of its own. With 0 replicas the connection chooses how many copies.
func openStores(t *testing.T, url string, replicas int) {
	t.Helper()
	conn, err := Connect(Options{URL: url, Replicas: replicas})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	keeper(t, conn)
}

// replicas returns an error if not every store has this many copies, all up to date.
func replicas(t *testing.T, url string, want int) error {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	streams := 0
	for info := range js.ListStreams(ctx).Info() {
		streams++
		if info.Config.Replicas != want {
			return fmt.Errorf("%s has %d", info.Config.Name, info.Config.Replicas)
		}
		if want == 1 {
			continue
		}
		if info.Cluster == nil || info.Cluster.Leader == "" || len(info.Cluster.Replicas) != want-1 {
			return fmt.Errorf("%s: %+v", info.Config.Name, info.Cluster)
		}
		for _, r := range info.Cluster.Replicas {
			if !r.Current || r.Offline {
				return fmt.Errorf("%s: %+v", info.Config.Name, r)
			}
		}
	}
	if streams < 3 {
		return fmt.Errorf("%d streams", streams)
	}
	return nil
}

// TestStoresAreRaised checks that a store with one copy gets more copies when a controller opens it.
func TestStoresAreRaised(t *testing.T) {
	t.Parallel()
	nodes := cluster(t)
	openStores(t, nodes[0].url(), 1)
	within(t, 30*time.Second, "one copy of every store", func() error { return replicas(t, nodes[1].url(), 1) })
	raise(t, nodes[1].url())
}
