package daemon_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// TestALostLedger removes instances.json before the controller starts again. The controller finds the instances by the marks in their
// environment.
func TestALostLedger(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("other processes' environments can be read on Linux only")
	}
	r := emulatedService(t)
	load := flow(r)
	pids := r.pids()
	r.procs[0].kill(t)
	if err := os.Remove(filepath.Join(r.dir, "data", "instances", "instances.json")); err != nil {
		t.Fatal(err)
	}
	r.start("controller")
	r.awaitStatus("the next controller", func(s controller.Status) bool { return s.Leading && len(s.Instances) == 2 })
	r.decidesOn(6)
	if now := r.pids(); !maps.Equal(now, pids) {
		t.Errorf("processes %v, want %v", now, pids)
	}
	load.wantNoFailuresBut(r)
}

// TestAnEmptyList has a list program that prints no instances for a while, without an error. Traffic continues.
func TestAnEmptyList(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	list := filepath.Join(r.dir, "list.json")
	r.write(fmt.Sprintf(`policy: {name: static}
group: {min: 2, max: 4, startup: 15s}
probe: {capacity: 40Mbps}
scaler: {kind: command, start: [echo, "[]"], stop: [cat], list: [cat, %q]}
`, list))
	var members []string
	for _, id := range []string{"i1", "i2"} {
		address, probe := need.FreeAddress(t), need.FreeAddress(t)
		r.launch("host", exec.Command(quellProgram, "host", "--config", r.config, "--id", id, "--instance", id,
			"--listen", address, "--probe-listen", probe, "--file-size", "20000"))
		members = append(members, fmt.Sprintf(`{"id":%q,"address":%q,"state":"ready","started":"2026-01-01T00:00:00Z"}`, id, address))
	}
	write := func(list string, members ...string) {
		t.Helper()
		if err := os.WriteFile(list+".new", []byte("["+strings.Join(members, ",")+"]"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(list+".new", list); err != nil {
			t.Fatal(err)
		}
	}
	write(list, members...)
	r.start("controller")
	r.start("balancer")
	serving := func(s controller.Status) bool {
		n := 0
		for _, in := range s.Instances {
			if in.Weight != nil && *in.Weight > 0 {
				n++
			}
		}
		return n == 2
	}
	r.awaitStatus("both to serve", serving)
	load := flow(r)
	for name, left := range map[string][]string{"empty": nil, "shrunken": members[:1]} {
		write(list, left...)
		r.awaitStatus("the "+name+" list to be noticed",
			func(s controller.Status) bool { return s.LastFailure["list"] != "" && s.Instances[1].Missing != nil })
		r.decidesOn(10)
		if s, err := r.status(); err != nil || !serving(s) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		write(list, members...)
		r.awaitStatus("the whole list", func(s controller.Status) bool {
			return serving(s) && s.Instances[0].Missing == nil && s.Instances[1].Missing == nil
		})
	}
	load.wantNoFailuresBut(r)
}
