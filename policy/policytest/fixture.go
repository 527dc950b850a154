// Package policytest has what the tests of policies share: snapshots written as lines of text, services, models, and ways to let an engine
// decide on them. Only tests import it.
package policytest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// Period is the sampling period of the tests, in seconds.
const Period = 10

// Start is when the tests begin.
var Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Snap makes the k-th snapshot of a sequence from one line per instance, such as
//
//	"i1 weight=0.5 use=0.4 cap=0.3 age=100"
//
// The first word is the id. use and sf are use and severity of the network, cpu and cpusf those of the processor; cap is instead the
// severity that leaves this capacity under the golden models and 75 ms. lat is a mean response time of n requests (100), rate the requests
// per second, answered the answers per second, err the part of the requests that failed, refused the part that was refused, probe a mean of
// 10 probes, credits a balance of the network, seen the age of the observation in seconds. weight is the present share, got the part of the
// requests that came, age the instance's in seconds, hand the weight that a person set, for the instance that this one will replace. A bare
// word is a state (ready), "held" by a person, "stuck" if it cannot be stopped, or "silent", which leaves the observation out. A row
// "arrivals=70" is the service's; "coming=2" are ordered instances that are not listed yet.
func Snap(tb testing.TB, k int, rows ...string) *quell.Snapshot {
	tb.Helper()
	s := &quell.Snapshot{At: Start.Add(time.Duration(k+1) * Period * time.Second), Service: "video"}
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
				in.Held = &quell.Held{By: "ann", Since: Start}
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
		case "rate":
			o.RequestRate = &v
		case "answered":
			o.AnsweredRate = &v
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
			tb.Fatalf("instance %s: unknown word %q; the comment of policytest.Snap lists them (go doc ./policy/policytest Snap)", in.ID, word)
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

// Kit makes engines of the policies in a table.
type Kit struct{ policy.Table }

// Engine compiles a service's policy.
func (k Kit) Engine(tb testing.TB, s quell.Service, m *model.Models) *policy.Engine {
	tb.Helper()
	e, err := k.NewEngine(s, m)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// Brief returns a plan as one line: its weights, its changes of the group, and the codes of its reasons except
// "interference" and "suspected".
func Brief(p quell.Plan) string {
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

// Step is one snapshot of a sequence, with the plan, written by Brief, that must follow.
type Step struct {
	Rows []string
	Want string
}

// At makes a step.
func At(want string, rows ...string) Step { return Step{rows, want} }

// Play runs the steps one sampling period apart. Each step gets the memory of the one before; the last memory is returned.
func Play(t *testing.T, e *policy.Engine, steps ...Step) policy.State {
	t.Helper()
	var st policy.State
	for k, s := range steps {
		var plan quell.Plan
		plan, st = e.Decide(Snap(t, k, s.Rows...), st)
		if got := Brief(plan); got != s.Want {
			t.Errorf("snapshot %d:\n got %s\nwant %s\n%v", k, got, s.Want, plan.Reasons)
		}
	}
	return st
}

// Follow sets the next snapshot's weights to those of a plan, as a balancer would report them.
func Follow(s *quell.Snapshot, p quell.Plan) {
	for i := range s.Instances {
		if w, ok := p.Weights[s.Instances[i].ID]; ok {
			s.Instances[i].Weight = &w
		}
	}
}

// HasReason returns whether a plan gives a reason with this code and instance.
func HasReason(p quell.Plan, code, id string) bool {
	return slices.ContainsFunc(p.Reasons, func(r quell.Reason) bool { return r.Code == code && r.Instance == id })
}

// ReasonOf returns the text of a plan's first reason with this code and instance, or "".
func ReasonOf(p quell.Plan, code, id string) string {
	for _, r := range p.Reasons {
		if r.Code == code && r.Instance == id {
			return r.Text
		}
	}
	return ""
}

// Tell sets a field of the service's policy settings, if the policy is known and has this field.
func (k Kit) Tell(s *quell.Service, field string, value any) {
	settings := k.Whole(s.Policy).Settings
	if settings == nil {
		return
	}
	own := reflect.New(reflect.TypeOf(settings)).Elem()
	own.Set(reflect.ValueOf(settings))
	if f := own.FieldByName(field); f.IsValid() {
		f.Set(reflect.ValueOf(value).Convert(f.Type()))
		s.Policy.Settings = own.Interface()
	}
}
