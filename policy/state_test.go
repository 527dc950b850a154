package policy_test

import (
	"reflect"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// A memory that was stored and read back gives the same decisions, for every policy.
func TestMemorySurvivesStorage(t *testing.T) {
	for _, name := range all.Names() {
		t.Run(name, func(t *testing.T) {
			s := golden(name, 75, 1)
			s.Guard = quell.DefaultService().Guard
			tell(&s, "Calibrate", 0.3)
			tell(&s, "Utilization", 0.3)
			e := engine(t, s, goldenModels(t))
			var kept, stored policy.State
			for k := range 12 {
				in := snap(t, k, "i1 weight=0.7 use=0.45 cap=0.4 lat=90", "i2 weight=0.3 use=0.4 cap=0.2 lat=20", "i3 starting")
				for i := range in.Instances[:2] {
					rate := float64(40 + k)
					in.Instances[i].Observation.RequestRate = &rate
				}
				var plan, again quell.Plan
				plan, kept = e.Decide(in, kept)
				again, stored = e.Decide(in, reread(t, stored))
				if !reflect.DeepEqual(plan, again) {
					t.Fatalf("snapshot %d: %v, but %v without storage between", k, again, plan)
				}
			}
		})
	}
}

// A policy never gets the memory of another policy or of an unknown one.
func TestMemoryIsOnePolicys(t *testing.T) {
	rows := []string{"i1 weight=1 use=0.7 cap=0.3 lat=90", "i2 weight=0 use=0.1 cap=0.3 lat=90"}
	_, st := engine(t, golden("lsf", 75, 5), goldenModels(t)).Decide(snap(t, 0, rows...), policy.State{})
	if got := text(t, st.Memory); got != `{"violation":1}` {
		t.Fatalf("lsf remembers %+v", st.Memory)
	}
	_, st = engine(t, golden("lr", 75, 5), goldenModels(t)).Decide(snap(t, 1, rows...), st)
	if got := text(t, st.Memory); got != `{"violation":1}` {
		t.Errorf("lr begins to count at %s", got)
	}
	_, st = engine(t, golden("static", 75, 5), nil).Decide(snap(t, 2, rows...), st)
	if st.Instances["i1"].Memory != nil {
		t.Errorf("static keeps %+v of an instance", st.Instances["i1"].Memory)
	}
	var unknown policy.State
	if err := restore([]byte(`{"policy":"oracle","memory":{"x":1},"instances":{"i1":{"joined":true,"memory":{"y":2}}}}`),
		&unknown); err != nil {
		t.Fatal(err)
	}
	if want := (policy.State{Policy: "oracle",
		Instances: map[string]*policy.InstanceState{"i1": {Guarded: policy.Guarded{Joined: true}}}}); !reflect.DeepEqual(unknown, want) {
		t.Errorf("got %+v, want %+v", unknown, want)
	}
	if err := restore([]byte(`{"policy":"prima","memory":{"scale_out":"many"}}`), new(policy.State)); err == nil {
		t.Error("a wrong memory is accepted")
	}
}
