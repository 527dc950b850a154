package aws

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/quellhq/quell"
)

// TestLife plays the life of a group: it grows, shrinks to chosen members, and one is replaced.
func TestLife(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	d := r.driver()
	first := ready(t, d, 2)
	members, err := d.Members(t.Context())
	if err != nil || !strings.HasSuffix(members[0].Address, ":8080") || !strings.HasSuffix(members[0].Probe, ":8700") ||
		members[0].Type != "t3.medium" || members[0].Started.IsZero() {
		t.Errorf("member = %+v, %v", members[0], err)
	}
	if ids, err := d.Start(t.Context(), 3); err != nil || len(ids) != 0 {
		t.Fatalf("Start = %v, %v; the ids come later", ids, err)
	}
	five := ready(t, d, 5)
	stop(t, d, first)
	three := ready(t, d, 3)
	stop(t, d, first) // the controller asks again until they are gone
	checkOnly(t, five, first, three)
	// A replacement: one more, and then the old one leaves.
	if _, err := d.Start(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	four := ready(t, d, 4)
	stop(t, d, three[1:2])
	checkOnly(t, four, three[1:2], ready(t, d, 3))
	if n := r.desired(); n != 3 {
		t.Errorf("desired capacity = %d", n)
	}
	if err := d.Report(); err != nil {
		t.Errorf("Report = %v", err)
	}
}

func stop(t *testing.T, d *Driver, ids []string) {
	t.Helper()
	if err := d.Stop(t.Context(), ids); err != nil {
		t.Fatal(err)
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
		for at := 1; at <= 2; at++ { // two instances are stopped
			t.Run(fmt.Sprintf("write %d, carried out: %v", at, after), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, 4)
				r.kill = func(write int, answered bool) bool { return write > at || write == at && answered == after }
				first := r.driver()
				before := ready(t, first, 4)
				stopped := []string{before[0], before[2]}
				if err := first.Stop(t.Context(), stopped); err == nil {
					t.Error("Stop of a controller that was killed worked")
				}
				_ = first.Close()
				r.set(func() { r.kill = nil })
				second := r.driver()
				ready(t, second, 4-len(r.carried()))
				stop(t, second, stopped)
				checkOnly(t, before, stopped, ready(t, second, 2))
				if n := r.desired(); n != 2 {
					t.Errorf("desired capacity = %d", n)
				}
			})
		}
	}
}

// TestKilledWhileStarting checks that an order whose answer got lost is reported as one that may have been carried out.
func TestKilledWhileStarting(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		r := newRig(t, 1)
		d := r.driver()
		ready(t, d, 1)
		r.set(func() { r.kill = func(_ int, answered bool) bool { return answered == after } })
		if _, err := d.Start(t.Context(), 2); !errors.As(err, new(*quell.UnsureError)) {
			t.Errorf("Start = %v, want a *quell.UnsureError", err)
		}
		want := map[bool]int{false: 1, true: 3}[after]
		ready(t, d, want)
		if n := r.desired(); n != want {
			t.Errorf("desired capacity = %d, want %d", n, want)
		}
	}
}

// TestAwsReplacesALoss checks that an instance which ended by itself is not replaced twice: by AWS, and by Quell.
func TestAwsReplacesALoss(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	d := r.driver()
	lost := ready(t, d, 3)[1]
	r.set(func() { r.states[lost] = "Terminating" })
	inState(t, d, lost, quell.Draining)
	if _, err := d.Start(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	stop(t, d, []string{lost}) // it is ending already
	if writes := r.carried(); len(writes) > 0 {
		t.Errorf("AWS replaces the instance, and Quell did %v", writes)
	}
	if _, err := d.Start(t.Context(), 2); err != nil { // the one that AWS owes was counted before
		t.Fatal(err)
	}
	if n := r.desired(); n != 5 {
		t.Errorf("desired capacity = %d, want 5", n)
	}
}

// TestAFailedInstanceIsOnlyEnded checks that AWS goes on to replace an instance that it finds unhealthy.
func TestAFailedInstanceIsOnlyEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	d := r.driver()
	sick := ready(t, d, 2)[0]
	r.must(r.admin.SetInstanceHealth(t.Context(), &autoscaling.SetInstanceHealthInput{
		InstanceId: &sick, HealthStatus: sdk.String("Unhealthy"),
	}))
	inState(t, d, sick, quell.Failed)
	stop(t, d, []string{sick})
	if after := ready(t, d, 2); slices.Contains(after, sick) || r.desired() != 2 {
		t.Errorf("members %v, desired capacity %d", after, r.desired())
	}
}

// TestLifecycleHook checks that an instance which AWS keeps for its hook drains, and that the hook is completed when it has, once.
func TestLifecycleHook(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	d := r.driver()
	leaving := ready(t, d, 2)[0]
	r.set(func() {
		r.states[leaving] = "Terminating:Wait"
		r.answer["CompleteLifecycleAction"] = "<R><CompleteLifecycleActionResult/></R>"
		r.refuse["CompleteLifecycleAction"] = "ResourceContention"
	})
	inState(t, d, leaving, quell.Draining)
	if writes := r.carried(); len(writes) > 0 {
		t.Fatalf("before it has drained: %v", writes)
	}
	d.Drained([]string{leaving})
	reported(t, d, "completing the lifecycle hook drain of "+leaving)
	r.set(func() { delete(r.refuse, "CompleteLifecycleAction") })
	until(t, "the hook is completed", func() bool { return len(r.carried()) > 0 && d.Report() == nil })
	d.Drained([]string{leaving})
	if _, err := d.fresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if writes := r.carried(); !slices.Equal(writes, []string{"CompleteLifecycleAction " + leaving}) {
		t.Errorf("writes: %v", writes)
	}
}

// TestLifecycleHookAfterStandby checks that an instance which was in standby, and so had drained, drains again when AWS ends it later.
func TestLifecycleHookAfterStandby(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	d := r.driver()
	leaving := ready(t, d, 2)[0]
	r.set(func() {
		r.states[leaving] = "Standby"
		r.answer["CompleteLifecycleAction"] = "<R><CompleteLifecycleActionResult/></R>"
	})
	inState(t, d, leaving, quell.Draining)
	d.Drained([]string{leaving})
	r.set(func() { delete(r.states, leaving) })
	inState(t, d, leaving, quell.Ready)
	r.set(func() { r.states[leaving] = "Terminating:Wait" })
	inState(t, d, leaving, quell.Draining)
	if _, err := d.fresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if writes := r.carried(); len(writes) > 0 {
		t.Fatalf("before it has drained: %v", writes)
	}
	d.Drained([]string{leaving})
	until(t, "the hook is completed", func() bool { return slices.Equal(r.carried(), []string{"CompleteLifecycleAction " + leaving}) })
}
