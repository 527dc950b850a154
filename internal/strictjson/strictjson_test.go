package strictjson

import (
	"encoding/json"
	"errors"
	"io"

	"github.com/quellhq/quell"

	"reflect"
	"strings"
	"testing"
)

const contractSnapshot = `{"at":"2026-01-01T00:00:10Z","service":"video","arrival_rate":95.2,"instances":[{"id":"i1","type":"t3.medium","state":"ready","weight":1,"age_s":120,"limits":{"network":200e6},"settings":{"apache.MaxRequestWorkers":120},"observation":{"at":"2026-01-01T00:00:09.8Z","window_s":10,"request_rate":47.6,"error_rate":0,"in_flight":3.1,"request_rates":{"HomePage":30.1,"TagSearch":17.5},"latency_ms":{"mean":48.1,"p50":40,"p90":81,"p95":95,"p99":130,"n":476},"latency_by_class_ms":{"HomePage":{"p90":70,"n":301}},"utilization":{"network":0.42,"cpu":0.11},"probe":{"network":{"mean_ms":17.9,"stddev_ms":2.1,"n":8}},"severity":{"network":0.75},"cpu":{"user":0.08,"system":0.03,"iowait":0.0,"steal":0.0},"counters":{"cpi":1.9,"cache_miss_rate":0.11},"tcp":{"retransmit_rate":0.0,"connect_ms_p90":0.4},"pressure":{"cpu":0.0,"io":0.0,"memory":0.0},"slowdown":1.21,"credits":{"cpu":28.5,"network":91000}}}]}`

func snapshotLine(instances string) string {
	return `{"at":"2026-01-01T00:00:10Z","service":"s","instances":[` + instances + `]}`
}

func TestSnapshotReaderRefuses(t *testing.T) {
	obs := func(o string) string {
		return snapshotLine(`{"id":"a","state":"ready","observation":{"at":"2026-01-01T00:00:00Z",` + o + `}}`)
	}
	for name, tc := range map[string]struct{ in, want string }{
		"unknown field":       {snapshotLine(`{"id":"a","state":"ready","wieght":1}`), `unknown field "wieght"`},
		"unknown state":       {snapshotLine(`{"id":"a","state":"redy"}`), `unknown state "redy" (known: starting, ready, draining, failed)`},
		"missing state":       {snapshotLine(`{"id":"a"}`), `instances[0].state`},
		"duplicate id":        {snapshotLine(`{"id":"a","state":"ready"},{"id":"a","state":"ready"}`), `instances[1].id: "a" is given twice`},
		"duplicate field":     {snapshotLine(`{"id":"a","id":"b","state":"ready"}`), `field "id" is given twice`},
		"nested duplicate":    {obs(`"latency_ms":{"mean":1,"mean":2}`), `field "mean" is given twice`},
		"other letters":       {`{"at":"2026-01-01T00:00:10Z","service":"s","Service":"y","instances":[]}`, `unknown field "Service"`},
		"other letters deep":  {obs(`"severity":{"network":0},"SEVERITY":{"network":5}`), `unknown field "SEVERITY"`},
		"other letters alone": {snapshotLine(`{"ID":"a","state":"ready"}`), `unknown field "ID"`},
		"missing id":          {snapshotLine(`{"state":"ready"}`), `instances[0].id: missing`},
		"NaN":                 {obs(`"window_s":NaN`), `invalid character 'N'`},
		"too large a number":  {obs(`"window_s":1e999`), `1e999`},
		"negative rate":       {obs(`"request_rate":-1`), `observation.request_rate: -1 is negative`},
		"negative arrivals":   {`{"at":"2026-01-01T00:00:10Z","service":"s","arrival_rate":-2,"instances":[]}`, `arrival_rate: -2 is negative`},
		"error rate over 1":   {obs(`"error_rate":1.5`), `error_rate: 1.5 is more than 1`},
		"absurd utilization":  {obs(`"utilization":{"network":7}`), `utilization.network: 7 is more than 2`},
		"a probe of nothing":  {obs(`"probe":{"cpu":{"mean_ms":1,"n":1,"by":{}}}`), `probe.cpu.by.bytes: 0 bytes, 0 times: no probe`},
		"an endless reason":   {obs(`"probe_failed":{"disk":"` + strings.Repeat("x", 1025) + `"}`), `probe_failed.disk: longer than 1024 bytes`},
		"absurd severity":     {obs(`"severity":{"network":1e9}`), `severity.network: 1e+09 is more than`},
		"unknown resource":    {obs(`"severity":{"netwrok":1}`), `unknown resource "netwrok"`},
		"probe never taken":   {obs(`"probe":{"network":{"mean_ms":0,"stddev_ms":0,"n":0}}`), `a probe that was not taken is left out`},
		"weights sum to 0.9": {snapshotLine(`{"id":"a","state":"ready","weight":0.5},{"id":"b","state":"ready","weight":0.4}`),
			`the weights sum to 0.9, not to 1`},
		"weight over 1":       {snapshotLine(`{"id":"a","state":"ready","weight":1.5}`), `instances[0].weight: 1.5 is more than 1`},
		"no time":             {`{"service":"s","instances":[]}`, `at: missing`},
		"no service":          {`{"at":"2026-01-01T00:00:10Z","instances":[]}`, `service: missing`},
		"truncated":           {contractSnapshot[:200], `truncated`},
		"trailing":            {snapshotLine("") + "{}", `more after the end`},
		"not JSON":            {"hello", `invalid character`},
		"all errors together": {obs(`"request_rate":-1,"in_flight":-2`), `in_flight: -2 is negative`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewSnapshotReader("f.jsonl", strings.NewReader(tc.in)).Next()
			var user *quell.UserError
			if !errors.As(err, &user) || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "f.jsonl:1: ") {
				t.Fatalf("got %v, want a UserError at f.jsonl:1 with %q", err, tc.want)
			}
		})
	}
}

func TestSnapshotReaderWantsOrderOfTime(t *testing.T) {
	later := snapshotLine("")
	earlier := strings.Replace(later, "00:00:10", "00:00:05", 1)
	r := NewSnapshotReader("f", strings.NewReader(later+"\n\n"+later+"\n"+earlier+"\n"))
	for range 2 {
		if _, err := r.Next(); err != nil {
			t.Fatal("equal times are in order:", err)
		}
	}
	if _, err := r.Next(); err == nil || !strings.Contains(err.Error(), "f:4: at: time goes backwards") {
		t.Fatalf("got %v", err)
	}
}

func TestSnapshotOfTheContractRoundTrips(t *testing.T) {
	s, err := NewSnapshotReader("contract", strings.NewReader(contractSnapshot)).Next()
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	_ = json.Unmarshal([]byte(contractSnapshot), &want)
	_ = json.Unmarshal(out, &got)
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("changed on the way:\n got %s\nwant %s", out, contractSnapshot)
	}
	if mean, ok := s.Instances[0].Observation.LatencyMS.Of(quell.P95); !ok || mean != 95 {
		t.Errorf("p95 = %v, %v", mean, ok)
	}
	if _, ok := (&quell.Latency{}).Of(quell.Mean); ok {
		t.Error("an absent mean must be absent")
	}
}

// TestDecodeKnowsEmbeddedAndFreeKeys checks that fields of an embedded struct are accepted like those of the outer
// struct, and that maps may have any key.
func TestDecodeKnowsEmbeddedAndFreeKeys(t *testing.T) {
	var states []quell.BackendState
	if err := Decode([]byte(`[{"id":"a","address":"b:1","weight":1,"healthy":true,"in_flight":3}]`), &states); err != nil ||
		states[0].InFlight != 3 {
		t.Errorf("%v, %+v", err, states)
	}
	if err := Decode([]byte(`[{"id":"a","ID":"z"}]`), &states); err == nil {
		t.Error("accepted ID beside id")
	}
	var free map[string]json.RawMessage
	if err := Decode([]byte(`{"Home":{"x":1},"home":{"X":[1,{"y":2}]}}`), &free); err != nil || len(free) != 2 {
		t.Errorf("classes may differ in letters only: %v", err)
	}
}

func FuzzSnapshotReader(f *testing.F) {
	f.Add([]byte(contractSnapshot))
	f.Add([]byte(snapshotLine(`{"id":"a","state":"ready","weight":0.5},{"id":"b","state":"failed","weight":0.5}`)))
	f.Add([]byte("[]\n{}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := NewSnapshotReader("f", strings.NewReader(string(data)))
		for {
			s, err := r.Next()
			if err != nil {
				var user *quell.UserError
				if !errors.Is(err, io.EOF) && !errors.As(err, &user) {
					t.Fatalf("neither the end nor a user's mistake: %v", err)
				}
				return
			}
			if _, err := json.Marshal(s); err != nil {
				t.Fatalf("an accepted snapshot cannot be written: %v", err)
			}
		}
	})
}
