package prima

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/strictjson"
	"github.com/quellhq/quell/policy"
)

// Calibration corrects the resource with the longest predicted response time.
func TestCalibrationCorrectsTheResourceThatBinds(t *testing.T) {
	s := both(0)
	tell(&s, "Calibrate", 0.1)
	tell(&s, "CalibrationDecay", 0)
	e := engine(t, s, twins(goldenModels(t)))
	var st policy.State
	var plan quell.Plan
	for k := range 3 {
		plan, st = e.Decide(snap(t, k, "i1 weight=1 use=0.23 sf=0 cpu=0.46 cpusf=0 lat=90"), st)
	}
	mem := st.Instances["i1"].Memory.(*instance)
	if mem.Of != quell.CPU || math.Abs(mem.Offset-.28) > 1e-9 || math.Abs(plan.Severity["i1"]-.28) > 1e-9 {
		t.Fatalf("%+v, severity %v", mem, plan.Severity)
	}
	_, st = e.Decide(snap(t, 3, "i1 weight=1 use=0.5 sf=0.5 cpu=0.1 cpusf=0 lat=90"), st)
	if mem := st.Instances["i1"].Memory.(*instance); mem.Of != quell.Network || mem.Offset != 0 {
		t.Errorf("where the network binds: %+v", mem)
	}
}

// oldMemory is a memory in the form in which an earlier version, which considered only one resource, stored it.
const oldMemory = `{"policy":"prima","memory":{"shift":1},"instances":{"i1":{"utilization":0.4,"severity_at":"2026-01-01T00:00:10Z",

 "severity":0.5,"significant":true,"felt":2,"held":1,"unrated_for":2,"unprobed":true,"failed_for":1,"joined":true,
 "clamped":{"wanted":0.5,"planned":0.4},
 "memory":{"offset":0.1,"good":1,"collected_at":"2026-01-01T00:00:10Z","usual":{"n":3,"mean":0.25,"variance":0.01}}}}}`

func TestOldMemoryIsUnderstood(t *testing.T) {
	var st policy.State
	if err := errors.Join(strictjson.Decode([]byte(oldMemory), &st), all.Restore(&st)); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)
	felt := policy.Felt{Utilization: new(.4), SeverityAt: &at, Severity: new(.5), Significant: true, Passed: 2, Held: 1}
	want := policy.State{Policy: "prima", Memory: &memory{Shift: 1}, Instances: map[string]*policy.InstanceState{"i1": {
		Perceived: policy.Perceived{Felt: felt, UnratedFor: 2, Unprobed: true},
		Guarded:   policy.Guarded{FailedFor: 1, Joined: true, Clamped: &policy.Clamped{Wanted: .5, Planned: .4}},
		Memory:    &instance{Offset: .1, Good: 1, CollectedAt: at, Typical: Typical{N: 3, Mean: .25, Variance: .01}},
	}}}
	if !reflect.DeepEqual(st, want) {
		t.Errorf("got %+v", st)
	}
	var was, is any
	err := errors.Join(json.Unmarshal([]byte(oldMemory), &was), json.Unmarshal([]byte(text(t, st)), &is))
	if err != nil || !reflect.DeepEqual(was, is) {
		t.Errorf("for one resource it is written as before: %v, %v", is, err)
	}
	e := engine(t, both(0), twins(goldenModels(t)))
	_, next := e.Decide(snap(t, 1, "i1 weight=1 cpu=0.3"), st)
	got := next.Instances["i1"]
	of := map[quell.Resource]policy.Felt{quell.Network: felt, quell.CPU: {Utilization: new(.3)}}
	if !reflect.DeepEqual(got.Of, of) || got.Felt != (policy.Felt{}) {
		t.Errorf("by two resources: %+v", got.Perceived)
	}
	one := golden("prima", 75, 0)
	tell(&one, "Resources", policy.ResourcesOf(quell.CPU))
	_, back := engine(t, one, twins(goldenModels(t))).Decide(snap(t, 2, "i1 weight=1"), reread(t, next))
	if got := back.Instances["i1"]; got.Of != nil || !reflect.DeepEqual(got.Felt, policy.Felt{Utilization: new(.3)}) {
		t.Errorf("back to one: %+v", got.Perceived)
	}
}

// What was felt of one resource, and its correction, are not taken for those of another one that takes its place at a restart.
func TestAnotherResourceBeginsAnew(t *testing.T) {
	models := twins(goldenModels(t))
	of := func(r quell.Resource) *policy.Engine {
		s := calibrating(0)
		tell(&s, "Resources", policy.ResourcesOf(r))
		return engine(t, s, models)
	}
	rows := map[quell.Resource]string{quell.Network: "i1 weight=1 use=0.46 sf=0 lat=90", quell.CPU: "i1 weight=1 cpu=0.46 cpusf=0 lat=90"}
	for r, next := range map[quell.Resource]quell.Resource{quell.Network: quell.CPU, quell.CPU: quell.Network} {
		_, st := of(r).Decide(snap(t, 0, rows[r]), policy.State{})
		if mem := st.Instances["i1"].Memory.(*instance); mem.Offset == 0 {
			t.Fatalf("%s: %+v", r, mem)
		}
		plan, same := of(r).Decide(snap(t, 1, "i1 weight=1"), reread(t, st))
		if _, known := plan.Severity["i1"]; !known || same.Instances["i1"].Memory.(*instance).Offset == 0 {
			t.Errorf("%s after a restart: severity %v, %+v", r, plan.Severity, same.Instances["i1"].Memory)
		}
		plan, after := of(next).Decide(snap(t, 1, "i1 weight=1"), reread(t, st))
		if got := after.Instances["i1"]; len(plan.Severity) > 0 || got.Severity != nil || got.Memory.(*instance).Offset != 0 {
			t.Errorf("%s after %s: severity %v, %+v, %+v", next, r, plan.Severity, got.Felt, got.Memory)
		}
	}
}
