package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/examples"
	"github.com/quellhq/quell/internal/need"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/testbed/kernel"
	"github.com/quellhq/quell/train"
)

// labProcess is `quell lab run` of the small scenario in its own lab, which is removed at the end in any case.
type labProcess struct {
	t      *testing.T
	cmd    *exec.Cmd
	prefix string
	out    string
	log    string // log of the first run's controller
	said   *strings.Builder
}

func startLab(t *testing.T, name string) *labProcess {
	t.Helper()
	l := prepareLab(t, name, "two", []string{"haproxy", "nginx", "iperf3"}, "--models", filepath.Join("testdata", "lab", "models.json"))
	l.log = filepath.Join(l.out, "two", "run1-prima-leastconn", "controller.log")
	return l.start()
}

// startWorkLab is startLab for the scenario with dynamic work.
func startWorkLab(t *testing.T, name string) *labProcess {
	t.Helper()
	l := prepareLab(t, name, "work", []string{"haproxy", "stress-ng"})
	l.log = filepath.Join(l.out, "work", "run1-static-roundrobin", "controller.log")
	return l.start()
}

func prepareLab(t *testing.T, name, scenario string, programs []string, more ...string) *labProcess {
	t.Helper()
	need.Root(t)
	for _, program := range programs {
		need.Program(t, program)
	}
	l := &labProcess{t: t, prefix: fmt.Sprintf("t%s%d", name, os.Getpid()), out: t.TempDir(), said: &strings.Builder{}}
	l.cmd = exec.Command("quell", append([]string{"lab", "run", filepath.Join("testdata", "lab", scenario+".yaml"), "--prefix", l.prefix,
		"--out", l.out,
		"--json", filepath.Join(l.out, "results.json")}, more...)...)
	l.cmd.Stdout, l.cmd.Stderr = l.said, l.said
	t.Cleanup(func() {
		if l.cmd.ProcessState == nil {
			_ = l.cmd.Process.Kill()
			_ = l.cmd.Wait()
		}
		if _, err := kernel.Clean(l.prefix); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *labProcess) start() *labProcess {
	l.t.Helper()
	if err := l.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	return l
}

// awaitPlaying waits until the balancer answers requests; from then on the logs of a run's processes exist.
func (l *labProcess) awaitPlaying() {
	l.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		log, _ := os.ReadFile(l.log)
		if strings.Count(string(log), "instance ready") == 2 {
			if strings.Contains(string(log), "level=ERROR") {
				l.t.Errorf("the controller began with an error:\n%s", log)
			}
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	l.t.Fatalf("nothing was played in time; it said\n%s", l.said)
}

// processes are the processes in the lab's namespaces.
func (l *labProcess) processes() []string {
	out, err := exec.Command("sh", "-c", fmt.Sprintf("for n in $(ip netns list | cut -d' ' -f1 | grep ^%s-); do ip netns pids $n; done",
		l.prefix)).Output()
	if err != nil {
		l.t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// secondRefused checks that a lab with another prefix may not play the same run into the same folder.
func (l *labProcess) secondRefused() {
	l.t.Helper()
	other := l.prefix + "x"
	args := append([]string{}, l.cmd.Args[1:]...)
	args[slices.Index(args, l.prefix)] = other
	out, err := exec.Command("quell", args...).CombinedOutput()
	if statusOf(err) != exitUsage || !strings.Contains(string(out), "another `quell lab run` is playing into") {
		l.t.Errorf("a second lab with the same --out: %v\n%s", err, out)
	}
	if removed, err := kernel.Clean(other); err != nil || len(removed) > 0 {
		l.t.Errorf("the second lab left behind %v, %v", removed, err)
	}
}

// clean checks that `quell lab clean` finds nothing, or removes everything that is left.
func (l *labProcess) clean(remains bool) {
	l.t.Helper()
	removed, err := kernel.Clean(l.prefix)
	if err != nil {
		l.t.Fatal(err)
	}
	if !remains && len(removed) > 0 {
		l.t.Errorf("it left behind %v", removed)
	}
	if removed, err = kernel.Clean(l.prefix); err != nil || len(removed) > 0 {
		l.t.Errorf("cleaned twice, there was still %v, %v", removed, err)
	}
}

// TestLabRun plays the small scenario with real programs: the share of the instance next to the neighbour decreases,
// no request fails, and nothing is left.
func TestLabRun(t *testing.T) {
	l := startLab(t, "run")
	if err := l.cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, l.said)
	}
	l.clean(false)
	record := l.record("two", 1000)
	before, after := record.Phase(0, 6).Instances["i2"], record.Phase(12, 24).Instances["i2"]
	// On a busy machine the weights may differ before the neighbour comes, too.
	if !(after.Severity > before.Severity) || !(after.Weight < min(before.Weight, 0.45)) || !(after.PerSecond < before.PerSecond) {
		t.Errorf("beside the neighbour severity went from %.2f to %.2f, weight from %.2f to %.2f, requests a second from %.1f to %.1f",
			before.Severity, after.Severity, before.Weight, after.Weight, before.PerSecond, after.PerSecond)
	}
}

// record returns the record of the scenario's first run. It checks that no request failed and that at least the given number
// arrived.
func (l *labProcess) record(name string, least int64) *experiment.Record {
	l.t.Helper()
	var results []scenario.Result
	data, err := os.ReadFile(filepath.Join(l.out, "results.json"))
	if err := errors.Join(err, json.Unmarshal(data, &results)); err != nil {
		l.t.Fatal(err)
	}
	if r := results[0]; r.Errors > 0 || r.Requests < least {
		l.t.Errorf("%d of %d requests failed", r.Errors, r.Requests)
	}
	sc, err := scenario.Load(filepath.Join("testdata", "lab", name+".yaml"))
	if err != nil {
		l.t.Fatal(err)
	}
	record, err := experiment.LoadRecord(experiment.RecordPath(filepath.Join(l.out, name), 0, sc.Runs[0]))
	if err != nil {
		l.t.Fatal(err)
	}
	return record
}

// TestLabWork checks that instances do the work that classes of requests ask for, and that one whose neighbour uses
// the processor is slower.
func TestLabWork(t *testing.T) {
	l := startWorkLab(t, "work")
	if err := l.cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, l.said)
	}
	l.clean(false)
	run := l.record("work", 400).Phase(0, 8).Instances
	alone, beside := run["i1"], run["i2"]
	t.Logf("alone %.1f ms at %.2f of its processors, beside a neighbour %.1f ms at %.2f", *alone.LatencyMS.Mean, alone.Utilization,
		*beside.LatencyMS.Mean, beside.Utilization)
	if !(*beside.LatencyMS.Mean > *alone.LatencyMS.Mean) || !(alone.Utilization > 0) {
		t.Errorf("the neighbour's processor time does not show: %+v, %+v", alone, beside)
	}
}

// TestLabInterrupted checks that ctrl-C, or closing the terminal, stops everything and leaves nothing.
func TestLabInterrupted(t *testing.T) {
	caught := make(chan os.Signal, 1) // catch it here: if this process ignored it, as under nohup, the labs would ignore it, too
	signal.Notify(caught, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(caught) })
	for name, sent := range map[string]os.Signal{"int": os.Interrupt, "hup": syscall.SIGHUP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := startLab(t, name)
			l.awaitPlaying()
			if err := l.cmd.Process.Signal(sent); err != nil {
				t.Fatal(err)
			}
			if err := l.cmd.Wait(); statusOf(err) != exitFailed || !strings.Contains(l.said.String(), "interrupted") {
				t.Errorf("it ended with %v and said\n%s", err, l.said)
			}
			l.clean(false)
		})
	}
}

// TestLabNotRemoved checks that remains of a lab are reported however its player ended.
func TestLabNotRemoved(t *testing.T) {
	left, broken := errors.New("processes [7] do not end"), errors.New("broken")
	for _, c := range []struct {
		player, removing error
		want             string
	}{
		{nil, nil, ""},
		{nil, left, "removing the lab: processes [7] do not end"},
		{statusError(1), nil, "exit status 1"},
		{statusError(1), left, "removing the lab: processes [7] do not end"},
		{broken, left, "broken\nremoving the lab: processes [7] do not end"},
	} {
		got := ""
		if err := andRemoved(c.player, c.removing); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%v, %v: got %q, want %q", c.player, c.removing, got, c.want)
		}
	}
}

// TestLabPlayerKilled checks that the owner removes everything even if the player is killed, and that no other lab can play into
// the same folder meanwhile.
func TestLabPlayerKilled(t *testing.T) {
	l := startLab(t, "player")
	l.awaitPlaying()
	l.secondRefused()
	out, err := exec.Command("ps", "-o", "pid=", "--ppid", fmt.Sprint(l.cmd.Process.Pid)).Output()
	var player int
	if _, scanned := fmt.Sscan(string(out), &player); err != nil || scanned != nil {
		t.Fatalf("no player: %v, %v", err, scanned)
	}
	if err := syscall.Kill(player, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := l.cmd.Wait(); statusOf(err) != exitFailed || !strings.Contains(l.said.String(), "killed") {
		t.Errorf("it ended with %v and said\n%s", err, l.said)
	}
	l.clean(false)
}

// TestLabOwnerKilled checks that the player stops everything that runs, and that `quell lab clean` removes the rest.
func TestLabOwnerKilled(t *testing.T) {
	for name, start := range map[string]func(*testing.T, string) *labProcess{"owner": startLab, "workowner": startWorkLab} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := start(t, name)
			l.awaitPlaying()
			if err := l.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = l.cmd.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			for len(l.processes()) > 0 && ctx.Err() == nil {
				time.Sleep(50 * time.Millisecond)
			}
			if left := l.processes(); len(left) > 0 {
				t.Errorf("processes %v do not end by themselves", left)
			}
			l.clean(true)
		})
	}
}

// TestLabRefuses checks that what a lab cannot play, and missing programs, are reported before anything is made.
func TestLabRefuses(t *testing.T) {
	dir := t.TempDir()
	write := func(name, old, change string) string {
		data, err := os.ReadFile(filepath.Join("testdata", "lab", "two.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name+".yaml")
		if err := os.WriteFile(path, []byte(strings.Replace(string(data), old, change, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const hosts, file = "{id: h, count: 2, network: 50Mbps}", "{kind: file, arrivals: poisson, size: 60KB, load: 0.7}"
	classes := func(list string) string { return "{kind: classes, load: 0.7, classes: [" + list + "]}" }
	for arg, want := range map[string]string{
		"table-xi":                        "there is no experiment \"table-xi\" (there are: burstable, changing-cpu, ",
		filepath.Join(dir, "absent.yaml"): "no such file",
		write("names", hosts,
			"{id: h2, network: 50Mbps}, {id: h1, network: 50Mbps}"): "names.yaml:10:14: hosts[0].id: a lab's hosts are h1, h2 " +
			"and so on in order, not h2",
		write("unlike", hosts,
			"{id: h1, network: 50Mbps}, {id: h2, network: 20Mbps}"): "unlike.yaml:10:54: hosts[1].network: a lab's hosts are alike",
		write("memory", hosts,
			"{id: h, count: 2, network: 50Mbps, memory: 2}"): "memory: a lab's hosts have the memory bandwidth of the machine",
		write("large", file,
			classes("{name: a, network: 60KB}, {name: b, cpu: 3s}")): "large.yaml:12:74: workload.classes[1]: its mean request " +
			"takes 3s on an idle host, and clients wait for 10s: make it at most 2.5s",
		write("linkless", file,
			classes("{name: a, cpu: 5ms}")): "linkless.yaml:12:47: workload.classes: no class uses network, " +
			"and models of it are learned under load",
		write("bound", file,
			"{kind: users, users: 5, classes: [{name: a, cpu: 5ms, network: 1KB}]}"): "bound.yaml:12:44: workload.classes: the mean request " +
			"takes 0.005 of a host's cpu where it takes 0.00016 of the network",
		write("resource", "policy: {name: prima}",
			"policy: {name: prima, resource: cpu}"): "resource.yaml:12:11: workload.classes: no class uses cpu, " +
			"and models of it are learned under load",
		write("rule", "scheduling: leastconn",
			"scheduling: prequal"): "runs[0].scheduling: HAProxy has no prequal: give the run balancer: builtin",
		write("late", "warm_up: 3s",
			"readings: {late: 1s}"): "late.yaml:13:11: readings: lost, late and noisy readings cannot " +
			"be played on these machines: use quell sim",
	} {
		out, err := exec.Command("quell", "lab", "run", arg, "--out", filepath.Join(dir, "out")).CombinedOutput()
		if statusOf(err) != exitUsage || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s", arg, err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "out")); err == nil {
		t.Error("it made its folder before it refused")
	}
}

// writeScenario writes a scenario with request classes and the given further keys.
func writeScenario(t *testing.T, classes, keys string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "own.yaml")
	text := `scenario: own
duration: 10s
service: {slo: {metric: mean, threshold: 30ms}, group: {min: 2, max: 3}}
hosts: [{id: h, count: 3, network: 50Mbps}]
workload: {kind: classes, load: 0.5, classes: [` + classes + `]}
` + keys
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestLabLooksAtChosenRuns checks that mistakes in runs that are not selected are ignored, and that messages about the others have
// the place in the file.
func TestLabLooksAtChosenRuns(t *testing.T) {
	const network, cpu = "{name: a, network: 60KB}", "{name: a, cpu: 5ms}"
	rules := "runs:\n  - {policy: static}\n  - {policy: hpa}\n  - {policy: static, scheduling: prequal}\n  - {policy: hpa, scheduling: " +
		"prequal, balancer: builtin}\n"
	models := "runs:\n  - {policy: prima}\n  - {policy: static}\n"
	weights := "instances: {start: 3, fixed: 2, weights: [70%, 30%]}\nwarm_up: 20s\nruns:\n  - {policy: static}\n"
	for name, c := range map[string]struct {
		classes, keys string
		o             labRun
		want          string // expected message; empty: the lab accepts the scenario
		programs      string
	}{
		"all": {network, rules, labRun{}, ":9:34: runs[2].scheduling: HAProxy has no prequal", ""},
		"of a policy": {network, rules, labRun{policies: []string{"static"}}, ":9:34: runs[2].scheduling: HAProxy has no prequal",
			""},
		"of a policy and a number": {network, rules, labRun{policies: []string{"static"}, runs: []int{2}},
			":9:34: runs[2].scheduling: HAProxy has no prequal", ""},
		"others of that policy":     {network, rules, labRun{policies: []string{"static"}, runs: []int{1}}, "", "haproxy"},
		"other policies":            {network, rules, labRun{policies: []string{"hpa"}}, "", "haproxy"},
		"without HAProxy":           {network, rules, labRun{runs: []int{4}}, "", ""},
		"models wanted":             {cpu, models, labRun{}, ":5:47: workload.classes: no class uses network", ""},
		"models wanted by a run":    {cpu, models, labRun{runs: []int{1}}, "workload.classes: no class uses network", ""},
		"models not wanted":         {cpu, models, labRun{runs: []int{2}}, "", "haproxy"},
		"models wanted to validate": {cpu, models, labRun{runs: []int{2}, validate: true}, "workload.classes: no class uses network", ""},
		"no such run":               {cpu, models, labRun{runs: []int{3}}, "--run: ", ""},
		"weights":                   {network, weights, labRun{}, "", "haproxy"},
		"weights of another size": {network, weights, labRun{policies: []string{"hpa"}, duration: 20 * time.Second},
			":6:42: with --policy hpa: instances.weights: are held in groups of fixed size only", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := c.o
			o.name, o.out = writeScenario(t, c.classes, c.keys), t.TempDir()
			err := o.load(func(string) bool { return false })
			if c.want != "" {
				if !errors.As(err, new(*quell.UserError)) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %s", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(o.programs(), " "); got != c.programs {
				t.Errorf("it needs %s, want %s", got, c.programs)
			}
		})
	}
}

// TestLabLibrary checks that every experiment of the library is named after its file, can be played on a lab if there
// are such machines, and says which experiment it repeats.
func TestLabLibrary(t *testing.T) {
	library := examples.Lab()
	if len(library) < 15 {
		t.Errorf("%d experiments", len(library))
	}
	for name, data := range library {
		sc, err := scenario.Parse(name, data)
		if err != nil {
			t.Fatal(err)
		}
		if sc.Name != name || headline(data) == "" || !strings.Contains(string(data), "# Sizes: ") {
			t.Errorf("%s: scenario %s, about %q", name, sc.Name, headline(data))
		}
		if err := (&labRun{}).playable(sc, sc.Runs); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLabTraining checks that plans begin without load, that users and arrivals with the same requests share models, and that
// hosts of other sizes do not.
func TestLabTraining(t *testing.T) {
	of := func(cores, workload string) labTraining {
		sc, err := scenario.Parse("mix.yaml", []byte(`
scenario: mix
duration: 10s
service: {slo: {metric: mean, threshold: 30ms}}
hosts: [{id: h, count: 2, network: 50Mbps, cores: `+cores+`}]
workload: {`+workload+`, classes: [{name: a, cpu: 1ms, network: 60KB}]}
`))
		if err != nil {
			t.Fatal(err)
		}
		return (&labRun{scenario: sc}).training()
	}
	keyOf := func(training labTraining) string {
		key, err := training.key()
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	classes := keyOf(of("0.5", "kind: classes, load: 0.5"))
	if users := keyOf(of("0.5", "kind: users, users: 20, think: 2s")); users != classes {
		t.Error("the same requests from users have models of their own")
	}
	if larger := keyOf(of("1", "kind: classes, load: 0.5")); larger == classes {
		t.Error("larger hosts share models with smaller ones")
	}
	for _, plan := range []train.Plan{labPlan(), sessionLabPlan(), quickLabPlan()} {
		if err := plan.Validate(); err != nil || plan.Levels[0] != 0 {
			t.Errorf("levels %v, %v", plan.Levels, err)
		}
	}
}

// TestLabModelsAreLookedAt checks that a lab reports models with mistakes before it plays a scenario with them.
func TestLabModelsAreLookedAt(t *testing.T) {
	o := labRun{models: filepath.Join(t.TempDir(), "missing.json")}
	_, err := o.prepareModels(t.Context(), "", nil, nil)
	var user *quell.UserError
	if !errors.As(err, &user) || !strings.Contains(err.Error(), "missing.json") {
		t.Errorf("got %v", err)
	}
}
