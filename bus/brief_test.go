package bus

import (
	"reflect"
	"testing"

	"github.com/quellhq/quell"
)

const fullSnapshot = `{"at":"2026-01-01T00:00:10Z","service":"video","host":"","arrival_rate":95.2,"coming":1,
 "turn":{"began":"2026-01-01T00:00:00Z","number":3,"back":true,"age_s":12},"spoiled":"a \"pause\" {","instances":[
 {"id":"i\u00e4","type":"t3.medium","state":"ready","health":"GET / \"500\"","weight":0.5,"base":3,"held":{"by":"ann","since":"2026-01-01T00:00:00Z"},
  "limits":{"network":2e8},"settings":{"a.b":1},"share":null,"observation":{"at":"2026-01-01T00:00:09.8Z","window_s":10,"request_rate":47.6,
  "error_rate":0,"request_rates":{"Home":30.1},"latency_ms":{"mean":48.1,"p50":40,"p90":81,"p95":95,"p99":1.3e2,"n":476},
  "utilization":{"network":0.42,"cpu":0.11},"probe":{"network":{"mean_ms":17.9,"stddev_ms":2.1,"n":8}},"cpu":{"user":0.08}}},
 {"id":"i2","state":"failed"},{"id":"i3","state":"starting","weight":null,"observation":null}]}`

const fullEntry = `{"at":"2026-01-01T00:00:10Z","seq":4,"kind":"plan","mode":"act","applied":true,"text":"x","why":"y","changes":["a"],
 "plan":{"at":"2026-01-01T00:00:10Z","service":"video","policy":"prima","weights":{"i1":0.42,"i2":0.58},"group":{"add":1,"remove":["i3"]},
 "capacity":{"i1":0.195},"predicted_ms":{"i1":71.0},"severity":{"i1":0},"predicted_at_capacity_ms":{"i1":75.0},"cause":{"i1":"network"},
 "own_work":{"i2":{"resource":"cpu","use":0.2,"by":"cron"}},"authority":"step","would":{"weights":{"i1":1}},
 "reasons":[{"code":"capacity_short","instance":"","text":"..."}],"limiter":{"i1":"network"}}}`

// What is read in brief is what is read as a whole, without what reports do not use.
func TestBriefIsTheSame(t *testing.T) {
	x := newBriefs()
	for range 2 { // decoders are used again
		var whole, short quell.Snapshot
		if err := wholeSnapshot([]byte(fullSnapshot), &whole); err != nil {
			t.Fatal(err)
		}
		if err := x.snapshot([]byte(fullSnapshot), &short); err != nil {
			t.Fatal(err)
		}
		want := quell.Snapshot{At: whole.At, Service: whole.Service, Turn: whole.Turn}
		for _, in := range whole.Instances {
			kept := quell.Instance{ID: in.ID, State: in.State, Health: in.Health, Weight: in.Weight, Base: in.Base, Held: in.Held}
			if o := in.Observation; o != nil {
				kept.Observation = &quell.Observation{WindowS: o.WindowS, RequestRate: o.RequestRate, ErrorRate: o.ErrorRate,
					LatencyMS: o.LatencyMS, Utilization: o.Utilization}
			}
			want.Instances = append(want.Instances, kept)
		}
		if !reflect.DeepEqual(short, want) {
			t.Errorf("%+v, want %+v", short, want)
		}
		var entry, brief Entry
		if err := wholeEntry([]byte(fullEntry), &entry); err != nil {
			t.Fatal(err)
		}
		if err := x.entry([]byte(fullEntry), &brief); err != nil {
			t.Fatal(err)
		}
		p := entry.Plan
		wanted := Entry{At: entry.At, Kind: entry.Kind, Mode: entry.Mode, Applied: true, Plan: &quell.Plan{At: p.At, Service: p.Service,
			Weights: p.Weights, Group: p.Group, Capacity: p.Capacity, PredictedMS: p.PredictedMS, Severity: p.Severity, Cause: p.Cause,
			OwnWork: p.OwnWork, Authority: p.Authority, Would: p.Would, Reasons: p.Reasons}}
		if !reflect.DeepEqual(brief, wanted) {
			t.Errorf("%+v, want %+v", brief.Plan, wanted.Plan)
		}
	}
}

// Damaged records are errors, and leave the decoder fit for the next one.
func TestBriefOfDamagedRecords(t *testing.T) {
	x := newBriefs()
	for k := range fullSnapshot {
		if err := x.snapshot([]byte(fullSnapshot[:k]), new(quell.Snapshot)); err == nil {
			t.Errorf("the first %d bytes are no error", k)
		}
	}
	for _, bad := range []string{`[]`, `{"instances":{}}`, `{"instances":[{"state":"odd"}]}`, `{"instances":[{"weight":"0.5"}]}`,
		`{"instances":[{"observation":{"utilization":{"steam":1}}}]}`, `{"at":3}`, `{"service":{}}`, `{"instances":[{"weight":1e999}]}`} {
		if err := x.snapshot([]byte(bad), new(quell.Snapshot)); err == nil {
			t.Errorf("%s is no error", bad)
		}
	}
	if err := x.snapshot([]byte(fullSnapshot), new(quell.Snapshot)); err != nil {
		t.Error(err)
	}
}
