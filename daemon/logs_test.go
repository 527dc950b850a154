package daemon_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// The log of a process says when and with which configuration it started, that it reached the parts that it needs, what it decided, and why
// it ended.
func TestLogsTellALife(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	address := need.FreeAddress(t)
	r.write(plain(address, need.FreeAddress(t), "static"))
	r.launch("host", exec.Command(quellProgram, "host", "--listen", address, "--file-size", "20000"))
	procs := map[string]*proc{}
	for _, name := range []string{"controller", "balancer", "agent"} {
		procs[name] = r.start(name, "--log-format", "json")
	}
	r.awaitServing("i1")
	r.awaitStatus("a decision", func(s controller.Status) bool { return !s.At.IsZero() })
	for name, want := range map[string][]string{
		"controller": {"controller starts", "connected to the bus", "controller started", "scaler and balancer answer", "controller ended"},
		"balancer":   {"balancer starts", "balancer started", "connected to the bus", "instance is healthy", "balancer ended"},
		"agent":      {"agent starts", "agent started", "connected to the bus", "agent ended"},
	} {
		p := procs[name]
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		p.ends(t)
		lines := map[string]map[string]any{}
		for text := range strings.Lines(p.said()) {
			var line map[string]any
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatalf("%s: %v in %q", name, err, text)
			}
			msg := fmt.Sprint(line["msg"])
			if lines[msg] != nil && strings.HasPrefix(msg, name) {
				t.Errorf("%s: %q is told twice", name, msg)
			}
			lines[msg] = line
		}
		for _, msg := range want {
			if lines[msg] == nil {
				t.Errorf("%s: no %q in\n%s", name, msg, p.said())
			}
		}
		if first := lines[name+" starts"]; first["version"] == nil || first["config"] != r.config {
			t.Errorf("%s starts with %v", name, first)
		}
		if started := lines[name+" started"]; started["service"] != "shop" || started["mode"] != "act" || started["bus"] != "nats://"+r.bus {
			t.Errorf("%s started with %v", name, started)
		}
		if last := lines[name+" ended"]; last["reason"] != "terminated signal received" {
			t.Errorf("%s ended with %v", name, last)
		}
	}
}

func TestLogLevel(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	r.write(plain("127.0.0.1:9", need.FreeAddress(t), "static"))
	p := r.start("controller", "--log-level", "error")
	r.await("the controller to listen", func() (bool, any) { s, err := r.status(); return err == nil && s.Leading, err })
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.ends(t)
	if strings.Contains(p.said(), "level=INFO") || strings.Contains(p.said(), "level=WARN") {
		t.Errorf("it said\n%s", p.said())
	}
}

func TestAgentOfNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	r.write(plain("127.0.0.1:9", need.FreeAddress(t), "static"))
	wantRefusal(t, r.start("agent", "--instance", "node-z"), 2, `scaler.instances lists no "node-z"`, "known: i1",
		"correct the agent's instance, or add it to the list")
	wantRefusal(t, r.start("agent", "--instance", "i2"), 2, `lists no "i2", did you mean "i1"?`)
}
