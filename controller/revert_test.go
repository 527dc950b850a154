package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/table"
)

// changedState is the memory of ice after it changed two parameters of i1 and one of i2.
func changedState(t *testing.T) (st policy.State) {
	t.Helper()
	const text = `{"policy": "ice", "instances": {
		"i1": {"memory": {"tuned": {"values": {
			"apache.MaxRequestWorkers": {"original": 200, "value": 90}, "php-fpm.pm.max_children": {"original": 8, "value": 20}}}}},
		"i2": {"memory": {"tuned": {"values": {"apache.MaxRequestWorkers": {"original": 300, "value": 90}}}}}, "i3": {"memory": {}}, "i4": {}}}`
	if err := errors.Join(json.Unmarshal([]byte(text), &st), table.All.Restore(&st)); err != nil {
		t.Fatal(err)
	}
	return st
}

// leaving is the memory of a controller whose policy ice is no longer configured, and what agents report to it.
type leaving struct {
	t        *testing.T
	mem      memory
	sampling time.Duration
	paused   bool
	at       time.Time
	reported map[string]map[string]float64 // by instance; an instance that is not in it does not exist
	silent   bool                          // agents send no new readings
	read     time.Time
	last     quell.Plan
}

func newLeaving(t *testing.T) *leaving {
	t.Helper()
	l := &leaving{t: t, sampling: 10 * time.Second, at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), reported: map[string]map[string]float64{
		"i1": {"apache.MaxRequestWorkers": 90, "php-fpm.pm.max_children": 20}, "i2": {"apache.MaxRequestWorkers": 90}, "i3": nil}}
	st := changedState(t)
	l.mem.inherit(l.at, &st, "ice")
	if len(l.mem.PendingReverts) > 0 {
		t.Fatalf("while ice is configured: %v", l.mem.PendingReverts)
	}
	l.mem.inherit(l.at, &st, "outlier")
	return l
}

// expect makes one step, and compares the orders of its plan.
func (l *leaving) expect(when string, want ...string) {
	l.t.Helper()
	l.at = l.at.Add(l.sampling)
	if !l.silent {
		l.read = l.at
	}
	s := &quell.Snapshot{At: l.at}
	for _, id := range []string{"i1", "i2", "i3"} {
		if settings, there := l.reported[id]; there {
			s.Instances = append(s.Instances, quell.Instance{ID: id, Settings: settings, Observation: &quell.Observation{At: l.read}})
		}
	}
	l.last = quell.Plan{}
	lasts := l.sampling
	if l.paused {
		lasts = 0
	}
	l.mem.takeBack(s, &l.last, lasts)
	if got := fmt.Sprint(l.last.Settings); got != "["+strings.Join(want, " ")+"]" {
		l.t.Errorf("%s: %s, want %s", when, got, want)
	}
}

const (
	workers  = "{i1 apache MaxRequestWorkers 200}"
	children = "{i1 php-fpm pm.max_children 8}"
	second   = "{i2 apache MaxRequestWorkers 300}"
)

// Parameters that a policy changed go back when it is no longer configured, each until its agent reports the value of before.
func TestParametersGoBackWithTheirPolicy(t *testing.T) {
	l := newLeaving(t)
	l.expect("at first", workers, children, second)
	l.reported["i1"]["php-fpm.pm.max_children"] = 8
	delete(l.reported, "i2")
	l.expect("one is back, and an instance is away", workers)
	data, err := json.Marshal(l.mem)
	if err != nil {
		t.Fatal(err)
	}
	l.mem = memory{}
	if err := l.mem.read(table.All, data); err != nil {
		t.Fatal(err)
	}
	l.expect("after a restart", workers)
	l.reported["i1"]["apache.MaxRequestWorkers"] = 200
	l.expect("both are back")
	l.reported["i2"] = map[string]float64{"apache.MaxRequestWorkers": 90}
	l.expect("the other is there again", second)
	l.reported["i2"]["apache.MaxRequestWorkers"] = 300
	l.expect("all are back")
	if len(l.mem.PendingReverts) > 0 {
		t.Errorf("%v", l.mem.PendingReverts)
	}
}

// A reading from before the policy was taken out does not show that a value is back.
func TestAnOldReadingIsNoProof(t *testing.T) {
	l := newLeaving(t)
	l.silent, l.read = true, l.at.Add(-time.Second)
	l.reported["i2"]["apache.MaxRequestWorkers"] = 300
	l.expect("nothing new was read", workers, children, second)
	l.silent = false
	l.expect("it was", workers, children)
}

// A value that somebody else sets meanwhile stays.
func TestAForeignValueStays(t *testing.T) {
	l := newLeaving(t)
	l.reported["i2"]["apache.MaxRequestWorkers"] = 120
	for range mostForeign {
		l.expect("while it is not sure", workers, children)
	}
	if !strings.Contains(fmt.Sprint(l.last.Reasons), "somebody else set apache.MaxRequestWorkers to 120") {
		t.Errorf("%v", l.last.Reasons)
	}
	if len(l.mem.PendingReverts["i2"]) > 0 {
		t.Errorf("%v", l.mem.PendingReverts)
	}
}

// What could not be brought back is given up after a day of orders. A pause does not count.
func TestWhatIsNotBackAfterADay(t *testing.T) {
	l := newLeaving(t)
	l.sampling = 12 * time.Hour
	l.paused = true
	for range 5 {
		l.expect("during a pause", workers, children, second)
	}
	l.paused = false
	l.expect("after half a day", workers, children, second)
	l.expect("after a day", workers, children, second)
	l.expect("later")
	if len(l.mem.PendingReverts) > 0 || !strings.Contains(fmt.Sprint(l.last.Reasons), "not back after a day") {
		t.Errorf("%v, %v", l.mem.PendingReverts, l.last.Reasons)
	}
}
