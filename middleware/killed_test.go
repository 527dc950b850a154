package middleware

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long tests wait for other processes.
const patience = time.Minute

// TestAKilledAgent ends an agent without letting it restore anything, at every moment of a change.
func TestAKilledAgent(t *testing.T) {
	for name, die := range map[string]func(r *toy, d *Driver){
		"after a change":     func(r *toy, d *Driver) { r.set(d, "workers", 20) },
		"after several":      func(r *toy, d *Driver) { r.set(d, "workers", 20); r.set(d, "other", 1); r.set(d, "workers", 30) },
		"with the candidate": func(r *toy, d *Driver) { r.half(d, func(f *file) {}) },
		"with the record":    func(r *toy, d *Driver) { r.half(d, func(f *file) { r.place(f); r.write(original) }) },
		"before the reload":  func(r *toy, d *Driver) { r.half(d, r.place) },
		"in a second change": func(r *toy, d *Driver) { r.set(d, "workers", 20); r.half(d, r.place) },
		"between two changes": func(r *toy, d *Driver) {
			r.set(d, "workers", 20)
			r.half(d, func(f *file) { r.place(f); r.write(with(20)) })
		},
	} {
		r := newToy(t)
		d := r.open()
		die(r, d)
		if err := d.release(); err != nil { // as the kernel does
			t.Fatal(err)
		}
		d = r.open()
		r.inForce(d, map[string]float64{"workers": 10, "other": 5})
		r.has(original, false)
		if name != "with the candidate" && (r.force() != original || !strings.Contains(r.log.String(), "the agent was killed")) {
			t.Errorf("%s: in force %q, log %s", name, r.force(), &r.log)
		}
		r.close(d)
	}
}

// half begins a change to 50 workers.
func (r *toy) half(d *Driver, more func(*file)) {
	r.t.Helper()
	f := d.files[r.config]
	if _, err := f.draft(with(50)); err != nil {
		r.t.Fatal(err)
	}
	more(f)
}

func (r *toy) place(f *file) {
	r.t.Helper()
	if err := f.place(f.beside("new"), r.read(f.path), with(50), map[string]float64{"workers": 50}, nil); err != nil {
		r.t.Fatal(err)
	}
}

// startAgent starts an agent of the toy in a process of its own: one of the tests whose name begins with TestHelper. kill ends it
// at once.
func (r *toy) startAgent(helper string) (out io.Reader, kill func()) {
	r.t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+helper+"$")
	cmd.Env = append(os.Environ(), "QUELL_TEST_TOY="+r.dir, "TMPDIR="+r.t.TempDir()) // what a killed process leaves goes with the test
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		if err := cmd.Process.Kill(); err != nil {
			r.t.Error(err)
		}
		_ = cmd.Wait() // it was killed
	})
	r.t.Cleanup(kill)
	return out, kill
}

func TestAnAgentThatIsReallyKilled(t *testing.T) {
	r := newToy(t)
	out, kill := r.startAgent("TestHelperSets")
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Errorf("the agent ended before it was killed: %v", err)
	}
	if _, err := Open(t.Context(), r.server, nil); err == nil || !strings.Contains(err.Error(), "another agent manages "+r.config) {
		t.Errorf("a second agent: %v", err)
	}
	r.has(with(40), true)
	kill()
	d := r.open()
	r.has(original, false)
	r.close(d)
}

// TestHelperSets is the agent that TestAnAgentThatIsReallyKilled kills.
func TestHelperSets(t *testing.T) {
	dir := os.Getenv("QUELL_TEST_TOY")
	if dir == "" {
		return
	}
	r := newToy(t)
	r.server.Settings.File = filepath.Join(dir, "conf", "toy.conf")
	r.set(r.open(), "workers", 40)
	fmt.Println("ready")
	time.Sleep(time.Minute) // until it is killed
}

// TestAnAgentThatIsKilledDuringAReload: the killed agent's reload command has read the changed file, and ends only after the next agent has
// started. The next agent waits for that, so the original is in force at the end.
func TestAnAgentThatIsKilledDuringAReload(t *testing.T) {
	r := newToy(t)
	_, kill := r.startAgent("TestHelperReloads")
	reading := filepath.Join(r.dir, "reading")
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(reading); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the agent does not reload")
		}
	}
	kill()
	r.hasBeside(with(40), ".toy.conf.quell-original", ".toy.conf.quell-reload")
	opened := make(chan *Driver)
	go func() {
		d, err := Open(t.Context(), r.server, slog.New(slog.NewTextHandler(&r.log, nil)))
		if err != nil {
			t.Error(err)
		}
		opened <- d
	}()
	if err := os.WriteFile(filepath.Join(r.dir, "go"), nil, 0o600); err != nil { // the killed agent's command goes on
		t.Fatal(err)
	}
	d := <-opened
	if d == nil {
		return
	}
	if r.has(original, false); r.force() != original || r.reloads() != 2 {
		t.Errorf("after %d reloads in force: %q", r.reloads(), r.force())
	}
	r.close(d)
}

// TestHelperReloads is the agent that TestAnAgentThatIsKilledDuringAReload kills.
func TestHelperReloads(t *testing.T) {
	dir := os.Getenv("QUELL_TEST_TOY")
	if dir == "" {
		return
	}
	r := newToy(t)
	r.server.Settings.File = filepath.Join(dir, "conf", "toy.conf")
	r.server.Settings.Reload = []string{"sh", "-c", `cat "$0" > "$1/read"; touch "$1/reading"; while [ ! -e "$1/go" ]; do sleep 0.01; done; ` +
		`mv "$1/read" "$1/force"; echo x >> "$1/reloads"`, r.server.Settings.File, dir}
	_ = r.open().Set(t.Context(), "workers", 40) // until it is killed
}
