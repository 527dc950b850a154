package daemon_test

import (
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell/controller"
)

// TestLostMemory checks that a controller whose memory was damaged while it did not run changes nothing until an
// operator resumes.
func TestLostMemory(t *testing.T) {
	t.Parallel()
	files := func(t *testing.T, r *rig, parts ...string) []string {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(append([]string{r.dir, "data"}, parts...)...))
		if err != nil || len(found) == 0 {
			t.Fatalf("nothing to damage: %v", err)
		}
		return found
	}
	messages := func(t *testing.T, r *rig) []string {
		return files(t, r, "bus", "jetstream", "*", "streams", "KV_quell_state_shop", "msgs", "*")
	}
	each := func(do func(path string) error) func(*testing.T, *rig) {
		return func(t *testing.T, r *rig) {
			t.Helper()
			for _, path := range messages(t, r) {
				if err := do(path); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for name, damage := range map[string]func(*testing.T, *rig){
		"truncated": each(func(path string) error { return os.Truncate(path, 100) }),
		"random bytes": each(func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			noise := make([]byte, info.Size())
			_, _ = rand.Read(noise) // never fails
			return os.WriteFile(path, noise, 0o600)
		}),
		"an old memory, and a mark removed": func(t *testing.T, r *rig) {
			t.Helper()
			for _, path := range messages(t, r) {
				if info, err := os.Stat(path); err != nil || os.Truncate(path, info.Size()/2) != nil {
					t.Fatal("cannot halve", path, err)
				}
			}
			if err := os.Remove(filepath.Join(r.dir, "data", "installation.json")); err != nil {
				t.Fatal(err)
			}
		},
		"an old store": func(t *testing.T, r *rig) { // the copy was made before the operator's orders, like a backup
			t.Helper()
			old := filepath.Join(r.dir, "old")
			if err := errors.Join(os.RemoveAll(filepath.Join(r.dir, "data", "bus")),
				os.CopyFS(filepath.Join(r.dir, "data", "bus"), os.DirFS(old))); err != nil {
				t.Fatal(err)
			}
		},
		"the store deleted": func(t *testing.T, r *rig) {
			t.Helper()
			if err := os.RemoveAll(filepath.Join(r.dir, "data", "bus")); err != nil {
				t.Fatal(err)
			}
		},
		"everything deleted": func(t *testing.T, r *rig) {
			t.Helper()
			for _, path := range files(t, r, "*") {
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := emulatedService(t)
			if err := os.CopyFS(filepath.Join(r.dir, "old"), os.DirFS(filepath.Join(r.dir, "data", "bus"))); err != nil {
				t.Logf("copying a store in use: %v", err) // a file may appear and disappear meanwhile
			}
			weights := r.lopsided()
			if out, status := r.quell("pause", "--config", r.config); status != 0 {
				t.Fatal(out)
			}
			pids := r.pids()
			r.procs[0].kill(t)
			damage(t, r)

			r.start("controller")
			first := r.awaitStatus("the controller to see what it lacks",
				func(s controller.Status) bool { return s.Lost != "" && s.Leading && !s.At.IsZero() })
			load := flow(r)
			r.awaitStatus("some decisions", func(s controller.Status) bool { return s.At.After(first.At.Add(5 * sampling)) })
			if got, err := r.weights(); err != nil || !sameWeights(got, weights) {
				t.Errorf("the weights are %v, %v; want %v, untouched", got, err, weights)
			}
			for id, pid := range pids {
				if !running(pid) {
					t.Errorf("%s was ended", id)
				}
			}
			r.wantReady(503, "nothing is changed until `quell resume`: the controller's memory is ")
			r.wantMetric("quell_memory_lost", "1")
			r.wantMetric("quell_acting", "0")
			if out, status := r.quell("status", "--config", r.config); status != 0 ||
				!has(out, "changes nothing until quell resume", "memory lost: ") {
				t.Errorf("status %d: %s", status, out)
			}
			load.wantNoFailures()

			if out, status := r.quell("resume", "--config", r.config); status != 0 {
				t.Fatal(out)
			}
			// with a new identity after its lease at the balancer has expired
			r.awaitStatus("it to act", func(s controller.Status) bool { return s.Lost == "" && s.Refused == "" && !s.Paused && s.Leading })
			r.wantMetric("quell_acting", "1")
		})
	}
}

func running(pid int) bool {
	process, err := os.FindProcess(pid)
	return err == nil && process.Signal(syscall.Signal(0)) == nil
}

// TestTheDataFolderIsEmptied checks that a running controller writes everything it knows again, and that the next one continues
// from there.
func TestTheDataFolderIsEmptied(t *testing.T) {
	t.Parallel()
	r := emulatedService(t)
	weights := r.lopsided()
	if out, status := r.quell("pause", "--config", r.config); status != 0 {
		t.Fatal(out)
	}
	pids := r.pids()
	load := flow(r)
	data := filepath.Join(r.dir, "data")
	entries, err := os.ReadDir(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(data, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	r.await("the folder to be written again", func() (bool, any) {
		_, mark := os.Stat(filepath.Join(data, "installation.json"))
		_, ledger := os.Stat(filepath.Join(data, "instances", "instances.json"))
		return mark == nil && ledger == nil, errors.Join(mark, ledger)
	})
	r.awaitStatus("the store to be written", func(s controller.Status) bool { return s.Store == "" })
	r.procs[0].kill(t)
	r.start("controller")
	began := time.Now()
	s := r.awaitStatus("the next controller", func(s controller.Status) bool { return s.Leading && s.At.After(began.Add(3*sampling)) })
	if s.Lost != "" || !s.Paused || s.Overrides["i1"] != .7 {
		t.Errorf("it goes on with %+v", s)
	}
	if got, err := r.weights(); err != nil || !sameWeights(got, weights) {
		t.Errorf("the weights are %v, %v; want %v", got, err, weights)
	}
	for id, pid := range pids {
		if now := r.pids()[id]; now != pid {
			t.Errorf("%s is process %d, was %d", id, now, pid)
		}
	}
	load.wantNoFailures()
}

// TestAFirstStartActs checks that a controller without memory acts at once if no earlier controller left any state, even if the balancer
// already serves requests.
func TestAFirstStartActs(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	r.write(hosts(r))
	r.start("balancer")
	r.start("controller")
	if s := r.awaitServing("i1", "i2"); s.Lost != "" {
		t.Errorf("lost: %s", s.Lost)
	}
}

// wantReady checks /readyz.
func (r *rig) wantReady(status int, says string) {
	r.t.Helper()
	client := http.Client{Timeout: patience}
	resp, err := client.Get("http://" + r.metrics + "/readyz")
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status || !strings.HasPrefix(string(body), says) {
		r.t.Errorf("readyz: %s %q, %v; want %d %q", resp.Status, body, err, status, says)
	}
}

func (r *rig) wantMetric(name, value string) {
	r.t.Helper()
	if body, err := get("http://" + r.metrics + "/metrics"); err != nil || !has(string(body), "\n"+name+`{service="shop"} `+value+"\n") {
		r.t.Errorf("metrics, %v: want %s %s in\n%s", err, name, value, body)
	}
}
