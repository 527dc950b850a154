package daemon_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/internal/need"
	"github.com/quellhq/quell/policy/rivals"
)

const serverFile = "workers 10\n"

// tuned is a service of one instance whose agent may change a server's number of workers.
type tuned struct {
	*rig
	agent string       // configuration of the agent
	wish  atomic.Int64 // what plans ask for; 0: nothing
}

func newTuned(t *testing.T) *tuned {
	t.Helper()
	r := &tuned{rig: newRig(t, "")}
	probe := need.FreeAddress(t)
	common := fmt.Sprintf("service: shop\nslo: {metric: mean, threshold: 500ms}\nsampling: %s\n", sampling)
	r.put("quell.yaml", common+fmt.Sprintf(`data: data
listen: %q
bus: {listen: %q}
policy: {name: static}
balancer: {kind: command, command: ["true"]}
scaler: {kind: fixed, instances: [{id: i1, address: "127.0.0.1:1", probe: %q}]}
probe: {from: controller, capacity: 40Mbps, timeout: 300ms}
`, r.metrics, r.bus, probe))
	r.put("server.conf", serverFile)
	r.put("server.tmpl", "workers {{.workers}}\n")
	r.agent = r.put("agent.yaml", common+fmt.Sprintf(`data: agent
bus: {url: "nats://%s", credentials: agent.creds}
probe: {listen: %q, timeout: 300ms}
agent:
  instance: i1
  interface: lo
  capacity: {network: 1Gbps}
  metrics: off
  middleware:
    - kind: template
      name: toy
      template: server.tmpl
      file: server.conf
      check: [grep, -q, "^workers [0-9]*$", "{file}"]
      reload: [cp, %q, %q]
      parameters: [{name: workers, initial: 10, min: 1, max: 100}]
`, r.bus, probe, filepath.Join(r.dir, "server.conf"), filepath.Join(r.dir, "force")))
	r.control()
	r.await("the controller's key", func() (bool, any) {
		credential, err := r.keyring().Issue(auth.Grant{Role: auth.Sensor, Service: "shop", ID: "i1"}, 0)
		if err == nil {
			r.put("agent.creds", string(credential))
		}
		return err == nil, err
	})
	return r
}

func (r *tuned) put(name, text string) (path string) {
	r.t.Helper()
	path = filepath.Join(r.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// control runs a controller whose plans ask for the wish, until the test ends.
func (r *tuned) control() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	more := func(s *quell.Snapshot, plan *quell.Plan) {
		if n := r.wish.Load(); n > 0 && len(s.Instances) == 1 && s.Instances[0].Settings != nil {
			plan.Settings = []quell.Setting{{Instance: "i1", Target: "toy", Name: "workers", Value: float64(n)}}
		}
	}
	go func() {
		ended <- daemon.ControllerWith(ctx, r.config, amended(rivals.Static, more), slog.New(slog.DiscardHandler))
	}()
	r.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
	})
}

func (r *tuned) startAgent() *proc {
	r.t.Helper()
	return r.launch("agent", exec.Command(quellProgram, "agent", "--config", r.agent))
}

// has waits until a file has a number of workers.
func (r *tuned) has(name string, workers int) {
	r.t.Helper()
	want := fmt.Sprintf("workers %d\n", workers)
	r.await(name+" with "+strings.TrimSpace(want), func() (bool, any) {
		text, err := os.ReadFile(filepath.Join(r.dir, name))
		return string(text) == want, fmt.Sprintf("%q, %v", text, err)
	})
}

// reported waits until the controller's status shows a number of workers.
func (r *tuned) reported(workers float64) {
	r.t.Helper()
	r.awaitStatus(fmt.Sprintf("%g workers in the status", workers), func(s controller.Status) bool {
		return len(s.Instances) == 1 && s.Instances[0].Settings["toy.workers"] == workers
	})
}

// measures waits until the controller has had a reading of the agent and made two decisions more.
func (r *tuned) measures() {
	r.t.Helper()
	first := r.awaitStatus("readings", func(s controller.Status) bool { return len(s.Instances) == 1 && s.Instances[0].Utilization != nil })
	r.awaitStatus("decisions", func(s controller.Status) bool { return s.At.After(first.At.Add(sampling)) })
}

// stop ends a process as an operator does.
func (p *proc) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := p.ends(t); status != 0 {
		t.Errorf("%s ended with %d: %s", p.name, status, p.said())
	}
}

// TestPlansSetParametersOfServers follows a setting from a plan to a server's file, and the original back into the file.
func TestPlansSetParametersOfServers(t *testing.T) {
	t.Parallel()
	r := newTuned(t)
	p := r.startAgent()
	r.reported(10)
	r.wish.Store(20)
	r.reported(20)
	r.has("server.conf", 20)
	r.has("force", 20)

	r.wish.Store(900)
	r.awaitStatus("the refusal", func(s controller.Status) bool {
		return strings.Contains(s.LastFailure["apply"], "toy.workers: 900 is outside the bounds in this agent's configuration, 1 to 100")
	})
	r.has("server.conf", 20)

	second := r.startAgent()
	if status := second.ends(t); status != 2 || !strings.Contains(second.said(), "agent.middleware[0]: another agent manages") {
		t.Errorf("a second agent ended with %d: %s", status, second.said())
	}

	r.wish.Store(0)
	p.kill(t)
	r.has("server.conf", 20)
	p = r.startAgent()
	r.has("server.conf", 10)
	r.has("force", 10)

	r.wish.Store(40)
	r.reported(40)
	r.wish.Store(0)
	p.stop(t)
	r.has("server.conf", 10)
	r.has("force", 10)
}

// An agent whose server has no file measures all the same, and says which file is missing.
func TestAnAgentWithoutItsServersFile(t *testing.T) {
	t.Parallel()
	r := newTuned(t)
	if err := os.Remove(filepath.Join(r.dir, "server.conf")); err != nil {
		t.Fatal(err)
	}
	p := r.startAgent()
	r.awaitStatus("readings", func(s controller.Status) bool {
		return len(s.Instances) == 1 && s.Instances[0].Utilization != nil
	})
	if said := p.said(); !strings.Contains(said, "agent.middleware[0]: ") || !strings.Contains(said, "server.conf") {
		t.Errorf("the agent says %s", said)
	}
}

// An agent is killed while it has changed its server's file, and one character of the record of the original is edited. The next agent
// refuses the record, measures, and leaves everything else as it is. With the record as it was, an agent puts the original back.
func TestAnEditedRecordOfAnOriginal(t *testing.T) {
	t.Parallel()
	r := newTuned(t)
	p := r.startAgent()
	r.reported(10)
	r.wish.Store(20)
	r.has("force", 20)
	r.wish.Store(0)
	p.kill(t)
	r.has("server.conf", 20)
	path := filepath.Join(r.dir, ".server.conf.quell-original")
	record, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{`"original": "`, `"wrote": [` + "\n    \""} {
		edited := bytes.Clone(record)
		at := bytes.Index(record, []byte(field)) + len(field)
		if at < len(field) {
			t.Fatalf("no %s in %s", field, record)
		}
		edited[at] ^= 1
		r.put(filepath.Base(path), string(edited))
		p = r.startAgent()
		r.await("the refusal of the record with another "+field, func() (bool, any) {
			said := p.said()
			return has(said, "agent.middleware[0]: ", path, "is damaged: look at the file and delete the record", "agent started"), said
		})
		r.wish.Store(30)
		r.measures()
		r.wish.Store(0)
		p.stop(t)
		r.has("server.conf", 20)
		r.has("force", 20)
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, edited) {
			t.Errorf("%s: the record is %s, %v", field, now, err)
		}
	}
	r.put(filepath.Base(path), string(record))
	r.startAgent()
	r.has("server.conf", 10)
	r.has("force", 10)
}
