package scenario

import (
	"maps"
	"strings"
	"testing"
	"time"
)

// withTimeline parses a scenario with this timeline.
func withTimeline(timeline string) (*Scenario, error) {
	return Parse("own.yaml", []byte(`
scenario: own
duration: 60s
service: {slo: {metric: p90, threshold: 30ms}}
hosts: [{id: h, count: 2, network: 50Mbps}]
workload: {kind: file, size: 50KB, load: 0.5}
timeline: [`+timeline+`]
`))
}

func TestPrograms(t *testing.T) {
	sc, err := withTimeline(`{at: 5s, interfere: {host: h1, program: sort}}, {at: 10s, interfere: {host: h, program: compile, use: 50%}},
  {at: 10s, interfere: {host: h1, resource: cpu, use: 0.3}}, {at: 20s, interfere: {host: h1, program: sort, use: 0}}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		host string
		at   time.Duration
		want map[Program]float64
	}{
		{"h1", 0, nil}, {"h1", 5 * time.Second, map[Program]float64{"sort": 1}}, {"h2", 5 * time.Second, nil},
		{"h1", 10 * time.Second, map[Program]float64{"sort": 1, "compile": 0.5}}, {"h2", time.Minute, map[Program]float64{"compile": 0.5}},
		{"h1", 20 * time.Second, map[Program]float64{"compile": 0.5}},
	} {
		if got := sc.ProgramsAt(c.host, c.at); !maps.Equal(got, c.want) {
			t.Errorf("%s at %v: %v, want %v", c.host, c.at, got, c.want)
		}
	}
	if uses := sc.InterferenceAt("h1", 15*time.Second); len(uses) != 1 || uses["cpu"] != 0.3 {
		t.Errorf("programs count as use of a resource: %v", uses)
	}
	if list := sc.Programs(); len(list) != 2 || list[0] != "sort" {
		t.Errorf("programs %v", list)
	}
}

func TestProgramMistakes(t *testing.T) {
	for interfere, want := range map[string]string{
		"program: tetris":                             "timeline[0].interfere.program",
		"use: 1":                                      "needs either resource or program",
		"program: sort, resource: cpu, use: 1":        "needs either resource or program",
		"program: sort, on: 1s, off: 1s, use: 1":      "interfere.on: goes with a resource only",
		"program: sort, markov: [{use: 0, stay: 1s}]": "interfere.markov: goes with a resource only",
		"resource: cpu":                               "interfere.use is missing",
		"program: sort, use: 2":                       "must be between 0",
		"program: sort}}, {at: 1s, interfere: {host: h, program: sort, use: 0": "is set twice",
	} {
		timeline := "{at: 1s, interfere: {host: h1, " + interfere + "}}"
		if _, err := withTimeline(timeline); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", timeline, err, want)
		}
	}
}
