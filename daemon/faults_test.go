package daemon_test

import (
	"fmt"
	"maps"
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

	"github.com/quellhq/quell/balancer/builtin"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// lopsided gives i1 70% of the traffic, so that these weights are distinguishable from fresh ones.
func (r *rig) lopsided() map[string]float64 {
	r.t.Helper()
	if out, status := r.quell("override", "i1", "0.7", "--config", r.config); status != 0 {
		r.t.Fatalf("status %d: %s", status, out)
	}
	want := map[string]float64{"i1": .7, "i2": .3}
	r.awaitWeights(want)
	return want
}

func TestTheControllerIsKilled(t *testing.T) {
	t.Parallel()
	r := emulatedService(t)
	weights := r.lopsided()
	load := flow(r)
	pids, journal := r.pids(), r.journal(r.connect())
	before, err := r.status()
	if err != nil {
		t.Fatal(err)
	}

	r.procs[0].kill(t)
	load.more(50)
	if got, err := r.weights(); err != nil || !sameWeights(got, weights) {
		t.Errorf("without a controller the weights are %v, %v", got, err)
	}
	r.start("controller")
	s := r.awaitStatus("a decision of the new controller", func(s controller.Status) bool { return s.At.After(before.At) && s.Leading })
	load.more(50)

	if s.Overrides["i1"] != .7 || s.InstanceSeconds < before.InstanceSeconds || len(s.Instances) != 2 {
		t.Errorf("it did not go on from the stored state: %+v", s)
	}
	if now := r.pids(); !maps.Equal(now, pids) {
		t.Errorf("processes %v, want %v", now, pids)
	}
	if got, err := r.weights(); err != nil || !sameWeights(got, weights) {
		t.Errorf("the new controller made the weights %v, %v", got, err)
	}
	wantPrefix(t, r.journal(r.connect()), journal)
	load.wantNoFailures()
}

// wantPrefix checks that no entry of a journal was lost or moved.
func wantPrefix(t *testing.T, now, before []bus.Entry) {
	t.Helper()
	if len(before) < 3 || len(now) <= len(before) {
		t.Fatalf("%d entries in the journal, %d before", len(now), len(before))
	}
	for i, e := range before {
		if n := now[i]; n.Seq != e.Seq || !n.At.Equal(e.At) || n.Kind != e.Kind || n.Text != e.Text || !slices.Equal(n.Changes, e.Changes) {
			t.Fatalf("entry %d is %+v, was %+v", i, n, e)
		}
	}
	for i := 1; i < len(now); i++ {
		if now[i].At.Before(now[i-1].At) || now[i].Seq <= now[i-1].Seq {
			t.Errorf("entry %d (%d, %v) follows %d, %v", i, now[i].Seq, now[i].At, now[i-1].Seq, now[i-1].At)
		}
	}
}

func TestTheBalancerIsKilled(t *testing.T) {
	t.Parallel()
	t.Run("and remembers, without a controller", func(t *testing.T) {
		t.Parallel()
		r := emulatedService(t)
		weights := r.lopsided()
		r.procs[0].kill(t)
		r.procs[1].kill(t)
		r.start("balancer")
		r.awaitWeights(weights)
		load := flow(r)
		r.start("controller")
		r.awaitServing("i1", "i2")
		load.wantNoFailures()
	})
	t.Run("and has forgotten everything", func(t *testing.T) {
		t.Parallel()
		r := emulatedService(t)
		weights := r.lopsided()
		r.procs[1].kill(t)
		r.awaitStatus("the controller to notice", func(s controller.Status) bool { return s.Failures["look"] > 0 })
		if err := os.Remove(r.admin + ".backends.json"); err != nil {
			t.Fatal(err)
		}
		r.start("balancer")
		r.awaitWeights(weights)
		r.awaitServing("i1", "i2")
		flow(r).wantNoFailures()
	})
}

func TestAnInstanceIsKilled(t *testing.T) {
	t.Parallel()
	r := emulatedService(t)
	load := flow(r)
	pid := r.pids()["i2"]
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.await("the instance to be gone", func() (bool, any) { return syscall.Kill(pid, 0) != nil, pid })
	killed := time.Now() // until this time requests were still sent to the killed process
	r.awaitServing("i1", "i3")
	r.awaitWeights(map[string]float64{"i1": .5, "i3": .5})
	load.more(50)
	failed := load.failures()
	if len(failed) > clients {
		t.Errorf("%d requests failed, and only %d can have been under way", len(failed), clients)
	}
	for _, f := range failed {
		if f.began.After(killed) {
			t.Errorf("a request that began %v after the kill failed: %s", f.began.Sub(killed), f.why)
		}
	}
	if pids := r.pids(); pids["i2"] != 0 || len(pids) != 2 {
		t.Errorf("processes %v", pids)
	}
	r.wantCredentials("sensor-i1.creds", "sensor-i3.creds")
}

// wantCredentials waits until these sensors' credentials exist, and no others.
func (r *rig) wantCredentials(want ...string) {
	r.t.Helper()
	var got []string
	for deadline := time.Now().Add(3 * patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		paths, err := filepath.Glob(filepath.Join(r.dir, "data", "credentials", "sensor-*.creds"))
		if err != nil {
			r.t.Fatal(err)
		}
		got = nil
		for _, p := range paths {
			got = append(got, filepath.Base(p))
		}
		if slices.Equal(got, want) {
			return
		}
	}
	r.t.Errorf("waited in vain for the credentials %q; there are %q", want, got)
}

func TestEndingInOrder(t *testing.T) {
	t.Parallel()
	r := emulatedService(t)
	pids := r.pids()
	for _, p := range r.procs {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if status := p.ends(t); status != 0 {
			t.Errorf("%s ended with status %d", p.name, status)
		}
	}
	r.wantGone(pids)
	wantFree(t, r.bus, r.metrics, r.traffic)
}

func TestEverythingEndsWithItsAncestor(t *testing.T) {
	t.Parallel()
	r := emulatedService(t)
	pids := r.pids()
	if err := r.hold.Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range r.procs {
		if status := p.ends(t); status != 0 {
			t.Errorf("%s ended with status %d", p.name, status)
		}
	}
	r.wantGone(pids)
}

func (r *rig) wantGone(pids map[string]int) {
	r.t.Helper()
	for id, pid := range pids {
		r.await(fmt.Sprintf("%s, process %d, to end", id, pid), func() (bool, any) {
			err := syscall.Kill(pid, 0)
			return err == syscall.ESRCH, err
		})
	}
}

// plainService has one instance that is not managed by Quell, with an agent.
func plainService(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, "")
	address := need.FreeAddress(t)
	r.write(plain(address, need.FreeAddress(t), "static"))
	r.launch("host", exec.Command(quellProgram, "host", "--listen", address, "--file-size", "20000"))
	r.start("controller")
	r.start("balancer")
	return r
}

func plain(instance, probe, policy string) string {
	return fmt.Sprintf(`policy: {name: %s}
group: {min: 1, max: 1}
agent: {instance: i1, interface: lo, capacity: {network: 1Gbps}}
probe: {listen: %q, timeout: 300ms}
scaler: {instances: [{id: i1, address: %q}]}
`, policy, probe, instance)
}

// A controller that started without a prober refuses to change to a policy that needs probes.
func TestReloadingToAPolicyThatNeedsProbes(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	address := need.FreeAddress(t)
	file := func(policy string) string {
		return fmt.Sprintf("policy: {name: %s}\nprobe: {from: controller}\nscaler: {instances: [{id: i1, address: %q}]}\n", policy, address)
	}
	r.write(file("static"))
	p := r.start("controller")
	r.await("the word that nothing is probed", func() (bool, any) { return has(p.said(), "nothing is probed"), p.said() })
	r.write(file("prima"))
	hangUp(t, p)
	r.await("the refusal", func() (bool, any) {
		return has(p.said(), "keeping the running one", "policy prima needs probes", "restart the controller"), p.said()
	})
}

func TestTrafficFlowsWithoutAController(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	address := need.FreeAddress(t)
	r.write(plain(address, need.FreeAddress(t), "static"))
	r.launch("host", exec.Command(quellProgram, "host", "--listen", address, "--file-size", "20000"))
	r.start("balancer")
	r.await("the balancer to find the instance well", func() (bool, any) {
		states, err := builtin.NewClient(r.admin).State(t.Context())
		return err == nil && len(states) == 1 && states[0].Healthy, fmt.Sprint(states, err)
	})
	flow(r).wantNoFailures()
}

func TestTheAgentIsKilled(t *testing.T) {
	t.Parallel()
	r := plainService(t)
	agent := r.start("agent")
	r.awaitServing("i1")
	flow(r)
	agent.kill(t)
	r.awaitStatus("the instance to be stale", func(s controller.Status) bool {
		in := s.Instances
		return len(in) == 1 && in[0].Stale && in[0].RequestRate != nil && *in[0].RequestRate > 0
	})
	r.start("agent")
	r.awaitServing("i1")
}

func TestAbsurdReadings(t *testing.T) {
	t.Parallel()
	r := plainService(t)
	r.start("agent")
	r.awaitServing("i1")
	conn := r.raw(auth.Controller, "test")
	const head = `{"service":"shop","instance":"i1","source":"agent","sender":"i1","observation":{"at":"2026-01-01T00:00:00Z"`
	absurd := []struct{ subject, data string }{
		{"agent.i1", head + `,"utilization":{"network":7}}}`},
		{"agent.i1", head + `,"severity":{"network":1e9}}}`},
		{"agent.i1", head + `,"window_s":-1}}`},
		{"agent.i1", head + `,"no_such_field":1}}`},
		{"agent.i1", head + `}`},
		{"agent.i1", "\x00\xff not JSON"},
		{"agent.i1", ""},
		{"agent.i7", head + `}}`},
		{"prober.i1", head + `}}`},
		{"balancer.i1", strings.Replace(head, `"agent","sender":"i1"`, `"balancer","sender":"x","latency_hdr":"aGVsbG8="`, 1) + `}}`},
	}
	for _, a := range absurd {
		if err := conn.Publish("quell.shop.reading."+a.subject, []byte(a.data)); err != nil {
			t.Fatal(err)
		}
	}
	s := r.awaitStatus("all of them to be counted", func(s controller.Status) bool { return s.Rejected >= len(absurd) })
	if s.Rejected != len(absurd) {
		t.Errorf("%d readings rejected, want %d", s.Rejected, len(absurd))
	}
	r.awaitStatus("another decision", func(now controller.Status) bool { return now.At.After(s.At) })
	r.awaitServing("i1")
	page, err := get("http://" + r.metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile(`(?m)^quell_readings_rejected_total\{service="shop"\} (\d+)$`).FindSubmatch(page)
	if shown == nil {
		t.Fatalf("no count in\n%s", page)
	}
	if n, err := strconv.Atoi(string(shown[1])); err != nil || n != len(absurd) {
		t.Errorf("metrics count %s, want %d", shown[1], len(absurd))
	}
}

func TestReloading(t *testing.T) {
	t.Parallel()
	r := plainService(t)
	address, probe := need.FreeAddress(t), need.FreeAddress(t) // other addresses than before, which needs a restart
	r.awaitStatus("a decision", func(s controller.Status) bool { return !s.At.IsZero() })
	running := r.procs[1]

	r.write(plain(address, probe, "sttaic"))
	hangUp(t, running)
	r.await("the refusal", func() (bool, any) {
		return has(running.said(), "keeping the running one", "quell.yaml:", "static"), running.said()
	})
	s, err := r.status()
	if err != nil || s.Policy != "static" {
		t.Fatalf("policy %q after a bad file, %v", s.Policy, err)
	}
	for _, command := range []string{"pause", "resume"} { // a file with mistakes must not prevent a pause
		out, status := r.quell(command, "--config", r.config)
		if s, err := r.status(); status != 0 || err != nil || s.Paused != (command == "pause") ||
			!has(out, "warning: 1 mistake(s)", command+"d by") {
			t.Fatalf("%s: status %d, paused %v, %v; it said\n%s", command, status, s.Paused, err, out)
		}
	}

	r.write(plain(address, probe, "lr"))
	hangUp(t, running)
	s = r.awaitStatus("the new policy", func(s controller.Status) bool { return s.Policy == "lr" })
	r.awaitStatus("a decision with it", func(now controller.Status) bool { return now.At.After(s.At) })
	entries := r.journal(r.connect())
	if !slices.ContainsFunc(entries, func(e bus.Entry) bool { return e.Plan != nil && e.Plan.Policy == "lr" }) {
		t.Error("no plan of the new policy in the journal")
	}
	if !slices.ContainsFunc(entries, func(e bus.Entry) bool { return has(e.Text, "reloaded the configuration", "policy.name") }) {
		t.Error("no event of the reload in the journal")
	}
	if !has(running.said(), "probe.listen changed: send SIGHUP to the agents to apply it.",
		"scaler.instances changed: restart the controller to apply it.",
		"Everything else was reloaded. Changed: policy.name, probe.listen, scaler.instances") {
		t.Errorf("nothing about the addresses that need a restart in\n%s", running.said())
	}
	hangUp(t, running)
	r.await("a reload of the same file", func() (bool, any) {
		return strings.Count(running.said(), "reloaded the configuration") == 2, running.said()
	})
	for text, want := range map[string]int{"Changed: ": 1, "send SIGHUP to the agents": 1, "restart the controller": 2} {
		if n := strings.Count(running.said(), text); n != want {
			t.Errorf("%q is said %d times, want %d: only what the controller itself waits for is repeated:\n%s", text, n, want, running.said())
		}
	}
}

func hangUp(t *testing.T, p *proc) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}
