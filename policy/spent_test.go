package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// onProcessors is a service of burstable machines whose processors limit it.
func onProcessors(t *testing.T, name string, change func(*policy.CreditSettings)) quell.Service {
	t.Helper()
	s := golden(name, 75, 0)
	tell(&s, "Resources", policy.ResourcesOf(quell.CPU))
	credits := policy.CreditSettings{Last: time.Hour}
	if change != nil {
		change(&credits)
	}
	tell(&s, "Credits", credits)
	s.Group.Max = 2
	return s
}

// burstable sets an instance's type, shown balance and use, and what its hypervisor withholds. Its probes take ten times as long as alone.
func burstable(in *quell.Instance, instanceType string, balance, use, steal float64) {
	in.Type = instanceType
	o := in.Observation
	o.WindowS = period
	o.Utilization[quell.CPU], o.Credits = use, map[quell.Resource]float64{quell.CPU: balance}
	o.CPU = &quell.CPUTime{User: use, Steal: steal}
	o.Probe = map[quell.Resource]quell.ProbeStats{quell.CPU: {MeanMS: 100, StddevMS: 5, N: 40}}
	o.Severity = map[quell.Resource]float64{}
	o.LatencyMS = &quell.Latency{Mean: new(400.), N: 300}
	wait := use * period * 4
	o.Sched = &quell.Sched{Cores: 1, RunS: use * period, WaitS: &wait}
}

// A t2.micro without credits that is held at its baseline waits for its provider. That is no interference: its cause is the credits, it
// carries its baseline, and models learn nothing from it.
func TestUsedUpCredits(t *testing.T) {
	for why, c := range map[string]struct {
		instanceType        string
		balance, use, steal float64
		held                bool
	}{
		"used up":                          {"t2.micro", 0, 0.1, 0.8, true},
		"no more than is earned meanwhile": {"t2.micro", 0.4, 0.095, 0.8, true},
		"credits are left":                 {"t2.micro", 30, 0.1, 0.8, false},
		"it uses more than its baseline":   {"t2.micro", 0, 0.4, 0.3, false},
		"it uses less":                     {"t2.micro", 0, 0.03, 0.8, false},
		"it is not held without credits":   {"t3.medium", 0, 0.2, 0.8, false},
		"no burstable type":                {"m6i.large", 0, 0.1, 0.8, false},
		"an unknown type":                  {"x9.huge", 0, 0.1, 0.8, false},
	} {
		decides := engine(t, onProcessors(t, "prima", nil), twins(goldenModels(t)))
		learns, err := all.NewLearningEngine(onProcessors(t, "prima", nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		var st, known policy.State
		var plan quell.Plan
		for k := range 5 {
			s := snap(t, k, "i1 weight=1 age=9000")
			burstable(&s.Instances[0], c.instanceType, c.balance, c.use, c.steal)
			before := text(t, s)
			plan, st = decides.Decide(s, st)
			_, known = learns.Decide(s, known)
			if text(t, s) != before {
				t.Fatalf("%s: the snapshot was changed", why)
			}
		}
		windows, answered := known.Learned.Count(quell.CPU)
		blames := slices.ContainsFunc(plan.Reasons, func(r quell.Reason) bool {
			return r.Code == "interference" || strings.HasPrefix(r.Code, "waits_") || r.Code == "suspected"
		})
		if c.held != (plan.Cause["i1"] == "credits") || c.held != hasReason(plan, "credits_spent", "i1") || c.held && blames ||
			c.held != (windows == 0) || c.held != (answered == 0) {
			t.Errorf("%s: cause %q, %d windows learned; %v", why, plan.Cause["i1"], windows, plan.Reasons)
		}
		if got := plan.Capacity["i1"]; c.held && (got < 0.1 || got > 0.2 || plan.Limiter["i1"] != policy.LimitedByCredits) {
			t.Errorf("%s: capacity %v by %q", why, got, plan.Limiter["i1"])
		}
	}
	// Policies without capacities go on feeling that it is slow, and name the cause.
	s := snap(t, 0, "i1 weight=0.5", "i2 weight=0.5")
	burstable(&s.Instances[0], "t2.micro", 0, 0.1, 0.8)
	plan, _ := engine(t, onProcessors(t, "hpa", nil), nil).Decide(s, policy.State{})
	if plan.Cause["i1"] != "credits" || plan.Cause["i2"] != "" {
		t.Errorf("hpa: %v", plan.Cause)
	}
}

// A t3.medium with a shown balance of 0 is not slowed down unless its owner chose so: the table says so. Use settles what the table says
// wrongly.
func TestUnlimitedByDefault(t *testing.T) {
	for why, c := range map[string]struct {
		instanceType string
		use          float64
		change       func(*policy.CreditSettings)
		periods      int
		want         string // the limiter
	}{
		"by the table":                           {"t3.medium", 0.7, nil, 1, ""},
		"a type that is slowed down":             {"t2.medium", 0.7, nil, 1, policy.LimitedByCredits},
		"use above the baseline for ten minutes": {"t2.medium", 0.7, nil, 60, ""},
		"it rests":                               {"t2.medium", 0.1, nil, 60, policy.LimitedByCredits},
		"slow at its baseline":                   {"t3.medium", 0.2, nil, 60, policy.LimitedByCredits},
		"configured: no": {"t3.medium", 0.7, func(s *policy.CreditSettings) { s.Unlimited = new(false) }, 60,
			policy.LimitedByCredits},
		"configured: yes": {"t2.medium", 0.7, func(s *policy.CreditSettings) { s.Unlimited = new(true) }, 1, ""},
	} {
		e := engine(t, onProcessors(t, "prima", c.change), twins(goldenModels(t)))
		var st policy.State
		var plan quell.Plan
		for k := range c.periods {
			s := snap(t, k, fmt.Sprintf("i1 weight=1 cpu=%v age=90000", c.use))
			burstable(&s.Instances[0], c.instanceType, 0, c.use, 0)
			o := s.Instances[0].Observation
			o.Probe, o.LatencyMS, o.Sched = nil, nil, nil
			o.Severity[quell.CPU] = map[bool]float64{true: 1.5}[strings.HasPrefix(why, "slow")]
			plan, st = e.Decide(s, st)
		}
		if got := plan.Limiter["i1"]; got != c.want {
			t.Errorf("%s: limited by %q, capacity %v; %v", why, got, plan.Capacity["i1"], plan.Reasons)
		}
	}
}
