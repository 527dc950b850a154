package host

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/sensor"
)

func ptr(v float64) *float64 { return &v }

// group is a group that used some processors in a window of ten seconds, and waited for a part of the time.
func group(id string, processors, wait float64) quell.Instance {
	return quell.Instance{ID: id, Observation: &quell.Observation{WindowS: 10,
		Sched: &quell.Sched{RunS: 10 * processors, WaitS: ptr(wait), TaskRunS: ptr(1 - wait)}}}
}

func weight(id string, value float64) quell.Limit {
	return quell.Limit{Instance: id, Resource: quell.CPU, Value: value, Unit: quell.WeightUnit}
}

func processors(id string, value float64) quell.Limit {
	return quell.Limit{Instance: id, Resource: quell.CPU, Value: value, Unit: "processors"}
}

// A tenancy says for each group what it uses, how long it waits, how much it is slowed down, what is set, who is favoured, and why.
func TestTenancy(t *testing.T) {
	s := Status{Host: "h", Policy: "acs", Machine: &quell.Observation{WindowS: 10, Sched: &quell.Sched{Cores: 2, RunS: 19},
		CPU: &quell.CPUTime{Steal: 0.03}}, Groups: []quell.Instance{group("web", 1.2, 0.2), group("db", 0.7, 0.5), group("cron", 0, 0)},
		Plan: &quell.Plan{Tenants: map[string]quell.Tenant{"web": {Slowdown: ptr(1.2), Wanted: ptr(1.5)},
			"db": {Slowdown: ptr(2), Wanted: ptr(1.4)}, "cron": {Idle: true}},
			Limits:  []quell.Limit{weight("web", 0.6), weight("db", 2), weight("cron", 1), weight("/system.slice", 3)},
			Reasons: []quell.Reason{{Code: "acs_uneven", Text: "they differ"}, {Code: "acs_weighted", Instance: "db", Text: "slowdown 2"}}},
		Unread: map[string]string{"group x": "it is gone"}}
	got := s.Tenancy()
	if got.Policy != "acs" || *got.Cores != 2 || *got.Used != 1.9 || *got.Steal != 0.03 || got.Why != "they differ" || len(got.Tenants) != 3 ||
		got.Problems[0] != "group x: it is gone" {
		t.Fatalf("got %+v", got)
	}
	db, web, cron := got.Tenants[0], got.Tenants[1], got.Tenants[2]
	if db.Name != "db" || *db.Processors != 0.7 || *db.Waits != 0.5 || *db.Slowdown != 2 || *db.Weight != 2 || db.Favour != quell.Favoured ||
		db.Why != "slowdown 2" || db.Cap != nil {
		t.Errorf("db: %+v", db)
	}
	if web.Name != "web" || web.Favour != quell.HeldBack || cron.Favour != "" || !cron.Idle {
		t.Errorf("web: %+v, cron: %+v", web, cron)
	}
	s.Groups[0].Share = ptr(0.3) // web is so much less important that its weight is as much as it deserves
	if got := s.Tenancy(); got.Tenants[1].Favour != "" || got.Tenants[0].Favour != "" {
		t.Errorf("by importance: %+v", got.Tenants)
	}
	s.Groups[0].Share = nil
	s.Plan.Limits = []quell.Limit{processors("web", 0.9)}
	s.NotLimited = map[string]string{"web": "no right"}
	got = s.Tenancy()
	if db, web := got.Tenants[0], got.Tenants[1]; db.Favour != quell.Favoured || web.Favour != quell.HeldBack || *web.Cap != 0.9 ||
		web.Why != "its limit is not in force: no right" {
		t.Errorf("by caps: %+v, %+v", db, web)
	}
	if (Status{Host: "h", Policy: "acs"}).Tenancy() != nil {
		t.Error("there is a tenancy before the first decision")
	}
}

// However many groups there are, and however long their names and reasons, a reading with their tenancy is valid. A figure that cannot be
// costs the tenancy only.
func TestTenancyIsBounded(t *testing.T) {
	s := Status{Policy: "acs", Plan: &quell.Plan{Tenants: map[string]quell.Tenant{}}, Unread: map[string]string{}}
	for i := range 100 {
		id := strings.Repeat("ä", 200) + fmt.Sprint(i)
		s.Groups = append(s.Groups, group(id, 0, 0))
		s.Plan.Tenants[id] = quell.Tenant{Slowdown: ptr(float64(i))}
		s.Plan.Reasons = append(s.Plan.Reasons, quell.Reason{Instance: id, Text: strings.Repeat("ö\xff", 500)})
		s.Unread[id] = strings.Repeat("ü", 1000)
	}
	valid := func(got *quell.Tenancy) {
		t.Helper()
		r := quell.Reading{Service: "s", Instance: "i", Source: quell.FromAgent, Tenancy: got}
		if err := r.Validate(); err != nil {
			t.Error(err)
		}
		r.Source = quell.FromProber
		if r.Validate() == nil {
			t.Error("a prober may tell of tenants")
		}
	}
	got := s.Tenancy()
	valid(got)
	if len(got.Tenants) != quell.MostTenants || got.More != 100-quell.MostTenants || *got.Tenants[0].Slowdown != 99 ||
		!strings.HasSuffix(got.Tenants[0].Name, "ä99") {
		t.Errorf("%d tenants, %d more; the first is %+v", len(got.Tenants), got.More, got.Tenants[0])
	}
	s.Plan.Tenants[s.Groups[0].ID] = quell.Tenant{Slowdown: ptr(math.Inf(1))}
	got = s.Tenancy()
	valid(got)
	if len(got.Tenants) != 0 || len(got.Problems) != 1 || !strings.Contains(got.Problems[0], "not a finite num") {
		t.Errorf("with an infinite slowdown: %+v", got)
	}
}

// What the loop publishes has the groups that it read.
func TestLoopTellsOfTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := homeless(t)
		m := &machine{waits: waiting(0.5), fails: func(int) []sensor.Failure {
			return []sensor.Failure{{Sensor: "group db", Err: errors.New("it is gone")}}
		}}
		run(t, Options{Period: time.Second, Reader: m, Home: home}, 3500*time.Millisecond)
		got := home.Status().Tenancy()
		if got == nil || len(got.Tenants) != 1 || got.Tenants[0].Name != "web" || *got.Tenants[0].Processors != 0.5 ||
			math.Abs(*got.Tenants[0].Waits-0.5) > 0.01 || len(got.Problems) != 1 {
			t.Errorf("got %+v", got)
		}
	})
}
