package daemon_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/builtin"
	"github.com/quellhq/quell/controller"
)

// keeper is an instance in this process that answers at once, but holds requests for /held until they are released.
type keeper struct {
	address string
	held    atomic.Int64
	letGo   chan struct{}
}

func newKeeper(t *testing.T) *keeper {
	t.Helper()
	k := &keeper{letGo: make(chan struct{})}
	file := make([]byte, 20000)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k.address = ln.Addr().String()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/held" {
			k.held.Add(1)
			select {
			case <-k.letGo:
			case <-r.Context().Done():
			}
		}
		w.Write(file)
	})}
	go server.Serve(ln)
	t.Cleanup(func() { server.Close() })
	return k
}

// kept starts a balancer in front of a keeper. balancerKeys are further keys of the configuration's balancer section.
func kept(t *testing.T, balancerKeys string) (*rig, *keeper) {
	t.Helper()
	r, k := newRig(t, ""), newKeeper(t)
	r.keepers(balancerKeys, k)
	r.start("balancer")
	r.awaitHealthy()
	return r, k
}

func (r *rig) keepers(balancerKeys string, k *keeper) {
	r.t.Helper()
	r.write(balancerKeys + plain(k.address, r.probe(), "static"))
	text, err := os.ReadFile(r.config)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, key := range []string{"drain", "health"} { // replace the rig's own values
		if strings.Contains(balancerKeys, "\n  "+key+":") || strings.HasPrefix(balancerKeys, "  "+key+":") {
			first := strings.Index(string(text), "\n  "+key+":")
			end := first + 1 + strings.Index(string(text)[first+1:], "\n")
			text = append(text[:first:first], text[end:]...)
		}
	}
	if err := os.WriteFile(r.config, text, 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// an address for the probe where nobody listens
func (r *rig) probe() string { return "127.0.0.1:1" }

func (r *rig) awaitHealthy() {
	r.t.Helper()
	r.await("the balancer to find the instance well", func() (bool, any) {
		states, err := builtin.NewClient(r.admin).State(r.t.Context())
		return err == nil && len(states) == 1 && states[0].Healthy, fmt.Sprint(states, err)
	})
}

// occupy sends a request that stays open at the instance. The channel gets its result.
func (r *rig) occupy(k *keeper) <-chan string {
	r.t.Helper()
	before, ended := k.held.Load(), make(chan string, 1)
	go func() {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		ended <- ask(client, "http://"+r.traffic+"/held")
	}()
	r.await("the held request", func() (bool, any) { return k.held.Load() > before, k.held.Load() })
	return ended
}

func terminate(t *testing.T, p *proc) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

func TestASignalLetsRequestsFinishForAsLongAsConfigured(t *testing.T) {
	t.Parallel()
	r, k := kept(t, "  drain: 1m\n")
	ended := r.occupy(k)
	p := r.procs[0]
	terminate(t, p)
	r.await("the balancer to say so", func() (bool, any) { return has(p.said(), "balancer stops", "within=1m0s", "open=1"), p.said() })
	time.Sleep(10500 * time.Millisecond) // an earlier version ended after 10 s whatever was configured
	close(k.letGo)
	if why := <-ended; why != "" {
		t.Errorf("the open request: %s", why)
	}
	if status := p.ends(t); status != 0 || has(p.said(), "cut off") {
		t.Errorf("status %d; it said\n%s", status, p.said())
	}
}

func TestASecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	r, k := kept(t, "  drain: 10m\n")
	ended := r.occupy(k)
	p := r.procs[0]
	terminate(t, p)
	r.await("the balancer to say so", func() (bool, any) { return has(p.said(), "balancer stops"), p.said() })
	terminate(t, p)
	if status := p.ends(t); status != 0 || !has(p.said(), "cut off") {
		t.Errorf("status %d; it said\n%s", status, p.said())
	}
	if why := <-ended; why == "" {
		t.Error("the open request was answered")
	}
}

// onslaught sends requests all the time, on new connections and on reused ones. The balancer must not close a reused connection during a
// request.
type onslaught struct {
	stop   chan struct{}
	all    sync.WaitGroup
	done   atomic.Int64
	mu     sync.Mutex
	failed []string
}

func (r *rig) onslaught() *onslaught {
	o := &onslaught{stop: make(chan struct{})}
	url := "http://" + r.traffic + "/file"
	for i := range 6 {
		o.all.Go(func() {
			client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: i < 4}}
			defer client.CloseIdleConnections()
			for {
				select {
				case <-o.stop:
					return
				default:
				}
				why := ""
				if i < 4 {
					why = ask(client, url)
				} else {
					why = tell(client, url)
				}
				o.done.Add(1)
				if why != "" {
					o.mu.Lock()
					o.failed = append(o.failed, why)
					o.mu.Unlock()
				}
			}
		})
	}
	r.t.Cleanup(o.end)
	o.more(r, 50)
	return o
}

// tell sends a POST, because clients do not repeat a POST when a connection breaks.
func tell(client *http.Client, url string) string {
	resp, err := client.Post(url, "text/plain", strings.NewReader("an order"))
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != 20000 || resp.StatusCode != 200 {
		return fmt.Sprintf("%s, %d bytes, %v", resp.Status, n, err)
	}
	return ""
}

func (o *onslaught) more(r *rig, n int64) {
	r.t.Helper()
	goal := o.done.Load() + n
	r.await("more requests", func() (bool, any) { return o.done.Load() >= goal, o.done.Load() })
}

func (o *onslaught) end() {
	select {
	case <-o.stop:
	default:
		close(o.stop)
	}
	o.all.Wait()
}

func (o *onslaught) wantNoFailures(r *rig) {
	r.t.Helper()
	o.more(r, 50)
	o.end()
	if len(o.failed) > 0 {
		r.t.Errorf("%d of %d requests failed, the first: %s", len(o.failed), o.done.Load(), o.failed[0])
	}
}

func TestTakingOverLosesNothing(t *testing.T) {
	t.Parallel()
	r, k := kept(t, "  drain: 1m\n")
	load := r.onslaught()
	for range 3 {
		old := r.procs[len(r.procs)-1]
		ended := r.occupy(k)
		next := r.start("balancer", "--take-over")
		r.await("the take-over", func() (bool, any) { return has(next.said(), "balancer started", "took_over=true"), next.said() })
		load.more(r, 50)
		status, err := builtin.NewClient(r.admin).Status(t.Context())
		if err != nil || len(status.Backends) != 1 || !status.Backends[0].Healthy {
			t.Errorf("the new balancer says %+v, %v", status, err)
		}
		select {
		case <-old.done:
			t.Errorf("the old balancer ended with a request open; it said\n%s", old.said())
		default:
		}
		k.letGo <- struct{}{}
		if why := <-ended; why != "" {
			t.Errorf("the request that was open at the old balancer: %s", why)
		}
		if status := old.ends(t); status != 0 {
			t.Errorf("the old balancer ended with status %d; it said\n%s", status, old.said())
		}
	}
	load.wantNoFailures(r)
	if _, err := os.Stat(r.admin); err != nil {
		t.Errorf("the admin socket: %v", err)
	}
}

func TestAFailedTakeOverChangesNothing(t *testing.T) {
	t.Parallel()
	r, k := kept(t, "")
	old := r.procs[0]
	load := r.onslaught()

	r.write("  scheduling: fastest\n" + plain(k.address, r.probe(), "static"))
	if status := r.start("balancer", "--take-over").ends(t); status != 2 {
		t.Errorf("with a bad configuration: status %d", status)
	}
	r.keepers("", k)
	if p := r.start("balancer"); p.ends(t) == 0 || !has(p.said(), "--take-over") {
		t.Errorf("a second balancer said\n%s", p.said())
	}
	from, err := builtin.AskToTakeOver(t.Context(), r.admin)
	if err != nil || from.Traffic == nil || from.Traffic.Addr().String() != r.traffic || from.Healthy["i1"] != k.address {
		t.Fatalf("%+v, %v", from, err)
	}
	if _, err := builtin.AskToTakeOver(t.Context(), r.admin); err == nil || !strings.Contains(err.Error(), "taking over already") {
		t.Errorf("a second process that takes over: %v", err)
	}
	from.Traffic.Close()
	from.Admin.Close()
	from.Close() // as the kernel does for a process that dies
	r.await("the old balancer to go on", func() (bool, any) { return has(old.said(), "did not take over"), old.said() })
	load.more(r, 50)
	r.awaitHealthy()

	r.start("balancer", "--take-over")
	if status := old.ends(t); status != 0 {
		t.Errorf("after failed ones, a take-over: status %d; it said\n%s", status, old.said())
	}
	load.wantNoFailures(r)
}

func TestNobodyToTakeOverFrom(t *testing.T) {
	t.Parallel()
	r, k := newRig(t, ""), newKeeper(t)
	r.keepers("", k)
	p := r.start("balancer", "--take-over")
	r.awaitHealthy()
	r.await("the start", func() (bool, any) { return has(p.said(), "no balancer runs", "took_over=false"), p.said() })
}

// activate starts the balancer as systemd does, with listening sockets that the test keeps open.
func (r *rig) activate(sockets []*os.File, names string) *proc {
	r.t.Helper()
	script := fmt.Sprintf(`LISTEN_PID=$$ LISTEN_FDS=%d LISTEN_FDNAMES=%s exec "$0" balancer --config "$1"`, len(sockets), names)
	cmd := exec.Command("sh", "-c", script, quellProgram, r.config)
	cmd.ExtraFiles = sockets
	return r.launch("balancer", cmd)
}

func TestSocketActivation(t *testing.T) {
	t.Parallel()
	r, k := newRig(t, ""), newKeeper(t)
	r.keepers("", k)
	traffic, err := net.Listen("tcp", r.traffic)
	if err != nil {
		t.Fatal(err)
	}
	defer traffic.Close()
	admin, err := net.Listen("unix", r.admin)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	var sockets []*os.File
	for _, ln := range []net.Listener{traffic, admin} {
		file, err := ln.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		sockets = append(sockets, file)
	}
	first := r.activate(sockets, "quell.socket:quell.socket")
	r.awaitHealthy()
	load := r.onslaught()
	for range 2 { // systemctl restart
		terminate(t, first)
		if status := first.ends(t); status != 0 {
			t.Errorf("status %d; it said\n%s", status, first.said())
		}
		first = r.activate(sockets, "traffic:admin")
		load.more(r, 50)
	}
	load.wantNoFailures(r)
	if _, err := os.Stat(r.admin); err != nil {
		t.Errorf("systemd's admin socket: %v", err)
	}
	r.awaitHealthy()
}

func TestReloadingTheBalancer(t *testing.T) {
	t.Parallel()
	r, k := kept(t, "")
	p := r.procs[0]
	load := r.onslaught()
	status := func() builtin.Status {
		s, err := builtin.NewClient(r.admin).Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	begun := status().Started

	r.write("  scheduling: fastest\n" + plain(k.address, r.probe(), "static"))
	hangUp(t, p)
	r.await("the refusal", func() (bool, any) { return has(p.said(), "keeping the running one", "fastest"), p.said() })
	load.more(r, 50)

	r.keepers("  scheduling: roundrobin\n  health: {path: /up, interval: 50ms}\n  max_conns: 500\n  timeouts: {header: 20s, idle: 1m}\n"+
		"  trusted_proxies: [127.0.0.1]\n  drain: 3s\n", k)
	hangUp(t, p)
	r.await("the reload", func() (bool, any) {
		return has(p.said(), "msg=reloaded", "balancer.scheduling", "balancer.health.path", "balancer.max_conns", "balancer.timeouts.header",
			"balancer.trusted_proxies", "balancer.drain", "balancer.timeouts.idle changed since the start: restart the balancer"), p.said()
	})
	if s := status(); s.Scheduling != quell.RoundRobin || !s.Started.Equal(begun) {
		t.Errorf("after the reload: %+v", s)
	}
	load.more(r, 50)
	hangUp(t, p)
	r.await("a reload of nothing", func() (bool, any) { return has(p.said(), "no key changed"), p.said() })
	load.wantNoFailures(r)
	terminate(t, p)
	r.await("the drain of the reload", func() (bool, any) { return has(p.said(), "within=3s"), p.said() })
}

func TestReloadingTheAgent(t *testing.T) {
	t.Parallel()
	r := plainService(t)
	agent := r.start("agent")
	r.awaitServing("i1")
	conn, err := net.Dial("tcp", r.probeOf())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	good, err := os.ReadFile(r.config)
	if err != nil {
		t.Fatal(err)
	}
	r.replace("slo:", "slow:")
	hangUp(t, agent)
	r.await("the refusal", func() (bool, any) { return has(agent.said(), "keeping the running one", "slow"), agent.said() })

	if err := os.WriteFile(r.config, []byte(strings.Replace(string(good), "capacity: {network: 1Gbps}",
		"metrics: '127.0.0.1:0', capacity: {network: 2Gbps}", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	hangUp(t, agent)
	r.await("the reload", func() (bool, any) {
		return has(agent.said(), "changed=agent.capacity.network", "agent.metrics changed since the start: restart the agent"), agent.said()
	})
	s, err := r.status()
	if err != nil {
		t.Fatal(err)
	}
	r.awaitStatus("two more decisions with the agent's readings", func(now controller.Status) bool {
		return now.At.After(s.At.Add(2*sampling)) && len(now.Instances) == 1 && !now.Instances[0].Stale && now.Instances[0].Utilization != nil
	})
	select {
	case <-agent.done:
		t.Errorf("the agent ended; it said\n%s", agent.said())
	default:
	}
	resp, err := http.Get("http://" + r.probeOf() + "/healthz")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("the probe server after the reload: %v, %v", resp, err)
	}
	resp.Body.Close()
}

// replace changes a word of the configuration.
func (r *rig) replace(old, with string) {
	r.t.Helper()
	text, err := os.ReadFile(r.config)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(r.config, []byte(strings.Replace(string(text), old, with, 1)), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// probeOf returns the agent's probe address.
func (r *rig) probeOf() string {
	r.t.Helper()
	text, err := os.Open(r.config)
	if err != nil {
		r.t.Fatal(err)
	}
	defer text.Close()
	for lines := bufio.NewScanner(text); lines.Scan(); {
		if _, rest, ok := strings.Cut(lines.Text(), `probe: {listen: "`); ok {
			address, _, _ := strings.Cut(rest, `"`)
			return address
		}
	}
	r.t.Fatal("no probe.listen in the configuration")
	return ""
}
