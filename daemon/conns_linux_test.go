package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/quellhq/quell/agent/host"
	"github.com/quellhq/quell/balancer/builtin"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
	"github.com/quellhq/quell/progress"
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
// are not opened again. An address with a slash is the path of a socket.
func holdAt(t *testing.T, address, request string, n int) (release func()) {
	t.Helper()
	network := "tcp"
	if strings.Contains(address, "/") {
		network = "unix"
	}
	var mu sync.Mutex
	var held []net.Conn
	var all sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(n))
	for range 32 {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				conn, err := net.DialTimeout(network, address, time.Second)
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
	before := r.awaitStatus("a status", func(controller.Status) bool { return true })
	r.awaitStatus("further decisions", func(s controller.Status) bool { return s.At.After(before.At) })
}

// Anyone may open connections to the probe server of an agent. Its sensors, probes and metrics go on.
func TestHeldConnectionsDoNotBlindAnAgent(t *testing.T) {
	for _, files := range []int{64, 128} {
		t.Run(fmt.Sprint(files), func(t *testing.T) {
			r := newRig(t, "")
			instance, probe, metrics := reader(t), need.FreeAddress(t), need.FreeAddress(t)
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
			release := holdAt(t, probe, keptRequest, manyHeld)
			holdAt(t, probe, "GET /pro", manyHeld/10)
			r.answers(probe, "/probe?size=100", "secret")
			r.decides()
			release()
			holdAt(t, metrics, keptRequest, manyHeld)
			r.answers(metrics, "/metrics", "")
			r.answers(probe, "/probe?size=100", "secret")
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
			r.write(plain(reader(t), need.FreeAddress(t), "static"))
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
			// The bus accepts connections before it refuses them, so files may be short for a moment, and one look at the balancer may fail.
			holdAt(t, r.bus, "", manyHeld)
			r.answers(r.metrics, "/metrics", "")
			r.decides()
			if s := r.awaitStatus("a look at the balancer", func(s controller.Status) bool { return len(s.LastFailure) == 0 }); s.Store != "" {
				t.Errorf("the store: %s", s.Store)
			}
		})
	}
}

// A liveness check of a balancer gets its answer, and a controller can set its backends, whoever holds connections to it.
func TestHeldConnectionsDoNotHideABalancer(t *testing.T) {
	const files = 128
	r := newRig(t, "")
	metrics := need.FreeAddress(t)
	r.write(plain(reader(t), need.FreeAddress(t), "static"))
	r.replace("metrics: off", fmt.Sprintf("metrics: %q", metrics))
	balancer := r.withFilesOf("balancer", files)
	r.await("the balancer to find the instance well", func() (bool, any) {
		states, err := builtin.NewClient(r.admin).State(t.Context())
		return err == nil && len(states) == 1 && states[0].Healthy, fmt.Sprint(states, err)
	})
	for address, request := range map[string]string{
		metrics: keptRequest, r.admin: keptRequest, r.traffic: "GET /file HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		release := holdAt(t, address, request, manyHeld)
		r.answers(metrics, "/healthz", "")
		if why := ask(clientAt("127.0.0.2"), "http://"+r.traffic+"/file"); why != "" {
			t.Error(why)
		}
		r.wantHealthy(balancer, files)
		release()
	}
	if said := balancer.said(); has(said, "too many open files") || has(said, "unhealthy") {
		t.Errorf("the balancer said\n%s", said)
	}
}

// A balancer that may open 64 files only does not start.
func TestABalancerNeedsFiles(t *testing.T) {
	r := newRig(t, "")
	r.write(plain(reader(t), need.FreeAddress(t), "static"))
	p := r.withFilesOf("balancer", 64)
	if status := p.ends(t); status != 2 || !has(p.said(), "the limit of open files is 64, which leaves room for no clients: raise it to "+
		"1024 at least (LimitNOFILE= of a systemd unit, or ulimit -n)") {
		t.Errorf("it ended with %d and said %s", status, p.said())
	}
}

// oneGroup is what an agent reads of a machine with one control group.
var oneGroup = fstest.MapFS{
	"proc/stat":                        {Data: []byte("cpu  10 0 10 10 0 0 0 0 0 0\ncpu0 10 0 10 10 0 0 0 0 0 0\n")},
	"proc/self/mountinfo":              {Data: []byte("31 22 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")},
	"sys/fs/cgroup/web/cpu.stat":       {Data: []byte("usage_usec 5\n")},
	"sys/fs/cgroup/cgroup.controllers": {Data: []byte("cpu\n")},
}

// An agent's own policy goes on, and its status and the reports of programs get answers, whoever holds connections to the sockets for both.
func TestHeldConnectionsDoNotStopAPolicyOfAnAgent(t *testing.T) {
	for _, files := range []int{64, 128} {
		t.Run(fmt.Sprint(files), func(t *testing.T) {
			r := newRig(t, "")
			data := filepath.Join(filepath.Dir(r.admin), "d") // a socket's path must be short
			status, reports := filepath.Join(data, "agent", "agent.sock"), filepath.Join(data, "p")
			text := fmt.Sprintf("data: %s\nagent: {root: machine, instance: m1, policy: {name: waits, sampling: 100ms, progress: %s, "+
				"groups: [{cgroup: /web}]}}\n", data, reports)
			if err := errors.Join(os.WriteFile(r.config, []byte(text), 0o600), os.CopyFS(filepath.Join(r.dir, "machine"), oneGroup)); err != nil {
				t.Fatal(err)
			}
			agent := r.withFilesOf("agent", files)
			decides := func() {
				t.Helper()
				var first host.Status
				r.await("two decisions of the agent", func() (bool, any) {
					var now host.Status
					answer, err := host.Ask(t.Context(), filepath.Join(data, "agent"))
					if err == nil {
						err = json.Unmarshal(answer, &now)
					}
					if first.At.IsZero() {
						first = now
					}
					return now.Decisions > first.Decisions+1, fmt.Sprint(string(answer), err)
				})
			}
			decides()
			for _, path := range []string{status, reports + progress.HTTPSuffix} {
				release := holdAt(t, path, "GET /status HTTP/1.1\r\nHost: x\r\n\r\n", manyHeld)
				decides()
				client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true,
					DialContext: func(context.Context, string, string) (net.Conn, error) {
						return net.Dial("unix", reports+progress.HTTPSuffix)
					}}}
				r.await("an answer to a report", func() (bool, any) {
					resp, err := client.Post("http://agent/progress", "text/plain", strings.NewReader("progress 1 /web"))
					if err != nil {
						return false, err
					}
					body, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					return err == nil && resp.StatusCode < 300, resp.Status + " " + string(body)
				})
				release()
			}
			if said := agent.said(); has(said, "too many open files") {
				t.Errorf("the agent said\n%s", said)
			}
		})
	}
}
