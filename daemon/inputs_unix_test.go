//go:build unix

package daemon_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// TestAListCarriesNoConfiguration has a list program that prints the text of a configuration in place of an address. The controller
// refuses the list, and the balancer's program, the one in examples/, gets only addresses.
func TestAListCarriesNoConfiguration(t *testing.T) {
	t.Parallel()
	need.Program(t, "jq")
	program, err := filepath.Abs("../examples/command/set-backends")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, "")
	list, upstream := filepath.Join(r.dir, "list.json"), filepath.Join(r.dir, "upstream.conf")
	text := fmt.Sprintf(`service: shop
slo: {metric: mean, threshold: 500ms}
sampling: %s
data: data
listen: %q
bus: {listen: %q}
policy: {name: static}
group: {min: 1, max: 1}
probe: {from: controller}
balancer: {kind: command, command: [%q]}
scaler: {kind: command, start: [echo, "[]"], stop: [cat], list: [cat, %q]}
`, sampling, r.metrics, r.bus, program, list)
	write := func(address string) {
		t.Helper()
		text := fmt.Sprintf(`[{"id":"a","address":%q,"state":"ready","started":"2026-01-01T00:00:00Z"}]`, address)
		if err := os.WriteFile(list+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(list+".new", list); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(r.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	write("127.0.0.1:9001;} server {listen 1; return 200 pwned")
	cmd := exec.Command(quellProgram, "controller", "--config", r.config)
	cmd.Env = append(os.Environ(), "UPSTREAM_FILE="+upstream, "RELOAD=true")
	r.launch("controller", cmd)
	r.await("the refusal", func() (bool, any) {
		written, _ := os.ReadFile(upstream)
		if strings.Contains(string(written), "pwned") {
			t.Fatalf("the balancer's configuration is\n%s", written)
		}
		s, err := r.status()
		return strings.Contains(fmt.Sprint(s.LastFailure), "address of a: the port must be a number"), fmt.Sprint(s.LastFailure, err)
	})
	write("127.0.0.1:9001")
	const want = "upstream shop {\n  least_conn;\n  server 127.0.0.1:9001 weight=1000;\n}\n"
	r.await("the good list's address", func() (bool, any) {
		written, err := os.ReadFile(upstream)
		return string(written) == want, fmt.Sprintf("%s, %v", written, err)
	})
}

// TestAFIFOInTheConfigurationsPlace puts a FIFO, which nobody writes, in the place of a file that a controller reads at SIGHUP.
// The controller refuses it, and later it reads the good file.
func TestAFIFOInTheConfigurationsPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	part := fmt.Sprintf("policy: {name: static}\nprobe: {from: controller}\nscaler: {instances: [{id: i1, address: %q}]}\n",
		need.FreeAddress(t))
	r.write(part)
	p := r.start("controller")
	r.awaitStatus("the lease", func(s controller.Status) bool { return s.Leading })
	hangUpWithFIFO(t, r, p, r.config)
	r.write(part + "models: models.json\n")
	hangUpWithFIFO(t, r, p, filepath.Join(r.dir, "models.json"))
	r.write(part)
	r.replace("threshold: 500ms", "threshold: 400ms")
	hangUp(t, p)
	r.awaitStatus("the good configuration", func(s controller.Status) bool { return s.SLO == "mean <= 400ms" })
}

// hangUpWithFIFO sends SIGHUP while a file is a FIFO, and waits until the controller says that it keeps the running configuration.
func hangUpWithFIFO(t *testing.T, r *rig, p *proc, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	refusals := func() int { return strings.Count(p.said(), "keeping the running one") }
	before := refusals()
	hangUp(t, p)
	r.await("the refusal of "+path, func() (bool, any) { return refusals() > before, p.said() })
}
