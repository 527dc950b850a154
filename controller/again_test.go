package controller

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// amid runs change between the two looks of the next decision: when the balancer is asked for the second time from then on.
func (r *rig) amid(change func(b *fakeBalancer)) {
	r.balancer.set(func(b *fakeBalancer) { b.amid, b.asked = change, 0 })
}

// removing makes a group of four with two instances too many, whose decision to remove them is the next step.
func removing(t *testing.T, body func(*rig)) {
	play(t, func(r *rig) { r.opts.Service.Group.Initial = 4 }, func(r *rig) {
		r.run(3 * time.Second)
		r.kill()
		smaller := r.opts.Service
		smaller.Group.Initial, smaller.Group.Max = 0, 3
		if err := r.c.Reload(smaller, nil, false); err != nil {
			t.Fatal(err)
		}
		r.opts.Service = smaller
		body(r)
	})
}

// A removal is decided once more with what scaler and balancer say just before it.
func TestARemovalIsDecidedTwice(t *testing.T) {
	tests := []struct {
		name   string
		change func(r *rig) func(b *fakeBalancer)
		said   string
		leave  int // number of healthy instances that leave
	}{
		{"nothing changes", func(*rig) func(*fakeBalancer) { return func(*fakeBalancer) {} }, "", 1},
		{"another one fails", func(*rig) func(*fakeBalancer) { return func(b *fakeBalancer) { b.sick["i1"] = true } }, "i1 is failed", 0},
		{"another one is taken out", func(*rig) func(*fakeBalancer) {
			return func(b *fakeBalancer) { b.byHand["i1"] = quell.Held{By: "ann"} }
		}, "i1 was taken out of rotation", 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			removing(t, func(r *rig) {
				r.amid(test.change(r))
				r.step()
				plans := r.journal.plans()
				plan := plans[len(plans)-1].Plan
				i := slices.IndexFunc(plan.Reasons, func(x quell.Reason) bool { return x.Code == "decided_again" })
				if said := i >= 0; said != (test.said != "") || said && !strings.Contains(plan.Reasons[i].Text, test.said) {
					t.Errorf("the plan says %+v", plan.Reasons)
				}
				leaving := slices.Collect(maps.Keys(r.c.mem.Draining))
				if leaving = slices.DeleteFunc(leaving, func(id string) bool { return id == "i1" }); len(leaving) != test.leave {
					t.Errorf("%v leave", leaving)
				}
			})
		})
	}
}

// If nobody answers before a removal, nothing of the decision is carried out, and the next one decides anew.
func TestNoRemovalWithoutASecondLook(t *testing.T) {
	removing(t, func(r *rig) {
		before := r.c.mem.State
		r.amid(func(b *fakeBalancer) { b.fault.set(errBroken) })
		r.untouched(r.step)
		if !reflect.DeepEqual(r.c.mem.State, before) {
			t.Error("the policy remembers a decision that was not carried out")
		}
		r.balancer.fault.set(nil)
		r.step()
		if len(r.scaler.ended()) == 0 && len(r.c.mem.Draining) == 0 {
			t.Error("nothing is removed once the balancer answers again")
		}
	})
}
