package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/lifeline"
	"github.com/quellhq/quell/internal/webcheck"
)

func TestLifeOfAnInstance(t *testing.T) {
	d := open(t, options(t.TempDir(), "serve"))
	ids := start(t, d, 2)
	if !slices.Equal(ids, []string{"i1", "i2"}) {
		t.Errorf("ids = %v", ids)
	}
	eventually(t, "both ready", func() bool { return countState(d, quell.Ready) == 2 })
	m := members(t, d)
	if m[0].Address == m[1].Address || m[0].Probe != "" {
		t.Errorf("members = %+v", m)
	}
	_, port, _ := strings.Cut(m[1].Address, ":")
	if got, want := get(t, m[1].Address, "/"), "["+port+" i2 2 h2]"; got != want {
		t.Errorf("the instance got the arguments %s, not %s", got, want)
	}
	pid := pids(d)["i1"]
	if err := d.Stop(t.Context(), []string{"i1"}); err != nil {
		t.Fatal(err)
	}
	if !isDead(pid) {
		t.Error("Stop returned before the process was gone")
	}
	if m := members(t, d); len(m) != 1 || m[0].ID != "i2" {
		t.Errorf("members after Stop = %+v", m)
	}
}

func TestProbePortAndLifelineOfTheParent(t *testing.T) {
	t.Setenv(lifeline.Variable, "3") // this is the test process's own lifeline: the instance must not read its own fd 3 as one and exit
	o := options(t.TempDir(), "serve")
	o.Command = append(o.Command, "{probe_port}")
	o.Type = "small"
	d := open(t, o)
	startReady(t, d, 1)
	m := members(t, d)[0]
	_, probe, _ := strings.Cut(m.Probe, ":")
	if probe == "" || m.Probe == m.Address || !strings.HasSuffix(get(t, m.Address, "/"), " "+probe+"]") {
		t.Errorf("member = %+v", m)
	}
	if m.Type != "small" {
		t.Errorf("type = %q", m.Type)
	}
}

// TestAddressesElsewhere checks that an instance is checked and listed at the addresses that the templates give, not at its assigned ports.
// The next driver still knows these addresses, even if its own templates differ.
func TestAddressesElsewhere(t *testing.T) {
	port := answering(t, 200)
	o := options(t.TempDir(), "serve")
	o.Command = append(o.Command, "{probe_port}")
	o.Address, o.ProbeAddress = fmt.Sprintf("127.0.0.{slot}:%d", port), "10.77.{slot}.2:9{slot}"
	d := open(t, o)
	startReady(t, d, 1)
	want := quell.Member{ID: "i1", Address: fmt.Sprintf("127.0.0.1:%d", port), Probe: "10.77.1.2:91"}
	if m := members(t, d)[0]; m.Address != want.Address || m.Probe != want.Probe {
		t.Errorf("member = %+v", m)
	}
	if err := d.Close(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	o.Address, o.ProbeAddress = "", ""
	if m := members(t, open(t, o))[0]; m.Address != want.Address || m.Probe != want.Probe {
		t.Errorf("adopted, member = %+v", m)
	}
}

func TestStopKillsWhatIgnoresTerm(t *testing.T) {
	o := options(t.TempDir(), "stubborn")
	o.Drain = 50 * time.Millisecond
	d := open(t, o)
	ids := startReady(t, d, 1)
	pid := pids(d)[ids[0]]
	if err := d.Stop(t.Context(), ids); err != nil {
		t.Fatal(err)
	}
	if !isDead(pid) || len(members(t, d)) != 0 {
		t.Error("the instance is still there")
	}
}

func TestStopEndsWithItsContextAndCloseKills(t *testing.T) {
	o := options(t.TempDir(), "stubborn")
	o.Drain = time.Hour
	d := open(t, o)
	ids := startReady(t, d, 1)
	pid := pids(d)[ids[0]]
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Stop(over, ids); !errors.Is(err, context.Canceled) {
		t.Fatalf("Stop = %v", err)
	}
	if s := members(t, d)[0].State; s != quell.Draining {
		t.Errorf("state = %s", s)
	}
	if err := d.Close(over, false); err != nil {
		t.Fatal(err)
	}
	if !isDead(pid) {
		t.Error("Close left the instance running")
	}
}

func TestStopIsIdempotentAndKnowsItsIDs(t *testing.T) {
	d := open(t, options(t.TempDir(), "serve"))
	ids := startReady(t, d, 1)
	err := d.Stop(t.Context(), []string{"i1", "i7"})
	if err == nil || !strings.Contains(err.Error(), `"i7"`) {
		t.Errorf("stopping an instance that never was = %v", err)
	}
	if countState(d, quell.Ready) != 1 {
		t.Error("a mistaken Stop stopped something")
	}
	for range 2 {
		if err := d.Stop(t.Context(), ids); err != nil {
			t.Errorf("Stop = %v", err)
		}
	}
}

func TestCrashIsNoticedAndItsChildrenKilled(t *testing.T) {
	d := open(t, options(t.TempDir(), "parent"))
	ids := startReady(t, d, 1)
	m := members(t, d)[0]
	child, err := strconv.Atoi(get(t, m.Address, "/child"))
	if err != nil || isDead(child) {
		t.Fatalf("child %d, %v", child, err)
	}
	crash(m.Address)
	eventually(t, "failed", func() bool { return countState(d, quell.Failed) == 1 })
	eventually(t, "the child killed", func() bool { return isDead(child) })
	if now := members(t, d)[0]; now.Exited.Before(m.Started) || now.Exited.After(time.Now()) {
		t.Errorf("it started at %v and exited at %v", m.Started, now.Exited)
	}
	if err := d.Stop(t.Context(), ids); err != nil {
		t.Fatal(err)
	}
	if len(members(t, d)) != 0 {
		t.Error("Stop did not forget the failed instance")
	}
}

func TestNotReadyInTime(t *testing.T) {
	var log lockedBuffer
	o := options(t.TempDir(), "mute")
	o.Ready.Timeout = 150 * time.Millisecond
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	d := open(t, o)
	ids := start(t, d, 1)
	if s := members(t, d)[0].State; s != quell.Starting {
		t.Errorf("state at first = %s", s)
	}
	eventually(t, "failed", func() bool { return countState(d, quell.Failed) == 1 })
	if !isDead(pids(d)[ids[0]]) {
		t.Error("the process still runs")
	}
	if !strings.Contains(log.String(), "connection refused") {
		t.Errorf("the log does not say why:\n%s", log.String())
	}
}

// An instance that answers to its own name only is ready if it is asked with that name. Otherwise the log says what it was asked with.
func TestReadyByName(t *testing.T) {
	var log lockedBuffer
	o := options(t.TempDir(), "named")
	o.Ready.Request = webcheck.Request{Host: "shop.example", Headers: []string{"X-Forwarded-Proto: https"}}
	startReady(t, open(t, o), 1)

	o = options(t.TempDir(), "named")
	o.Ready.Timeout = 300 * time.Millisecond
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	d := open(t, o)
	start(t, d, 1)
	eventually(t, "failed", func() bool { return countState(d, quell.Failed) == 1 })
	for _, want := range []string{"it answers 400 Bad Request; it was asked with `Host: 127.0.0.1:", "set scaler.ready.host"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in\n%s", want, log.String())
		}
	}
}

func TestBrokenProgramFailsAndLeavesItsLog(t *testing.T) {
	dir := t.TempDir()
	d := open(t, options(dir, "broken"))
	start(t, d, 1)
	eventually(t, "failed", func() bool { return countState(d, quell.Failed) == 1 })
	if b, err := os.ReadFile(filepath.Join(dir, "i1.log")); string(b) != "cannot go on\n" {
		t.Errorf("log = %q, %v", b, err)
	}
}

func TestSpawnFailureLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("no program"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		filepath.Join(dir, "missing"): "no such file",
		plain:                         "permission denied",
	} {
		state := t.TempDir()
		o := options(state, "serve")
		o.Command[0] = name
		d := open(t, o)
		ids, err := d.Start(t.Context(), 2)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("Start = %v, wanted %q", err, want)
		}
		if len(ids) != 0 || len(members(t, d)) != 0 {
			t.Errorf("ids %v, members %v", ids, members(t, d))
		}
		if _, err := os.Stat(filepath.Join(state, "i1.log")); err == nil {
			t.Error("a log of nothing is left")
		}
	}
}

func TestFullStartsWhatFits(t *testing.T) {
	o := options(t.TempDir(), "serve")
	o.Slots = 2
	d := open(t, o)
	ids, err := d.Start(t.Context(), 3)
	if !errors.Is(err, ErrFull) || len(ids) != 2 {
		t.Errorf("Start = %v, %v", ids, err)
	}
}

func TestLifelineEndsInstances(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	o := options(t.TempDir(), "serve")
	o.Lifeline = r
	d := open(t, o)
	startReady(t, d, 2)
	w.Close()
	eventually(t, "both gone", func() bool { return countState(d, quell.Failed) == 2 })
}

func TestStateFolderInTrouble(t *testing.T) {
	t.Run("a file is in the way", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := New(options(filepath.Join(file, "state"), "serve"))
		if err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("New = %v", err)
		}
	})
	t.Run("it goes away", func(t *testing.T) { // instances are started and stopped from memory, and the folder is made again
		dir := filepath.Join(t.TempDir(), "state")
		d := open(t, options(dir, "serve"))
		startReady(t, d, 1)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the list of instances again", func() bool {
			data, err := os.ReadFile(filepath.Join(dir, "instances.json"))
			return err == nil && strings.Contains(string(data), `"id": "i1"`)
		})
	})
	t.Run("it cannot be written", func(t *testing.T) {
		dir := t.TempDir()
		d := open(t, options(dir, "serve"))
		startReady(t, d, 1)
		moved := dir + ".moved"
		if err := os.Rename(dir, moved); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir, nil, 0o644); err != nil { // a file is in the folder's place
			t.Fatal(err)
		}
		if ids, err := d.Start(t.Context(), 1); err != nil || !slices.Equal(ids, []string{"i2"}) {
			t.Errorf("Start = %v, %v", ids, err)
		}
		eventually(t, "both to be ready", func() bool { return countState(d, quell.Ready) == 2 })
		if err := d.Stop(t.Context(), []string{"i1"}); err != nil {
			t.Error(err)
		}
		if err := errors.Join(os.Remove(dir), os.Rename(moved, dir)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the list of instances as they are", func() bool {
			data, err := os.ReadFile(filepath.Join(dir, "instances.json"))
			return err == nil && strings.Contains(string(data), `"id": "i2"`) && !strings.Contains(string(data), `"id": "i1"`)
		})
	})
	t.Run("another driver has it", func(t *testing.T) {
		dir := t.TempDir()
		d := open(t, options(dir, "serve"))
		_, err := New(options(dir, "serve"))
		var mistake *quell.UserError
		if !errors.As(err, &mistake) || !strings.Contains(err.Error(), "in use") {
			t.Errorf("New = %v", err)
		}
		if err := d.Close(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		open(t, options(dir, "serve"))
	})
}

func TestClosedDriverRefuses(t *testing.T) {
	d := open(t, options(t.TempDir(), "serve"))
	for range 2 {
		if err := d.Close(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Start(t.Context(), 1); !errors.Is(err, ErrClosed) {
		t.Errorf("Start = %v", err)
	}
	if err := d.Stop(t.Context(), []string{"i1"}); !errors.Is(err, ErrClosed) {
		t.Errorf("Stop = %v", err)
	}
}

func TestConcurrentStartAndStop(t *testing.T) {
	dir := t.TempDir()
	d := open(t, options(dir, "serve"))
	var mu sync.Mutex
	seen := map[string]int{} // pids by id
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for range 3 {
				ids, err := d.Start(t.Context(), 1)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if _, twice := seen[ids[0]]; twice {
					t.Errorf("%s was given out twice", ids[0])
				}
				seen[ids[0]] = pids(d)[ids[0]]
				mu.Unlock()
				checkSlots(t, d)
				if err := d.Stop(t.Context(), ids); err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	if len(members(t, d)) != 0 || len(seen) != 12 {
		t.Errorf("%d instances seen, left: %v", len(seen), members(t, d))
	}
	for id, pid := range seen {
		if !isDead(pid) {
			t.Errorf("%s (process %d) still runs", id, pid)
		}
	}
}

func checkSlots(t *testing.T, d *Driver) {
	d.mu.Lock()
	defer d.mu.Unlock()
	taken := map[int]string{}
	for _, r := range d.ledger.Instances {
		if other := taken[r.Slot]; other != "" && r.Exited == nil {
			t.Errorf("%s and %s are both in slot %d", other, r.ID, r.Slot)
		}
		if r.Exited == nil {
			taken[r.Slot] = r.ID
		}
	}
}

func TestReadiness(t *testing.T) {
	d := open(t, options(t.TempDir(), "serve"))
	for status, ready := range map[int]bool{200: true, 204: true, 302: false, 404: false, 503: false} {
		port := answering(t, status)
		if err := d.answers(t.Context(), address(port)); (err == nil) != ready {
			t.Errorf("status %d: %v", status, err)
		}
	}
}

// lockedBuffer is a buffer that several goroutines may write.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// The controller declares this interface; packages of drivers do not import it.
var _ interface {
	Members(context.Context) ([]quell.Member, error)
	Start(context.Context, int) ([]string, error)
	Stop(context.Context, []string) error
} = (*Driver)(nil)

func TestOptionMistakesComeTogether(t *testing.T) {
	_, err := New(Options{Command: []string{"serve"}, Prefix: "i1", Ready: Ready{Path: "up"}, Ports: PortRange{1, 0}})
	var mistake *quell.UserError
	if !errors.As(err, &mistake) {
		t.Fatalf("New = %v", err)
	}
	for _, part := range []string{"{port}", "slots", "dir", "prefix", "ready.path", "ports"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not mentioned in: %v", part, err)
		}
	}
}

func TestPortRangeMustHoldEverySlot(t *testing.T) {
	o := Options{Command: []string{"x", "{port}", "{probe_port}"}, Slots: 4, Dir: "d", Ports: PortRange{8000, 8006}}.withDefaults()
	if err := o.check(); err == nil || !strings.Contains(err.Error(), "need 8") {
		t.Errorf("7 ports for 4 slots: %v", err)
	}
	o.Ports.Last++
	if err := o.check(); err != nil {
		t.Errorf("8 ports for 4 slots: %v", err)
	}
}

func ExampleOptions() {
	r := &record{ID: "i7", Slot: 2, Port: 8001, ProbePort: 8002}
	fmt.Println(expand([]string{"--on={host}", "{id}:{port}:{probe_port}", "slot {slot}", "{other}"}, r))
	// Output: [--on=h2 i7:8001:8002 slot 2 {other}]
}
