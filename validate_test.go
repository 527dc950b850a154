package quell

import (
	"math"
	"strings"
	"testing"
)

func TestManyBreachesAreCounted(t *testing.T) {
	s := Snapshot{Service: "s", Instances: make([]Instance, 30)} // the time is missing; 30 times id and state are missing; 29 ids are repeated
	err := s.Validate()
	if lines := strings.Split(err.Error(), "\n"); len(lines) != mostShown+1 || lines[mostShown] != "and 70 more" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

func TestReadingRefusesWhatJSONCannotSay(t *testing.T) {
	good := Reading{Service: "s", Instance: "i", Source: FromAgent}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Reading){
		"NaN":               func(r *Reading) { r.Observation.Utilization = map[Resource]float64{Network: math.NaN()} },
		"infinity":          func(r *Reading) { r.Observation.Severity = map[Resource]float64{Network: math.Inf(1)} },
		"errors > requests": func(r *Reading) { r.Requests, r.Errors = 1, 2 },
		"no instance":       func(r *Reading) { r.Instance = "" },
		"no source":         func(r *Reading) { r.Source = "" },
		"long sender":       func(r *Reading) { r.Sender = strings.Repeat("x", 300) },
	} {
		t.Run(name, func(t *testing.T) {
			r := good
			change(&r)
			if r.Validate() == nil {
				t.Error("accepted")
			}
		})
	}
}

func TestAtMostIsRelative(t *testing.T) {
	if !AtMost(300*(1+1e-10), 300) || AtMost(300*(1+1e-8), 300) || !AtMost(0, 0) {
		t.Error("the tolerance is 1e-9 of the larger")
	}
}
