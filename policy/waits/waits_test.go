package waits

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

func TestWaitsTellsWhoIsWaitedFor(t *testing.T) {
	for _, c := range []struct {
		name string
		host *quell.Snapshot
		want map[string]string // share, own, quota, neighbours, hypervisor, neighbour
		says string            // codes of the reasons
	}{
		{"four tasks alone on two processors", onHost(2, 20, 0, waiter("a", 20, 20, 5, 0)), map[string]string{"a": "50.0 50.0 0.0 0.0 0.0"},
			"waits_own"},
		{"two groups of one task each share a processor", onHost(1, 10, 0, waiter("a", 5, 5, 5, 0), waiter("b", 5, 5, 5, 0)),
			map[string]string{"a": "50.0 0.0 0.0 50.0 0.0 b", "b": "50.0 0.0 0.0 50.0 0.0 a"}, "waits_neighbours waits_neighbours"},
		{"processes of no group are neighbours, too", onHost(1, 10, 0, waiter("a", 5, 5, 5, 0)), map[string]string{"a": "50.0 0.0 0.0 50.0 0.0"},
			"waits_neighbours"},
		{"a quota of half a processor", onHost(2, 5, 0, waiter("a", 5, 5, 5, 5)), map[string]string{"a": "50.0 0.0 50.0 0.0 0.0"}, "waits_quota"},
		{"a quota of one processor for eight tasks: on two they would wait, too", onHost(2, 10, 0, waiter("a", 10, 70, 1.25, 10)),
			map[string]string{"a": "87.5 75.0 12.5 0.0 0.0"}, "waits_own"},
		{"throttled while nobody wanted to run", onHost(2, 5, 0, waiter("a", 5, 0, 0, 5)), map[string]string{"a": "0.0 0.0 0.0 0.0 0.0"}, ""},
		{"half of the processor is stolen", onHost(1, 5, 5, waiter("a", 5, 0, 0, 0)), map[string]string{"a": "50.0 0.0 0.0 0.0 50.0"},
			"waits_hypervisor"},
		{"the page's example", onHost(2, 14, 2, waiter("frontend", 6, 4, 2.25, 0), waiter("batch", 5, 5, 5, 4)),
			map[string]string{"frontend": "44.7 10.3 0.0 21.9 12.5 batch", "batch": "53.3 0.0 37.3 8.2 7.8 frontend"},
			"waits_neighbours waits_quota"},
		{"pressure: the full part is never for itself", onHost(2, 14, 2, pressed("web", 6, 0.4, 0.1)),
			map[string]string{"web": "44.7 10.4 0.0 21.9 12.5"}, "waits_neighbours"},
		{"a kernel that tells nothing of waiting", onHost(1, 5, 0, blind("a", 5, 5)), map[string]string{"a": "- - 50.0 - 0.0"},
			"waits_quota waits_unknown"},
		{"a group that does nothing", onHost(1, 5, 0, waiter("a", 0, 0, 0, 0)), nil, ""},
		{"a group that is seen for the first time", onHost(1, 5, 0, quell.Instance{ID: "a"}), nil, ""},
		{"next to no use says nothing", onHost(1, 5, 0, waiter("a", .1, .1, .1, 0)), nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.host.Validate(); err != nil {
				t.Fatal(err)
			}
			plan, _ := hostEngine(t).Decide(c.host, policy.State{})
			if len(plan.Waits) != len(c.want) {
				t.Errorf("told of %d groups, want %d", len(plan.Waits), len(c.want))
			}
			for id, want := range c.want {
				if got := shares(plan.Waits[id]); got != want {
					t.Errorf("%s: %s, want %s", id, got, want)
				}
			}
			var codes []string
			for _, r := range plan.Reasons {
				codes = append(codes, r.Code)
			}
			if got := strings.Join(codes, " "); got != c.says {
				t.Errorf("reasons %q, want %q: %v", got, c.says, plan.Reasons)
			}
		})
	}
}

func hostEngine(t interface{ Fatal(...any) }) *policy.HostEngine {
	e, err := all.NewHostEngine(quell.Policy{Name: Spec.Name})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestWaitsSaysWhy(t *testing.T) {
	plan, _ := hostEngine(t).Decide(onHost(2, 14, 2, waiter("frontend", 6, 4, 2.25, 0), waiter("batch", 5, 5, 5, 4)), policy.State{})
	want := quell.Reason{Code: "waits_neighbours", Instance: "frontend", Text: "waited 44.7% of the time it wanted to run, over 1m: " +
		"21.9% for neighbours on this machine, most of them batch; 12.5% for the hypervisor; 10.3% for its own load"}
	if plan.Reasons[0] != want {
		t.Errorf("got  %+v\nwant %+v", plan.Reasons[0], want)
	}
	if plan.Host != "h" || plan.Service != "" || plan.Policy != Spec.Name ||
		!plan.At.Equal(time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)) {
		t.Errorf("of whom and when: %+v", plan)
	}
	s := onHost(2, 14, 2)
	s.Machine = nil
	if plan, _ = hostEngine(t).Decide(s, policy.State{}); len(plan.Reasons) != 1 || plan.Reasons[0].Code != "machine_unread" {
		t.Errorf("without a machine: %v", plan.Reasons)
	}
}

// A group is reported until its waiting has halved. A cause is reported until another cause is clearly larger.
func TestWaitsDoesNotFlicker(t *testing.T) {
	e, st := hostEngine(t), policy.State{}
	named := func(quota, neighbours float64) string {
		var plan quell.Plan
		for range 60 { // ten windows, after which earlier values have decayed
			plan, st = e.Decide(onHost(2, 18, 0, waiter("a", 8, quota+neighbours, 8, quota)), st)
		}
		if len(plan.Reasons) == 0 {
			return ""
		}
		return plan.Reasons[0].Code
	}
	for i, step := range []struct {
		quota, neighbours float64
		want              string
	}{
		{0.5, 0.2, ""}, {0.6, 0.5, "waits_quota"}, {0.3, 0.35, "waits_quota"}, {0.3, 0.5, "waits_neighbours"}, {0.2, 0.3, "waits_neighbours"},
		{0.2, 0.1, ""}, {0.3, 0.4, ""},
	} {
		if got := named(step.quota, step.neighbours); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
}

func TestWaitsFades(t *testing.T) {
	e := hostEngine(t)
	_, st := e.Decide(onHost(1, 10, 0, waiter("a", 5, 5, 5, 0)), policy.State{})
	plan, st := e.Decide(onHost(1, 5, 0, waiter("a", 5, 0, 0, 0)), st)
	kept := math.Exp(-10. / 60)
	if got, want := *plan.Waits["a"].Share, 5*kept/(5+10*kept); math.Abs(got-want) > 1e-9 {
		t.Errorf("share %v, want %v", got, want)
	}
	idle := st
	for range 60 {
		plan, idle = e.Decide(onHost(1, 5, 0, waiter("a", 0, 0, 0, 0)), idle)
	}
	if plan.Waits != nil || plan.Reasons != nil {
		t.Errorf("ten windows after it last ran: %v, %v", plan.Waits, plan.Reasons)
	}
	if plan, st = e.Decide(onHost(1, 5, 0), st); plan.Waits != nil || len(st.Memory.(*memory).Groups) != 0 {
		t.Errorf("a group that is gone is remembered: %v", plan.Waits)
	}
}

func TestWaitsHoldsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, st := hostEngine(t), policy.State{}
		for range rapid.IntRange(1, 6).Draw(t, "snapshots") {
			s := drawHost(t)
			before, asked := text(t, st), text(t, s)
			plan, next := e.Decide(s, st)
			if text(t, st) != before || text(t, s) != asked {
				t.Fatal("what was handed in has changed")
			}
			again, nextAgain := e.Decide(s, reread(t, st))
			if !reflect.DeepEqual(plan, again) || text(t, next) != text(t, nextAgain) {
				t.Fatalf("the same input gave another plan or memory:\n%v\n%v", plan, again)
			}
			for id, w := range plan.Waits {
				checkParts(t, id, w)
			}
			if _, err := json.Marshal(plan); err != nil || len(plan.Weights)+len(plan.Limits)+len(plan.Settings) > 0 {
				t.Fatalf("it only reports: %+v, %v", plan, err)
			}
			st = next
		}
	})
}

// checkParts checks that parts are shares that sum to the whole, and that either all or none of them are known.
func checkParts(t *rapid.T, id string, w quell.Waits) {
	if (w.Share == nil) != (w.Own == nil) || (w.Share == nil) != (w.Neighbours == nil) || w.Quota == nil || w.Hypervisor == nil {
		t.Fatalf("%s: %s", id, shares(w))
	}
	sum := *w.Quota + *w.Hypervisor
	if w.Share != nil {
		sum += *w.Own + *w.Neighbours
		if math.Abs(sum-*w.Share) > 1e-9 || *w.Own < 0 || *w.Neighbours < 0 {
			t.Fatalf("%s: the parts sum to %v, not to %v: %s", id, sum, *w.Share, shares(w))
		}
	}
	if *w.Quota < 0 || *w.Hypervisor < 0 || sum > 1+1e-9 {
		t.Fatalf("%s: %s", id, shares(w))
	}
}
