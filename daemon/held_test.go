package daemon_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/builtin"
	"github.com/quellhq/quell/controller"
)

// haproxy sends one command to the runtime API, as a person does with socat.
func (r *rig) haproxy(command string) string {
	r.t.Helper()
	conn, err := net.Dial("unix", r.admin)
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, command+"\n"); err != nil {
		r.t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.TrimSpace(string(answer))
}

// wantNoFailuresBut checks that no request failed. It checks nothing if a health check found an instance too slow: on a busy machine there
// may then have been no healthy instance.
func (f *traffic) wantNoFailuresBut(r *rig) {
	r.t.Helper()
	f.more(50)
	failed := f.failures()
	for _, p := range r.procs {
		if said := p.said(); has(said, "is DOWN, reason") || has(said, "instance is unhealthy") {
			return
		}
	}
	for _, x := range failed {
		r.t.Errorf("a request failed: %s", x.why)
	}
}

// slotOf returns the server that has the address of an instance, because the order of the slots depends on which
// instance was ready first.
func (r *rig) slotOf(id string) string {
	r.t.Helper()
	s, err := r.status()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, row := range s.Instances {
		for line := range strings.SplitSeq(r.haproxy("show servers state files"), "\n") {
			if f := strings.Fields(line); row.ID == id && len(f) > 18 && row.Address == net.JoinHostPort(f[4], f[18]) {
				return f[3]
			}
		}
	}
	r.t.Fatalf("no server has the address of %s", id)
	return ""
}

// adminState is a server's administrative state as HAProxy reports it.
func (r *rig) adminState(server string) string {
	r.t.Helper()
	for line := range strings.SplitSeq(r.haproxy("show servers state files"), "\n") {
		if f := strings.Fields(line); len(f) > 6 && f[3] == server {
			return f[6]
		}
	}
	r.t.Fatalf("no server %s", server)
	return ""
}

// held finds the row of an instance that a person took out.
func held(s controller.Status, id string) *quell.Held {
	for _, row := range s.Instances {
		if row.ID == id {
			return row.Held
		}
	}
	return nil
}

// decidesOn waits for so many further decisions that an unwanted change would be visible.
func (r *rig) decidesOn(n int) {
	r.t.Helper()
	from := time.Now()
	r.awaitStatus("further decisions", func(s controller.Status) bool {
		return s.At.After(from.Add(time.Duration(n) * sampling))
	})
}

func TestADrainByHandAtHAProxyStays(t *testing.T) {
	t.Parallel()
	r := haproxyService(t)
	load := flow(r)
	slot := r.slotOf("i1")
	r.haproxy("set server files/" + slot + " state drain")
	r.awaitStatus("the drain to be noticed", func(s controller.Status) bool {
		h := held(s, "i1")
		return h != nil && h.By == "haproxy"
	})
	r.awaitStatus("another instance in its place", func(s controller.Status) bool {
		return len(s.Instances) == 3 && s.Instances[2].Weight != nil && *s.Instances[2].Weight > 0
	})
	r.decidesOn(4)
	drained := r.adminState(slot)
	if drained != "12" { // forced drain, of a slot that the configuration starts in maintenance
		t.Fatalf("%s has admin state %s: the drain was undone", slot, drained)
	}
	r.procs[1].kill(t)
	r.start("controller")
	r.awaitStatus("the next controller to know of it", func(s controller.Status) bool { return s.Leading && held(s, "i1") != nil })
	r.decidesOn(4)
	if now := r.adminState(slot); now != drained {
		t.Errorf("another controller made the admin state %s", now)
	}
	if out, status := r.quell("undrain", "i1", "--config", r.config); status != 0 || !has(out, "i1 put back by") {
		t.Errorf("%d, %s", status, out)
	}
	r.awaitStatus("it to serve again", func(s controller.Status) bool {
		return len(s.Instances) == 3 && held(s, "i1") == nil && s.Instances[0].Weight != nil && *s.Instances[0].Weight > 0
	})
	load.wantNoFailuresBut(r)
	if out, _ := r.quell("journal", "--config", r.config); !has(out, "i1 was taken out of rotation by hand at haproxy") {
		t.Errorf("the journal says\n%s", out)
	}
}

func TestADrainByHandAtTheBalancerStays(t *testing.T) {
	t.Parallel()
	r := emulatedService(t)
	load := flow(r)
	admin := builtin.NewClient(r.admin)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	states, err := admin.State(ctx)
	if err != nil || len(states) != 2 {
		t.Fatalf("%+v, %v", states, err)
	}
	// A person sends the whole list, with other weights and i2 taken out.
	err = admin.Apply(ctx, []quell.Backend{
		{ID: "i1", Address: states[0].Address, Probe: states[0].Probe, Weight: .9},
		{ID: "i2", Address: states[1].Address, Probe: states[1].Probe, Weight: .1, Draining: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.awaitStatus("another instance in its place", func(s controller.Status) bool {
		return len(s.Instances) == 3 && s.Instances[2].Weight != nil && *s.Instances[2].Weight > 0 && held(s, "i2") != nil
	})
	stays := func(when string) {
		t.Helper()
		r.decidesOn(4)
		states, err := admin.State(ctx)
		if err != nil || len(states) != 3 || states[1].ByHand == nil || states[0].Weight != .5 {
			t.Errorf("%s: %+v, %v; i2 should be out, and i1 have the weight that was planned", when, states, err)
		}
	}
	stays("at once")
	r.procs[0].kill(t)
	r.start("controller")
	r.awaitStatus("the next controller", func(s controller.Status) bool { return s.Leading && held(s, "i2") != nil })
	stays("with another controller")
	load.wantNoFailuresBut(r)
	r.procs[1].kill(t)
	r.start("balancer")
	r.await("the balancer", func() (bool, any) {
		states, err := admin.State(ctx)
		return err == nil && len(states) == 3, err
	})
	stays("with another balancer")
	if err := admin.Release(ctx, "i2"); err != nil {
		t.Fatal(err)
	}
	r.awaitServing("i1", "i2", "i3")
	flow(r).wantNoFailuresBut(r)
}

func TestDrainAndUndrainFromTheCommandLine(t *testing.T) {
	t.Parallel()
	r := emulatedService(t)
	load := flow(r)
	out, status := r.quell("drain", "i2", "--config", r.config)
	if status != 0 || !has(out, "i2 taken out of rotation by", "i2 is empty") {
		t.Fatalf("%d, %s", status, out)
	}
	r.awaitStatus("another instance in its place", func(s controller.Status) bool {
		return len(s.Instances) == 3 && s.Instances[2].Weight != nil && *s.Instances[2].Weight > 0
	})
	r.procs[0].kill(t)
	r.start("controller")
	r.awaitStatus("the next controller", func(s controller.Status) bool { return s.Leading && held(s, "i2") != nil })
	r.decidesOn(8) // longer than balancer.drain: i2 is held, not being removed
	if out, status := r.quell("status", "--all", "--config", r.config); status != 0 || !has(out, "i2", "held by", "empty") {
		t.Errorf("%d, %s", status, out)
	}
	if out, status := r.quell("drain", "i2", "--config", r.config); status != 1 || !has(out, "taken out already") {
		t.Errorf("%d, %s", status, out)
	}
	if out, status := r.quell("drain", "i3", "--config", r.config, "--no-wait"); status != 0 || has(out, "empty") {
		t.Errorf("%d, %s", status, out)
	}
	if out, status := r.quell("drain", "i1", "--config", r.config); status != 1 || !has(out, "--force") {
		t.Errorf("the last one: %d, %s", status, out)
	}
	for _, id := range []string{"i2", "i3"} {
		if out, status := r.quell("undrain", id, "--config", r.config); status != 0 {
			t.Errorf("%d, %s", status, out)
		}
	}
	r.awaitServing("i1", "i2", "i3")
	load.wantNoFailuresBut(r)
}
