package daemon_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell/controller"
)

// TestInstancesThatAreNamedLater: the program that starts instances prints nothing, as a cloud's group does. The list shows them later.
// The controller waits for them, also when it is killed meanwhile, and orders nothing twice.
func TestInstancesThatAreNamedLater(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	list, ordered := filepath.Join(r.dir, "list.json"), filepath.Join(r.dir, "ordered")
	r.write(fmt.Sprintf(`policy: {name: static}
group: {min: 2, max: 4, startup: 1m}
probe: {capacity: 40Mbps, timeout: 300ms}
scaler: {kind: command, start: [sh, -c, 'cat >> "$0"; echo >> "$0"', %q], stop: [cat], list: [cat, %q]}
`, ordered, list))
	write := func(members ...string) {
		t.Helper()
		if err := os.WriteFile(list+".new", []byte("["+strings.Join(members, ",")+"]"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(list+".new", list); err != nil {
			t.Fatal(err)
		}
	}
	wantOneOrder := func() {
		t.Helper()
		if data, err := os.ReadFile(ordered); err != nil || strings.TrimSpace(string(data)) != `{"count":2}` {
			t.Errorf("ordered %q, %v", data, err)
		}
	}
	write()
	killed := r.start("controller")
	r.start("balancer")
	r.awaitStatus("two to be coming", func(s controller.Status) bool { return s.Coming == 2 })
	r.decidesOn(6)
	killed.kill(t)
	r.start("controller")
	r.awaitStatus("the next controller", func(s controller.Status) bool { return s.Leading && s.Coming == 2 })
	r.decidesOn(6)
	wantOneOrder()
	var members []string
	for _, id := range []string{"a", "b"} {
		address, probe := freeAddress(t), freeAddress(t)
		r.launch("host", exec.Command(quellProgram, "host", "--config", r.config, "--id", id, "--instance", id,
			"--listen", address, "--probe-listen", probe, "--file-size", "20000"))
		members = append(members, fmt.Sprintf(`{"id":%q,"address":%q,"probe":%q,"state":"ready"}`, id, address, probe))
		write(members...)
	}
	r.awaitServing("a", "b")
	wantOneOrder()
	if s, err := r.status(); err != nil || s.Coming != 0 || s.InstanceSeconds <= 0 {
		t.Errorf("%d coming, %v instance-seconds, %v", s.Coming, s.InstanceSeconds, err)
	}
}
