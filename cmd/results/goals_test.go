package main

import (
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/train"
)

// The worst of several figures counts, and a page says of each goal whether it is reached.
func TestGoals(t *testing.T) {
	printed := "BenchmarkPRIMA/1000/out-2 \t 9\t 900000 ns/op\t 7 B/op\nBenchmarkPRIMA/1000/in-2 \t 9\t 2500000 ns/op\t 7 B/op\n" +
		"BenchmarkThroughput/a-2 \t 9\t 8 ns/op\t 23451 req/s\t 7 B/op\nBenchmarkThroughput/b-2 \t 9\t 8 ns/op\t 16000 req/s\n" +
		"BenchmarkLoadedService/T=1s-2 \t 10\t 1103 ns/op\t 1.085 %lost\t 17.98 %lost-max\n" +
		"BenchmarkLoadedService/T=10s-2 \t 10\t 2103 ns/op\t -0.6723 %lost\t 3.164 %lost-max\n" +
		"A whole agent at T=1s, watched for 30s: 1.50% of a core, 17176 kB\n"
	for name, want := range map[string]string{"prima-1000": "2.5 ms, missed", "prima-10000": "not measured",
		"throughput": "16000 requests/s, reached",
		"lost-1s":    "1.08%, missed", "lost-10s": "-0.672%, reached", "agent-1s": "1.5%, missed", "agent-10s": "not measured"} {
		if got, err := goalIn(name, printed); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	f := speedFigures{BinaryBytes: 46e6, Agent: &agentUse{Memory: "3600 kB", Core: 0.006}}
	if got := f.AgentGoal() + "; " + f.BinaryGoal(); got != "3.6 MB, reached; 0.6%, missed; 46 MB, missed" {
		t.Error(got)
	}
}

// The pages whose benchmarks stand on them only say what these figures reach.
func TestGoalsOfThePages(t *testing.T) {
	for page, names := range map[string][]string{"speed.md": {"prima-1000", "prima-10000", "throughput", "added"},
		"resources.md": {"lost-1s", "lost-10s", "agent-1s", "agent-10s"}} {
		text := pageText(t, page)
		for _, name := range names {
			if want, err := goalIn(name, text); err != nil || want == "not measured" || !strings.Contains(text, want) {
				t.Errorf("%s does not say %q of the goal %s (%v)", page, want, name, err)
			}
		}
	}
}

// Cells of a neighbour's own resource are to be felt, and no others; memory's own has no goal.
func TestCrosstalkGoal(t *testing.T) {
	felt := func(cpu, memory int) map[quell.Resource]train.Felt {
		return map[quell.Resource]train.Felt{quell.CPU: {Periods: 40, Significant: cpu}, quell.Memory: {Periods: 40, Significant: memory}}
	}
	c := crosstalkFigures{Resources: []quell.Resource{quell.CPU, quell.Memory}}
	c.Cells = []train.CrosstalkCell{
		{Felt: felt(2, 3)},
		{Neighbour: train.Neighbour{Resource: quell.CPU, Use: 0.4}, Felt: felt(36, 12)},
		{Neighbour: train.Neighbour{Resource: quell.Memory, Use: 0.4}, Felt: felt(0, 0)},
	}
	if got := c.Reached(); got != "3 of 5" {
		t.Error(got)
	}
}

// A verdict says by all seeds what differs, and whether that is a matter of cost.
func TestDuelVerdicts(t *testing.T) {
	of := func(cost, p99 float64, violations ...float64) (c contender) {
		for _, v := range violations {
			r := &experiment.Record{}
			r.Result.Requests, r.Result.InstanceSeconds, r.Result.SLO.ViolationS, r.Result.LatencyMS.P99 = 1000, cost, v, &p99
			r.Result.SLO.RequestsOver = int64(10 * v)
			c.plays = append(c.plays, r)
		}
		return c
	}
	overs := func(c contender, overs ...int64) contender {
		for i, n := range overs {
			c.plays[i].Result.SLO.RequestsOver = n
		}
		return c
	}
	for _, c := range []struct {
		it, rival contender
		want      string
	}{
		{of(100, 9, 5, 10), of(100, 9, 15, 20), "clearly better"},
		{of(110, 9, 5, 10), of(100, 9, 15, 20), "better in both, and dearer"},
		{of(100, 9, 15, 20), of(100, 9, 5, 10), "clearly worse"},
		{of(100, 9, 15, 20), of(110, 9, 5, 10), "worse in both, and cheaper"},
		{of(100, 9, 5, 15), of(100, 9, 10, 20), "no clear difference"},
		{of(100, 20, 5, 15), of(100, 9, 10, 20), "no clear difference; p99 longer"},
		{overs(of(100, 9, 5, 10), 70, 80), overs(of(100, 20, 15, 20), 75, 80), "better in one of the two; p99 shorter"},
		{overs(of(100, 9, 15, 20), 70, 80), overs(of(100, 9, 5, 10), 75, 80), "worse in one of the two"},
		{overs(of(100, 9, 5, 10), 70, 80), overs(of(100, 9, 15, 20), 5, 6), "better in one of the two, worse in the other"},
	} {
		d := duel{It: c.it, Rival: c.rival}
		if got := d.Verdict() + d.Tail(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
