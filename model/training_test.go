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

const trainingExample = `{"resource":"network","level":0.3,"interfering":0.21,"utilization":0.298,"request_rate":71,"latency_ms":{"mean":48.1,"p90":81,"n":710},"probe_ms":{"mean":17.9,"stddev":2.1,"n":40},"by":{"bytes":125000,"count":8,"period_s":10,"from":"training"},"cpu":{"user":0.1,"system":0.02,"iowait":0,"steal":0},"class_rates":{"HomePage":50},"observation":{"at":"2026-01-01T00:00:10Z","window_s":10,"request_rate":71,"utilization":{"network":0.298,"cpu":0.12},"tcp":{"connect_ms_p90":0.4}}}

{"resource":"network","level":0.3,"interfering":0,"utilization":0.3,"request_rate":70,"probe_ms":{"mean":12,"stddev":1,"n":40},"interfering_level":0,"interval":0.04,"converged":true,"seed":18446744073709551615,"duration_s":30,"requests":2100,"errors":0}
`

func TestReadTraining(t *testing.T) {
	rows, err := ReadTraining(strings.NewReader(trainingExample), "line ")
	if err != nil {
		t.Fatal(err)
	}
	ms, p90, zero, interval, yes, rate := 48.1, 81.0, 0.0, 0.04, true, 71.0
	want := []TrainingRow{
		{Resource: quell.Network, Level: 0.3, Interfering: 0.21, Utilization: 0.298, RequestRate: 71,
			LatencyMS: quell.Latency{Mean: &ms, P90: &p90, N: 710}, ProbeMS: ProbeRun{17.9, 2.1, 40},
			By:  &quell.Probing{Bytes: 125_000, Count: 8, PeriodS: 10, From: "training"},
			CPU: &quell.CPUTime{User: 0.1, System: 0.02, IOWait: new(0.0)}, ClassRates: map[string]float64{"HomePage": 50},
			Observation: &quell.Observation{
				At: time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC), WindowS: 10, RequestRate: &rate,
				Utilization: map[quell.Resource]float64{quell.Network: 0.298, quell.CPU: 0.12}, TCP: map[string]float64{"connect_ms_p90": 0.4},
			}},
		{Resource: quell.Network, Level: 0.3, Utilization: 0.3, RequestRate: 70, ProbeMS: ProbeRun{12, 1, 40},
			InterferingLevel: &zero, Interval: &interval, Converged: &yes, Seed: 1<<64 - 1, DurationS: 30, Requests: 2100},
	}
	if !reflect.DeepEqual(rows, want) {
		t.Errorf("got  %+v\nwant %+v", rows, want)
	}
	var b bytes.Buffer
	for _, row := range rows {
		if err := json.NewEncoder(&b).Encode(row); err != nil {
			t.Fatal(err)
		}
	}
	if again, err := ReadTraining(&b, "line "); err != nil || !reflect.DeepEqual(again, rows) {
		t.Errorf("written and read again: %+v, %v", again, err)
	}
}

func TestReadTrainingRefuses(t *testing.T) {
	good := strings.SplitN(trainingExample, "\n", 2)[0]
	change := func(old, new string) string { return "\n" + good + "\n" + strings.Replace(good, old, new, 1) }
	for _, c := range []struct{ why, text, want string }{
		{"nothing", "\n\n", "line 1: no training rows"},
		{"broken JSON", good + "\n{", "line 2: not JSON: unexpected end of JSON input"},
		{"two values on a line", good + good, "line 1: not JSON: invalid character '{' after"},
		{"an array", "[]", "line 1: must be an object"},
		{"an unknown field", change(`"level"`, `"stopped":1,"level"`), `line 3: unknown field "stopped"`},
		{"a field twice", change(`"level"`, `"level":0.2,"level"`), `line 3: level: is given twice`},
		{"a missing field", change(`"request_rate":71,`, ``), `line 3: request_rate: is missing`},
		{"a missing spread", change(`"stddev":2.1,`, ``), `line 3: probe_ms.stddev: is missing`},
		{"text for a number", change(`:71`, `:"71"`), `line 3: request_rate: is a string, must be a float64`},
		{"an unknown resource", change(`network`, `gpu`), `line 3: unknown resource "gpu"`},
		{"no resource", change(`"network"`, `""`), `line 3: unknown resource ""`},
		{"a level above 1", change(`"level":0.3`, `"level":30`), `line 3: level: 30 is outside 0 to 1`},
		{"a utilisation above 1", change(`0.298`, `1.298`), `line 3: utilization: 1.298 is outside 0 to 1`},
		{"negative interference", change(`0.21`, `-0.21`), `line 3: interfering: -0.21 is outside 0 to 1`},
		{"a negative rate", change(`71`, `-71`), `line 3: request_rate: -71 is outside`},
		{"a negative latency", change(`48.1`, `-48.1`), `line 3: latency_ms.mean: -48.1 is outside`},
		{"no probe time", change(`17.9`, `0`), `line 3: probe_ms.mean: 0 is outside`},
		{"no probes", change(`"n":40`, `"n":0`), `line 3: probe_ms.n: 0 is below 1`},
		{"a probing of nothing", change(`125000`, `0`), `line 3: by.bytes: 0 is no size of a probe`},
		{"an impossible observation", change(`"cpu":0.12`, `"cpu":12`), `line 3: observation.utilization.cpu: 12 is more than 2`},
		{"an unknown reading", change(`"window_s"`, `"mood":1,"window_s"`), `line 3: unknown field "mood"`},
	} {
		t.Run(c.why, func(t *testing.T) {
			_, err := ReadTraining(strings.NewReader(c.text), "line ")
			var user *quell.UserError
			if err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, &user) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func FuzzReadTraining(f *testing.F) {
	f.Add([]byte(trainingExample))
	f.Fuzz(func(t *testing.T, text []byte) {
		rows, err := ReadTraining(bytes.NewReader(text), "line ")
		if err != nil {
			return
		}
		m, _, err := Fit(rows, FitOptions{Service: "video", Metric: quell.Mean})
		if err != nil {
			return
		}
		if err := m.Encode(&bytes.Buffer{}); err != nil {
			t.Fatalf("fitted but not written: %v", err)
		}
	})
}
