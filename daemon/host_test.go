package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent/host"
	"github.com/quellhq/quell/limit"
	"github.com/quellhq/quell/sensor"
)

// loudness is a log that the test can read while the agent writes it.
type loudness struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *loudness) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *loudness) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// writeTree writes files below a folder.
func writeTree(t *testing.T, folder string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// An agent runs its policy without service, bus and controller. It applies a new configuration, unless that has mistakes, and lets no other
// agent use its folder.
func TestAnAgentRunsItsOwnPolicy(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	group := func(names ...string) string {
		return "agent: {root: machine, instance: m1, policy: {name: waits, sampling: 100ms, groups: [{cgroup: /" +
			strings.Join(names, "}, {cgroup: /") + "}]}}\n"
	}
	writeTree(t, folder, map[string]string{
		"agent.yaml":                         group("web"),
		"machine/proc/stat":                  "cpu  10 0 10 10 0 0 0 0 0 0\ncpu0 10 0 10 10 0 0 0 0 0 0\n",
		"machine/proc/self/mountinfo":        "31 22 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		"machine/sys/fs/cgroup/web/cpu.stat": "usage_usec 5\n", "machine/sys/fs/cgroup/db/cpu.stat": "usage_usec 5\n",
		"machine/sys/fs/cgroup/cgroup.controllers": "cpu\n",
	})
	path, log := filepath.Join(folder, "agent.yaml"), &loudness{}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reload, ended := make(chan os.Signal, 1), make(chan error, 1)
	go func() { ended <- Agent(ctx, path, "", reload, slog.New(slog.NewTextHandler(log, nil))) }()

	file, _, err := Drivers().LoadLocal(path)
	if err != nil {
		t.Fatal(err)
	}
	await := func(what string, ok func(host.Status) bool) {
		t.Helper()
		var s host.Status
		for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			reply, err := AskAgent(ctx, file)
			if err != nil {
				continue
			}
			s = host.Status{}
			if err := json.Unmarshal(reply, &s); err != nil {
				t.Fatal(err)
			}
			if ok(s) {
				return
			}
		}
		t.Fatalf("%s: waited in vain; status %+v\n%s", what, s, log)
	}
	groups := func(s host.Status) (names string) {
		for _, g := range s.Groups {
			names += g.ID + " "
		}
		return names
	}
	await("the first decision", func(s host.Status) bool { return s.Decisions > 0 && s.Host == "m1" && groups(s) == "web " })
	if err := Agent(ctx, path, "", nil, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "a folder of its own") {
		t.Errorf("a second agent: %v", err)
	}
	writeTree(t, folder, map[string]string{"agent.yaml": "agent: {policy: {name: static}}\n"})
	reload <- syscall.SIGHUP
	for !strings.Contains(log.String(), "keeping the running one") && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	writeTree(t, folder, map[string]string{"agent.yaml": group("db", "web")})
	reload <- syscall.SIGHUP
	await("the other groups", func(s host.Status) bool { return s.Decisions > 0 && groups(s) == "db web " })
	if !strings.Contains(log.String(), "changed=agent.policy.groups") {
		t.Errorf("the reload is not told: %s", log)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := AskAgent(context.Background(), file); err == nil {
		t.Error("the socket outlived the agent")
	}
}

// A plan may set limits for groups that other groups lie in. They are put back as well.
func TestLimitsAroundGroups(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	writeTree(t, root, map[string]string{
		"proc/stat":                                 "cpu  10 0 10 10 0 0 0 0 0 0\ncpu0 10 0 10 10 0 0 0 0 0 0\n",
		"proc/self/mountinfo":                       "31 22 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		"sys/fs/cgroup/cgroup.controllers":          "cpu\n",
		"sys/fs/cgroup/system.slice/cpu.weight":     "100\n",
		"sys/fs/cgroup/system.slice/web/cpu.stat":   "usage_usec 5\n",
		"sys/fs/cgroup/system.slice/web/cpu.weight": "100\n",
	})
	groups, err := sensor.NewGroups(os.DirFS(root), []sensor.Group{{Path: "/system.slice/*"}})
	if err != nil {
		t.Fatal(err)
	}
	groups.Sample(time.Now())
	p := &hostPolicy{log: slog.New(slog.DiscardHandler)}
	weight := func(group string, value float64) quell.Limit {
		return quell.Limit{Instance: group, Resource: quell.CPU, Value: value, Unit: quell.WeightUnit}
	}
	failed := groupLimits{groups, p, limit.Options{Root: root, Records: t.TempDir()}}.Apply([]quell.Limit{
		weight("web", 2), weight("/system.slice", 0.5), weight("/missing.slice", 1), weight("gone", 1)})
	if len(failed) != 2 || failed["/missing.slice"] == nil || failed["gone"] == nil {
		t.Errorf("failures %v", failed)
	}
	check := func(when string, want map[string]string) {
		t.Helper()
		for group, weight := range want {
			text, err := os.ReadFile(filepath.Join(root, "sys/fs/cgroup/system.slice", group, "cpu.weight"))
			if got := strings.TrimSpace(string(text)); err != nil || got != weight {
				t.Errorf("%s: the weight of %q is %q, %v; want %s", when, group, got, err, weight)
			}
		}
	}
	check("limited", map[string]string{"web": "200", "": "50"})
	p.lift()
	check("lifted", map[string]string{"web": "100", "": "100"})
}
