package daemon_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// trainee is a service of two instances, of which i1 has an agent.
type trainee struct {
	*rig
	probe     string
	addresses [2]string
}

func newTrainee(t *testing.T) *trainee {
	t.Helper()
	x := &trainee{rig: newRig(t, ""), probe: need.FreeAddress(t)}
	for i := range x.addresses {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }))
		t.Cleanup(server.Close)
		x.addresses[i] = server.Listener.Addr().String()
	}
	x.allow(false)
	x.start("controller")
	x.start("balancer")
	return x
}

// allow writes the configuration. Interferers take little.
func (x *trainee) allow(training bool) {
	x.t.Helper()
	x.write(fmt.Sprintf(`policy: {name: static}
group: {min: 1, max: 2}
probe: {listen: %q}
agent: {training: %v, probes: [cpu]}
train: {plan: custom, resource: cpu, levels: [0%%, 1%%], interference: [0%%, 2%%], run: 1s, repeat: 1, max_repeat: 1}
scaler:
  kind: fixed
  instances: [{id: i1, address: %q, probe: %q}, {id: i2, address: %q}]
`, x.probe, training, x.addresses[0], x.probe, x.addresses[1]))
}

// train starts a training of i1. It knows how many requests use the machine, so it begins at once.
func (x *trainee) train(more ...string) *proc {
	x.t.Helper()
	args := []string{"--on", "i1", "--url", "/", "--rate", "100", "--yes", "--out", filepath.Join(x.dir, "rows.jsonl")}
	return x.start("train", append(args, more...)...)
}

// disturbed starts a training, and waits until an interferer uses the machine.
func (x *trainee) disturbed() *proc {
	x.t.Helper()
	const tries = 10
	var p *proc
	n := 0
	x.await("an interferer", func() (bool, any) {
		ended := p == nil
		if p != nil {
			select {
			case <-p.done: // a busy machine may have measured nothing, or the training was quick
				ended = true
			default:
			}
		}
		if ended {
			if n++; n > tries {
				x.t.Fatalf("no training disturbs the machine: %s", p.said())
			}
			p = x.train("--force", "--fresh")
			return false, "started"
		}
		return len(x.interferers()) > 0, p.said()
	})
	return p
}

// interferers are the processes that use the machine for a training of this service.
func (x *trainee) interferers() (found []string) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		x.t.Fatal(err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if line := string(text); err == nil && strings.Contains(line, "interfere\x00") && strings.Contains(line, x.dir) {
			found = append(found, line)
		}
	}
	return found
}

// asBefore waits until both instances are in rotation, and nothing of a training is left.
func (x *trainee) asBefore(when string) {
	x.t.Helper()
	x.awaitStatus("both instances after "+when, func(s controller.Status) bool {
		return s.Leading && len(s.Instances) == 2 && s.Instances[0].Held == nil && s.Instances[1].Held == nil
	})
	x.awaitWeights(map[string]float64{"i1": .5, "i2": .5})
	x.await("no interferer after "+when, func() (bool, any) { found := x.interferers(); return len(found) == 0, found })
}

func (x *trainee) newest(name string) (p *proc) {
	for _, one := range x.procs {
		if one.name == name {
			p = one
		}
	}
	return p
}

// However a training on an instance ends, the instance is put back, and nothing disturbs it any more: at its own end, after kill -9 of the
// command, the agent, the interferer or the controller, and when an operator puts it back.
func TestTrainingOnAnInstance(t *testing.T) {
	t.Parallel()
	x := newTrainee(t)
	agent := x.start("agent", "--instance", "i1")
	x.asBefore("the start")
	x.await("the agent", func() (bool, any) { return has(agent.said(), "connected to the bus"), agent.said() })

	for _, refused := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"--on", "i1", "--url", "/", "--force"}, 1, "set agent.training to true"},
		{[]string{"--on", "i1", "--url", "/"}, 1, "set agent.training to true"}, // before what the others can take
		{[]string{"--on", "i11", "--url", "/"}, 2, `did you mean "i1"`},
		{[]string{"--on", "i2", "--url", "/", "--force"}, 1, "no agent of i2 hears orders"},
		{[]string{"--on", "i1"}, 2, "--url"},
		{[]string{"--on", "i1", "--url", "http://elsewhere/"}, 2, "write a path"},
		{[]string{"--url", "/"}, 2, "--on INSTANCE"},
	} {
		args := append([]string{"train", "--yes", "--config", x.config, "--out", filepath.Join(x.dir, "none.jsonl")}, refused.args...)
		if out, status := x.quell(args...); status != refused.status || !has(out, refused.want) {
			t.Errorf("%v: status %d: %s", refused.args, status, out)
		}
	}
	if out, status := x.quell("train", "--on", "i11", "--url", "/", "--config", x.config); status != 2 ||
		!has(out, "i11 will be out of rotation for up to 1h0m0s", "add --yes") || has(out, "no instance") {
		t.Errorf("without a consent: status %d: %s", status, out)
	}
	x.allow(true)
	if err := agent.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	x.await("the consent", func() (bool, any) { return has(agent.said(), "agent.training"), agent.said() })

	// An agent goes by what it has logged.
	if out, status := x.quell("train", "--on", "i1", "--url", "/", "--yes", "--config", x.config,
		"--out", filepath.Join(x.dir, "none.jsonl")); status != 1 || !has(out, "not known what i2 can take") {
		t.Errorf("without --force: status %d: %s", status, out)
	}
	p := x.disturbed()
	if out, status := x.quell("train", "--on", "i2", "--url", "/", "--force", "--yes", "--config", x.config, "--out",
		filepath.Join(x.dir, "other.jsonl")); status != 1 || !has(out, "one instance is trained on at a time") {
		t.Errorf("a second training: status %d: %s", status, out)
	}
	p.kill(t)
	x.asBefore("kill -9 of the command")

	p = x.disturbed()
	agent.kill(t)
	if status := p.ends(t); status != 1 {
		t.Errorf("status %d after kill -9 of the agent: %s", status, p.said())
	}
	x.asBefore("kill -9 of the agent")
	agent = x.start("agent", "--instance", "i1")
	x.await("the agent", func() (bool, any) { return has(agent.said(), "connected to the bus"), agent.said() })

	p = x.disturbed()
	if out, status := x.quell("undrain", "i1", "--config", x.config); status != 0 {
		t.Fatal(out)
	}
	if status := p.ends(t); status != 1 {
		t.Errorf("status %d after undrain: %s", status, p.said())
	}
	x.asBefore("undrain")

	x.disturbed().kill(t)
	x.newest("controller").kill(t)
	x.start("controller")
	x.asBefore("kill -9 of command and controller")

	x.await("a training that ends", func() (bool, any) {
		p := x.train("--force")
		return p.ends(t) == 0, p.said()
	})
	x.asBefore("a training")
	rows, err := os.ReadFile(filepath.Join(x.dir, "rows.jsonl"))
	if err != nil || strings.Count(string(rows), "\n") != 4 || !has(string(rows), `"interfering":0.0`, `"level":0.01`) {
		t.Errorf("the rows are %v\n%s", err, rows)
	}
}
