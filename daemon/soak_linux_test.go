package daemon_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// TestSoak breaks a running service at random, under load from a source that records every request. QUELL_SOAK is how long it lasts (a
// minute by default; `make soak` takes 30), and QUELL_SOAK_SEED is the seed of the random sequence.
//
// The test checks four things. Only requests that a killed process was handling fail. The number of instances stays within its bounds. An
// operator's orders stay in force. After every fault the service recovers completely without help.
func TestSoak(t *testing.T) {
	t.Parallel()
	length, seed := soakSettings(t)
	t.Logf("QUELL_SOAK=%s QUELL_SOAK_SEED=%d", length, seed)
	s := newSoak(t, seed)
	load := flow(s.rig)
	for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); {
		s.breakOne()
		s.heals()
	}
	s.judge(load)
}

func soakSettings(t *testing.T) (length time.Duration, seed uint64) {
	t.Helper()
	length, err := time.ParseDuration(cmp.Or(os.Getenv("QUELL_SOAK"), "1m"))
	if err != nil {
		t.Fatalf("QUELL_SOAK: %v", err)
	}
	seed, err = strconv.ParseUint(cmp.Or(os.Getenv("QUELL_SOAK_SEED"), "1"), 10, 64)
	if err != nil {
		t.Fatalf("QUELL_SOAK_SEED: %v", err)
	}
	return length, seed
}

// soak is a service whose machines, bus connection and disk the test controls.
type soak struct {
	*rig
	random   *rand.Rand
	cloud    *cloud
	wire     *wire  // between the balancer and the bus
	remote   string // the balancer's configuration
	control  *proc
	balancer *proc
	faults   faults
}

// faults are the faults that the test has made, in order.
type faults []fault

// fault is one fault. The fault may have cut off a request if the request began before the fault's end and ended after the fault's
// beginning.
type fault struct {
	what       string
	excuses    bool // whether the fault may cut off requests
	begin, end time.Time
}

// make makes a fault and records when it began and ended.
func (f *faults) make(t *testing.T, what string, excuses bool, do func()) {
	t.Helper()
	made := fault{what: what, excuses: excuses, begin: time.Now()}
	*f = append(*f, made)
	do()
	made.end = time.Now()
	(*f)[len(*f)-1] = made
	t.Logf("%s: %s, %s", made.begin.Format("15:04:05.0"), what, made.end.Sub(made.begin).Round(time.Millisecond))
}

// last describes the last fault.
func (f faults) last() string {
	if len(f) == 0 {
		return "the start"
	}
	return f[len(f)-1].what
}

// excuse returns the name of a fault that may have cut the request off, or "" if there is none.
func (f faults) excuse(r failure) string {
	for _, x := range f {
		if x.excuses && r.began.Before(x.end) && r.ended.After(x.begin) {
			return x.what
		}
	}
	return ""
}

// judge ends the load and checks that each failed request may have been cut off by a fault.
func (f faults) judge(t *testing.T, load *traffic) {
	t.Helper()
	excused := 0
	for _, r := range load.failures() {
		if f.excuse(r) == "" {
			t.Errorf("a request failed for no reason of its own, %s to %s: %s", r.began.Format("15:04:05.000"), r.ended.Format("15:04:05.000"),
				r.why)
		} else {
			excused++
		}
	}
	t.Logf("%d faults; %d requests, %d failed that a killed process held", len(f), load.done, excused)
}

const (
	soakMin = 3
	soakMax = 4
)

func newSoak(t *testing.T, seed uint64) *soak {
	t.Helper()
	s := &soak{rig: newRig(t, ""), random: rand.New(rand.NewPCG(seed, 0))}
	data := filepath.Join(s.dir, "data")
	smallDisk(t, data)
	s.wire = newWire(t, s.bus)
	s.cloud = newCloud(s)
	parts := fmt.Sprintf(`policy: {name: static, fast: {name: outlier, sampling: 150ms, hold: 1s}}
group: {min: %d, max: %d, startup: 15s}
probe: {capacity: 40Mbps, timeout: 300ms}
scaler:
  kind: command
  start: [curl, -sf, --max-time, "5", --data-binary, "@-", %q]
  stop: [curl, -sf, --max-time, "5", --data-binary, "@-", %q]
  list: [curl, -sf, --max-time, "5", %q]
`, soakMin, soakMax, s.cloud.URL+"/start", s.cloud.URL+"/stop", s.cloud.URL+"/list")
	s.write(parts)
	s.control = s.start("controller")
	s.awaitStatus("the controller to lead", func(st controller.Status) bool { return st.Leading })
	var err error
	if s.remote, err = s.beyondTheWire("balancer", "balancer"); err != nil {
		t.Fatal(err)
	}
	s.balancer = s.startBalancer()
	s.awaitStatus("the first instances", func(st controller.Status) bool { return whole(st) })
	ids := s.cloud.alive()
	if out, status := s.quell("override", ids[0], "0.5", "--config", s.config); status != 0 {
		t.Fatalf("status %d: %s", status, out)
	}
	return s
}

// smallDisk mounts a small file system, which the test can fill without harm to the machine.
func smallDisk(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=128m"); err != nil {
		need.Skip(t, "needs to mount a file system: "+err.Error())
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// beyondTheWire writes the configuration of a process that has its own credential and reaches the bus only through the wire, a connection
// that the test can cut.
func (s *soak) beyondTheWire(role, id string) (path string, err error) {
	credential := filepath.Join(s.dir, id+".creds")
	made, err := exec.Command(quellProgram, "credentials", role, id, "--config", s.config, "--out", credential).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("quell credentials: %w: %s", err, made)
	}
	text, err := os.ReadFile(s.config)
	if err != nil {
		return "", err
	}
	other := strings.Replace(string(text), "bus: {listen: "+strconv.Quote(s.bus)+"}",
		fmt.Sprintf("bus: {url: %q, credentials: %q}", "nats://"+s.wire.address, credential), 1)
	path = filepath.Join(s.dir, id+".yaml")
	return path, os.WriteFile(path, []byte(other), 0o644)
}

func (s *soak) startBalancer() *proc {
	return s.launch("balancer", exec.Command(quellProgram, "balancer", "--config", s.remote))
}

// whole returns whether the controller leads and the full number of instances serves requests.
func whole(st controller.Status) bool {
	if !st.Leading || time.Since(st.At) > 10*sampling {
		return false
	}
	var sum float64
	serving := 0
	for _, in := range st.Instances {
		if in.State == quell.Ready && in.Weight != nil && !in.Stale {
			sum += *in.Weight
			serving++
		}
	}
	return serving >= soakMin && serving == len(st.Instances) && len(st.Pending) == 0 && math.Abs(sum-1) < 1e-6
}

// heals waits until the service has recovered, and checks the conditions that must hold at any time.
func (s *soak) heals() {
	s.t.Helper()
	last := s.faults.last()
	s.awaitStatus("the service to be whole after: "+last, func(st controller.Status) bool { return whole(st) })
	s.await("the balancer to serve the whole group after: "+last, func() (bool, any) {
		got, err := s.weights()
		return err == nil && len(got) >= soakMin && slices.Equal(sortedKeys(got), s.cloud.alive()), fmt.Sprint(got, err, s.cloud.alive())
	})
	if n := len(s.cloud.alive()); n > soakMax {
		s.t.Errorf("%d instances after: %s", n, last)
	}
}

func sortedKeys(m map[string]float64) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// breakOne makes one fault and ends it.
func (s *soak) breakOne() {
	s.t.Helper()
	kinds := []struct {
		what    string
		excuses bool
		do      func()
	}{
		{"kill -9 of the controller", false, func() { s.control.kill(s.t); s.wait(2 * time.Second); s.control = s.start("controller") }},
		{"SIGTERM of the controller", false, func() { s.endProcess(s.control); s.control = s.start("controller") }},
		{"SIGSTOP of the controller", false, func() { s.freeze(s.control.cmd.Process.Pid, 3*time.Second) }},
		{"SIGHUP of the controller", false, func() { hangUp(s.t, s.control) }},
		{"kill -9 of the balancer", true, func() { s.balancer.kill(s.t); s.balancer = s.startBalancer(); s.listens() }},
		{"SIGTERM of the balancer", true, func() { s.endProcess(s.balancer); s.balancer = s.startBalancer(); s.listens() }},
		{"SIGSTOP of the balancer", false, func() { s.freeze(s.balancer.cmd.Process.Pid, time.Second) }},
		{"a take-over of the balancer", false, s.takeOver},
		{"SIGHUP of the balancer", false, func() { hangUp(s.t, s.balancer) }},
		{"kill -9 of an instance", true, func() { s.cloud.kill(s.anInstance()) }},
		{"SIGTERM of an instance", true, func() { s.cloud.terminate(s.anInstance()) }},
		{"SIGSTOP of an instance", false, func() { s.freeze(s.cloud.pid(s.anInstance()), 2*time.Second) }},
		{"a list that comes back empty", false, func() { s.cloud.lie("[]"); s.wait(3 * time.Second); s.cloud.lie("") }},
		{"a list that comes back short", false, func() { s.cloud.lie("short"); s.wait(3 * time.Second); s.cloud.lie("") }},
		{"a list that is no JSON", false, func() { s.cloud.lie("oops"); s.wait(2 * time.Second); s.cloud.lie("") }},
		{"a full disk", false, func() { s.fillDisk(2 * time.Second) }},
		{"a replacement", false, func() { s.replace(s.anInstance()) }},
		{"kill -9 of the controller in a replacement", false, func() {
			s.replace(s.anInstance())
			s.wait(3 * time.Second)
			s.control.kill(s.t)
			s.control = s.start("controller")
		}},
		{"a cut wire to the bus", false, func() { s.wire.cut(true); s.wait(3 * time.Second); s.wire.cut(false) }},
	}
	k := kinds[s.random.IntN(len(kinds))]
	s.faults.make(s.t, k.what, k.excuses, k.do)
}

// wait waits for a random time up to most, for which a fault lasts.
func (s *soak) wait(most time.Duration) { time.Sleep(time.Duration(s.random.Int64N(int64(most)))) }

func (s *soak) anInstance() string {
	ids := s.cloud.alive()
	return ids[s.random.IntN(len(ids))]
}

// replace orders the replacement of an instance. It waits until the replacement has begun, because before that the service looks as if
// nothing was to be done.
func (s *soak) replace(id string) {
	s.t.Helper()
	if out, status := s.quell("replace", id, "--config", s.config); status != 0 {
		s.t.Errorf("quell replace %s: status %d: %s", id, status, out)
	}
	s.awaitStatus("the replacement of "+id, func(st controller.Status) bool { return len(st.Pending) > 0 })
}

func (s *soak) freeze(pid int, most time.Duration) {
	s.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		s.t.Fatal(err)
	}
	s.wait(most)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		s.t.Fatal(err)
	}
}

func (s *soak) endProcess(p *proc) {
	s.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	p.ends(s.t)
}

// takeOver puts a new balancer in the old one's place, and waits until the old one has ended.
func (s *soak) takeOver() {
	s.t.Helper()
	old := s.balancer
	s.balancer = s.launch("balancer", exec.Command(quellProgram, "balancer", "--take-over", "--config", s.remote))
	old.ends(s.t)
}

// listens waits until the balancer accepts connections again.
func (s *soak) listens() {
	s.t.Helper()
	s.await("the balancer to listen", func() (bool, any) { return listens(s.traffic) })
}

func (s *soak) fillDisk(most time.Duration) {
	s.t.Helper()
	ballast := filepath.Join(s.dir, "data", "ballast")
	if err := fill(ballast); err != nil {
		s.t.Fatal(err)
	}
	s.wait(most)
	if err := os.Remove(ballast); err != nil {
		s.t.Fatal(err)
	}
}

// judge ends the load and checks the requests, the operator's override and the journal.
func (s *soak) judge(load *traffic) {
	s.t.Helper()
	s.faults.judge(s.t, load)
	st, err := s.status()
	if err != nil {
		s.t.Fatal(err)
	}
	if len(st.Overrides) != 1 {
		s.t.Errorf("the operator's override is %v", st.Overrides)
	}
	var last bus.Entry
	for _, e := range s.journal(s.connect()) {
		if e.Seq <= last.Seq {
			s.t.Errorf("journal entry %d follows %d", e.Seq, last.Seq)
		}
		last = e
	}
}
