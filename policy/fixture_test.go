package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"pgregory.net/rapid"
)

// all is the table of the policies in this package.
var all = NewTable(PRIMA.Row(), LSF.Row(), LR.Row(), Static.Row(), HPA.Row(), Knapsack.Row(), PID.Row(), CSWRR.Row(), Dial.Row(), ICE.Row(),
	Outlier.Row(), Waits.Row(), ACS.Row(), MRburst.Row())

// period is the sampling period of the tests, in seconds.
const period = 10

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// snap makes the k-th snapshot of a sequence from one line per instance, such as
//
//	"i1 weight=0.5 use=0.4 cap=0.3 age=100"
//
// Keys: weight, use, age. cpu and cpusf are use and severity of the processor. sf is the severity; cap is instead the severity that
// leaves this capacity under the golden models and 75 ms. lat is a mean response time of n requests (100), err the error rate, probe a
// mean of 10 probes, credits a balance of the network, seen the age of the observation in seconds, hand the weight that a person set, for
// the instance that this one will replace. A bare word is a state (ready), "held" by a person, or "silent", which leaves the observation
// out. A row "arrivals=70" is the service's; "coming=2" are ordered instances that are not listed yet.
func snap(tb testing.TB, k int, rows ...string) *quell.Snapshot {
	tb.Helper()
	s := &quell.Snapshot{At: start.Add(time.Duration(k+1) * period * time.Second), Service: "video"}
	for _, row := range rows {
		if rate, ok := strings.CutPrefix(row, "arrivals="); ok {
			s.ArrivalRate = new(number(tb, rate))
			continue
		}
		if coming, ok := strings.CutPrefix(row, "coming="); ok {
			s.Coming = int(number(tb, coming))
			continue
		}
		s.Instances = append(s.Instances, instance(tb, s.At, strings.Fields(row)))
	}
	if err := s.Validate(); err != nil {
		tb.Fatalf("snapshot %d: %v", k, err)
	}
	return s
}

func instance(tb testing.TB, at time.Time, words []string) quell.Instance {
	tb.Helper()
	o := &quell.Observation{At: at, Utilization: map[quell.Resource]float64{}, Severity: map[quell.Resource]float64{}}
	in := quell.Instance{ID: words[0], State: quell.Ready, Observation: o}
	for _, word := range words[1:] {
		key, text, hasValue := strings.Cut(word, "=")
		if !hasValue {
			switch key {
			case "silent":
				in.State, in.Observation = quell.Ready, nil
			case "stuck":
				in.Stuck = true
			case "held":
				in.Held = &quell.Held{By: "ann", Since: start}
			default:
				in.State = quell.State(key)
			}
			continue
		}
		if key == "for" {
			in.Replaces = text
			continue
		}
		v := number(tb, text)
		switch key {
		case "weight":
			in.Weight = &v
		case "hand":
			in.Override = &v
		case "age":
			in.AgeS = &v
		case "use":
			o.Utilization[quell.Network] = v
		case "sf":
			o.Severity[quell.Network] = v
		case "cap":
			o.Severity[quell.Network] = 1 - 2*v
		case "cpu":
			o.Utilization[quell.CPU] = v
		case "cpusf":
			o.Severity[quell.CPU] = v
		case "credits":
			o.Credits = map[quell.Resource]float64{quell.Network: v}
		case "lat":
			o.LatencyMS = &quell.Latency{Mean: &v, N: 100}
		case "n":
			o.LatencyMS.N = int(v)
		case "err":
			o.ErrorRate = &v
		case "refused":
			o.ShedRate = &v
		case "got":
			in.Share = &v
		case "probe":
			o.Probe = map[quell.Resource]quell.ProbeStats{quell.Network: {MeanMS: v, N: 10}}
		case "seen":
			o.At = at.Add(-time.Duration(v * float64(time.Second)))
		default:
			tb.Fatalf("unknown key %q", key)
		}
	}
	return in
}

func number(tb testing.TB, text string) float64 {
	tb.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

func engine(tb testing.TB, s quell.Service, m *model.Models) *Engine {
	tb.Helper()
	e, err := all.NewEngine(s, m)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// brief returns a plan as one line: its weights, its changes of the group, and the codes of its reasons except
// "interference" and "suspected".
func brief(p quell.Plan) string {
	var words []string
	for _, id := range slices.Sorted(maps.Keys(p.Weights)) {
		words = append(words, id+"="+strconv.FormatFloat(float64(int(p.Weights[id]*1000+0.5))/1000, 'g', -1, 64))
	}
	if p.Group != nil {
		if p.Group.Add > 0 {
			words = append(words, fmt.Sprintf("+%d", p.Group.Add))
		}
		for _, id := range p.Group.Remove {
			words = append(words, "-"+id)
		}
	}
	for _, r := range p.Reasons {
		if r.Code != "interference" && r.Code != "suspected" {
			words = append(words, r.Code)
		}
	}
	return strings.Join(words, " ")
}

// step is one snapshot of a sequence, with the plan, written by brief, that must follow.
type step struct {
	rows []string
	want string
}

func at(want string, rows ...string) step { return step{rows, want} }

// play runs the steps one sampling period apart. Each step gets the memory of the one before; the last memory is returned.
func play(t *testing.T, e *Engine, steps ...step) State {
	t.Helper()
	var st State
	for k, s := range steps {
		var plan quell.Plan
		plan, st = e.Decide(snap(t, k, s.rows...), st)
		if got := brief(plan); got != s.want {
			t.Errorf("snapshot %d:\n got %s\nwant %s\n%v", k, got, s.want, plan.Reasons)
		}
	}
	return st
}

// follow sets the next snapshot's weights to those of a plan, as a balancer would report them.
func follow(s *quell.Snapshot, p quell.Plan) {
	for i := range s.Instances {
		if w, ok := p.Weights[s.Instances[i].ID]; ok {
			s.Instances[i].Weight = &w
		}
	}
}

// hasReason returns whether a plan gives a reason with this code and instance.
func hasReason(p quell.Plan, code, id string) bool {
	return slices.ContainsFunc(p.Reasons, func(r quell.Reason) bool { return r.Code == code && r.Instance == id })
}

// tell sets a field of the service's policy settings, if the policy is known and has this field.
func tell(s *quell.Service, field string, value any) {
	_, settings, err := all.find(s.Policy)
	if err != nil {
		return
	}
	own := reflect.New(reflect.TypeOf(settings)).Elem()
	own.Set(reflect.ValueOf(settings))
	if f := own.FieldByName(field); f.IsValid() {
		f.Set(reflect.ValueOf(value).Convert(f.Type()))
		s.Policy.Settings = own.Interface()
	}
}

// golden is the configuration of the published sequences: headroom 1, margin 0, tolerance 0, no guard.
func golden(name string, thresholdMS float64, confirm int) quell.Service {
	s := quell.DefaultService()
	s.Name = "video"
	s.SLO = quell.SLO{Metric: quell.Mean, Threshold: time.Duration(thresholdMS * float64(time.Millisecond))}
	s.Policy.Name = name
	tell(&s, "Headroom", 1)
	tell(&s, "ScaleInMargin", 0)
	tell(&s, "Confirm", confirm)
	tell(&s, "Tolerance", 0)
	tell(&s, "Calibrate", 0)
	s.Guard = quell.Guard{}
	return s
}

// guarding is a service with the golden policy and one rule of the guard.
func guarding(policy string, change func(*quell.Service)) quell.Service {
	s := golden(policy, 75, 0)
	s.Sampling = period * time.Second
	change(&s)
	return s
}

func weighs(t *testing.T, what string, got, want map[string]float64) {
	t.Helper()
	for id, w := range want {
		if math.Abs(got[id]-w) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, got, want)
			return
		}
	}
}

func throughJSON(t *testing.T, st State) (back State) {
	t.Helper()
	data, err := json.Marshal(st)
	if err == nil {
		err = restore(data, &back)
	}
	if err != nil {
		t.Fatal(err)
	}
	return back
}

// restore reads a stored memory, as the controller does.
func restore(data []byte, into *State) error {
	if err := json.Unmarshal(data, into); err != nil {
		return err
	}
	return all.Restore(into)
}

func text(t rapid.TB, v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("cannot be written: %v", err)
	}
	return string(data)
}

// reread returns the memory as it is after it was stored and read back.
func reread(t rapid.TB, st State) State {
	var out State
	if err := errors.Join(quell.DecodeStrict([]byte(text(t, st)), &out), all.Restore(&out)); err != nil {
		t.Fatal(err)
	}
	return out
}
