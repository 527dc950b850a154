package daemon_test

import (
	"errors"
	"fmt"
	"io/fs"
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

	"github.com/quellhq/quell/internal/cgroup"
	"github.com/quellhq/quell/internal/need"
)

// tenants are busy control groups below one whose quota they share, so that they compete on an idle machine, too.
type tenants struct {
	t       *testing.T
	dir     string   // of the agent
	names   []string // of the groups, below the one above them
	around  []string // of the groups that they lie in, below the one above them
	above   string   // the group above them
	folders []string // of all groups, the innermost first
	cpu     string   // folder of the group above, in the tree that limits processors
	by      string   // agent.policy.by
	file    string   // of the limit
	none    string   // what it holds without a limit
}

const tenantsCores = 0.4

// limits are the files of version 1 that the means of acs write, and what they hold at first.
var limits = map[string][2]string{"caps": {"cpu.cfs_quota_us", "-1"}, "weights": {"cpu.shares", "1024"}}

// newTenants makes the groups a and b, with one and three processes that never wait, and removes them at the end. by is what the agent
// limits them by. around names two groups that they lie in; without, they lie in the same group.
func newTenants(t *testing.T, by string, around ...string) *tenants {
	t.Helper()
	return newTenantsThat(t, ":", by, around...)
}

// newTenantsThat is like newTenants, but the processes are shells that run a command again and again.
func newTenantsThat(t *testing.T, command, by string, around ...string) *tenants {
	t.Helper()
	need.Root(t)
	trees, err := cgroup.Find(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	tree, ok := trees.Of("cpu")
	if !ok || trees.Unified { // version 2 is tested on fake trees: its controllers must be delegated first
		need.Skip(t, "needs the cpu controller of control groups version 1")
	}
	x := &tenants{t: t, dir: t.TempDir(), names: []string{"a", "b"}, above: fmt.Sprintf("/quell-test-acs-%d", os.Getpid()),
		around: around, by: by, file: limits[by][0], none: limits[by][1]}
	for i, name := range around {
		x.names[i] = name + "/" + x.names[i]
	}
	usage, _ := trees.Of("cpuacct")
	t.Cleanup(x.remove)
	for _, one := range []cgroup.Tree{tree, usage} {
		for _, name := range slices.Concat([]string{""}, around, x.names) {
			folder := "/" + one.Folder(filepath.Join(x.above, name))
			if err := os.MkdirAll(folder, 0o755); err != nil {
				need.Skip(t, "needs control groups that can be made: "+err.Error())
			}
			x.folders = append([]string{folder}, x.folders...)
		}
	}
	x.cpu = "/" + tree.Folder(x.above)
	x.write(x.cpu, "cpu.cfs_quota_us", fmt.Sprint(int(tenantsCores*100_000)))
	for name, processes := range map[string]int{"a": 1, "b": 3} {
		for range processes {
			x.busy(name, command)
		}
	}
	return x
}

func (x *tenants) write(folder, file, text string) {
	x.t.Helper()
	if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0); err != nil {
		x.t.Fatal(err)
	}
}

// busy starts a shell that runs a command again and again in a group, in every tree. It ends with this process.
func (x *tenants) busy(name, command string) {
	x.t.Helper()
	cmd := exec.Command("sh", "-c", "read go; while :; do "+command+"; done")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		x.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	for _, folder := range x.folders {
		if filepath.Base(folder) == name {
			x.write(folder, "cgroup.procs", fmt.Sprint(cmd.Process.Pid))
		}
	}
	if _, err := in.Write([]byte("go\n")); err != nil {
		x.t.Fatal(err)
	}
}

// remove removes the groups, after the processes in them have ended.
func (x *tenants) remove() {
	for _, folder := range x.folders {
		var err error
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			if err = os.Remove(folder); err == nil || errors.Is(err, fs.ErrNotExist) {
				err = nil
				break
			}
		}
		if err != nil {
			x.t.Error(err)
		}
	}
}

// caps reads the limits of both groups, and of those around them.
func (x *tenants) caps() (caps []string) {
	for _, name := range slices.Concat(x.names, x.around) {
		caps = append(caps, x.read(name))
	}
	return caps
}

// read reads the limit of a group.
func (x *tenants) read(name string) string {
	x.t.Helper()
	text, err := os.ReadFile(filepath.Join(x.cpu, name, x.file))
	if err != nil {
		x.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// capped returns whether any group has a limit.
func (x *tenants) capped() bool {
	for _, text := range x.caps() {
		if text != x.none {
			return true
		}
	}
	return false
}

// agent starts an agent with policy acs and no service. The kernel gives both groups the same, but a is to be slowed down a third as much.
func (x *tenants) agent() *exec.Cmd {
	x.t.Helper()
	config := filepath.Join(x.dir, "agent.yaml")
	text := fmt.Sprintf("data: data\nagent: {policy: {name: acs, by: %s, cores: %g, sampling: 100ms, records: records, "+
		"groups: [{cgroup: %s/%s, share: 3}, {cgroup: %s/%s}]}}\n", x.by, tenantsCores, x.above, x.names[0], x.above, x.names[1])
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		x.t.Fatal(err)
	}
	cmd := exec.Command(quellProgram, "agent", "--config", config)
	log, err := os.OpenFile(filepath.Join(x.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		x.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	return cmd
}

func (x *tenants) await(what string, ok func() bool) {
	x.t.Helper()
	for deadline := time.Now().Add(2 * patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	log, err := os.ReadFile(filepath.Join(x.dir, "log"))
	x.t.Fatalf("%s: waited in vain; caps %v\n%s%v", what, x.caps(), log, err)
}

func (x *tenants) quell(args ...string) string {
	x.t.Helper()
	out, err := exec.Command(quellProgram, args...).CombinedOutput()
	if err != nil {
		x.t.Fatalf("quell %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// The agent caps groups that compete, says so, and leaves no cap when it is stopped.
func TestACSCapsRealGroups(t *testing.T) {
	for by := range limits {
		t.Run(by, func(t *testing.T) { testRealGroups(t, newTenants(t, by)) })
	}
}

func testRealGroups(t *testing.T, x *tenants) {
	agent := x.agent()
	x.await("caps", x.capped)
	if out := x.quell("limits", "show", "--records", filepath.Join(x.dir, "records")); !strings.Contains(out, x.above) ||
		!strings.Contains(out, fmt.Sprint(agent.Process.Pid)) {
		t.Errorf("limits show says\n%s", out)
	}
	x.await("the status of the groups", func() bool {
		out := x.quell("status", "--local", "--config", filepath.Join(x.dir, "agent.yaml"))
		return strings.Contains(out, "SLOWDOWN") && strings.Contains(out, "scheduling")
	})
	if out := x.quell("limits", "clear", "--records", filepath.Join(x.dir, "records")); !strings.Contains(out, "stop that agent first") {
		t.Errorf("limits clear beside a running agent says\n%s", out)
	}
	if err := agent.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := agent.Wait(); err != nil {
		t.Error(err)
	}
	if x.capped() {
		t.Errorf("caps %v after the agent was stopped", x.caps())
	}
}

// However often and whenever the agent is killed, the next start and stop, or quell limits clear, leave no cap.
func TestACSKilledLeavesNoCap(t *testing.T) {
	for by := range limits {
		t.Run(by, func(t *testing.T) { testKilled(t, newTenants(t, by)) })
	}
	t.Run("weights around", func(t *testing.T) { testKilled(t, newTenants(t, "weights", "left", "right")) })
}

func testKilled(t *testing.T, x *tenants) {
	rng := rand.New(rand.NewPCG(1, 2))
	kill := func(agent *exec.Cmd) {
		t.Helper()
		if err := agent.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = agent.Wait() // it was killed
	}
	agent := x.agent()
	x.await("caps", x.capped)
	kill(agent)
	if !x.capped() {
		t.Error("the kill itself removed the caps: this test shows nothing")
	}
	x.quell("limits", "clear", "--records", filepath.Join(x.dir, "records"))
	if x.capped() {
		t.Errorf("caps %v after quell limits clear", x.caps())
	}
	for range 6 {
		agent = x.agent()
		time.Sleep(time.Duration(rng.Int64N(int64(time.Second)))) // a random moment
		kill(agent)
	}
	agent = x.agent()
	x.await("caps of the last agent", func() bool { // a killed agent's caps are there before it runs
		out := x.quell("limits", "show", "--json", "--records", filepath.Join(x.dir, "records"))
		return strings.Contains(out, fmt.Sprintf(`"pid":%d,`, agent.Process.Pid))
	})
	if err := agent.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := agent.Wait(); err != nil {
		t.Error(err)
	}
	if x.capped() {
		t.Errorf("caps %v after kills, a start and a stop", x.caps())
	}
	entries, err := os.ReadDir(filepath.Join(x.dir, "records"))
	if err != nil || len(entries) > 0 {
		t.Errorf("%d records are left, %v", len(entries), err)
	}
}

// By weights, the group with three times the share gets more.
func TestACSWeightsMakeRealGroupsEven(t *testing.T) {
	x := newTenants(t, "weights")
	x.agent()
	x.await("weights that differ", func() bool { return x.heavier("a", "b") })
}

// All work of these groups is done by programs that run for a moment, and take with them what the kernel knew of their waiting.
func TestACSWeightsOfGroupsOfShortPrograms(t *testing.T) {
	x := newTenantsThat(t, "/bin/true", "weights")
	x.agent()
	x.await("weights that differ", func() bool { return x.heavier("a", "b") })
}

// heavier returns whether the one group has more than 1.5 times the weight of the other one.
func (x *tenants) heavier(one, other string) bool {
	x.t.Helper()
	a, errA := strconv.ParseFloat(x.read(one), 64)
	b, errB := strconv.ParseFloat(x.read(other), 64)
	if errA != nil || errB != nil {
		x.t.Fatalf("%v %v", errA, errB)
	}
	return a > 1.5*b
}

// If the groups lie in different groups, these get the weights, and have those of before when the agent was stopped.
func TestACSWeightsAroundRealGroups(t *testing.T) {
	x := newTenants(t, "weights", "left", "right")
	agent := x.agent()
	x.await("weights that differ", func() bool { return x.heavier("left", "right") })
	if err := agent.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := agent.Wait(); err != nil {
		t.Error(err)
	}
	if x.capped() {
		t.Errorf("weights %v after the agent was stopped", x.caps())
	}
}
