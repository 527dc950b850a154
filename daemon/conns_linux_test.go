package daemon_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell/balancer/builtin"
	"github.com/quellhq/quell/controller"
)

// manyHeld is how many connections the tests of this file open and hold.
const manyHeld = 10000

// withFilesOf starts a subcommand with a limit of open files.
func (r *rig) withFilesOf(name string, limit int) *proc {
	r.t.Helper()
	script := fmt.Sprintf(`ulimit -n %d && exec "$0" %s --config "$1"`, limit, name)
	return r.launch(name, exec.Command("sh", "-c", script, quellProgram, r.config))
}

// holdAt opens connections, sends the same request on each, and keeps them open until release is called. Those that are refused or closed
// are not opened again.
func holdAt(t *testing.T, address, request string, n int) (release func()) {
	t.Helper()
	var mu sync.Mutex
	var held []net.Conn
	var all sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(n))
	for range 32 {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				conn, err := net.DialTimeout("tcp", address, time.Second)
				if err != nil {
					continue // as many wait as the kernel's queue holds
				}
				io.WriteString(conn, request)
				mu.Lock()
				held = append(held, conn)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	release = sync.OnceFunc(func() {
		for _, conn := range held {
			conn.Close()
		}
	})
	t.Cleanup(release)
	if len(held) < n/4 {
		t.Fatalf("only %d of %d connections could be opened", len(held), n)
	}
	return release
}

const keptRequest = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"

// answers waits until an address answers a request on a new connection.
func (r *rig) answers(address, path, token string) {
	r.t.Helper()
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r.await(address+path+" to answer", func() (bool, any) {
		req, err := http.NewRequest(http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			r.t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := client.Do(req)
		if err != nil {
			return false, err
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK, resp.Status
	})
}

// decides waits until the controller has decided on n further snapshots.
func (r *rig) decides() {
	r.t.Helper()
	before, err := r.status()
	for err != nil {
		before, err = r.status()
	}
	r.awaitStatus("further decisions", func(s controller.Status) bool { return s.At.After(before.At) })
}

// Anyone may open connections to the probe server of an agent. Its sensors, probes and metrics go on.
func TestHeldConnectionsDoNotBlindAnAgent(t *testing.T) {
	for _, files := range []int{64, 128} {
		t.Run(fmt.Sprint(files), func(t *testing.T) {
			r := newRig(t, "")
			instance, probe, metrics := reader(t), freeAddress(t), freeAddress(t)
			r.write(strings.Replace(strings.Replace(plain(instance, probe, "static"),
				"agent: {", fmt.Sprintf("agent: {metrics: %q, ", metrics), 1), "probe: {", "probe: {token: secret, ", 1))
			r.start("controller")
			r.start("balancer")
			agent := r.withFilesOf("agent", files)
			r.answers(probe, "/probe?size=100", "secret")
			read := func(s controller.Status) bool {
				return len(s.Instances) == 1 && s.Instances[0].Utilization != nil
			}
			r.awaitStatus("a reading", read)
			holdAt(t, probe, keptRequest, manyHeld)
			holdAt(t, probe, "GET /pro", manyHeld/10)
			holdAt(t, metrics, keptRequest, manyHeld/10)
			r.answers(probe, "/probe?size=100", "secret")
			r.answers(metrics, "/metrics", "")
			r.decides()
			if said := agent.said(); has(said, "too many open files") {
				t.Errorf("the agent said\n%s", said)
			}
		})
	}
}

// The same holds for a controller's own address and for its bus.
func TestHeldConnectionsDoNotStopDecisions(t *testing.T) {
	for _, files := range []int{64, 128} {
		t.Run(fmt.Sprint(files), func(t *testing.T) {
			r := newRig(t, "")
			r.write(plain(reader(t), freeAddress(t), "static"))
			process := r.withFilesOf("controller", files)
			r.start("balancer")
			r.awaitStatus("decisions", func(s controller.Status) bool { return s.Leading && len(s.Instances) == 1 })
			release := holdAt(t, r.metrics, keptRequest, manyHeld)
			r.answers(r.metrics, "/metrics", "")
			r.decides()
			if said := process.said(); has(said, "too many open files") {
				t.Errorf("the controller said\n%s", said)
			}
			release()
			holdAt(t, r.bus, "", manyHeld) // NATS accepts before it refuses, so files may be short for a moment
			r.answers(r.metrics, "/metrics", "")
			r.decides()
		})
	}
}

// A liveness check of a balancer gets its answer, whoever holds connections to it.
func TestHeldConnectionsDoNotHideABalancer(t *testing.T) {
	const files = 128
	r := newRig(t, "")
	metrics := freeAddress(t)
	r.write(plain(reader(t), freeAddress(t), "static"))
	r.replace("metrics: off", fmt.Sprintf("metrics: %q", metrics))
	balancer := r.withFilesOf("balancer", files)
	r.await("the balancer to find the instance well", func() (bool, any) {
		states, err := builtin.NewClient(r.admin).State(t.Context())
		return err == nil && len(states) == 1 && states[0].Healthy, fmt.Sprint(states, err)
	})
	holdAt(t, metrics, keptRequest, manyHeld*2/3)
	holdAt(t, r.traffic, "GET /file HTTP/1.1\r\nHost: x\r\n\r\n", manyHeld/2)
	r.answers(metrics, "/healthz", "")
	if why := ask(clientAt("127.0.0.2"), "http://"+r.traffic+"/file"); why != "" {
		t.Error(why)
	}
	r.wantHealthy(balancer, files)
	if said := balancer.said(); has(said, "too many open files") || has(said, "unhealthy") {
		t.Errorf("the balancer said\n%s", said)
	}
}
