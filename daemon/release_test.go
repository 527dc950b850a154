package daemon_test

import (
	"context"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/haproxy"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// releasable is a HAProxy with two servers of weights 30 and 60, and a configuration that drives it.
func releasable(t *testing.T, mode string) *rig {
	t.Helper()
	program := need.Program(t, "haproxy")
	r := newRig(t, "")
	cfg := filepath.Join(r.dir, "haproxy.cfg")
	text := "global\n  stats socket " + r.admin + " level admin\n  hard-stop-after 5s\n  nbthread 1\n  maxconn 100\ndefaults\n  mode http\n" +
		"  timeout connect 1s\n  timeout client 5s\n  timeout server 5s\nfrontend web\n  bind " + r.traffic + "\n  default_backend app\n" +
		"backend app\n  balance roundrobin\n  server web-1 127.0.0.1:9 weight 30\n  server web-2 127.0.0.1:19 weight 60\n"
	config := "service: shop\nslo: {metric: mean, threshold: 500ms}\nsampling: " + sampling.String() + "\ndata: data\nmode: " + mode +
		"\nlisten: \"" + r.metrics + "\"\nbus: {listen: \"" + r.bus + "\"}\npolicy: {name: static}\n" +
		"balancer: {kind: haproxy, name: lb, drain: 2s, haproxy: {sockets: [" + r.admin + "], backend: app}}\n" +
		"group: {min: 2, max: 2}\nscaler:\n  kind: fixed\n  instances:\n" +
		"    - {id: web-1, address: \"127.0.0.1:9\"}\n    - {id: web-2, address: \"127.0.0.1:19\"}\n"
	for path, text := range map[string]string{cfg: text, r.config: config} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r.launch("haproxy", exec.Command(program, "-db", "-f", cfg))
	return r
}

// weigh waits until HAProxy's servers have these weights.
func (r *rig) weigh(when string, want map[string]string) {
	r.t.Helper()
	r.await(when, func() (bool, any) {
		found := map[string]string{}
		for line := range strings.Lines(r.say("show servers state app")) {
			if f := strings.Fields(line); len(f) > 7 && strings.HasPrefix(f[3], "web-") {
				found[f[3]] = f[7]
			}
		}
		return maps.Equal(found, want), found
	})
}

// say sends one command to HAProxy.
func (r *rig) say(command string) string {
	conn, err := net.Dial("unix", r.admin)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(command + "\n")); err != nil {
		return err.Error()
	}
	var text strings.Builder
	buffer := make([]byte, 4096)
	for {
		n, err := conn.Read(buffer)
		text.Write(buffer[:n])
		if err != nil {
			return text.String()
		}
	}
}

func (r *rig) ordered(args ...string) string {
	r.t.Helper()
	out, status := r.quell(append(args, "--config", r.config)...)
	if status != 0 {
		r.t.Fatalf("%v: status %d: %s", args, status, out)
	}
	return out
}

// A running controller is told to release: the weights of before come back, also after a kill and while HAProxy was dead, nothing is set
// again, and what a person sets then stays. With the data folder lost it says what it cannot know.
func TestReleaseOfARunningController(t *testing.T) {
	t.Parallel()
	r := releasable(t, "act")
	before := map[string]string{"web-1": "30", "web-2": "60"}
	c := r.start("controller")
	r.awaitStatus("two instances", func(s controller.Status) bool { return len(s.Instances) == 2 && s.Leading })
	r.weigh("static to leave the weights", before)
	moved := func() {
		r.t.Helper()
		r.ordered("override", "web-1", "0.8")
		r.await("the override", func() (bool, any) {
			text := r.say("show servers state app")
			return !strings.Contains(text, " 30 30 "), text
		})
	}
	moved()
	c.kill(t)
	c = r.start("controller")
	r.awaitStatus("the override after a kill", func(s controller.Status) bool { return s.Overrides["web-1"] == 0.8 && s.Leading })
	if out := r.ordered("release"); !strings.Contains(out, "as it was before Quell") || strings.Contains(out, "not known") {
		t.Errorf("the release says: %s", out)
	}
	r.weigh("the weights of before", before)
	r.say("set server app/web-1 weight 77")
	theirs := map[string]string{"web-1": "77", "web-2": "60"}
	now := time.Now()
	r.awaitStatus("decisions", func(s controller.Status) bool { return s.At.Sub(now) > 2*sampling })
	r.weigh("a person's weight to stay", theirs)
	c.kill(t)
	c = r.start("controller")
	r.awaitStatus("the release after a kill", func(s controller.Status) bool { return s.Released != nil && s.Leading && !s.At.IsZero() })
	r.ordered("release")
	r.weigh("a person's weight after a second release", theirs)

	r.say("set server app/web-1 weight 30")
	r.weigh("the weights of before, by hand", before)
	r.ordered("resume")
	moved()
	other := filepath.Join(r.dir, "other.yaml")
	text, err := os.ReadFile(r.config)
	if err == nil {
		err = os.WriteFile(other, []byte(strings.Replace(string(text), "data: data", "data: elsewhere", 1)), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, status := r.quell("release", "--config", other); status != 1 || !strings.Contains(out, "nothing is released") {
		t.Errorf("with another data folder, beside a controller, the release ends with %d and says: %s", status, out)
	}
	c.kill(t)
	if out := r.ordered("release"); !strings.Contains(out, "until quell resume, also over a start of the controller") {
		t.Errorf("without a controller, the release says: %s", out)
	}
	r.weigh("the weights of before, without a controller", before)
	c = r.start("controller")
	r.awaitStatus("the release to be known", func(s controller.Status) bool { return s.Released != nil && s.Leading && !s.At.IsZero() })
	r.weigh("the weights of before, with the next controller", before)
	if _, err := os.Stat(filepath.Join(r.dir, "data", "released.json")); !os.IsNotExist(err) {
		t.Errorf("the file of the release: %v", err)
	}

	r.ordered("resume")
	moved()
	c.kill(t)
	if err := os.RemoveAll(filepath.Join(r.dir, "data")); err != nil {
		t.Fatal(err)
	}
	if out := r.ordered("release"); !strings.Contains(out, "not known: the record of what HAProxy") {
		t.Errorf("with the data folder lost, the release says: %s", out)
	}
	r.weigh("the configured weights", before)
	if err := os.RemoveAll(filepath.Join(r.dir, "data")); err != nil { // a controller of another installation
		t.Fatal(err)
	}
	d, err := haproxy.New(haproxy.Options{Sockets: []string{r.admin}, Backend: "app"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Own(context.Background(), quell.Owner{ID: "next", Name: "next"}); err != nil {
		t.Errorf("the next controller waits after a release: %v", err)
	}
}

// With HAProxy dead, the controller says so and puts the weights back when HAProxy answers again. In advise mode, where Quell never
// acted, a release changes nothing.
func TestReleaseWithHAProxyDeadAndInAdviseMode(t *testing.T) {
	t.Parallel()
	r := releasable(t, "act")
	r.start("controller")
	r.awaitStatus("two instances", func(s controller.Status) bool { return len(s.Instances) == 2 && s.Leading })
	r.ordered("override", "web-1", "0.8")
	r.await("the override", func() (bool, any) {
		text := r.say("show servers state app")
		return !strings.Contains(text, " 30 30 "), text
	})
	r.procs[0].kill(t)
	out, status := r.quell("release", "--config", r.config)
	if status != 1 || !strings.Contains(out, "tried again each period: balancer:") {
		t.Errorf("with HAProxy dead, the release ends with %d and says: %s", status, out)
	}
	r.launch("haproxy", exec.Command("haproxy", "-db", "-f", filepath.Join(r.dir, "haproxy.cfg")))
	r.weigh("the weights of before", map[string]string{"web-1": "30", "web-2": "60"})
	r.awaitStatus("the release to be over", func(s controller.Status) bool { return s.Released != nil && len(s.Released.Left) == 0 })

	r = releasable(t, "advise")
	r.start("controller")
	r.awaitStatus("two instances", func(s controller.Status) bool { return len(s.Instances) == 2 && s.Leading && !s.At.IsZero() })
	r.say("set server app/web-1 weight 40")
	if out := r.ordered("release"); !strings.Contains(out, "no trace of Quell") {
		t.Errorf("in advise mode, the release says: %s", out)
	}
	r.weigh("a person's weight", map[string]string{"web-1": "40", "web-2": "60"})
}
