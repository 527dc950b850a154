package main

import (
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/report"
)

// someStranger is a run with one neighbour, which is named in all plans but the first, and a false alarm.
func someStranger() strangerFigures {
	set := strangerRuns["fast"]
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	r := &strangerRecord{Settings: set, Machines: []string{"web-1", "web-2", "web-3"}, Began: began, Knows: at(20), Calm: at(60),
		Visits: []strangerVisit{{Instance: "web-2", Use: 0.5, True: 0.48, From: at(60), To: at(90)}}, Requests: 1000,
		Alone: strangerCost{Balancer: 0.05}, Beside: strangerCost{Balancer: 0.06, Controller: 0.03, Agent: 0.005}}
	for s := 21; s < 100; s++ {
		told := strangerTold{At: at(s)}
		switch {
		case s == 30:
			told.Use = map[string]float64{"web-3": 0.1}
		case s > 61 && s < 90:
			told.Use = map[string]float64{"web-2": 0.45}
		}
		r.Told = append(r.Told, told)
	}
	f := newStrangerFigures(map[string]*strangerRecord{"fast": r, "disturbed": anHour(began)})
	f.place = somewhere
	return f
}

// anHour has a neighbour at web-1 from 600 to 660 s, an accusation of web-2 at 900 s, and one of web-1 just after its neighbour left. At
// the start a plan says that the group is overloaded, and one has a capacity that is too high.
func anHour(began time.Time) *strangerRecord {
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	r := &strangerRecord{Settings: strangerRuns["disturbed"], Machines: []string{"web-1", "web-2"}, Began: began, Knows: at(20),
		Calm: at(600), Visits: []strangerVisit{{Instance: "web-1", Use: 0.5, True: 0.5, From: at(600), To: at(660)}}, Requests: 2000, Failed: 1,
		Predictions: report.Predictions{Checked: 40, Bias: 1.02, Within: 0.9}}
	for s := 10; s <= 1200; s += 10 {
		t := strangerTold{At: at(s), Overload: s == 20, Capacity: map[string]float64{"web-1": 0.6, "web-2": 0.6}, Use: map[string]float64{}}
		if s == 10 {
			t.Capacity["web-2"] = 0.9
		}
		if s > 600 && s <= 670 {
			t.Use["web-1"] = 0.5
		}
		if s == 900 {
			t.Use["web-2"] = 0.2
		}
		r.Told = append(r.Told, t)
	}
	return r
}

func TestStrangerHour(t *testing.T) {
	got := newStrangerHourRow("disturbed", anHour(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
	want := strangerHourRow{Name: "disturbed", Visits: 1, Right: 5, Plans: 5, Calm: 232, Accused: 1, Overload: 1, Early: 58, Off: 1,
		Requests: 2000, Failed: 1, Predicted: report.Predictions{Checked: 40, Bias: 1.02, Within: 0.9}}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestStrangerFigures(t *testing.T) {
	row := someStranger().Rows[0]
	if row.Known != 20 || row.Calm != 117 || row.Alarms != 1 {
		t.Errorf("%+v", row)
	}
	want := strangerSeen{Instance: "web-2", True: 0.48, Plans: 29, Right: 28, Told: 0.45, Near: 28, FirstS: 2}
	if got := row.Visits[0]; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Plans are read as a person reads them.
func TestToldBy(t *testing.T) {
	plan := &quell.Plan{Reasons: []quell.Reason{
		{Code: "interference", Instance: "web-1",
			Text: "severity 1.02 at own use 0.310: neighbours take about 0.480 of the network, so it can carry 0.2 within 75 ms"},
		{Code: "interference", Instance: "web-2", Text: "severity 1.02 at own use 0.310: neighbours take about 0.480 of the cpu, so it can"},
		{Code: "scale", Text: "about 0.3 of the network"},
	}}
	if told := toldBy(&bus.Entry{Plan: plan}); len(told.Use) != 1 || told.Use["web-1"] != 0.48 || told.Shares != nil {
		t.Errorf("told %+v", told)
	}
	if _, ok := knowing([]bus.Entry{{Plan: plan}}, 1); ok {
		t.Error("a plan without severities knows something")
	}
}

// The load goes up and down around its mean.
func TestStrangerRate(t *testing.T) {
	set := strangerRuns["fast"]
	if mean := set.rate(3, 0); mean < 112 || mean > 113 {
		t.Errorf("%v requests/s", mean)
	}
	if most := set.rate(3, 15*time.Second) / set.rate(3, 0); most < 1.49 || most > 1.51 {
		t.Errorf("at most %v times the mean", most)
	}
}

func TestStrangerCost(t *testing.T) {
	before := map[string]int{frontProgram: 100, "nginx-web-1": 7}
	after := map[string]int{frontProgram: 200, "nginx-web-1": 99, "controller": 50, "agent-web-1": 10, "agent-web-2": 20}
	if got, want := strangerCostOf(before, after, 10*time.Second), (strangerCost{Balancer: 0.1, Controller: 0.05, Agent: 0.015}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := strangerCostOf(nil, nil, time.Second); got != (strangerCost{}) {
		t.Errorf("nothing cost %+v", got)
	}
}
