package controller

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// changedState is the memory of ice after it changed two parameters of i1 and one of i2.
func changedState(t *testing.T) (st policy.State) {
	t.Helper()
	const text = `{"policy": "ice", "instances": {
		"i1": {"memory": {"tuned": {"values": {"apache.MaxRequestWorkers": {"original": 200, "value": 90}, "php-fpm.pm.max_children": {"original": 8, "value": 20}}}}},
		"i2": {"memory": {"tuned": {"values": {"apache.MaxRequestWorkers": {"original": 300, "value": 90}}}}}, "i3": {"memory": {}}, "i4": {}}}`
	if err := json.Unmarshal([]byte(text), &st); err != nil {
		t.Fatal(err)
	}
	return st
}

// Parameters that a policy changed go back when it is no longer configured, each until its agent reports the value of before.
func TestParametersGoBackWithTheirPolicy(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := &Controller{now: func() time.Time { return now }}
	reported := map[string]map[string]float64{"i1": {"apache.MaxRequestWorkers": 90, "php-fpm.pm.max_children": 20}, "i2": nil, "i3": nil}
	orders := func() string {
		s := &quell.Snapshot{At: now}
		for _, id := range []string{"i1", "i2", "i3"} {
			if settings, there := reported[id]; there {
				s.Instances = append(s.Instances, quell.Instance{ID: id, Settings: settings})
			}
		}
		plan := &quell.Plan{Settings: []quell.Setting{{Instance: "i1", Target: "apache", Name: "MaxRequestWorkers", Value: 50}}}
		c.takeBack(s, plan)
		return fmt.Sprint(plan.Settings)
	}
	const other, first, children = "{i1 apache MaxRequestWorkers 50}", "{i1 apache MaxRequestWorkers 200}", "{i1 php-fpm pm.max_children 8}"
	const second = "{i2 apache MaxRequestWorkers 300}"
	expect := func(when, want string) {
		t.Helper()
		if got := orders(); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	st := changedState(t)
	c.inherit(&st, "ice")
	expect("while ice is configured", "["+other+"]")
	c.inherit(&st, "outlier")
	expect("at first", "["+first+" "+children+" "+second+"]")
	reported["i1"]["php-fpm.pm.max_children"] = 8
	delete(reported, "i2")
	expect("one is back, and an instance is away", "["+first+"]")
	c.mem = throughStore(t, c.mem)
	reported["i1"]["apache.MaxRequestWorkers"] = 200
	expect("both are back", "["+other+"]")
	reported["i2"] = map[string]float64{"apache.MaxRequestWorkers": 90}
	expect("the other is there again", "["+other+" "+second+"]")
	now = now.Add(leftoverFor)
	expect("after a day", "["+other+"]")
	if len(c.mem.Leftovers) > 0 {
		t.Errorf("%v", c.mem.Leftovers)
	}
}

// throughStore stores and reads a memory.
func throughStore(t *testing.T, m memory) (read memory) {
	t.Helper()
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &read); err != nil {
		t.Fatal(err)
	}
	return read
}
