package nginx

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/controller"
)

// impostor is a process that looks like nginx's master with one worker. Its reload program only counts: new workers come when renew is
// called.
type impostor struct {
	t       *testing.T
	dir     string
	include string
	orders  io.Writer
}

// newImpostor starts one. All its processes end with the test's.
func newImpostor(t *testing.T, servers string) *impostor {
	t.Helper()
	dir := t.TempDir()
	n := &impostor{t: t, dir: dir, include: filepath.Join(dir, "web.conf")}
	orders, told, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	life, alive, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	n.orders = told
	shell, err := exec.LookPath("sh")
	if err == nil {
		err = os.Symlink(shell, filepath.Join(dir, "nginx: worker process"))
	}
	if err != nil {
		t.Fatal(err)
	}
	const script = `while read order; do
		if [ -n "$worker" ]; then kill "$worker"; wait "$worker"; fi
		"nginx: worker process" -c 'read end' <&3 &
		worker=$!
	done`
	master := &exec.Cmd{Path: shell, Args: []string{"nginx: master process", "-c", script}, Stdin: orders, ExtraFiles: []*os.File{life},
		Env: append(os.Environ(), "PATH="+dir), SysProcAttr: &syscall.SysProcAttr{Setpgid: true}}
	if err := master.Start(); err != nil {
		t.Fatal(err)
	}
	orders.Close()
	life.Close()
	t.Cleanup(func() { told.Close(); alive.Close(); _ = master.Wait() })
	n.write(n.include, servers)
	n.write(n.path("pid"), fmt.Sprint(master.Process.Pid))
	n.write(n.path("reloads"), "")
	n.renew()
	eventually(t, "the worker runs", func() bool {
		active, _, err := n.driver().master.Workers()
		return err == nil && len(active) == 1
	})
	return n
}

func (n *impostor) path(name string) string { return filepath.Join(n.dir, name) }

func (n *impostor) write(path, text string) {
	n.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// renew replaces the worker by another.
func (n *impostor) renew() { fmt.Fprintln(n.orders) }

func (n *impostor) driver() *Driver {
	n.t.Helper()
	d, err := New(Options{Include: n.include, PID: n.path("pid"), Memory: n.path("memory.json"), Every: time.Hour, Test: []string{"true"},
		Reload: []string{"sh", "-c", `echo >>"$1"`, "sh", n.path("reloads")}})
	if err != nil {
		n.t.Fatal(err)
	}
	return d
}

// reloads returns how often the reload program was called.
func (n *impostor) reloads() int {
	text, _ := os.ReadFile(n.path("reloads"))
	return len(text)
}

// interrupted calls do with a context that ends when the next reload program has run.
func (n *impostor) interrupted(do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(n.t.Context())
	before, watched := n.reloads(), make(chan struct{})
	go func() {
		defer close(watched)
		defer cancel()
		eventually(n.t, "nginx is told to reload", func() bool { return n.reloads() > before })
	}()
	defer func() { <-watched }()
	return do(ctx)
}

func (n *impostor) says(want string) {
	n.t.Helper()
	if text, err := os.ReadFile(n.include); err != nil || string(text) != want {
		n.t.Errorf("the file is\n%swant\n%s", text, want)
	}
}

const (
	asBefore = "server 127.0.0.1:1;\nserver 127.0.0.1:2;\n"
	uneven   = "server 127.0.0.1:1 weight=4;\nserver 127.0.0.1:2;\n"
)

func pair(a float64) []quell.Backend {
	return []quell.Backend{{ID: "a", Address: "127.0.0.1:1", Weight: a}, {ID: "b", Address: "127.0.0.1:2", Weight: 1 - a}}
}

// A reload that outlasts a step may still be done, or not. The file keeps what nginx was told to read, the state says that it is not in
// force, nginx is not told again at once, and when its new workers come that is seen.
func TestAReloadThatOutlastsAStep(t *testing.T) {
	n := newImpostor(t, asBefore)
	d := n.driver()
	if err := d.Apply(t.Context(), pair(0.5)); err != nil || n.reloads() != 0 {
		t.Fatalf("as before: %v, %d reloads", err, n.reloads())
	}
	err := n.interrupted(func(ctx context.Context) error { return d.Apply(ctx, pair(0.8)) })
	if err == nil {
		t.Error("no error, although the workers stayed")
	}
	n.says(uneven)
	for _, d := range []*Driver{d, n.driver()} { // the second one stands for a controller that was ended in the wait
		if s := stateOf(t, d, "a"); s.ID != "a" || s.Address != "" {
			t.Errorf("while it is not known: %+v", s)
		}
	}
	for range 10 {
		if err := d.Apply(t.Context(), pair(0.8)); err != nil {
			t.Error(err)
		}
	}
	if got := n.reloads(); got != 1 {
		t.Errorf("%d reloads", got)
	}
	d.master.Every = 0
	if err := n.interrupted(func(ctx context.Context) error { return d.Apply(ctx, pair(0.5)) }); err == nil {
		t.Error("no error, although the workers stayed")
	}
	n.says(asBefore)
	n.renew()
	eventually(t, "the new workers are seen", func() bool { s := stateOf(t, d, "a"); return s.Address != "" && s.Weight == 0.5 })
	if err := d.Apply(t.Context(), pair(0.5)); err != nil || n.reloads() != 2 {
		t.Errorf("at the end: %v, %d reloads", err, n.reloads())
	}
	if s := stateOf(t, n.driver(), "a"); s.Address == "" {
		t.Errorf("the next controller: %+v", s)
	}
}

// A drain that nginx is late to read is not in force: the instance may still get requests, so it is not stopped.
func TestADrainThatIsLate(t *testing.T) {
	n := newImpostor(t, asBefore)
	d := n.driver()
	if err := d.Apply(t.Context(), pair(0.5)); err != nil {
		t.Fatal(err)
	}
	drained := pair(0)
	drained[0].Draining = true
	if err := n.interrupted(func(ctx context.Context) error { return d.Apply(ctx, drained) }); err == nil {
		t.Error("no error, although the workers stayed")
	}
	n.says("server 127.0.0.1:1 down;\nserver 127.0.0.1:2;\n")
	for _, d := range []*Driver{d, n.driver()} { // the second one stands for a controller that was ended in the wait
		if s := stateOf(t, d, "a"); s.ID != "a" || s.Draining {
			t.Errorf("while nginx is late: %+v", s)
		}
	}
	n.renew()
	eventually(t, "the drain is in force", func() bool { return stateOf(t, d, "a").Draining })
}

// A check that outlasts a step, or the longest possible one if there is no step, never succeeds: the message says what to do, the same each
// time, and everything is as it was.
func TestACheckThatOutlastsAStep(t *testing.T) {
	n := newImpostor(t, asBefore)
	d := n.driver()
	if err := d.Apply(t.Context(), pair(0.5)); err != nil {
		t.Fatal(err)
	}
	if d.master.Longest < controller.StepLimit(time.Hour) {
		t.Errorf("a check is cut off after %v, although a step may take longer", d.master.Longest)
	}
	d.master.CheckBy = []string{"sleep", "60"}
	for _, limits := range []struct{ step, program time.Duration }{
		{10 * time.Millisecond, time.Minute}, {10 * time.Millisecond, time.Minute}, {time.Minute, 10 * time.Millisecond},
	} {
		d.master.Longest = limits.program
		ctx, cancel := context.WithTimeout(t.Context(), limits.step)
		err := d.Apply(ctx, pair(0.8))
		cancel()
		if err == nil || !strings.Contains(err.Error(), "raise `sampling`") || !strings.Contains(err.Error(), "balancer.nginx.test") {
			t.Error(err)
		}
		n.says(asBefore)
	}
	if s := stateOf(t, d, "a"); s.Address == "" || n.reloads() != 0 {
		t.Errorf("%+v, %d reloads", s, n.reloads())
	}
}

// If nginx was not told, everything is as it was.
func TestAReloadThatIsNotTold(t *testing.T) {
	n := newImpostor(t, asBefore)
	d := n.driver()
	if err := d.Apply(t.Context(), pair(0.5)); err != nil {
		t.Fatal(err)
	}
	d.master.ReloadBy = []string{"sh", "-c", "echo no >&2; exit 1"}
	if err := d.Apply(t.Context(), pair(0.8)); err == nil || !strings.Contains(err.Error(), "it said: no") {
		t.Error(err)
	}
	n.says(asBefore)
	if s := stateOf(t, d, "a"); s.Address == "" {
		t.Errorf("%+v", s)
	}
}

// The line of an instance that moved, which a person wrote, is no instance: it is neither checked nor reported.
func TestTheLineOfAnInstanceThatMoved(t *testing.T) {
	n := newImpostor(t, asBefore)
	d := n.driver()
	if err := d.Apply(t.Context(), pair(0.5)); err != nil {
		t.Fatal(err)
	}
	moved := pair(0.5)
	moved[0].Address = "127.0.0.1:3"
	_ = n.interrupted(func(ctx context.Context) error { return d.Apply(ctx, moved) })
	if at := d.addresses(); len(at) != 3 {
		t.Errorf("while it may still serve: %v", at)
	}
	n.renew()
	eventually(t, "the new workers are seen", func() bool { return stateOf(t, d, "a").Address != "" })
	if at := d.addresses(); len(at) != 2 || at["a"] != "127.0.0.1:3" {
		t.Errorf("known are %v", at)
	}
}

// A release whose reload outlasts its time is tried again, although the file is already as it should be.
func TestARestoreThatOutlastsItsTime(t *testing.T) {
	n := newImpostor(t, asBefore)
	d := n.driver()
	if err := n.interrupted(func(ctx context.Context) error { return d.Apply(ctx, pair(0.8)) }); err == nil {
		t.Error("no error, although the workers stayed")
	}
	restore := func(ctx context.Context) error { _, err := d.Restore(ctx); return err }
	for range 2 {
		before := n.reloads()
		if err := n.interrupted(restore); err == nil || n.reloads() != before+1 {
			t.Errorf("%v, %d reloads", err, n.reloads()-before)
		}
		n.says(asBefore)
	}
	n.renew()
	eventually(t, "the new workers are seen", func() bool { return stateOf(t, d, "a").Address != "" })
	before := n.reloads()
	if err := restore(t.Context()); err != nil || len(d.entries) > 0 || n.reloads() != before {
		t.Errorf("%v, %d reloads, still known: %+v", err, n.reloads()-before, d.entries)
	}
}
