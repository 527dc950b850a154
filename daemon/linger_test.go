package daemon_test

import (
	"maps"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell/controller"
)

// lingeringService is what the quick start has: instances that wait so long for a controller.
func lingeringService(t *testing.T, linger string) *rig {
	t.Helper()
	r := newRig(t, "")
	r.write(strings.Replace(hosts(r), "lifeline: true", "linger: "+linger, 1))
	r.start("controller")
	r.start("balancer")
	r.awaitServing("i1", "i2")
	return r
}

// TestTheControllerIsRestartedInTime: killed or stopped, and started again after some seconds, a controller finds its instances as they
// were, and no request fails. Nothing is left once everything is stopped.
func TestTheControllerIsRestartedInTime(t *testing.T) {
	t.Parallel()
	r := lingeringService(t, "6s")
	pids := r.pids()
	load := flow(r)
	for _, end := range []func(*proc){
		func(p *proc) { p.kill(t) },
		func(p *proc) {
			if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			p.ends(t)
		},
	} {
		end(r.controller())
		time.Sleep(2 * time.Second) // as a restart takes
		began := time.Now()
		r.start("controller")
		r.awaitStatus("the next controller", func(s controller.Status) bool { return s.Leading && s.At.After(began.Add(3*sampling)) })
		if now := r.pids(); !maps.Equal(now, pids) {
			t.Fatalf("processes %v, want %v", now, pids)
		}
	}
	time.Sleep(5 * time.Second) // those who waited for the earlier controllers find this one
	load.wantNoFailures()
	for id, pid := range pids {
		if !running(pid) {
			t.Errorf("%s has ended under a running controller", id)
		}
	}
	r.end()
	r.await("the instances to end with everything", func() (bool, any) {
		for _, pid := range pids {
			if running(pid) {
				return false, pids
			}
		}
		return true, nil
	})
}

// controller is the process that was started as such last.
func (r *rig) controller() (last *proc) {
	r.t.Helper()
	for _, p := range r.procs {
		if p.name == "controller" {
			last = p
		}
	}
	return last
}
