package kubernetes

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// TestLife plays the life of a group: it grows, shrinks to chosen members, and one is replaced.
func TestLife(t *testing.T) {
	t.Parallel()
	r := newRig(t, deployments, 2)
	d := r.driver()
	first := ready(t, d, 2)
	members, err := d.Members(t.Context())
	if err != nil || members[0].Address == "" || members[0].Probe == "" || members[0].Started.IsZero() {
		t.Errorf("member = %+v, %v", members[0], err)
	}
	if ids, err := d.Start(t.Context(), 3); err != nil || len(ids) != 0 {
		t.Fatalf("Start = %v, %v; the ids come later", ids, err)
	}
	five := ready(t, d, 5)
	// The two oldest are stopped, which a ReplicaSet would keep by itself.
	stop(t, d, first)
	stop(t, d, first) // the controller asks again until they are gone
	three := ready(t, d, 3)
	checkOnly(t, five, first, three)
	// A replacement: one more, and then the old one leaves.
	if _, err := d.Start(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	four := ready(t, d, 4)
	stop(t, d, three[1:2])
	checkOnly(t, four, three[1:2], ready(t, d, 3))
	if n := r.replicas(); n != 3 {
		t.Errorf("replicas = %d", n)
	}
	if err := d.Report(); err != nil {
		t.Errorf("Report = %v", err)
	}
}

// checkOnly checks that those that were stopped are gone, and all others are there.
func checkOnly(t *testing.T, before, stopped, after []string) {
	t.Helper()
	for _, id := range before {
		if gone := !slices.Contains(after, id); gone != slices.Contains(stopped, id) {
			t.Errorf("%s: gone %v; %v were stopped, %v are left of %v", id, gone, stopped, after, before)
		}
	}
}

// TestKilledAtEachWrite kills the controller before and after each of its writes, and another one goes on.
func TestKilledAtEachWrite(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("answered: %v", after), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, deployments, 4)
			for at := 1; r.killedIn(at, after); at++ {
				if at > 20 { // for each of two pods, the budget is asked, the cost is written, and the number is
					t.Fatal("stopping takes more than 20 writes")
				}
			}
		})
	}
}

// killedIn plays a life in which the controller is killed at a write. It returns false if there was no such write.
func (r *rig) killedIn(at int, after bool) bool {
	t := r.t
	t.Helper()
	r.config = r.killedAt(at, after)
	first := r.driver()
	before := ready(t, first, 4)
	stopped := []string{before[0], before[2]}
	err := first.Stop(t.Context(), stopped)
	_ = first.Close()
	r.config = r.plane.Config
	second := r.driver()
	stop(t, second, stopped)
	checkOnly(t, before, stopped, ready(t, second, 2))
	if n := r.replicas(); n != 2 {
		t.Errorf("killed at write %d (answered: %v): replicas = %d, want 2", at, after, n)
	}
	if _, err := second.Start(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	return err != nil
}

// stop stops instances, and tries again as the controller does.
func stop(t *testing.T, d *Driver, ids []string) {
	t.Helper()
	var err error
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("stopping %v ended with %v", ids, err)
		}
	})
	until(t, fmt.Sprintf("%v can be stopped", ids), func() bool { err = d.Stop(t.Context(), ids); return err == nil })
}

// TestKilledWhileStarting checks that an order whose answer got lost is reported as one that may have been carried out.
func TestKilledWhileStarting(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		r := newRig(t, deployments, 1)
		r.config = r.killedAt(1, after)
		d := r.driver()
		ready(t, d, 1)
		if _, err := d.Start(t.Context(), 2); !errors.As(err, new(*quell.UnsureError)) {
			t.Errorf("Start = %v, want a *quell.UnsureError", err)
		}
		want := map[bool]int{false: 1, true: 3}[after]
		ready(t, d, want)
		if n := r.replicas(); n != want {
			t.Errorf("replicas = %d, want %d", n, want)
		}
	}
}

// TestPodsThatAreStillCreated: a controller that starts just after its target was applied does not start what the platform is about to
// create. If the platform cannot create it, the list is what there is.
func TestPodsThatAreStillCreated(t *testing.T) {
	t.Parallel()
	r := newBareRig(t, statefulsets, 3) // its second pod waits for the first one to be ready
	var later atomic.Int64
	opts := r.options()
	opts.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	d, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	until(t, "one of three pods is there", func() bool {
		members, err := d.Members(t.Context())
		if err == nil {
			t.Fatalf("it lists %+v", members)
		}
		return strings.Contains(err.Error(), "1 of 3 are created so far")
	})
	later.Store(int64(creation))
	if members, err := d.Members(t.Context()); err != nil || len(members) != 1 {
		t.Errorf("after a while: %+v, %v", members, err)
	}
}
