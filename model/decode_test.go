package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// contractExample has the documented shape.
const contractExample = `{"format":"quell-models/1",
 "trained":{"at":"2026-01-01T00:00:00Z","service":"video","instance_type":"t3.medium","metric":"mean","rows":216,"per_request":{"network":0.0042}},
 "isolation":{"network":[{"utilization":0.1,"probe_ms":10.2,"stddev_ms":0.4,"n":40,"runs":5}]},
 "response_time":{"network":[{"utilization":0.1,"severity":0.0,"latency_ms":{"mean":18,"p90":31},"runs":5}]},
 "interference":{"network":[{"utilization":0.1,"interfering":0.3,"severity":0.42,"runs":5}]},
 "dial":{"peak_rate":1000,"queueing":{"network":[1,2,3]}},
 "mrburst":{}, "acs":{"discount":0.9}}
`

func TestDecodeTheContractsExample(t *testing.T) {
	got, err := Decode([]byte(contractExample), "line ")
	if err != nil {
		t.Fatal(err)
	}
	ms, p90 := 18.0, 31.0
	want := &Models{
		Trained: &Trained{At: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Service: "video", InstanceType: "t3.medium",
			Metric: quell.Mean, Rows: 216, PerRequest: map[quell.Resource]float64{quell.Network: 0.0042}},
		Sections: []Section{&Prima{
			Isolation: map[quell.Resource][]Isolation{quell.Network: {{Utilization: 0.1, ProbeMS: 10.2, StddevMS: 0.4, N: 40, Runs: 5}}},
			ResponseTime: map[quell.Resource][]ResponseTime{quell.Network: {
				{Utilization: 0.1, LatencyMS: quell.Latency{Mean: &ms, P90: &p90}, Runs: 5}}},
			Interference: map[quell.Resource][]Interference{quell.Network: {{0.1, 0.3, 0.42, 5}}},
		}, &Dial{PeakRate: 1000, Queueing: map[quell.Resource]Queueing{quell.Network: {1, 2, 3}}}},
		Kept: map[string]json.RawMessage{
			"mrburst": []byte(`{}`),
			"acs":     []byte(`{"discount":0.9}`),
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestEncodeDecodeRoundTrip(t *testing.T) {
	m := decoded(t, contractExample)
	var first bytes.Buffer
	if err := m.Encode(&first); err != nil {
		t.Fatal(err)
	}
	again := decoded(t, first.String())
	if !reflect.DeepEqual(m, again) {
		t.Errorf("got %+v, want %+v", again, m)
	}
	if lines := strings.Count(first.String(), "\n"); lines != 22 {
		t.Errorf("a row should take a line; the file has %d lines:\n%s", lines, first.String())
	}
}

// An older version can use a newer version's models: it keeps unknown sections, reports them, and writes them again.
func TestUnknownSectionsAreKept(t *testing.T) {
	m := decoded(t, `{"format":"quell-models/1","of tomorrow":{"a":[1,2],"deep":[[[[[[[[[[[[1]]]]]]]]]]]]},"gone":null}`)
	var b bytes.Buffer
	if err := m.Encode(&b); err != nil {
		t.Fatal(err)
	}
	if want := `  "of tomorrow": {"a":[1,2],"deep":[[[[[[[[[[[[1]]]]]]]]]]]]}`; !strings.Contains(b.String(), want) || len(m.Kept) != 1 {
		t.Errorf("kept %s, wrote\n%s", m.Kept, b.String())
	}
	b.Reset()
	if err := Describe(&b, m, ShowOptions{}); err != nil ||
		!strings.Contains(b.String(), `kept, but not known to this version: ["of tomorrow"]`) {
		t.Errorf("%v, described as\n%s", err, b.String())
	}
}

func TestEncodeKeepsEveryRow(t *testing.T) {
	m := byHand()
	var b bytes.Buffer
	if err := m.Encode(&b); err != nil {
		t.Fatal(err)
	}
	if got := decoded(t, b.String()); !reflect.DeepEqual(got, m) {
		t.Errorf("got %+v, want %+v", got, m)
	}
}

func TestDecodeOnlyFormat(t *testing.T) {
	m := decoded(t, `{"format":"quell-models/1","dial":null,"isolation":null}`)
	if !reflect.DeepEqual(m, &Models{}) {
		t.Errorf("got %+v", m)
	}
	var b bytes.Buffer
	if err := m.Encode(&b); err != nil || b.String() != "{\n  \"format\": \"quell-models/1\"\n}\n" {
		t.Errorf("got %q, %v", b.String(), err)
	}
}

// Severity 0 may repeat in a level; any other duplicate is a mistake.
func TestDecodeAllowsRepeatedSeverityZero(t *testing.T) {
	m := decoded(t, `{"format":"quell-models/1","response_time":{"network":[
		{"utilization":0.1,"severity":0,"latency_ms":{"mean":10},"runs":3},
		{"utilization":0.1,"severity":0,"latency_ms":{"mean":14},"runs":1}]}}`)
	s := responseSurface(m.Prima().ResponseTime[quell.Network], quell.Mean)
	if got := s.at(0.1, 0); got != 11 {
		t.Errorf("rows of severity 0 give %v, want 11 by their runs", got)
	}
}

func TestDecodeRefuses(t *testing.T) {
	table := func(section, rows string) string {
		return "{\"format\":\"quell-models/1\",\n\"" + section + "\":{\"network\":[\n" + rows + "]}}"
	}
	for _, c := range []struct{ why, text, want string }{
		{"nothing", ``, `line 1: not a models.json: unexpected end of JSON input`},
		{"an array", `[]`, `line 1: not a models.json: must hold one JSON object`},
		{"null", `null`, `line 1: format: is missing; this file must say "quell-models/1"`},
		{"broken JSON", "{\"format\":\n\n,}", "line 3: not a models.json: invalid character ','"},
		{"two values", `{"format":"quell-models/1"} {}`, "line 1: not a models.json: invalid character '{' after"},
		{"a newer format", `{"format":"quell-models/2"}`, `line 1: format: is "quell-models/2"; this version reads "quell-models/1"`},
		{"a misspelt section", "{\"format\":\"quell-models/1\",\n\"isolaton\":{}}",
			`line 2: isolaton: unknown section, did you mean "isolation"?`},
		{"a section twice", "{\"format\":\"quell-models/1\",\n\"dial\":{},\n\"dial\":{}}", `dial: is given twice`},
		{"an unknown field", table("isolation", `{"utilization":0.1,"probe_ms":10,"stddev_ms":1,"n":40,
			"x":1}`), `line 3: isolation.network[0]: unknown field "x"`},
		{"a field twice", table("isolation", `{"utilization":0.1,"probe_ms":10,"stddev_ms":1,"n":40,
			"n":41}`), `isolation.network[0].n: is given twice`},
		{"a missing field", table("isolation", `{"utilization":0.1,"probe_ms":10,"stddev_ms":1}`), `line 3: isolation.network[0].n: is missing`},
		{"a null field", table("isolation", `{"utilization":0.1,"probe_ms":10,"stddev_ms":1,"n":null}`),
			`line 3: isolation.network[0].n: is missing`},
		{"text for a number", table("isolation", `{"utilization":0.1,
			"probe_ms":"10","stddev_ms":1,"n":40}`), `line 4: isolation.network[0].probe_ms: is a string, must be a float64`},
		{"an infinite number", table("isolation", `{"utilization":0.1,"probe_ms":1e999,"stddev_ms":1,"n":40}`),
			`isolation.network[0].probe_ms: is a number 1e999`},
		{"no table", "{\"format\":\"quell-models/1\",\n\"isolation\":[]}", `line 2: isolation: must map resources to arrays of rows`},
		{"an empty section", "{\"format\":\"quell-models/1\",\n\"isolation\":{}}", `line 2: isolation: is empty`},
		{"an empty table", table("interference", ``), `line 2: interference.network: is empty`},
		{"a row that is no object", table("isolation", `7`), `line 3: isolation.network[0]: must be an object`},
		{"an unknown resource", `{"format":"quell-models/1","isolation":{"gpu":[]}}`,
			`isolation.gpu: unknown resource "gpu" (known: cpu, network, disk, memory)`},
		{"an unknown metric", "{\"format\":\"quell-models/1\",\n\"trained\":{\"metric\":\"p42\"}}", `line 2: trained: unknown metric "p42"`},
		{"too high a utilisation", table("isolation", `{"utilization":1.1,"probe_ms":10,"stddev_ms":1,"n":40}`),
			`line 3: isolation.network[0].utilization: 1.1 is outside 0 to 1`},
		{"a probe that takes no time", table("isolation", `{"utilization":0.1,"probe_ms":0,"stddev_ms":1,"n":40}`),
			`isolation.network[0].probe_ms: 0 is outside`},
		{"a negative spread", table("isolation", `{"utilization":0.1,"probe_ms":1,"stddev_ms":-1,"n":40}`),
			`isolation.network[0].stddev_ms: -1 is outside`},
		{"no probes", table("isolation", `{"utilization":0.1,"probe_ms":1,"stddev_ms":1,"n":0}`), `isolation.network[0].n: 0 is below 1`},
		{"negative runs", table("isolation", `{"utilization":0.1,"probe_ms":1,"stddev_ms":1,"n":1,"runs":-1}`),
			`isolation.network[0].runs: -1 is below 0`},
		{"a negative severity", table("response_time", `{"utilization":0.1,"severity":-0.1,"latency_ms":{"mean":1}}`),
			`response_time.network[0].severity: -0.1 is outside`},
		{"no statistic", table("response_time", `{"utilization":0.1,"severity":0.1,"latency_ms":{"n":4}}`),
			`response_time.network[0].latency_ms: holds no statistic`},
		{"a negative latency", table("response_time", `{"utilization":0.1,"severity":0.1,"latency_ms":{"p90":-1}}`),
			`response_time.network[0].latency_ms.p90: -1 is outside`},
		{"an unknown statistic", table("response_time", `{"utilization":0.1,"severity":0.1,"latency_ms":{"p91":1}}`),
			`response_time.network[0]: unknown field "p91"`},
		{"severity of nothing", table("interference", `{"utilization":0.1,"interfering":0,"severity":0.2}`),
			`interference.network[0].severity: 0.2 without interference`},
		{"an isolation row twice", table("isolation", `{"utilization":0.1,"probe_ms":10,"stddev_ms":1,"n":40},
			{"utilization":0.1,"probe_ms":11,"stddev_ms":1,"n":40}`), `line 4: isolation.network[1]: repeats row [0]`},
		{"a response row twice", table("response_time", `{"utilization":0.1,"severity":1,"latency_ms":{"mean":1}},
			{"utilization":0.1,"severity":1,"latency_ms":{"mean":2}}`), `line 4: response_time.network[1]: repeats row [0]`},
		{"an interference row twice", table("interference", `{"utilization":0.1,"interfering":0.2,"severity":0.2},
			{"utilization":0.1,"interfering":0.2,"severity":0.3}`), `line 4: interference.network[1]: repeats row [0]`},
		{"a use that is not positive", `{"format":"quell-models/1","trained":{"per_request":{"network":0}}}`,
			`trained.per_request.network: 0 is not a positive number`},
	} {
		t.Run(c.why, func(t *testing.T) {
			_, err := Decode([]byte(c.text), "line ")
			var user *quell.UserError
			if err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, &user) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestDecodeReportsEveryMistake(t *testing.T) {
	_, err := Decode([]byte(`{"format":"quell-models/1","isolation":{"network":[
		{"utilization":2,"probe_ms":1,"stddev_ms":1,"n":1},
		{"utilization":0.2,"probe_ms":-1,"stddev_ms":1,"n":1}]}}`), "line ")
	want := "line 2: isolation.network[0].utilization: 2 is outside 0 to 1\nline 3: isolation.network[1].probe_ms: -1 is outside 1e-06 to " +
		"1e+09"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(contractExample))
	f.Add([]byte(`{"format":"quell-models/1","isolation":{"network":[{"utilization":0.1,"probe_ms":1,"stddev_ms":0,"n":1}]}}`))
	f.Add([]byte(`{"format":"quell-models/1","dial":[[[[[[[[[[[[1]]]]]]]]]]]],"trained":{"per_request":{"cpu":1}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := Decode(text, "line ")
		if err != nil {
			var user *quell.UserError
			if !errors.As(err, &user) || err.Error() == "" {
				t.Fatalf("error %v", err)
			}
			return
		}
		var b bytes.Buffer
		if err := m.Encode(&b); err != nil {
			t.Fatalf("read but not written: %v", err)
		}
		if _, err := Decode(b.Bytes(), ""); err != nil {
			t.Fatalf("written but not read: %v", err)
		}
		for _, im := range quell.InterferenceModels {
			p, err := Compile(m, Spec{Resource: quell.Network, Metric: quell.Mean, InterferenceModel: im, Confidence: 0.95})
			if err == nil && !(finite(p.ResponseTime(0.5, 1)) && finite(p.Capacity(0.1, 50)) && finite(p.SeverityAt(0.3, 0.3))) {
				t.Fatal("a prediction is not finite")
			}
		}
	})
}

func decoded(t *testing.T, text string) *Models {
	t.Helper()
	m, err := Decode([]byte(text), "line ")
	if err != nil {
		t.Fatal(err)
	}
	return m
}
