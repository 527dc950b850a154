package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/builtin"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

const (
	sampling = 300 * time.Millisecond
	patience = time.Minute // longest waiting time for things that take a second on an idle machine
)

// rig is one service's folder, addresses and processes. Every process holds the read end of a pipe, so it ends with
// this process in any case.
type rig struct {
	t        *testing.T
	dir      string
	config   string
	admin    string
	traffic  string // address for clients
	metrics  string // of the controller
	bus      string
	lifeline *os.File // end of the pipe that the processes hold, and the other end
	hold     *os.File

	launching sync.Mutex // needed because other goroutines start machines as well
	procs     []*proc    // processes, in the order in which they started
}

// newRig writes a configuration of a service with the given scaler and further keys.
func newRig(t *testing.T, parts string) *rig {
	t.Helper()
	sockets, err := os.MkdirTemp("", "q") // the length of a socket's path is limited
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{
		t: t, dir: t.TempDir(), admin: filepath.Join(sockets, "a"), lifeline: read, hold: write,
		traffic: need.FreeAddress(t), metrics: need.FreeAddress(t), bus: need.FreeAddress(t),
	}
	r.config = filepath.Join(r.dir, "quell.yaml")
	r.write(parts)
	t.Cleanup(func() {
		r.end()
		write.Close()
		read.Close()
		os.RemoveAll(sockets)
	})
	return r
}

// write replaces the configuration.
func (r *rig) write(parts string) {
	r.t.Helper()
	text := fmt.Sprintf(`service: shop
slo: {metric: mean, threshold: 500ms}
sampling: %s
data: data
listen: %q
bus: {listen: %q}
balancer:
  listen: %q
  admin: %q
  metrics: off
  drain: 2s
  health: {interval: 100ms, timeout: 1s}
%s`, sampling, r.metrics, r.bus, r.traffic, r.admin, parts)
	if err := os.WriteFile(r.config, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// hosts is the part of a configuration whose instances are two emulated machines, with agent and probe server.
func hosts(r *rig) string {
	return fmt.Sprintf(`policy: {name: static}
group: {min: 2, max: 3, startup: 15s}
probe: {capacity: 40Mbps, timeout: 300ms}
scaler:
  kind: process
  lifeline: true
  drain: 2s
  command: [%q, host, --config, %q, --id, "{host}", --instance, "{id}", --listen, "127.0.0.1:{port}",
    --probe-listen, "127.0.0.1:{probe_port}", --file-size, "20000"]
`, quellProgram, r.config)
}

// emulatedService starts controller, balancer and two machines.
func emulatedService(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, "")
	r.write(hosts(r))
	r.start("controller")
	r.start("balancer")
	r.awaitServing("i1", "i2")
	return r
}

// proc is one process.
type proc struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when the process has ended
}

// start runs a subcommand of quell with the rig's configuration.
func (r *rig) start(name string, args ...string) *proc {
	r.t.Helper()
	return r.launch(name, exec.Command(quellProgram, append([]string{name, "--config", r.config}, args...)...))
}

func (r *rig) launch(name string, cmd *exec.Cmd) *proc {
	r.t.Helper()
	p, err := r.tryLaunch(name, cmd)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

func (r *rig) tryLaunch(name string, cmd *exec.Cmd) (*proc, error) {
	r.launching.Lock()
	defer r.launching.Unlock()
	p := &proc{name: name, cmd: cmd, done: make(chan struct{}), log: filepath.Join(r.dir, fmt.Sprintf("%s-%d.log", name, len(r.procs)))}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = append(cmd.ExtraFiles, r.lifeline)
	cmd.Env = append(cmd.Environ(), fmt.Sprintf("QUELL_LIFELINE_FD=%d", 2+len(cmd.ExtraFiles)))
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // the status is in ProcessState
		close(p.done)
	}()
	r.procs = append(r.procs, p)
	return p, nil
}

// kill kills the process as the kernel does when memory runs out.
func (p *proc) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.done
}

func (p *proc) said() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// ends waits until the process exits, and returns its exit status.
func (p *proc) ends(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("%s did not end; it said\n%s", p.name, p.said())
		return 0
	}
}

// end asks every process to end, the oldest first, and kills those that do not.
func (r *rig) end() {
	r.launching.Lock()
	defer r.launching.Unlock()
	for _, p := range r.procs {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may already have ended
	}
	late := time.After(patience)
	for _, p := range r.procs {
		select {
		case <-p.done:
		case <-late:
			_ = p.cmd.Process.Kill()
			<-p.done
			r.t.Errorf("%s had to be killed", p.name)
		}
		if r.t.Failed() {
			r.t.Logf("%s said\n%s", p.name, p.said())
		}
	}
}

// await polls until a condition holds. is also returns the present state, for the message.
func (r *rig) await(what string, is func() (bool, any)) {
	r.t.Helper()
	r.awaitFor(patience, what, is)
}

func (r *rig) awaitFor(patience time.Duration, what string, is func() (bool, any)) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		ok, state := is()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("waited in vain for %s; now: %+v", what, state)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// status gets the controller's status over HTTP.
func (r *rig) status() (s controller.Status, err error) {
	body, err := get("http://" + r.metrics + "/status")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(body, &s)
}

func get(url string) ([]byte, error) {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// awaitStatus polls the controller's status.
func (r *rig) awaitStatus(what string, is func(controller.Status) bool) (s controller.Status) {
	r.t.Helper()
	r.await(what, func() (bool, any) {
		now, err := r.status()
		if err != nil {
			return false, err
		}
		s = now
		return is(now), now
	})
	return s
}

// awaitServing waits until exactly these instances are ready, share the traffic and are measured.
func (r *rig) awaitServing(ids ...string) controller.Status {
	r.t.Helper()
	return r.awaitStatus(fmt.Sprintf("%v to serve", ids), func(s controller.Status) bool {
		serving := 0
		for i, in := range s.Instances {
			if i < len(ids) && in.ID == ids[i] && in.State == quell.Ready && in.Weight != nil && *in.Weight > 0 && in.Utilization != nil &&
				!in.Stale {
				serving++
			}
		}
		return serving == len(ids) && len(s.Instances) == len(ids)
	})
}

// weights gets the balancer's weights.
func (r *rig) weights() (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	states, err := builtin.NewClient(r.admin).State(ctx)
	weights := map[string]float64{}
	for _, s := range states {
		weights[s.ID] = s.Weight
	}
	return weights, err
}

// awaitWeights waits until the balancer has these weights.
func (r *rig) awaitWeights(want map[string]float64) {
	r.t.Helper()
	r.await(fmt.Sprintf("the weights %v", want), func() (bool, any) {
		got, err := r.weights()
		return err == nil && sameWeights(got, want), fmt.Sprint(got, err)
	})
}

func sameWeights(a, b map[string]float64) bool {
	if len(a) != len(b) {
		return false
	}
	for id, w := range a {
		if v, ok := b[id]; !ok || w-v > 1e-6 || v-w > 1e-6 {
			return false
		}
	}
	return true
}

// quell runs a command to its end.
func (r *rig) quell(args ...string) (out string, status int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, quellProgram, args...)
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		r.t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// keyring is the keyring of the controller.
func (r *rig) keyring() auth.Keyring {
	return auth.Keyring{Dir: filepath.Join(r.dir, "data", "credentials")}
}

// connect connects to the service's bus.
func (r *rig) connect() *bus.Conn {
	r.t.Helper()
	conn, err := bus.Connect(bus.Options{URL: "nats://" + r.bus, Name: "test",
		Identify: r.keyring().Identify(auth.Grant{Role: auth.Controller, Service: "shop", ID: "test"})})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(conn.Close)
	return conn
}

// raw connects to the bus with a credential and NATS's own client, as an attacker would.
func (r *rig) raw(role auth.Role, id string) *nats.Conn {
	r.t.Helper()
	text, err := r.keyring().Issue(auth.Grant{Role: role, Service: "shop", ID: id}, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	claim, err := jwt.ParseDecoratedJWT(text)
	if err != nil {
		r.t.Fatal(err)
	}
	key, err := jwt.ParseDecoratedUserNKey(text)
	if err != nil {
		r.t.Fatal(err)
	}
	conn, err := nats.Connect("nats://"+r.bus, nats.UserInfo(claim, ""), nats.UserJWT(func() (string, error) { return claim, nil }, key.Sign),
		nats.CustomInboxPrefix("_INBOX."+string(role)+"."+id), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(conn.Close)
	return conn
}

// journal reads every entry.
func (r *rig) journal(conn *bus.Conn) (entries []bus.Entry) {
	r.t.Helper()
	j, err := conn.Journal("shop", bus.JournalOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := j.Read(ctx, time.Time{}, func(e bus.Entry) error { entries = append(entries, e); return nil }); err != nil {
		r.t.Fatal(err)
	}
	return entries
}

// listed is an instance in the ledger of the process scaler.
type listed struct {
	ID      string     `json:"id"`
	PID     int        `json:"pid"`
	Address string     `json:"address"`
	Exited  *time.Time `json:"exited"`
}

// ledger reads the list of instances that the process scaler keeps.
func (r *rig) ledger() []listed {
	r.t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, "data", "instances", "instances.json"))
	if err != nil {
		r.t.Fatal(err)
	}
	var ledger struct {
		Instances []listed `json:"instances"`
	}
	if err := json.Unmarshal(data, &ledger); err != nil {
		r.t.Fatal(err)
	}
	return ledger.Instances
}

// pids are the process ids of the instances in the ledger.
func (r *rig) pids() map[string]int {
	r.t.Helper()
	pids := map[string]int{}
	for _, in := range r.ledger() {
		pids[in.ID] = in.PID
	}
	return pids
}

// has returns whether the text contains each of the words.
func has(text string, words ...string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}
