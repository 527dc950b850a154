package daemon_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// programs is a group of machines that a scaler's start, stop and list programs control. The start program prints no ids; the list program
// shows new machines later.
type programs struct {
	*rig
	folder  string
	members []string // as listed
	ids     []string
}

func newPrograms(t *testing.T, group string) *programs {
	t.Helper()
	c := &programs{rig: newRig(t, ""), folder: t.TempDir()}
	c.write(fmt.Sprintf(`policy: {name: static}
group: %s
probe: {capacity: 40Mbps, timeout: 300ms}
scaler: {kind: command, start: [sh, -c, 'cat >> "$0"; echo >> "$0"', %q], stop: [sh, -c, 'cat >> "$0"; echo >> "$0"', %q], list: [cat, %q]}
`, group, filepath.Join(c.folder, "ordered"), filepath.Join(c.folder, "ended"), filepath.Join(c.folder, "list")))
	c.list()
	return c
}

// list replaces the list in one step.
func (c *programs) list() {
	c.t.Helper()
	path := filepath.Join(c.folder, "list")
	if err := os.WriteFile(path+".new", []byte("["+strings.Join(c.members, ",")+"]"), 0o644); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		c.t.Fatal(err)
	}
}

// appear starts a machine that was ordered, and lists it.
func (c *programs) appear(id string) {
	c.t.Helper()
	address, probe := need.FreeAddress(c.t), need.FreeAddress(c.t)
	c.launch("host", exec.Command(quellProgram, "host", "--config", c.config, "--id", id, "--instance", id,
		"--listen", address, "--probe-listen", probe, "--file-size", "20000"))
	c.members = append(c.members, fmt.Sprintf(`{"id":%q,"address":%q,"probe":%q,"state":"ready"}`, id, address, probe))
	c.ids = append(c.ids, id)
	c.list()
}

// vanish removes a machine from the list.
func (c *programs) vanish(id string) {
	c.t.Helper()
	i := slices.Index(c.ids, id)
	c.ids, c.members = slices.Delete(c.ids, i, i+1), slices.Delete(c.members, i, i+1)
	c.list()
}

// said returns the input of each run of a program, one line per run.
func (c *programs) said(program string) []string {
	data, _ := os.ReadFile(filepath.Join(c.folder, program)) // it may not have run yet
	return strings.Fields(string(data))
}

func (c *programs) wantSaid(program string, want ...string) {
	c.t.Helper()
	if got := c.said(program); !slices.Equal(got, want) {
		c.t.Errorf("%s: %q, want %q", program, got, want)
	}
}

// TestInstancesThatAreNamedLater has a start program that prints nothing, like that of a cloud's scaling group. The list shows the new
// instances later. The controller waits for them, even if it is killed meanwhile, and orders no instance twice, not even for a replacement.
func TestInstancesThatAreNamedLater(t *testing.T) {
	t.Parallel()
	c := newPrograms(t, "{min: 2, max: 2, startup: 1m}")
	killed := c.start("controller")
	c.start("balancer")
	c.awaitStatus("two to be coming", func(s controller.Status) bool { return s.Coming == 2 })
	c.decidesOn(6)
	killed.kill(t)
	killed = c.start("controller")
	c.awaitStatus("the next controller", func(s controller.Status) bool { return s.Leading && s.Coming == 2 })
	c.decidesOn(6)
	c.wantSaid("ordered", `{"count":2}`)
	c.appear("a")
	c.appear("b")
	c.awaitServing("a", "b")
	if s, err := c.status(); err != nil || s.Coming != 0 || s.InstanceSeconds <= 0 {
		t.Errorf("%d coming, %v instance-seconds, %v", s.Coming, s.InstanceSeconds, err)
	}
	load := flow(c.rig)
	if out, status := c.quell("replace", "a", "--config", c.config); status != 0 {
		t.Fatal(out)
	}
	c.await("a fresh instance to be ordered", func() (bool, any) { n := c.said("ordered"); return len(n) == 2, n })
	killed.kill(t)
	c.start("controller")
	c.awaitStatus("the next controller", func(s controller.Status) bool { return s.Leading && len(s.Pending) > 0 })
	c.appear("c")
	c.await("the old one to be ended", func() (bool, any) { ids := c.said("ended"); return len(ids) == 1, ids })
	c.vanish("a")
	c.awaitServing("b", "c")
	load.more(20)
	c.wantSaid("ordered", `{"count":2}`, `{"count":1}`)
	c.wantSaid("ended", `{"ids":["a"]}`)
	load.wantNoFailuresBut(c.rig)
}
