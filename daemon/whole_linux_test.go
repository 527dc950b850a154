package daemon_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent/host"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
)

// TestKilledAtRandom runs all features at once, as processes and under load: a controller with PRIMA and a fast policy; a balancer;
// instances whose agents run a policy of their own and apply settings; and replacements of instances. Each process is killed at
// random moments. QUELL_KILL_SEEDS is how many sequences there are (two by default; `make soak` takes 30), QUELL_KILL_SEED the first one.
//
// The test checks that only requests that a killed process was handling fail, and that the service is as before afterwards.
func TestKilledAtRandom(t *testing.T) {
	t.Parallel()
	first, count := number(t, "QUELL_KILL_SEED", 1), number(t, "QUELL_KILL_SEEDS", 2)
	for seed := first; seed < first+count; seed++ {
		t.Run(strconv.Itoa(seed), func(t *testing.T) { killAtRandom(t, uint64(seed)) })
	}
}

func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv(variable), strconv.Itoa(otherwise)))
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

func killAtRandom(t *testing.T, seed uint64) {
	w := newWorld(t, seed)
	w.heals()
	load := flow(w.rig)
	kinds := w.kinds()
	w.random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	for _, k := range kinds {
		if k.wants || w.random.IntN(2) == 0 {
			w.heals()
		} else {
			w.wait(500 * time.Millisecond)
		}
		w.faults.make(t, k.what, k.excuses, k.do)
	}
	w.wants(asBefore)
	w.heals()
	w.faults.judge(t, load)
	w.judgeFiles()
	w.judgeJournal()
	w.end()
	w.await("no process to be left", func() (bool, any) { left := w.processes(); return len(left) == 0, left })
}

// world is a service with three instances that uses all features of Quell.
type world struct {
	*rig
	random   *rand.Rand
	control  *proc
	balancer *proc
	program  string  // the program of this test, which also plays the roles
	wish     float64 // workers that plans ask for
	faults   faults
}

const worldSize = 3

// newWorld starts the service. guard.stale_after is long, because on a busy machine it may take some seconds until a new instance
// is probed.
func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{rig: newRig(t, ""), random: rand.New(rand.NewPCG(seed, 1)), program: program}
	w.write(fmt.Sprintf(`policy: {name: prima, calibrate: 0%%, fast: {name: outlier, sampling: 150ms, hold: 1s}}
models: models.json
group: {min: %d, max: %d, startup: 15s}
guard: {stale_after: 50}
probe: {capacity: 40Mbps, timeout: 300ms}
scaler:
  kind: process
  lifeline: true
  drain: 5s
  command: [env, %s=%s, %q, %q, "{id}", "127.0.0.1:{port}", "127.0.0.1:{probe_port}"]
`, worldSize, worldSize, roleVariable, machineRole, program, w.dir))
	w.furnish()
	w.wants(asBefore)
	w.startControl()
	w.balancer = w.start("balancer")
	return w
}

// furnish writes the files that machines read: the address of the bus, the counters of their kernels, and models under which no neighbour
// interferes.
func (w *world) furnish() {
	w.t.Helper()
	for name, text := range map[string]string{
		"bus": w.bus,
		"models.json": `{"format": "quell-models/1",
"trained": {"at": "2026-01-01T00:00:00Z", "service": "shop", "instance_type": "toy", "metric": "mean", "rows": 6, "per_request": {}},
"isolation": {"network": [{"utilization": 0, "probe_ms": 1000, "stddev_ms": 100, "n": 40, "runs": 5},
  {"utilization": 0.9, "probe_ms": 1000, "stddev_ms": 100, "n": 40, "runs": 5}]},
"response_time": {"network": [{"utilization": 0, "severity": 0, "latency_ms": {"mean": 5}, "runs": 5},
  {"utilization": 0, "severity": 1, "latency_ms": {"mean": 80}, "runs": 5},
  {"utilization": 0.9, "severity": 0, "latency_ms": {"mean": 130}, "runs": 5},
  {"utilization": 0.9, "severity": 1, "latency_ms": {"mean": 210}, "runs": 5}]},
"interference": {"network": [{"utilization": 0.05, "interfering": 0.5, "severity": 1, "runs": 5},
  {"utilization": 0.5, "interfering": 0.5, "severity": 1, "runs": 5}]}}`,
		"machine/proc/stat":                        "cpu  10 0 10 10 0 0 0 0 0 0\ncpu0 10 0 10 10 0 0 0 0 0 0\n",
		"machine/proc/self/mountinfo":              "31 22 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		"machine/proc/net/dev":                     "Inter-| Receive\n face |bytes\n    lo: 9 0 0 0 0 0 0 0 9 0 0 0 0 0 0 0\n",
		"machine/sys/fs/cgroup/cgroup.controllers": "cpu\n",
		"machine/sys/fs/cgroup/web/cpu.stat":       "usage_usec 5\n",
	} {
		path := filepath.Join(w.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			w.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) startControl() {
	w.t.Helper()
	cmd := exec.Command(w.program, w.config)
	cmd.Env = append(os.Environ(), roleVariable+"="+controllerRole)
	w.control = w.launch(controllerRole, cmd)
}

// wants sets the number of workers that plans ask for.
func (w *world) wants(workers float64) {
	w.t.Helper()
	if err := replaceFile(filepath.Join(w.dir, wishFile), fmt.Append(nil, workers)); err != nil {
		w.t.Fatal(err)
	}
	w.wish = workers
}

// wait lets a random time up to most pass.
func (w *world) wait(most time.Duration) { time.Sleep(time.Duration(w.random.Int64N(int64(most)))) }

// kind is a kind of fault; every sequence has each kind once.
type kind struct {
	what    string
	wants   bool // the service must have recovered before this fault; otherwise no instance might be left
	excuses bool
	do      func()
}

func (w *world) kinds() []kind {
	kills := []kind{
		{"kill -9 of the controller", false, false, w.killControl},
		{"kill -9 of the balancer", false, true, w.killBalancer},
		{"kill -9 of an agent", false, false, func() { w.tell(w.instance(), "kill-agent") }},
		{"kill -9 of an instance", true, true, func() { w.killInstance(w.instance()) }},
	}
	all := append(slices.Clone(kills),
		kind{"another wish", false, false, func() {
			w.wants(float64(1 + w.random.IntN(50)))
		}},
		kind{"a setting that somebody changes", false, false, func() {
			_ = replaceFile(filepath.Join(w.dir, w.instance(), workersFile), []byte("77")) // the instance may be gone
		}},
		kind{"a slow instance", true, false, func() {
			id := w.instance()
			w.tell(id, "slow?for=700ms") // the objective is 500 ms
			w.wait(2 * time.Second)
			w.tell(id, "slow")
		}},
		kind{"a replacement", true, false, func() { w.replace() }},
	)
	for _, k := range kills {
		all = append(all, kind{k.what + " in a replacement", true, k.excuses, func() { w.replace(); w.wait(2 * time.Second); k.do() }})
	}
	for _, k := range kills[1:] {
		all = append(all, kind{k.what + " without a controller", true, k.excuses, func() { w.control.kill(w.t); k.do(); w.startControl() }})
	}
	return all
}

func (w *world) killControl() {
	w.t.Helper()
	w.control.kill(w.t)
	w.wait(time.Second)
	w.startControl()
}

func (w *world) killBalancer() {
	w.t.Helper()
	w.balancer.kill(w.t)
	w.wait(300 * time.Millisecond)
	w.balancer = w.start("balancer")
	w.await("the balancer to listen", func() (bool, any) { return listens(w.traffic) })
}

func listens(address string) (bool, any) {
	conn, err := net.Dial("tcp", address)
	if err == nil {
		conn.Close()
	}
	return err == nil, err
}

// instance picks an instance that runs.
func (w *world) instance() string {
	w.t.Helper()
	var ids []string
	for _, in := range w.ledger() {
		if in.Exited == nil && in.PID > 0 { // PID 0: the instance is about to be started
			ids = append(ids, in.ID)
		}
	}
	return ids[w.random.IntN(len(ids))]
}

// killInstance kills an instance's process; the scaler ends its agent.
func (w *world) killInstance(id string) {
	w.t.Helper()
	if pid := w.pids()[id]; pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
	w.await(id+" to be dead", func() (bool, any) { is, err := listens(w.address(id)); return !is, err })
}

// address is the address of an instance.
func (w *world) address(id string) string {
	w.t.Helper()
	for _, in := range w.ledger() {
		if in.ID == id {
			return in.Address
		}
	}
	return ""
}

// tell sends a request to an instance, and ignores errors because it may end meanwhile.
func (w *world) tell(id, what string) { _, _ = get("http://" + w.address(id) + "/" + what) }

// replace orders the replacement of a random instance, and waits until it has begun.
func (w *world) replace() {
	w.t.Helper()
	id := w.instance()
	if out, status := w.quell("replace", id, "--config", w.config); status != 0 {
		w.t.Fatalf("quell replace %s: status %d: %s", id, status, out)
	}
	w.awaitStatus("the replacement of "+id, func(st controller.Status) bool { return len(st.Pending) > 0 })
}

// healing is the longest time in which the service must be as before again. It is long because the machine may be busy with other work.
const healing = time.Minute

// heals waits until the service is as before the faults.
func (w *world) heals() {
	w.t.Helper()
	w.awaitFor(healing, "all to be as it was after: "+w.faults.last(), func() (bool, any) {
		st, err := w.status()
		if err != nil {
			return false, err
		}
		for _, differs := range []func(controller.Status) string{w.differs, w.differsAtBalancer, w.differsInside} {
			if why := differs(st); why != "" {
				return false, fmt.Sprintf("%s; status %+v", why, st)
			}
		}
		return true, nil
	})
}

// differs returns the part of a controller's status that differs from the beginning.
func (w *world) differs(st controller.Status) string {
	switch {
	case !st.Leading || time.Since(st.At) > 10*sampling:
		return "no controller decides"
	case len(st.Pending) > 0 || st.Coming > 0:
		return "something is under way"
	case st.Models != "in use":
		return "the models are not in use"
	case len(st.Instances) != worldSize:
		return "the group does not have its size"
	}
	var sum float64
	for _, in := range st.Instances {
		switch {
		case in.State != quell.Ready || in.Stale || in.Severity == nil || in.Weight == nil:
			return in.ID + " is not ready and measured"
		case in.Cut != nil || math.Abs(*in.Weight-1./worldSize) > 0.05/worldSize: // policy.tolerance
			return in.ID + " does not have its share"
		case in.Settings["toy.workers"] != w.wish:
			return in.ID + " does not have its setting"
		}
		sum += *in.Weight
	}
	if math.Abs(sum-1) > 1e-6 {
		return "the shares are not whole"
	}
	return ""
}

// differsAtBalancer returns how the balancer's shares differ from those in the controller's status.
func (w *world) differsAtBalancer(st controller.Status) string {
	planned := map[string]float64{}
	for _, in := range st.Instances {
		planned[in.ID] = *in.Weight
	}
	if got, err := w.weights(); err != nil || !sameWeights(got, planned) {
		return fmt.Sprint("the balancer has ", got, err)
	}
	return ""
}

// differsInside returns a text about an agent that does not run its policy, or about a process that should not exist.
func (w *world) differsInside(st controller.Status) string {
	for _, in := range st.Instances {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		reply, err := host.Ask(ctx, filepath.Join(w.dir, in.ID, "data", "agent"))
		cancel()
		var own host.Status
		if err == nil {
			err = json.Unmarshal(reply, &own)
		}
		if err != nil || own.Decisions == 0 || time.Since(own.At) > 10*sampling || len(own.Groups) != 1 || len(own.Problems) > 0 {
			return fmt.Sprintf("the policy of %s's agent: %+v, %v", in.ID, own, err)
		}
		if in.Tenancy == nil || in.Tenancy.Policy != own.Policy || len(in.Tenancy.Tenants) != 1 {
			return fmt.Sprintf("what the controller knows of %s's tenants: %+v", in.ID, in.Tenancy)
		}
	}
	if found := w.processes(); len(found) != 2+2*worldSize {
		return fmt.Sprint("processes: ", strings.Join(found, "; "))
	}
	return ""
}

// processes are the command lines of the processes that belong to this service.
func (w *world) processes() (lines []string) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(text), w.dir) { // a process that cannot be read has ended
			lines = append(lines, filepath.Base(filepath.Dir(path))+" "+strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	return lines
}

// judgeFiles checks that the driver's files of the running instances contain the value of a new machine.
func (w *world) judgeFiles() {
	w.t.Helper()
	for id := range w.pids() {
		if got, err := toyFile(filepath.Join(w.dir, id, workersFile)).get(); err != nil || got != asBefore {
			w.t.Errorf("%s has %v workers, %v; it had %v", id, got, err, asBefore)
		}
	}
}

// judgeJournal checks that the journal has every start of an instance, and every value that a driver was asked to set.
func (w *world) judgeJournal() {
	w.t.Helper()
	var last bus.Entry
	asked, text := map[string]bool{}, ""
	for _, e := range w.journal(w.connect()) {
		if e.Seq <= last.Seq {
			w.t.Errorf("journal entry %d follows %d", e.Seq, last.Seq)
		}
		last = e
		text += e.Text + "\n" + strings.Join(e.Changes, "\n") + "\n"
		if e.Plan == nil {
			continue
		}
		for _, s := range e.Plan.Settings {
			asked[fmt.Sprint(s.Instance, " ", s.Value)] = true
		}
	}
	folders, err := filepath.Glob(filepath.Join(w.dir, "i[0-9]*"))
	if err != nil || len(folders) < worldSize {
		w.t.Fatal(folders, err)
	}
	for _, folder := range folders {
		id := filepath.Base(folder)
		if !regexp.MustCompile(`(?m)^(started|add) .*\b` + id + `\b`).MatchString(text) {
			w.t.Errorf("the journal does not say that %s was started; it has\n%s", id, text)
		}
		values, err := toyFile(filepath.Join(folder, workersFile)).told()
		if err != nil {
			w.t.Error(err)
		}
		for _, v := range values {
			if !asked[fmt.Sprint(id, " ", v)] {
				w.t.Errorf("%s was set to %v workers, and no plan in the journal asks for it", id, v)
			}
		}
	}
}
