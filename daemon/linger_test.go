package daemon_test

import (
	"maps"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell/controller"
)

// lingeringService is the service of the quick start: instances that wait the given time for a controller.
func lingeringService(t *testing.T, linger string) *rig {
	t.Helper()
	r := newRig(t, "")
	r.write(strings.Replace(hosts(r), "lifeline: true", "linger: "+linger, 1))
	r.start("controller")
	r.start("balancer")
	r.awaitServing("i1", "i2")
	return r
}

// TestTheControllerIsRestartedInTime kills or stops a controller and starts it again after some seconds. It finds its instances
// unchanged, and no request fails. Nothing is left once everything is stopped.
func TestTheControllerIsRestartedInTime(t *testing.T) {
	t.Parallel()
	r := lingeringService(t, "15s")
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
		time.Sleep(2 * time.Second) // the duration of a restart
		began := time.Now()
		r.start("controller")
		r.awaitStatus("the next controller", func(s controller.Status) bool { return s.Leading && s.At.After(began.Add(3*sampling)) })
		if now := r.pids(); !maps.Equal(now, pids) {
			t.Fatalf("processes %v, want %v", now, pids)
		}
	}
	time.Sleep(5 * time.Second) // processes that waited for a controller find this one
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

// controller returns the controller's process that was started last.
func (r *rig) controller() (last *proc) {
	r.t.Helper()
	for _, p := range r.procs {
		if p.name == "controller" {
			last = p
		}
	}
	return last
}
