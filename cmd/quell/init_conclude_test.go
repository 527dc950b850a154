package main

import (
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agentless"
)

// The conclusion gives the all-clear only for servers that were judged, and never beside a row that says otherwise.
func TestConclude(t *testing.T) {
	ms := func(v float64) *quell.ProbeStats { return &quell.ProbeStats{N: 10, MeanMS: v, StddevMS: v / 10} }
	dead := agentless.Sample{Failed: "dial tcp 10.0.0.1:80: connect: connection refused"}
	well := agentless.Sample{ConnectMS: ms(1), ProbeMS: ms(2)}
	const clear = "is slowed by something beside"
	for name, c := range map[string]struct {
		samples []agentless.Sample
		slow    bool
		want    string
		err     string
	}{
		"all dead": {samples: []agentless.Sample{dead, dead},
			want: "a: not known: dial tcp", err: "2 of 2 server(s) could not be judged: connection refused (2)"},
		"one dead": {samples: []agentless.Sample{well, well, well, dead},
			want: "None of the 3 judged server(s) " + clear + " its requests.\n1 of 4 server(s) could not be judged: connection refused (1)."},
		"all well": {samples: []agentless.Sample{well, well, well}, want: "No server " + clear},
		"slow requests": {samples: []agentless.Sample{well, well, well}, slow: true,
			want: "1 of 3 server(s) answer requests more slowly than usual; why cannot be told from here."},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range c.samples {
				c.samples[i].ID = string(rune('a' + i))
			}
			findings, _ := agentless.Judge(agentless.Memory{}, time.Unix(0, 0), c.samples, 0)
			findings[0].Slow = c.slow
			var out strings.Builder
			err := conclude(&out, findings)
			if (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
				t.Errorf("the error is %v", err)
			}
			if !strings.Contains(out.String(), c.want) {
				t.Errorf("no %q:\n%s", c.want, &out)
			}
			if (c.err != "" || c.slow) && strings.Contains(out.String(), clear) {
				t.Errorf("an all-clear:\n%s", &out)
			}
		})
	}
}

// Servers that were slowed for a while are named at the end, too.
func TestEarlierWindowsAreTold(t *testing.T) {
	var out strings.Builder
	findings := []agentless.Finding{{ID: "a", Slowed: true}, {ID: "b"}, {ID: "c"}}
	if err := earlier(&out, findings, map[string]int{"a": 3, "b": 2}, 14); err != nil || out.String() !=
		"\nslowed earlier in this look, and no longer:\n  b in 2 of 14 windows\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	out.Reset()
	if err := earlier(&out, findings, map[string]int{"a": 3}, 14); err != nil || out.Len() > 0 {
		t.Errorf("%q, %v", out.String(), err)
	}
}
