package policy_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// doubted decides on a group whose response times are ms.
func doubted(t *testing.T, st policy.State, period int, ms float64) (quell.Plan, policy.State) {
	t.Helper()
	s := together(4, 0.3)
	s.At = s.At.Add(time.Duration(period) * 10 * time.Second)
	for i := range s.Instances {
		s.Instances[i].Observation.At, s.Instances[i].Observation.LatencyMS.Mean = s.At, &ms
	}
	return pooledEngine(t, pooledModels(0.9, 0.9)).Decide(s, st)
}

func doubtfulText(plan *quell.Plan) string {
	for _, r := range plan.Reasons {
		if r.Code == "doubtful" {
			return r.Text
		}
	}
	return ""
}

// TestDoubt: predictions that are off by more than 30% over ten windows, in either direction, are told with by how much and since when.
// If they stay so, authority falls to small steps and no further; if they hold again, it grows again. About 10 ms are predicted. Trained
// models have full authority without a level.
func TestDoubt(t *testing.T) {
	for _, first := range []quell.Authority{quell.Full, ""} {
		for _, off := range []float64{20, 5} {
			playDoubt(t, policy.State{Trust: policy.Trust{Level: first}}, off)
		}
	}
}

func playDoubt(t *testing.T, st policy.State, off float64) {
	t.Helper()
	var plan quell.Plan
	for period := range 40 {
		plan, st = doubted(t, st, period, off)
		text := doubtfulText(&plan)
		if (period >= policy.DoubtWindows-1) != (text != "") {
			t.Fatalf("%v ms, period %d: %q", off, period, text)
		}
		if text != "" && (!strings.Contains(text, "since 1970-01-01 00:01:30 UTC") || !strings.Contains(text, " times as long")) {
			t.Errorf("%v ms: %s", off, text)
		}
		if want := period >= 2*policy.DoubtWindows-2; want != (st.Trust.Level == quell.AuthorityStep) {
			t.Errorf("%v ms, period %d: authority %q", off, period, st.Trust.Level)
		}
	}
	stored, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	var again policy.State
	if err := restore(stored, &again); err != nil || !reflect.DeepEqual(again.Trust.Doubt, st.Trust.Doubt) {
		t.Errorf("stored and read back: %+v, %v", again.Trust.Doubt, err)
	}
	for period := range 20 {
		plan, st = doubted(t, st, 40+period, 10.3)
	}
	if text := doubtfulText(&plan); text != "" || st.Trust.Level != quell.Full {
		t.Errorf("after predictions hold again: %q, authority %q", text, st.Trust.Level)
	}
}

// TestNoDoubtOfTheLawOfSingleInstances: that law is on the safe side, and whoever sets a level keeps it.
func TestNoDoubtOfTheLawOfSingleInstances(t *testing.T) {
	service := learningService(all.Default())
	tell(&service, "Pooling", policy.Pooling{})
	e := engine(t, service, pooledModels(0.9, 0.9))
	st := policy.State{Trust: policy.Trust{Level: quell.Full}}
	hand := policy.State{Trust: policy.Trust{Level: quell.Full, ByHand: "eva"}}
	for period := range 30 {
		ms := 4.0
		s := together(4, 0.3)
		s.At = s.At.Add(time.Duration(period) * 10 * time.Second)
		for i := range s.Instances {
			s.Instances[i].Observation.At, s.Instances[i].Observation.LatencyMS.Mean = s.At, &ms
		}
		_, st = e.Decide(s, st)
		_, hand = doubted(t, hand, period, 5)
	}
	if st.Trust.Doubt.On() || st.Trust.Level != quell.Full {
		t.Errorf("%+v", st.Trust)
	}
	if hand.Trust.Level != quell.Full || !hand.Trust.Doubt.On() {
		t.Errorf("set by hand: %+v", hand.Trust)
	}
}
